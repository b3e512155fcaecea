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

    def __init__(self, *shape: int, seed: int = 3) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = GraphBuilder()
        self.x = self.b.input("x", shape, "fp16")
        self.weights: list[str] = []

    def w(self, *shape: int):
        self.weights.append(f"w{len(self.weights)}")
        array = self.rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
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
    largest = max(float(np.abs(value).max()) for value in wanted.values())
    for key, value in wanted.items():
        size = max(0.1 * largest, float(np.abs(value).max()))  # the bias of keys has the gradient 0
        assert np.abs(made[key].astype(np.float32) - value).max() < 0.05 * size, key


def w(*shape):
    return ("w", RNG.normal(size=shape))


def v(*shape):
    return ("v", RNG.normal(size=shape))


SAME = {"pad_type": "same"}
OPS = [
    ("conv", (1, 8, 9, 9), {"weight": w(8, 8, 3, 3), "bias": v(8), "strides": [2, 2], **SAME}),
    ("conv", (1, 8, 9, 9), {"weight": w(8, 8, 3, 3), "strides": [2, 1]}),
    ("conv", (1, 8, 9, 9), {"weight": w(8, 8, 2, 2), "strides": [3, 3]}),
    ("conv", (1, 8, 9, 9), {"weight": w(8, 8, 3, 3), "dilations": [2, 2]}),
    ("conv", (4, 8, 9, 9), {"weight": w(8, 1, 3, 3), "bias": v(8), "groups": 8}),
    ("conv", (1, 8, 9), {"weight": w(8, 8, 3), "bias": v(8), "strides": [2]}),
    ("conv_transpose", (1, 8, 5, 5), {"weight": w(8, 4, 3, 3), "bias": v(4), "strides": [2, 2]}),
    ("linear", (2, 16, 8), {"weight": w(12, 8), "bias": v(12)}),
    ("matmul", (2, 16, 8), {"y": w(8, 16)}),
    ("softmax", (1, 4, 8, 16), {}),
    ("gelu", (1, 8, 8, 8), {}),
    ("elu", (1, 8, 8, 8), {"alpha": 1.0}),
    ("layer_norm", (2, 16, 32), {"axes": [-1], "gamma": w(32), "beta": v(32)}),
    ("instance_norm", (1, 8, 8, 8), {"gamma": w(8), "beta": v(8)}),
    ("max_pool", (1, 8, 9, 9), {"kernel_sizes": [3, 3], "strides": [2, 2], **SAME}),
    ("avg_pool", (4, 8, 8, 8), {"kernel_sizes": [2, 2], "strides": [2, 2], "pad_type": "valid"}),
    ("reduce_max", (1, 8, 8, 8), {"axes": [1]}),
    ("reduce_mean", (4, 8, 8, 8), {"axes": [2, 3]}),
    ("slice_by_index", (1, 8, 8, 8), {"begin": [0, 0, 1, 0], "end": [1, 8, 5, 8], "stride": [1, 1, 1, 2]}),
    ("tile", (1, 8, 8, 8), {"reps": [1, 1, 2, 2]}),
    ("upsample_nearest_neighbor", (1, 8, 8, 8), {"scale_factor_height": 2.0, "scale_factor_width": 2.0}),
    ("upsample_bilinear", (1, 8, 8, 8), {"scale_factor_height": 2.0, "scale_factor_width": 2.0}),
    ("pad", (1, 8, 8, 8), {"pad": [1, 1, 2, 2], "mode": "reflect"}),
]


@pytest.mark.parametrize(("op", "x", "operands"), OPS, ids=[f"{number}-{row[0]}" for number, row in enumerate(OPS)])
def test_derivatives_of_one_op_stay_on_the_engine(op, x, operands):
    b = GraphBuilder()
    names = ["x"]

    def constant(operand):
        if not isinstance(operand, tuple):
            return operand
        names.append(operand[0])
        return b.const(operand[1].astype(np.float16), "fp16", name=operand[0])

    given = {name: constant(operand) for name, operand in operands.items()}
    b.output(b.identity(x=b.op(op, x=b.input("x", x, "fp16"), **given)), name="y")
    gradients = hexane.grad(b.graph, of="y", wrt=names)
    rng = np.random.default_rng(1)
    inputs = {key: rng.normal(size=type_.shape).astype(np.float16) for key, type_ in gradients.inputs.items()}
    program = hexane.compile(gradients, "M1")
    made, wanted = agreed(program, inputs), gradients.evaluate(inputs, typed=True)
    assert not program.stats()["host_segments"], program.stats()["host_reasons"]
    for key, value in wanted.items():
        assert np.abs(made[key].astype(np.float32) - value).max() < 0.02 * max(1, np.abs(value).max()), key
