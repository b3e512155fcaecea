"""Decoders against their published definitions in float64, and the engine's tasks against the engine's arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.language import Decoder
from language import reference

IDS = np.random.default_rng(7).integers(0, 96, 52).tolist()
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FAMILIES = ("llama", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text", "gpt2")


def decoder(path: Path, kind: str, dtype: str = "F32", **changes: Any) -> tuple[Decoder, np.ndarray]:
    """A small random model, and its logits for IDS by its definition."""
    config, tensors = reference.model(kind, **changes)
    reference.folder(path, config, tensors, dtype)
    return Decoder.from_pretrained(path), reference.logits(config, tensors, IDS)


def stepwise(model: Decoder, ids: list[int], first: int, chip: str = "M4", level: str = "graph") -> np.ndarray:
    """Logits of a prompt of ``first`` tokens and of every token behind it, fed one by one."""
    run = model.start(-(-len(ids) // 32) * 32, chip, level)
    return np.concatenate([run.feed(ids[:first]), *(run.feed([i]) for i in ids[first:])])


@pytest.mark.parametrize("kind", FAMILIES)
def test_logits_of_prefill_and_decode_are_those_of_the_definition(kind: str, tmp_path: Path) -> None:
    model, wanted = decoder(tmp_path, kind)
    given = stepwise(model, IDS, 34, level="float32")
    assert np.abs(given - wanted).max() < 2e-5 * np.abs(wanted).max()
    assert np.array_equal(given.argmax(1), wanted.argmax(1))


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_the_engine_is_near_the_definition(kind: str, tmp_path: Path) -> None:
    model, wanted = decoder(tmp_path, kind)
    given = stepwise(model, IDS[:40], 32)
    assert np.sqrt(np.mean((given - wanted[:40]) ** 2)) < 0.02 * wanted.std()


ON_CHIPS = [("qwen3", "M1"), ("qwen3", "M2"), ("qwen3", "M4"), ("qwen3", "M5"), ("llama", "M4"), ("gemma3_text", "M1"),
            ("gpt2", "M5")]  # fmt: skip


@pytest.mark.parametrize(("kind", "chip"), ON_CHIPS)
def test_the_engine_gives_the_bits_of_the_graph(kind: str, chip: str, tmp_path: Path) -> None:
    """A prompt in one call and 64 steps behind it, the cache in a state that tasks read and write."""
    model, _ = decoder(tmp_path, kind)
    ids = np.random.default_rng(3).integers(0, 96, 96).tolist()
    graph, engine = (stepwise(model, ids, 32, chip, level) for level in ("graph", "engine"))
    assert np.isfinite(engine).all() and np.array_equal(graph, engine)


def test_everything_is_on_the_engine_its_state_too(tmp_path: Path) -> None:
    import hexane
    from hexane.language.network import StepForm

    model, _ = decoder(tmp_path, "qwen3")
    for rows in (1, 32):
        program = hexane.compile(model.graph(0, StepForm(rows, 64)), chip="M4")
        assert not program.stats()["host_ops"] and list(program.state_results) == ["cache"]
        assert [segment.kind for segment in program.segments] == ["engine"]


def test_several_rows_at_any_position_are_rows_one_by_one(tmp_path: Path) -> None:
    model, wanted = decoder(tmp_path, "llama")
    run = model.start(64, level="float32")
    given = np.concatenate([run.step(IDS[:1]), run.step(IDS[1:6]), run.step(IDS[6:14])])
    assert np.abs(given - wanted[:14]).max() < 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_narrow_weights_and_several_files(dtype: str, tmp_path: Path) -> None:
    config, tensors = reference.model("llama")
    narrow = {name: a.astype(np.float16).astype(np.float32) for name, a in tensors.items()}
    if dtype == "BF16":
        narrow = {name: (a.view("<u4") & 0xFFFF0000).view("<f4") for name, a in tensors.items()}
    reference.folder(tmp_path, config, tensors, dtype, shards=3)
    wanted = reference.logits(config, narrow, IDS[:5])
    given = stepwise(Decoder.from_pretrained(tmp_path), IDS[:5], 5, level="float32")
    assert np.abs(given - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_tokens_follow_the_logits_and_the_seed(tmp_path: Path) -> None:
    model, _ = decoder(tmp_path, "llama")
    config, tensors = reference.model("llama")
    ids, wanted = IDS[:3], []
    for _ in range(4):
        wanted.append(int(reference.logits(config, tensors, [*ids, *wanted])[-1].argmax()))
    assert model.generate(ids, 4, level="float32") == wanted
    drawn = [model.generate(ids, 6, level="float32", seed=seed, temperature=2.0, top_k=20) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert model.generate(ids, 4, level="float32", temperature=3.0, top_k=1) == wanted
    assert model.generate(ids, 4, level="float32", temperature=3.0, top_p=1e-9) == wanted


def test_compressed_weights_change_the_answer_a_little(tmp_path: Path) -> None:
    decoder(tmp_path, "llama")
    plain, narrow = (stepwise(Decoder.from_pretrained(tmp_path, weights=w), IDS[:3], 3) for w in ("fp16", "int8"))
    assert 0 < np.abs(plain - narrow).max() < 0.1 * np.abs(plain).max()


def test_what_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    config, tensors = reference.model("llama")
    reference.folder(tmp_path, config | {"model_type": "mamba"}, tensors)
    with pytest.raises(UnsupportedError, match="mamba") as error:
        Decoder.from_pretrained(tmp_path)
    assert "llama" in str(error.value.hint) and "gpt2" in str(error.value.hint)
    yarn = {"rope_type": "yarn", "factor": 4.0}
    for change in ({"rope_scaling": yarn}, {"hidden_act": "xielu"}, {"num_attention_heads": -1}, {"head_dim": None,
                   "hidden_size": 2.5}, {"num_key_value_heads": 3}, {"rms_norm_eps": "small"}, {"vocab_size": 97},
                   {"rope_scaling": LLAMA3}):  # fmt: skip
        reference.folder(tmp_path, config | change, tensors)
        with pytest.raises(HexaneError):
            Decoder.from_pretrained(tmp_path).generate([1], 1, level="float32")


def test_questions_that_make_no_sense(tmp_path: Path) -> None:
    model, _ = decoder(tmp_path, "llama")
    wrong: list[tuple[list[int], int, dict[str, Any]]] = [
        ([], 1, {}), ([96], 1, {}), ([1], -1, {}), ([1], 300, {}), ([1], 1, {"level": "fast"}),
        ([1], 1, {"context": 33}), ([1], 1, {"temperature": -1.0}), ([1], 1, {"chip": "M99"}),
    ]  # fmt: skip
    for ids, n, more in wrong:
        with pytest.raises(UsageError):
            model.generate(ids, n, **more)
    with pytest.raises(UsageError):
        Decoder.from_pretrained(tmp_path / "nothing")
