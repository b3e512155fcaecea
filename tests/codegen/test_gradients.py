"""Graphs of gradients on the engine: both levels agree to the bit, and no op is left to the host."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from codegen.levels import agreed
from hexane.graph import Graph, GraphBuilder

RNG = np.random.default_rng(3)


class Net:
    """A builder that remembers its weights, fp16 constants of variance 1 / inputs."""

    def __init__(self, *shape: int) -> None:
        self.b = GraphBuilder()
        self.x = self.b.input("x", shape, "fp16")
        self.weights: list[str] = []

    def w(self, *shape: int):
        self.weights.append(f"w{len(self.weights)}")
        array = RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        return self.b.const(array.astype(np.float16), "fp16", name=self.weights[-1])


def convolutional(batch: int) -> tuple[Graph, list[str]]:
    net = Net(batch, 1, 16, 16)
    b, w = net.b, net.w
    h = b.relu(x=b.conv(x=net.x, weight=w(8, 1, 3, 3), bias=w(8), pad_type="same"))
    h = b.max_pool(x=h, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid")
    h = b.relu(x=b.conv(x=h, weight=w(16, 8, 3, 3), bias=w(16), strides=[2, 2], pad_type="same"))
    h = b.silu(x=b.conv(x=h, weight=w(16, 1, 3, 3), bias=w(16), groups=16, pad_type="same"))
    h = b.avg_pool(x=h, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid")
    h = b.linear(x=b.reshape(x=h, shape=[batch, -1]), weight=w(10, 64), bias=w(10))
    b.output(b.softmax(x=h), name="y")
    return b.graph, net.weights


def transformer(tokens: int = 32, width: int = 32, heads: int = 4) -> tuple[Graph, list[str]]:
    net = Net(1, tokens, width)
    b, w, depth = net.b, net.w, width // heads

    def projected(x, outputs):
        return b.linear(x=x, weight=w(outputs, x.shape[-1]), bias=w(outputs))

    h = b.layer_norm(x=net.x, axes=[-1], gamma=w(width), beta=w(width))
    parts = [b.reshape(x=projected(h, width), shape=[1, tokens, heads, depth]) for _ in range(3)]
    q, k, v = (b.transpose(x=part, perm=[0, 2, 1, 3]) for part in parts)
    scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=depth**-0.5)
    scores = b.add(x=scores, y=b.const(np.triu(np.full((tokens, tokens), -1e4), 1), "fp16"))
    mixed = b.transpose(x=b.matmul(x=b.softmax(x=scores), y=v), perm=[0, 2, 1, 3])
    x = b.add(x=net.x, y=projected(b.reshape(x=mixed, shape=[1, tokens, width]), width))
    h = b.layer_norm(x=x, axes=[-1], gamma=w(width), beta=w(width))
    h = b.gelu(x=projected(h, 4 * width), mode="TANH_APPROXIMATION")
    b.output(b.add(x=x, y=projected(h, width)), name="y")
    return b.graph, net.weights


NETWORKS = {
    "convolutional": lambda: convolutional(1),
    "convolutional, four images": lambda: convolutional(4),
    "transformer": transformer,
}


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("name", NETWORKS)
def test_forward_and_backward_on_the_engine(name, chip):
    graph, weights = NETWORKS[name]()
    gradients = hexane.grad(graph, of="y", wrt=["x", *weights])
    program = hexane.compile(gradients, chip)
    rng = np.random.default_rng(1)
    inputs = {key: rng.normal(size=type_.shape).astype(np.float16) for key, type_ in gradients.inputs.items()}
    made, wanted = agreed(program, inputs), gradients.evaluate(inputs, typed=True)
    summary = program.stats()
    assert summary["host_segments"] == 0, summary["host_reasons"]
    assert summary["macs_on_engine"] == 1
    for key, value in wanted.items():
        size = max(0.5, float(np.abs(value).max()))
        assert np.abs(made[key].astype(np.float32) - value).max() < 0.05 * size, key
