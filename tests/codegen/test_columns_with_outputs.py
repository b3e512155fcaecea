"""Layers of tokens turned (features-as-channels) where values inside of the turned part are wanted outside."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed

RNG = np.random.default_rng(0)


def weights(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def attention_and_its_rows(b):
    """The rows that the last projection of an attention reads are an output, and so are its keys."""
    x = b.input("x", (1, 200, 16), "fp32")
    parts = [b.linear(x=x, weight=weights(32, 16)) for _ in "qkv"]
    heads = [b.transpose(x=b.reshape(x=part, shape=[1, 200, 2, 16]), perm=[0, 2, 1, 3]) for part in parts]
    scores = b.mul(x=b.matmul(x=heads[0], y=heads[1], transpose_y=True), y=np.float32(0.5))
    found = b.matmul(x=b.softmax(x=scores, axis=-1), y=heads[2])
    rows = b.reshape(x=b.transpose(x=found, perm=[0, 2, 1, 3]), shape=[1, 200, 32])
    y = b.add(x=x, y=b.linear(x=rows, weight=weights(16, 32)))
    y = b.add(x=y, y=b.linear(x=b.gelu(x=b.linear(x=y, weight=weights(64, 16)), mode="EXACT"), weight=weights(16, 64)))
    b.output(b.rename(y, "y"), rows, heads[1])


def turned_between_products(b):
    """Products over both axes, one behind the other, as a bilinear resize is."""
    x = b.input("x", (1, 1, 4, 1500), "fp32")
    y = b.add(x=b.linear(x=x, weight=weights(64, 1500)), y=np.float32(0.25))
    other = b.linear(x=b.transpose(x=y, perm=[0, 1, 3, 2]), weight=weights(8, 4))
    b.output(b.linear(x=b.transpose(x=other, perm=[0, 1, 3, 2]), weight=weights(32, 64)), name="y")


@pytest.mark.parametrize("make", [attention_and_its_rows, turned_between_products])
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_what_is_wanted_outside_too(make, chip):
    b = GraphBuilder()
    make(b)
    graph = b.graph
    program = hexane.compile(graph, chip)
    x = {name: RNG.standard_normal(t.shape).astype(np.float16) for name, t in graph.inputs.items()}
    made, wanted = agreed(program, x), graph.evaluate(x)
    for name, array in wanted.items():
        np.testing.assert_allclose(made[name], array, atol=0.02)
