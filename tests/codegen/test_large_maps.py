"""Maps that the engine's L2 buffer does not hold: tiles, strips, scratch."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.codegen.fragment import Tensor, narrower_views
from hexane.codegen.plan import Buffer, Space
from hexane.graph import GraphBuilder

from .levels import agreed

rng = np.random.default_rng(5)


def weights(*shape):
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float16)


def conv(channels, size, out, kernel, stride=1, groups=1, pad_type="same"):
    def build(b):
        x = b.input("x", (1, channels, *size), "fp16")
        w = weights(out, channels // groups, kernel, kernel)
        return b.conv(x=x, weight=w, strides=(stride, stride), pad_type=pad_type, groups=groups, name="y")

    return build


def unary(op, *shape, **parameters):
    return lambda b: getattr(b, op)(x=b.input("x", shape, "fp16"), name="y", **parameters)


def binary(op, shape, other):
    return lambda b: getattr(b, op)(x=b.input("x", shape, "fp16"), y=b.input("z", other, "fp16"), name="y")


CASES = {
    "conv 7x7 stride 2": conv(3, (224, 224), 16, 7, 2),
    "conv 1x1 of 112x112": conv(64, (112, 112), 64, 1),
    "conv 3x3 of 160x160": conv(32, (160, 160), 32, 3),
    "conv 3x3 stride 2 of 320x320": conv(16, (320, 320), 32, 3, 2),
    "depthwise 5x5 of 160x160": conv(48, (160, 160), 48, 5, groups=48),
    "split conv of 28x28": conv(512, (28, 28), 512, 3),
    "add of 256x64x64": binary("add", (1, 256, 64, 64), (1, 256, 64, 64)),
    "mul by a channel": binary("mul", (1, 256, 64, 64), (1, 256, 1, 1)),
    "mul of 2048 channels in a row": binary("mul", (1, 2048, 1, 256), (1, 2048, 1, 256)),
    "sigmoid of 12000 channels in a row": unary("sigmoid", 1, 12000, 1, 256),
    "abs of wide maps": unary("abs", 1, 32, 256, 256),
    "mean of 256x112x112": unary("reduce_mean", 1, 256, 112, 112, axes=(2, 3), keep_dims=True),
    "sum over 512 channels": unary("reduce_sum", 1, 512, 56, 56, axes=(1,), keep_dims=True),
    "softmax of 8x1024x64": unary("softmax", 8, 1024, 64, axis=-1),
    "softmax over channels of 256x256": unary("softmax", 1, 21, 256, 256, axis=1),
    "product of 512x2048": lambda b: b.matmul(
        x=b.input("x", (512, 2048), "fp16"), y=b.input("w", (256, 2048), "fp16"), transpose_y=True, name="y"
    ),
    "linear of 512x1024": lambda b: b.linear(x=b.input("x", (512, 1024), "fp16"), weight=weights(512, 1024), name="y"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_large_map(name):
    builder = GraphBuilder()
    builder.output(CASES[name](builder))
    graph = builder.graph
    program = hexane.compile(graph)
    assert [segment.kind for segment in program.segments] == ["engine"]
    inputs = {key: (rng.standard_normal(t.shape) * 0.5).astype(np.float16) for key, t in graph.inputs.items()}
    made, wanted = program.run(inputs), graph.evaluate(inputs)
    for key, reference in wanted.items():
        np.testing.assert_allclose(made[key].astype(float), reference.astype(float), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("channels, rows", [(6, 5), (10, 8), (48, 7), (100, 3), (3, 4), (128, 1)])
def test_narrower_views_have_every_power_of_two_that_divides_the_rows(channels, rows):
    x = Tensor(Buffer("x", Space.SURFACE), 2, channels, rows, 10)
    wanted = [1 << k for k in range(6, -1, -1) if 1 << k < channels and channels * rows % (1 << k) == 0]
    views = list(narrower_views(x, x))
    assert [view.c for view, _ in views] == wanted
    assert all(view.bytes == x.bytes and view.row == x.row and other == view for view, other in views)


@pytest.mark.parametrize("chip", ["M1", "M2", "M3", "M4", "M5", "A19"])
def test_strips_of_a_few_channels(chip):
    """Softmax beyond L2 whose powers come back alone, by source 2: side by side where the generation has a word."""
    builder = GraphBuilder()
    builder.output(unary("softmax", 1, 6, 400, 500, axis=-1)(builder))
    program = hexane.compile(builder.graph, chip)
    inputs = {"x": rng.standard_normal((1, 6, 400, 500)).astype(np.float16)}
    np.testing.assert_allclose(agreed(program, inputs)["y"], builder.graph.evaluate(inputs)["y"], atol=0.002)


@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
@pytest.mark.parametrize(
    "shape, axis",
    [((1, 1, 1100, 1024), 3), ((1, 16, 256, 256), 3), ((1, 64, 128, 130), 1), ((1, 3, 700, 300), 2)],
)
def test_softmax_beyond_l2(shape, axis, chip):
    """Every step through scratch rounds as in L2: rows in the planar engine, channels and columns in the cores."""
    builder = GraphBuilder()
    builder.output(unary("softmax", *shape, axis=axis)(builder))
    program = hexane.compile(builder.graph, chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    inputs = {"x": (3 * rng.standard_normal(shape)).astype(np.float16)}
    np.testing.assert_allclose(agreed(program, inputs)["y"], builder.graph.evaluate(inputs)["y"], atol=0.002)
