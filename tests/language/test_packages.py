"""A decoder as packages with functions and a mutable adapter: tokens of two adapters through the files of one base."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from hexane.cli.main import app
from hexane.errors import UsageError
from hexane.formats.mutable import mutable_constants
from hexane.language import Decoder
from hexane.language.network import best_words, host_inputs
from hexane.language.packages import save_adapter, save_packages
from hexane.report.schema import check_answer
from language import reference
from language.test_adapters import adapter, base

PROMPT, STEPS, CONTEXT = np.random.default_rng(7).integers(0, 96, 16).tolist(), 4, 32
PRODUCTS = ("self_attn.q", "self_attn.v", "mlp.down")


def two(folder: Path) -> list[Decoder]:
    """A model with adapters a and b beside it."""
    base(folder)
    for seed, name in enumerate("ab"):
        adapter(folder / name, seed, PRODUCTS)
    model = Decoder.from_pretrained(folder, prefill_rows=16, adapter=folder / "a", adapter_form="beside")
    return [model, model.with_adapter(folder / "b")]


def tokens(
    model: Decoder, packages: tuple[Path, ...], adapters: tuple[Path | None, ...]
) -> tuple[list[int], list[float]]:
    """Greedy tokens and their logits, all through the written files: prefill of the prompt, then decode, one state."""
    states, programs, feed, answers = {}, {}, PROMPT, []
    for step in range(STEPS):
        function, position = ("prefill", 0) if step == 0 else ("decode", len(PROMPT) + step - 1)
        form = model.form(len(feed), CONTEXT)
        x, inputs = model.embed(feed, position), host_inputs(model.architecture, form, position)
        for number, path in enumerate(packages):
            is_head = number == len(packages) - 1
            key = number, "decode" if is_head else function
            if key not in programs:
                weights = {"adapter.bin": adapters[number]} if adapters[number] else None
                programs[key] = hexane.compile(hexane.load(path, function=key[1], weights=weights), chip="M4")
            program = programs[key]
            values = {**inputs, "x": x[..., -1:] if is_head else x}
            own = {port.name: values[port.name].astype(np.float16) for port in program.inputs}
            states.setdefault(number, program.make_state())
            results = program.run(own, level="graph", state=states[number])
            x = results.get("y")
        (word,), (value,) = best_words(results)
        feed = [int(word)]
        answers.append((int(word), float(value)))
    return [list(part) for part in zip(*answers)]


@pytest.mark.parametrize("suffix", [".mlpackage", ".mil"])
def test_tokens_of_two_adapters_over_one_written_base(suffix: str, tmp_path: Path) -> None:
    models = two(tmp_path)
    packages = save_packages(models[0], tmp_path / "out", CONTEXT, suffix)
    assert [path.parent.name if suffix == ".mil" else path.stem for path in packages] == ["layers_0_to_1", "head"]
    bases = [path.read_bytes() for path in sorted((tmp_path / "out").rglob("weight.bin"))]
    answers = []
    for model in models:
        files = save_adapter(model, packages, tmp_path / f"{model.adapter.name}-files")
        words, values = tokens(model, packages, files)
        beside = model.start(CONTEXT)
        merged = model.with_adapter(model.adapter, "merged").start(CONTEXT)
        logits = [beside.feed(PROMPT)[-1], *(beside.feed([word])[-1] for word in words[:-1])]
        assert words == [int(row.argmax()) for row in logits]  # the decoder's own programs, bit for bit
        assert np.array_equal(np.float32(values), [row.max() for row in logits])
        exact = [merged.feed(PROMPT)[-1], *(merged.feed([word])[-1] for word in words[:-1])]
        for row, right in zip(logits, exact):
            assert np.abs(row - right).max() < 0.05 * right.std()  # the stated error: two more roundings in fp16
        answers.append(words)
    assert answers[0] != answers[1]
    assert bases == [path.read_bytes() for path in sorted((tmp_path / "out").rglob("weight.bin"))]


def test_layers_are_one_program_of_two_functions_with_the_weights_once(tmp_path: Path) -> None:
    model, _ = two(tmp_path)
    layers, _ = save_packages(model, tmp_path / "out", CONTEXT)
    graph = hexane.load(layers)
    assert list(graph.functions) == ["decode", "prefill"] and graph.main.name == "decode"
    assert {name.rsplit("_lora_")[0] for name in mutable_constants(graph)} == {
        f"layer{layer}_{name}" for layer in (0, 1) for name in ("q", "v", "down")
    }
    weights = layers / "Data/com.apple.CoreML/weights"
    own = sum(w.size for w in reference.model("llama")[1].values())
    assert (weights / "weight.bin").stat().st_size < 2 * own + 200 * 128
    assert model.adapter.nbytes <= (weights / "adapter.bin").stat().st_size < model.adapter.nbytes + 30 * 128


def test_the_command_writes_packages_and_a_file_for_each_adapter(tmp_path: Path) -> None:
    two(tmp_path)
    call = ["llm", str(tmp_path), "--context", "32", "--prefill", "16", "--save", str(tmp_path / "out"), "--json"]
    result = CliRunner().invoke(app, [*call, "--adapter", ",".join(str(tmp_path / name) for name in "ab")])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert not check_answer(answer)
    assert [Path(path).name for path in answer["packages"]] == ["layers_0_to_1.mlpackage", "head.mlpackage"]
    first, second = (Path(entry["files"][0]) for entry in answer["adapters"])
    assert first != second and len(first.read_bytes()) == len(second.read_bytes())
    assert first.read_bytes() != second.read_bytes()
    assert answer["adapters"][1]["m5_pro_ms"] == pytest.approx(57.0 + 0.5 * first.stat().st_size / 1e6, abs=0.1)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    model, _ = two(tmp_path)
    with pytest.raises(UsageError, match="cannot be written as"):
        save_packages(model, tmp_path / "out", CONTEXT, ".onnx")
    packages = save_packages(model, tmp_path / "out", CONTEXT)
    with pytest.raises(UsageError, match="no adapter beside"):
        save_adapter(model.with_adapter(model.adapter, "merged"), packages, tmp_path)
    with pytest.raises(UsageError, match="1 packages for"):
        save_adapter(model, packages[:1], tmp_path)
    adapter(tmp_path / "c", 3, ("self_attn.q",))
    with pytest.raises(UsageError, match="nothing for"):
        save_adapter(model.with_adapter(tmp_path / "c"), packages, tmp_path / "c-files")
