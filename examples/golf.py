"""The shape of a published small model (openai/parameter-golf's baseline), trained in float32 and on the engine.

python golf.py [TOKENS [STEPS]]      the loss of each at every step: docs/training.md

9 layers of 512, 8 heads and 4 of keys, 1,024 words, embedding and head in one, a squared relu; norms and rotations as
in `llama.py`. Its data are not at hand: the text is Python's manual, its words are characters and the commonest words.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pydoc_data import topics

import numpy as np
from llama import Shape, network
from manual import LETTERS

from hexane.train import AdamW, Schedule, Trainer

SHAPE = Shape(layers=9, width=512, heads=8, kv_heads=4, inner=1024, words=1024, tokens=1024, activation="relu2")
WARM_UP = 10


def tokens() -> np.ndarray:
    """The manual as numbers: the commonest words with the space before them, and characters for the rest."""
    text = "\n".join(text for _, text in sorted(topics.topics.items()))
    pieces = re.findall(r" ?[A-Za-z_]+|[^A-Za-z_]", text)
    counts = Counter(piece for piece in pieces if len(piece) > 1)
    words = [*LETTERS, *(word for word, _ in counts.most_common(SHAPE.words - len(LETTERS)))]
    index = {word: n for n, word in enumerate(words)}
    parts = [[index[piece]] if piece in index else [index[c] for c in piece if c in index] for piece in pieces]
    return np.array([number for part in parts for number in part])


def losses(shape: Shape, steps: int, levels: tuple[str, ...], chip: str) -> Iterator[list[float]]:
    """The loss of each level at every step, from the same weights and samples."""
    words, graph = tokens(), network(shape, shape.drawn())
    trainers = [
        Trainer(graph, optimizer=AdamW(1e-3), level=level, loss_scale="auto", chip=chip, renew="inputs", clip=1.0,
                schedule=Schedule(warm_up=WARM_UP))
        for level in levels
    ]  # fmt: skip
    for step in range(steps):
        begin = np.random.default_rng((0, step)).integers(0, len(words) - shape.tokens)
        row = words[begin : begin + shape.tokens + 1][None]
        batch = row[:, :-1].astype(np.int32), row[:, 1:]
        yield [trainer.step(batch) for trainer in trainers]


if __name__ == "__main__":
    length, count = (int(text) for text in (sys.argv[1:] + ["64", "200"][len(sys.argv) - 1 :]))
    for step, pair in enumerate(losses(replace(SHAPE, tokens=length), count, ("float32", "graph"), "M4")):
        print(f"step {step + 1}: float32 {pair[0]:.4f}, engine {pair[1]:.4f}", flush=True)
