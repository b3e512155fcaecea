"""The character model that was trained: what it says in float32 and on the engine; the example that trained it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hexane.language import Decoder
from hexane.language.evaluation import evaluate_text
from hexane.train import AdamW, Trainer
from language import reference

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXT = "The function returns a new list of the values which are in the sequence, or None if there is an error in it."


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_text_that_it_never_saw_is_predicted_as_well_on_the_engine() -> None:
    import manual

    assert sum(path.stat().st_size for path in manual.FOLDER.iterdir()) < 2e6
    tokens = manual.tokens_of(TEXT)
    scores = {name: evaluate_text(Decoder.from_pretrained(manual.FOLDER, weights=name), tokens)
              for name in ("fp16", "int8", "palette4")}  # fmt: skip
    assert scores["fp16"].perplexity_float32 < 6 < len(manual.LETTERS)  # of 96 characters
    assert scores["fp16"].perplexity == pytest.approx(scores["fp16"].perplexity_float32, rel=2e-3)
    assert scores["fp16"].contained["1"] > 0.98
    divergences = [score.divergence for score in scores.values()]
    assert divergences == sorted(divergences) and divergences[-1] < 0.1


def test_float32_and_engine_write_the_same_characters() -> None:
    import manual

    model, prompt = Decoder.from_pretrained(manual.FOLDER), manual.tokens_of("The statement ")
    texts = {level: model.generate(prompt, 12, "M4", level) for level in ("float32", "graph", "engine")}
    assert texts["graph"] == texts["engine"] == texts["float32"]
    assert manual.text_of(texts["float32"]).isprintable()


def test_its_tokenizer_takes_texts_apart_by_characters() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    import manual

    tokenizer = tokenizers.Tokenizer.from_file(str(manual.FOLDER / "tokenizer.json"))
    assert json.loads((manual.FOLDER / "tokenizer.json").read_text()) == manual.tokenizer()
    assert tokenizer.encode("a\n b~").ids == manual.tokens_of("a\n b~")
    assert tokenizer.decode(manual.tokens_of("if x:\n")) == "if x:\n"


@pytest.mark.parametrize("tied", [True, False])
def test_the_network_that_trains_is_the_decoder_that_answers(tied: bool, tmp_path: Path) -> None:
    import llama

    from hexane.formats.safetensors import read_safetensors

    shape = llama.Shape(layers=2, width=32, heads=4, kv_heads=2, inner=48, words=40, tokens=32, tied=tied, piece=16)
    weights = {name: array * np.float16(3 if array.ndim > 1 else 1) for name, array in shape.drawn(1).items()}
    llama.save(tmp_path, shape, weights)
    tensors = {name: np.array(tensor.read(), np.float32) for name, tensor in read_safetensors(tmp_path).items()}
    ids = np.random.default_rng(0).integers(0, 40, 32)
    config = json.loads((tmp_path / "config.json").read_text()) | {"head_dim": 8}
    wanted = reference.logits(config, tensors, ids.tolist())
    trainer = Trainer(llama.network(shape, weights), optimizer=AdamW(1e-2), level="float32")
    given = trainer.evaluate((ids[None].astype(np.int32), ids[None]))[1][0]
    assert np.abs(given - wanted).max() < 1e-3 * np.abs(wanted).max()  # its rotations are fp16 constants
    answers = Decoder.from_pretrained(tmp_path).start(32, level="float32").feed(ids.tolist())
    assert np.abs(answers - wanted).max() < 1e-4 * np.abs(wanted).max()
    batch = ids[None, :].astype(np.int32), np.roll(ids, -1)[None]
    losses = [trainer.step(batch) for _ in range(4)]
    assert losses[-1] < losses[0]
