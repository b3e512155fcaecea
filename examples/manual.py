"""A character model of Llama's form, trained on Python's own manual, and its folder for `hexane llm`.

python manual.py              text and perplexity of the trained model, float32 and engine, in four formats
python manual.py train        trains it again with `hexane.train` and writes the folder: docs/language-models.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from pydoc_data import topics

import numpy as np
from llama import Shape, network, save

from hexane.language import Decoder
from hexane.language.evaluation import evaluate_text
from hexane.train import AdamW, Schedule, Trainer

LETTERS = "\n" + "".join(map(chr, range(32, 127)))
"""The characters; a token is a place in this text."""
SHAPE = Shape(layers=3, width=128, heads=4, kv_heads=2, inner=256, words=len(LETTERS), tokens=128)
FOLDER = Path(__file__).with_suffix("")
STEPS, SEQUENCES, KEPT = 3000, 4, 20
"""Steps, sequences of a step, and one topic in how many is kept aside."""
FORMATS = ("fp16", "int8", "palette6", "palette4")
PROMPT = "The statement is used to"


def tokens_of(text: str) -> list[int]:
    """A text as tokens; characters that are not known are left out."""
    return [LETTERS.index(letter) for letter in text if letter in LETTERS]


def text_of(tokens: list[int]) -> str:
    return "".join(LETTERS[token] for token in tokens)


def topics_of(*, kept: bool) -> list[list[int]]:
    """The manual's topics in the order of their names: those to learn from, or those that are kept aside."""
    names = sorted(topics.topics)
    return [tokens_of(topics.topics[name]) for n, name in enumerate(names) if (n % KEPT == 0) == kept]


def tokenizer() -> dict[str, object]:
    """A ``tokenizer.json`` that takes a text apart by characters."""
    split = {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": False}
    vocabulary = {letter: n for n, letter in enumerate(LETTERS)}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": split, "post_processor": None, "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"},
    }  # fmt: skip


def train(steps: int) -> Trainer:
    """The trainer behind so many steps; samples of a step depend on its number alone."""
    learned = np.concatenate([np.array(topic) for topic in topics_of(kept=False)])
    schedule = Schedule("cosine", steps=steps, warm_up=50, lowest=0.05)
    trainer = Trainer(network(SHAPE, SHAPE.drawn()), optimizer=AdamW(3e-3), level="float32", clip=1.0,
                      schedule=schedule)  # fmt: skip
    for step in range(steps):
        begins = np.random.default_rng((0, step)).integers(0, len(learned) - SHAPE.tokens, SEQUENCES)
        rows = np.stack([learned[begin : begin + SHAPE.tokens + 1] for begin in begins])
        loss = trainer.step((rows[:, :-1].astype(np.int32), rows[:, 1:]))
        if step % 50 == 0:
            print(f"step {step}: {loss:.3f}", flush=True)
    return trainer


def perplexity(weights: str, texts: int, chip: str = "M4") -> tuple[float, float, float]:
    """Of the engine and of float32, on so many pieces of what was kept aside; how often float32's first choice is the
    engine's, too."""
    model = Decoder.from_pretrained(FOLDER, weights=weights)
    kept = np.concatenate([np.array(topic) for topic in topics_of(kept=True)])
    begins = np.linspace(0, len(kept) - SHAPE.tokens, texts).astype(int)
    scores = [evaluate_text(model, kept[begin : begin + SHAPE.tokens].tolist(), chip) for begin in begins]
    both = ([s.perplexity for s in scores], [s.perplexity_float32 for s in scores])
    engine, exact = (float(np.exp(np.log(values).mean())) for values in both)
    return engine, exact, float(np.mean([s.contained["1"] for s in scores]))


def continued(weights: str, level: str, letters: int = 80, chip: str = "M4") -> str:
    """What the model writes behind the prompt, drawn with one seed."""
    model = Decoder.from_pretrained(FOLDER, weights=weights)
    return text_of(model.generate(tokens_of(PROMPT), letters, chip, level, seed=3, temperature=0.6))


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        save(FOLDER, SHAPE, train(STEPS).weights)
        (FOLDER / "tokenizer.json").write_text(json.dumps(tokenizer(), indent=1) + "\n")
    print(f"{'float32':9} {PROMPT + continued('fp16', 'float32')!r}")
    for name in FORMATS:
        print(f"{name:9} {PROMPT + continued(name, 'graph')!r}")
        engine, exact, same = perplexity(name, 24)
        print(f"{'':9} perplexity {engine:.4f}, float32 {exact:.4f}, same first choice {same:.2%}", flush=True)
