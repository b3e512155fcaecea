"""A small character transformer on a text that ships with Python: its licence (docs/training.md).

hexane train characters.toml
"""

from __future__ import annotations

import site
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.graph import Graph, GraphBuilder


@dataclass(frozen=True)
class Shape:
    """Layers, width, heads and tokens of a sequence."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    tokens: int = 128


SHAPE = Shape()


def text() -> str:
    """Python's licence, 13,000 characters and more."""
    site.setcopyright()
    import builtins

    licence: Any = builtins.license
    licence._Printer__setup()
    return "\n".join(licence._Printer__lines)


def alphabet() -> str:
    """The characters of the text, in order."""
    return "".join(sorted(set(text())))


def network(seed: int, shape: Shape = SHAPE) -> Graph:
    """A decoder with norms in front, learned places and GELU, from one-hot characters to logits."""
    rng, b = np.random.default_rng(seed), GraphBuilder()
    letters, width, tokens = len(alphabet()), shape.width, shape.tokens

    def weight(name: str, *dims: int, size: float = 0.02):
        return b.const((size * rng.standard_normal(dims)).astype(np.float16), name=name)

    def norm(x, name: str):
        gamma, beta = (
            b.const(np.full(width, v, np.float16), name=f"{name}_{n}") for v, n in ((1, "gamma"), (0, "beta"))
        )
        return b.layer_norm(x=x, axes=[-1], gamma=gamma, beta=beta, epsilon=np.float16(1e-5))

    def heads(x):
        split = b.reshape(x=x, shape=[1, tokens, shape.heads, width // shape.heads])
        return b.transpose(x=split, perm=[0, 2, 1, 3])

    mask = np.triu(np.full((tokens, tokens), -1e4, np.float16), 1)
    x = b.input("x", (1, tokens, letters), "fp16")
    places = weight("places", 1, tokens, width)
    h = b.add(x=b.linear(x=x, weight=weight("embedding", width, letters)), y=places)
    for n in range(shape.layers):
        inner = norm(h, f"norm{n}a")
        q, k, v = (heads(b.linear(x=inner, weight=weight(f"{part}{n}", width, width))) for part in "qkv")
        scores = b.matmul(x=b.mul(x=q, y=np.float16((width // shape.heads) ** -0.5)), y=k, transpose_y=True)
        mixed = b.matmul(x=b.softmax(x=b.add(x=scores, y=mask), axis=-1), y=v)
        joined = b.reshape(x=b.transpose(x=mixed, perm=[0, 2, 1, 3]), shape=[1, tokens, width])
        deep = 0.02 / np.sqrt(2 * shape.layers)
        h = b.add(x=h, y=b.linear(x=joined, weight=weight(f"o{n}", width, width, size=deep)))
        wide = b.gelu(x=b.linear(x=norm(h, f"norm{n}b"), weight=weight(f"up{n}", 4 * width, width)), mode="EXACT")
        h = b.add(x=h, y=b.linear(x=wide, weight=weight(f"down{n}", width, 4 * width, size=deep)))
    b.output(b.linear(x=norm(h, "norm"), weight=weight("head", letters, width)), name="logits")
    return b.graph


class Windows:
    """Every window of the text: one-hot characters, and the character behind each."""

    def __init__(self, shape: Shape = SHAPE) -> None:
        index = {letter: n for n, letter in enumerate(alphabet())}
        self.numbers = np.array([index[letter] for letter in text()])
        self.tokens = shape.tokens
        self.rows = np.eye(len(index), dtype=np.float16)

    def __len__(self) -> int:
        return len(self.numbers) - self.tokens

    def __getitem__(self, start: int) -> tuple[np.ndarray, np.ndarray]:
        if not 0 <= start < len(self):
            raise IndexError(start)
        end = start + self.tokens
        return self.rows[self.numbers[start:end]], self.numbers[start + 1 : end + 1]


def dataset() -> Windows:
    """All windows of the text."""
    return Windows()
