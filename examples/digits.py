"""A convolutional network on scikit-learn's digits, trained with the engine's arithmetic (docs/training.md).

hexane train digits.toml          trains on the first 1500 pictures, tests on the rest
"""

from __future__ import annotations

import numpy as np

from hexane.graph import Graph, GraphBuilder

BATCH, TRAINED = 32, 1500


def network(seed: int) -> Graph:
    """Two convolutions, a pool and a linear layer; weights drawn for layers with ReLU (He, 2015)."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder()

    def weight(name: str, *shape: int):
        size = np.sqrt(2 / np.prod(shape[1:]))
        return b.const((size * rng.standard_normal(shape)).astype(np.float16), name=name)

    def bias(name: str, count: int):
        return b.const(np.full(count, 0.01, np.float16), name=name)

    x = b.input("x", (BATCH, 1, 8, 8), "fp16")
    h = b.relu(x=b.conv(x=x, weight=weight("w1", 16, 1, 3, 3), bias=bias("b1", 16), pad_type="same"))
    h = b.relu(x=b.conv(x=h, weight=weight("w2", 32, 16, 3, 3), bias=bias("b2", 32), pad_type="same"))
    h = b.avg_pool(x=h, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid", exclude_padding_from_average=True)
    h = b.reshape(x=h, shape=[BATCH, 512])
    b.output(b.linear(x=h, weight=weight("w3", 10, 512), bias=bias("b3", 10)), name="logits")
    return b.graph


def samples() -> list[tuple[np.ndarray, int]]:
    """All 1797 pictures, (1, 8, 8) from 0 to 1, with their digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return [(image[None].astype(np.float16) / 16, int(digit)) for image, digit in zip(digits.images, digits.target)]


def dataset() -> list[tuple[np.ndarray, int]]:
    """What is trained on."""
    return samples()[:TRAINED]
