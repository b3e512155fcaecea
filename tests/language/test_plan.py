"""Plans of decoders: programs, places, rates, the range of the residual stream, and the command that prints them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from hexane.chips.measured import values
from hexane.cli.main import app
from hexane.errors import UsageError
from hexane.graph import GraphBuilder
from hexane.language import Decoder
from hexane.language.chunks import chunks_of
from hexane.language.evaluation import evaluate_text
from hexane.language.layer_errors import first_to_differ, layer_errors
from hexane.language.network import PIECE, host_inputs
from hexane.language.residual import residual_peaks, scale_of
from hexane.numerics import evaluate
from hexane.timing.language import decode_rate, decoding, token_energy
from language import reference

IDS = np.random.default_rng(7).integers(0, 96, 35).tolist()


def loud(path: Path, factor: float, kind: str = "llama") -> tuple[Decoder, dict[str, Any], reference.Tensors]:
    """A model whose residual stream grows ``factor`` times as large; no norm sees it."""
    config, tensors = reference.model(kind, rms_norm_eps=1e-12)
    for name in tensors:
        if name.endswith(("embed_tokens.weight", "o_proj.weight", "down_proj.weight")):
            tensors[name] = tensors[name] * np.float32(factor)
    reference.folder(path, config, tensors)
    return Decoder.from_pretrained(path), config, tensors


def test_peaks_are_those_of_the_definition(tmp_path: Path) -> None:
    model, config, tensors = loud(tmp_path, 1.0)
    _, streams = reference.llama_logits(config, tensors, IDS)
    peaks = residual_peaks(model, IDS)
    assert [peak.stream for peak in peaks] == pytest.approx([np.abs(stream).max() for stream in streams], rel=1e-5)
    added = [np.abs(after - before).max() for before, after in pairwise(streams)]
    assert [peak.change for peak in peaks[1:]] == pytest.approx(added, rel=1e-4)


def test_a_stream_beyond_fp16_is_wrong_without_the_scale_and_right_with_it(tmp_path: Path) -> None:
    model, config, tensors = loud(tmp_path, 8192.0)
    wanted = reference.logits(config, tensors, IDS)[-1]
    peaks = residual_peaks(model, IDS)
    scale = scale_of(peaks, norms_behind=False)
    largest = max(peak.stream for peak in peaks)
    assert largest > 65504 >= largest * scale and scale == model.plan("M4", 64, IDS).scale
    assert max(peak.change for peak in peaks) * scale <= 32768
    error = {}
    for factor in (1.0, scale, scale / 4):
        given = model.with_scale(factor).start(64).feed(IDS)[-1]
        error[factor] = np.abs(given - wanted).max() / np.abs(wanted).max()
    assert error[1.0] > 0.3 or not np.isfinite(error[1.0])
    assert error[scale] < 0.03 and error[scale / 4] < 0.03
    exact = model.with_scale(scale).start(64, level="float32").feed(IDS)[-1]
    assert np.abs(exact - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_the_scale_is_a_power_of_two_and_no_smaller_than_needed(tmp_path: Path) -> None:
    model, _, _ = loud(tmp_path, 8192.0, "gemma3_text")
    peaks = residual_peaks(model, IDS)
    scale = scale_of(peaks, norms_behind=True)
    assert np.log2(scale) % 1 == 0 and max(p.stream for p in peaks) * scale * 2 > 65504
    for wrong in (0.3, 2.0, 0.0, -0.5):
        with pytest.raises(UsageError):
            model.with_scale(wrong).generate([1], 1)


def test_chunks_hold_every_layer_once_and_stay_below_the_limit(tmp_path: Path) -> None:
    model, _, _ = loud(tmp_path, 1.0)
    layer = chunks_of(model.architecture, "fp16")[0].weight_bytes // 2
    chunks = chunks_of(model.architecture, "fp16", layer)
    assert [chunk.layers for chunk in chunks] == [(0,), (1,), ()] and chunks[0].weight_bytes == layer
    assert chunks_of(model.architecture, "palette4")[0].weight_bytes < layer
    two = Decoder(model.architecture, model.checkpoint)
    two.__dict__["chunks"] = chunks
    assert np.array_equal(two.start(64).feed(IDS), model.start(64).feed(IDS))


def test_a_plan_names_programs_places_rates_and_range(tmp_path: Path) -> None:
    model, _, _ = loud(tmp_path, 1.0, "gemma3_text")
    plan = model.plan("M4", 128)
    plain = plan.as_dict()
    layers, head = plain["chunks"]
    assert layers["layers"] == (0, 1, 2, 3) and head["layers"] == ()
    assert layers["state_bytes"] == 2 * 2 * 4 * 2 * 16 * 128 and layers["functions"] == {"decode": 1, "prefill": 32}
    rate = decode_rate("M4", plan.parameters / 1e9, "fp16", 128)
    assert (plan.decode_tok_s.value, plan.decode_tok_s.low, plan.decode_tok_s.high) == rate
    assert plan.prefill_tok_s.low < plan.prefill_tok_s.value < plan.prefill_tok_s.high
    decode = [place for place in plan.places if place.function == "decode" and place.program == "layers"]
    counts = {place.op: place.count for place in decode}
    assert counts["conv"] == 4 * 7 and counts["read_state"] == counts["write_state"] == 1
    assert {place.hexane for place in plan.places} == {"engine"}
    assert {place.apple for place in plan.places} == {"engine"}
    assert "N9" in {entry.rule for entry in plan.warnings}
    with pytest.raises(UsageError):
        model.plan("M4", 512)


@pytest.mark.parametrize("layers", [2, 60])
def test_places_of_a_plan_are_those_of_the_whole_program(layers: int, tmp_path: Path) -> None:
    config, tensors = reference.model("llama", num_hidden_layers=layers, hidden_size=16, intermediate_size=16,
                                      vocab_size=32, num_attention_heads=1, num_key_value_heads=1)  # fmt: skip
    model = Decoder.from_pretrained(reference.folder(tmp_path, config, tensors))
    program = hexane.compile(model.graph(0, model.form(1, 32)), chip="M4")
    plan = model.plan("M4", 32, [1, 2, 3])
    here = [place for place in plan.places if place.program == "layers" and place.function == "decode"]
    assert {place.hexane for place in here} == {"engine"} and not program.stats()["host_ops"]
    assert program.stats()["engine_segments"] > 1 or layers == 2
    assert sum(place.count for place in here if place.op == "concat") == layers * 4 + 1


def test_writes_of_the_cache_are_priced_by_their_form(tmp_path: Path) -> None:
    """The bytes of the host are a read and a write of one layer's cache; only a place of run time is the host's."""
    loud(tmp_path, 1.0)
    plan = Decoder.from_pretrained(tmp_path).plan("M4", 128)
    mask, run_time, constant, shift = plan.cache_writes
    assert run_time.place == "host" and {w.place for w in (mask, constant, shift)} == {"engine"}
    assert [w.host_bytes for w in plan.cache_writes] == [0, 2 * 2 * (2 * 2) * 128 * 16, 0, 0]
    assert constant.programs == 128 and constant.us < min(mask.us, shift.us) and "C14" in shift.note


def test_divided_gates_are_nearer_to_float32(tmp_path: Path) -> None:
    config, tensors = reference.model("llama", num_hidden_layers=4)
    reference.folder(tmp_path, config, tensors)
    wanted, error = reference.logits(config, tensors, IDS), {}
    for divided in (False, True):
        model = Decoder.from_pretrained(tmp_path, divided_gates=divided)
        error[divided] = np.sqrt(np.mean((model.start(64).feed(IDS) - wanted) ** 2)) / wanted.std()
    assert error[True] < 0.7 * error[False]


def test_scores_of_a_text_beside_float32(tmp_path: Path) -> None:
    model, config, tensors = loud(tmp_path, 1.0)
    scores = evaluate_text(model, IDS)
    logits = reference.logits(config, tensors, IDS)[:-1]
    shares = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    wanted = np.exp(-shares[np.arange(34), IDS[1:]].mean())
    assert scores.perplexity_float32 == pytest.approx(wanted, rel=1e-4)
    assert scores.perplexity == pytest.approx(wanted, rel=0.05) and 0 <= scores.divergence < 0.01
    assert scores.contained["1"] <= scores.contained["3"] <= scores.contained["5"] == 1.0
    assert scores.tokens == 34 and 0 < scores.error < 0.1 * np.abs(logits).max()


def test_scores_of_a_text_by_hand() -> None:
    """Two tokens predicted from logits of four words; those behind the last token count nowhere."""
    logits = {
        "graph": np.array([[3.0, 1, 0, 0], [2, 1, 0, 0], [90, 0, 0, 0]], np.float32),
        "float32": np.array([[4.0, 1, 0, 0], [0, 2, 0, 0], [0, 0, 0, 90]], np.float32),
    }
    model: Any = SimpleNamespace(
        checked=list,
        context_for=lambda count: count,
        start=lambda context, chip, level: SimpleNamespace(feed=lambda tokens: logits[level]),
    )
    scores = evaluate_text(model, [3, 1, 0])
    ours, exact = (
        [[np.exp(value) / sum(map(np.exp, row)) for value in row] for row in logits[level][:2].astype(float)]
        for level in ("graph", "float32")
    )
    assert scores.perplexity == pytest.approx((ours[0][1] * ours[1][0]) ** -0.5)
    assert scores.perplexity_float32 == pytest.approx((exact[0][1] * exact[1][0]) ** -0.5)
    pairs = [pair for rows in zip(exact, ours) for pair in zip(*rows)]
    assert scores.divergence == pytest.approx(sum(p * np.log(p / q) for p, q in pairs) / 2)
    assert scores.contained == {"1": 0.5, "3": 1.0, "5": 1.0}, "the second word's first choice is the engine's second"
    assert (scores.tokens, scores.error) == (2, 2.0)
    assert scores.decided == 0.5, "3 apart and off by 1; 2 apart and off by 2"


def test_the_command_gives_the_names_that_programs_read(tmp_path: Path) -> None:
    loud(tmp_path, 8192.0)
    (tmp_path / "ids.txt").write_text("1, 2 3\n4 5")
    call = ["llm", str(tmp_path), "--chip", "M4,M6", "--context", "64,128", "--ids", "1,2,3", "--tokens", "3", "--json"]
    result = CliRunner().invoke(app, [*call, "--eval", str(tmp_path / "ids.txt")])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    for name in ("chunks", "decode_tok_s", "prefill_tok_s", "places", "residual_peak", "scale"):
        assert answer[name], name
    assert [(plan["chip"], plan["context"]) for plan in answer["plans"]] == [
        ("M4", 64), ("M4", 128), ("M6", 64), ("M6", 128)
    ]  # fmt: skip
    assert answer["scale"] < 1 and len(answer["tokens"]) == 3 and answer["scores"]["tokens"] == 4
    model = Decoder.from_pretrained(tmp_path, scale=answer["scale"])
    assert model.generate([1, 2, 3], 3) == answer["tokens"]
    shown = CliRunner().invoke(app, ["llm", str(tmp_path), "--context", "64"])
    assert shown.exit_code == 0 and "write_state" in shown.stdout and "scale 0." in shown.stdout


def test_errors_by_layer_are_those_of_the_definition_and_name_the_first_that_differs(tmp_path: Path) -> None:
    model, config, tensors = loud(tmp_path, 1.0)
    _, streams = reference.llama_logits(config, tensors, IDS[:32])
    errors = layer_errors(model, IDS[:32], "M4")
    assert [(e.layer, e.half) for e in errors] == [(n, half) for n in (0, 1) for half in ("attention", "feed")]
    form = model.form(32, 32)
    given = {name: np.asarray(array, np.float16) for name, array in host_inputs(model.architecture, form, 0).items()}
    graph = model.graph(0, form)
    inputs = {v.name: given[v.name] for v in graph.main.inputs if v.name in given}
    cache = np.zeros((1, 8, 16, 32), np.float16)
    x = model.embed(IDS[:32]).astype(np.float16)
    ours = np.float64(evaluate(graph, {**inputs, "x": x, "cache": cache}, "M4")["y"])[0, :, 0].T
    wanted = np.sqrt(np.mean((ours - streams[-1]) ** 2) / np.mean(streams[-1] ** 2))
    assert errors[-1].stream == pytest.approx(wanted, rel=1e-3) and 1e-4 < wanted < 0.01
    assert errors[0].stream == errors[0].alone and first_to_differ(errors) is None
    worse = layer_errors(replace(model, weights="int4", _graphs={}), IDS[:32], "M4")
    assert first_to_differ(worse) == worse[0] and worse[0].stream > 10 * errors[0].stream
    broken, _, _ = loud(tmp_path / "loud", 8192.0)
    first = first_to_differ(layer_errors(broken, IDS[:32], "M4"))
    scaled = layer_errors(broken.with_scale(broken.plan("M4", 64, IDS).scale), IDS[:32], "M4")
    assert first is not None and not first.stream < 0.3 and max(error.stream for error in scaled) < 0.01


def test_energy_of_a_token_is_that_of_its_products() -> None:
    """A product of 4,096 by 4,096, whose energy ``estimate`` counts by its tasks."""
    b = GraphBuilder()
    weight = np.random.default_rng(0).standard_normal((4096, 4096, 1, 1)).astype(np.float16)
    b.output(b.conv(x=b.input("x", (1, 4096, 1, 1), "fp16"), weight=weight))
    for chip in ("M1", "M4"):
        estimate, idle = hexane.estimate(b.graph, chip), values(chip)["idle_w"]
        work = estimate.energy_mj - idle * (estimate.latency_us - estimate.parts.host_us) * 1e-3
        value, low, high = token_energy(chip, 4096**2, "fp16", 0)
        assert value - 1e3 * idle / decode_rate(chip, 4096**2, "fp16", 0)[0] == pytest.approx(work, rel=0.05)
        assert low < value < high
        assert token_energy(chip, 1.0, "int8", 1024)[0] < token_energy(chip, 1.0, "fp16", 1024)[0]
        assert token_energy(chip, 1.0, "fp16", 1024, 64)[0] < token_energy(chip, 1.0, "fp16", 1024)[0]


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_energy_of_a_context_is_that_of_its_attention(chip: str) -> None:
    """Eight heads of 128 as long as all layers together, four queries each: what ``estimate`` counts of the graph."""
    size, context = 4096**2, 512
    tokens = round(decoding(chip, size, "fp16", context, 1).cache_bytes / (2 * 2 * 8 * 128))
    b = GraphBuilder()
    q = b.input("q", (1, 8, 4, 128), "fp16")
    k, v = (b.input(name, (1, 8, tokens, 128), "fp16") for name in "kv")
    b.output(b.matmul(x=b.matmul(x=q, y=k, transpose_y=True), y=v))
    estimate, idle = hexane.estimate(b.graph, chip), values(chip)["idle_w"]
    work = estimate.energy_mj - idle * (estimate.latency_us - estimate.parts.host_us) * 1e-3

    def of_products(positions: int) -> float:
        return (
            token_energy(chip, size, "fp16", positions)[0] - 1e3 * idle / decode_rate(chip, size, "fp16", positions)[0]
        )

    assert of_products(context) - of_products(0) == pytest.approx(work, rel=0.05)


def test_the_page_has_rates_places_and_accuracy_by_layer(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    loud(tmp_path, 1.0)
    (tmp_path / "ids.txt").write_text("1 2 3 4 5")
    call = ["llm", str(tmp_path), "--chip", "M4,M5", "--context", "64", "--page", str(tmp_path / "page.html"), "--json"]
    result = CliRunner().invoke(app, [*call, "--eval", str(tmp_path / "ids.txt")])
    assert result.exit_code == 0, result.output
    answer, page = json.loads(result.stdout), (tmp_path / "page.html").read_text()
    assert answer["page"] == str(tmp_path / "page.html") and len(answer["layer_errors"]) == 4
    assert page.count("<polygon") == 2 and "layer 1 feed" in page and "write_state" in page
    assert "Accuracy by layer" in page and "src=" not in page and "http" not in page.split("</style>")[1]
    assert f"{answer['decode_mj']['value']:.3g} mJ a token" in page


def test_the_example_runs() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = Path(__file__).parents[2] / "examples" / "language_model.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "layers 0 to 1, head" in done.stdout and "graph: [" in done.stdout


def test_a_head_of_several_pieces_is_on_the_engine(tmp_path: Path) -> None:
    config, tensors = reference.model("llama", vocab_size=PIECE + 100, num_hidden_layers=1)
    model = Decoder.from_pretrained(reference.folder(tmp_path, config, tensors))
    head = [place for place in model.plan("M4", 64).places if place.program == "head"]
    assert {(place.apple, place.hexane) for place in head} == {("engine", "engine")}
    assert {place.op: place.count for place in head}["conv"] == 2
    given = model.start(64, level="float32").feed(IDS[:2])
    wanted = reference.logits(config, tensors, IDS[:2])
    assert given.shape == wanted.shape and np.abs(given - wanted).max() < 2e-5 * np.abs(wanted).max()
