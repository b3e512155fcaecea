"""Adapters beside a base: against the definition with merged matrices, and base bytes that stay."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexane.errors import FormatError, HexaneError, UnsupportedError, UsageError
from hexane.language import Decoder
from hexane.language.adapters import ADAPTER_FORMS, CONFIG, FILE
from hexane.runtime.queue import RequestQueue
from language import reference

IDS = np.random.default_rng(7).integers(0, 96, 40).tolist()
SIZES = {"self_attn.q": (64, 48), "self_attn.k": (32, 48), "self_attn.v": (32, 48), "self_attn.o": (48, 64),
         "mlp.gate": (64, 48), "mlp.up": (64, 48), "mlp.down": (48, 64)}  # fmt: skip


def adapter(
    path: Path, seed: int, names: tuple[str, ...] = tuple(SIZES), rank: int = 4, **changes: Any
) -> dict[str, Any]:
    """Writes an adapter in PEFT's form; what it adds to the base's tensors, by their names."""
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 6, "bias": "none", "use_rslora": False} | changes
    rng, tensors, added = np.random.default_rng(seed), {}, {}
    scale = config["lora_alpha"] / (rank**0.5 if config["use_rslora"] else rank)
    for layer in range(2):
        for name in names:
            outputs, inputs = SIZES[name]
            sizes = (rank, inputs), (outputs, rank)
            low, high = (rng.standard_normal(size).astype(np.float32) * 0.1 for size in sizes)
            at = f"model.layers.{layer}.{name}_proj"
            tensors[f"base_model.model.{at}.lora_A.weight"], tensors[f"base_model.model.{at}.lora_B.weight"] = low, high
            added[f"{at}.weight"] = scale * high.astype(np.float64) @ low
    path.mkdir(parents=True, exist_ok=True)
    (path / CONFIG).write_text(json.dumps(config))
    (path / FILE).write_bytes(reference.safetensors(tensors))
    return added


def base(path: Path, kind: str = "llama") -> tuple[dict[str, Any], reference.Tensors]:
    config, tensors = reference.model(kind)
    reference.folder(path, config, tensors)
    return config, tensors


def wanted(config: dict[str, Any], tensors: reference.Tensors, added: dict[str, Any]) -> np.ndarray:
    merged = {name: array + added.get(name, 0) for name, array in tensors.items()}
    return reference.logits(config, merged, IDS)


def logits(model: Decoder, level: str) -> np.ndarray:
    run = model.start(64, "M4", level)
    return np.concatenate([run.feed(IDS[:34]), *(run.feed([i]) for i in IDS[34:])])


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("form", ADAPTER_FORMS)
def test_logits_are_those_of_the_definition_with_merged_matrices(form: str, kind: str, tmp_path: Path) -> None:
    config, tensors = base(tmp_path, kind)
    exact = wanted(config, tensors, adapter(tmp_path / "a", 1, use_rslora=kind == "qwen3"))
    model = Decoder.from_pretrained(tmp_path, adapter=tmp_path / "a", adapter_form=form)
    given = logits(model, "float32")
    assert np.abs(given - exact).max() < 2e-5 * np.abs(exact).max()
    assert np.abs(exact - reference.logits(config, tensors, IDS)).max() > 0.1 * np.abs(exact).max()
    engine = logits(model, "graph")
    assert np.sqrt(np.mean((engine - exact) ** 2)) < 0.02 * exact.std()


@pytest.mark.parametrize("form", ["beside", "inputs"])
def test_two_adapters_share_one_base_and_its_bytes_stay(form: str, tmp_path: Path) -> None:
    base(tmp_path)
    for seed, name in enumerate("ab"):
        adapter(tmp_path / name, seed, ("self_attn.q", "mlp.down"))
    first = Decoder.from_pretrained(tmp_path, adapter=tmp_path / "a", adapter_form=form)
    second = first.with_adapter(tmp_path / "b")
    runs = [model.start(32, "M4", "engine") for model in (first, second, first)]
    given = [run.feed(IDS[:3]) for run in runs]
    assert np.array_equal(given[0], given[2]) and not np.array_equal(given[0], given[1])
    for model, mine in ((first, given[0]), (second, given[1])):
        alone = Decoder.from_pretrained(tmp_path, adapter=tmp_path / model.adapter.name, adapter_form=form)
        assert np.array_equal(alone.start(32, "M4", "graph").feed(IDS[:3]), mine)
        merged = alone.with_adapter(model.adapter, "merged").start(32, "M4", "graph").feed(IDS[:3])
        error = np.abs(mine - merged).max(1)
        assert error.max() < 0.05 * merged.std()  # the stated error: two more roundings in fp16
        two = np.sort(merged, axis=1)[:, -2:]
        decided = two[:, 1] - two[:, 0] > 2 * error
        assert decided.any() and np.array_equal(mine.argmax(1)[decided], merged.argmax(1)[decided])
    programs = [run.backend.program(0, run.form(1)) for run in runs]
    if form == "inputs":
        assert programs[0] is programs[1]
        return
    (update,) = runs[1].backend.updates
    assert update.how == "patched" and update.elements >= first.adapter.nbytes // 2
    for one, other in zip(programs[0].images, programs[1].images):
        assert one.text() == other.text() and len(one.const) == len(other.const)
        halves = [np.frombuffer(image.const + image.kernel_section, np.uint16) for image in (one, other)]
        assert 0 < np.count_nonzero(halves[0] != halves[1]) <= first.adapter.nbytes // 2


@pytest.mark.parametrize("swaps", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_swaps_in_the_queue_are_never_torn(swaps: int, tmp_path: Path) -> None:
    """Requests of four threads, each with the adapter that it names; every answer is that adapter's, to the bit."""
    base(tmp_path)
    for seed, name in enumerate("abc"):
        adapter(tmp_path / name, seed, ("mlp.down",))
    first = Decoder.from_pretrained(tmp_path, adapter=tmp_path / "a", adapter_form="beside")
    models = [first, *(first.with_adapter(tmp_path / name) for name in "bc")]
    runs = [model.start(32, "M1", "engine") for model in models]
    sessions = [run.backend.session(0, run.form(1)) for run in runs]
    inputs = {port.name: np.full(port.shape, 0.1, np.float16) for port in sessions[0].program.inputs}

    def answer(which: int) -> np.ndarray:
        session = sessions[which]
        return session.record(inputs, session.program.make_state()).outputs["y"]

    alone = [answer(which) for which in range(3)]
    assert not np.array_equal(alone[0], alone[1]) and not np.array_equal(alone[1], alone[2])
    order = np.random.default_rng(0).integers(0, 3, swaps)
    with RequestQueue() as queue, ThreadPoolExecutor(4) as threads:
        answers = threads.map(lambda which: (which, queue.call(lambda: answer(which)).result()), order)
        assert all(np.array_equal(given, alone[which]) for which, given in answers)
    assert queue.completed == swaps


def test_the_command_says_what_a_swap_costs(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from hexane.cli.main import app
    from hexane.report.schema import check_answer

    base(tmp_path)
    for seed, name in enumerate("ab"):
        adapter(tmp_path / name, seed, ("self_attn.v",))
    folders = ",".join(str(tmp_path / name) for name in "ab")
    call = ["llm", str(tmp_path), "--context", "64", "--ids", "1,2,3", "--tokens", "3", "--adapter", folders]
    result = CliRunner().invoke(app, [*call, "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert not check_answer(answer)
    first, second = answer["adapters"]
    assert [entry["name"] for entry in (first, second)] == ["a", "b"] and first["how"] == second["how"] == "patched"
    assert first["bytes"] == 2 * 2 * 4 * (48 + 32)
    assert second["places_seconds"] < first["places_seconds"] and second["seconds"] > 0
    model = Decoder.from_pretrained(tmp_path, adapter=tmp_path / "b", adapter_form="beside")
    assert second["tokens"] == model.generate([1, 2, 3], 3)
    shown = CliRunner().invoke(app, [*call, "--adapter-form", "inputs"])
    assert shown.exit_code == 0 and "given with every call" in shown.stdout


def test_compressed_bases_leave_the_adapter_alone(tmp_path: Path) -> None:
    base(tmp_path)
    adapter(tmp_path / "a", 1, ("self_attn.v",))
    model = Decoder.from_pretrained(tmp_path, weights="int8", adapter=tmp_path / "a", adapter_form="beside")
    graph = model.graph(0, model.form(1, 32))
    plain = {value.name for value in graph.main.constants() if "_lora_" in value.name}
    assert plain == {f"layer{layer}_v_lora_{half}" for layer in range(2) for half in "AB"}
    assert np.isfinite(model.start(32).feed(IDS[:2])).all()
    assert model.plan("M4", 32).decode_tok_s.value > 0


def test_what_is_no_adapter_of_the_model_is_refused(tmp_path: Path) -> None:
    base(tmp_path)
    model = Decoder.from_pretrained(tmp_path)
    with pytest.raises(UsageError, match="no adapter"):
        model.with_adapter(tmp_path / "none")
    with pytest.raises(UsageError, match="folded"):
        model.with_adapter(None, "folded")
    for change in ({"peft_type": "IA3"}, {"use_dora": True}, {"modules_to_save": ["lm_head"]}, {"bias": "all"}):
        adapter(tmp_path / "a", 0, **change)
        with pytest.raises(UnsupportedError):
            model.with_adapter(tmp_path / "a")
    adapter(tmp_path / "a", 0)
    tensors = {"base_model.model.lm_head.lora_A.weight": np.zeros((4, 48), np.float32)}
    (tmp_path / "a" / FILE).write_bytes(reference.safetensors(tensors))
    with pytest.raises(UnsupportedError, match="lm_head"):
        model.with_adapter(tmp_path / "a")
    at = "model.layers.{}.self_attn.q_proj.lora_{}.weight"
    for wrong in ({at.format(9, "A"): (4, 48)}, {at.format(0, "A"): (4, 48)},
                  {at.format(0, "A"): (4, 40), at.format(0, "B"): (64, 4)}, {}):  # fmt: skip
        data = {name: np.zeros(shape, np.float32) for name, shape in wrong.items()}
        (tmp_path / "a" / FILE).write_bytes(reference.safetensors(data))
        with pytest.raises(FormatError):
            model.with_adapter(tmp_path / "a")
    (tmp_path / "a" / FILE).write_bytes(b"\x08")
    with pytest.raises(HexaneError):
        model.with_adapter(tmp_path / "a")
