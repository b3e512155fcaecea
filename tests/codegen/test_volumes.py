"""Volumes and other tensors of five and more axes on an engine of four: NumPy's numbers, the bits of graph level."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import hexane
from hexane.errors import UnsupportedError
from hexane.graph import GraphBuilder

from .levels import agreed

CHIPS = ("M1", "M4")


def wholly_on_engine(b, inputs, truth, chip, error=4e-3):
    """The one result of a network, held to ``truth`` (float64) by its largest number; no op is the host's."""
    program = hexane.compile(b.graph, chip)
    (made,) = agreed(program, inputs).values()
    assert made.shape == truth.shape
    assert np.abs(made - truth).max() < error * max(1.0, np.abs(truth).max())
    assert [segment.kind for segment in program.segments] == ["engine"]


def windows(x, pads, kernel, steps, spread, value=0.0):
    """All windows [N, C, *out, *kernel] of a volume."""
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, spread))
    seen = sliding_window_view(padded, reach, axis=(2, 3, 4))
    return seen[(..., *(slice(None, None, s) for s in steps), *(slice(None, None, d) for d in spread))]


CONVOLUTIONS = [  # batch, channels, extents, results, kernel, strides, dilations, pads, groups
    (1, 4, (6, 8, 16), 8, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1, 1, 1, 1), 1),
    (2, 4, (6, 9, 16), 8, (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1, 1, 1, 1), 1),
    (1, 3, (5, 7, 9), 4, (2, 3, 1), (1, 2, 1), (1, 1, 1), (0, 1, 0, 2, 0, 0), 1),
    (1, 8, (6, 8, 16), 16, (1, 3, 3), (1, 1, 1), (1, 1, 1), (0, 0, 1, 1, 1, 1), 1),
    (1, 8, (6, 8, 16), 16, (3, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 0, 0, 0, 0), 1),
    (1, 4, (9, 8, 16), 8, (3, 3, 3), (2, 1, 1), (2, 2, 1), (2, 2, 2, 2, 1, 1), 1),
    (1, 3, (8, 16, 16), 8, (3, 7, 7), (1, 2, 2), (1, 1, 1), (1, 1, 3, 3, 3, 3), 1),
    (1, 4, (7, 8, 16), 4, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1, 1, 1, 1), 4),
    (1, 4, (7, 8, 16), 8, (3, 3, 3), (3, 2, 2), (1, 1, 1), (0, 0, 0, 1, 1, 0), 2),
    (1, 3, (4, 16, 16), 8, (2, 4, 4), (2, 4, 4), (1, 1, 1), (0, 0, 0, 0, 0, 0), 1),
]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: "-".join(map(str, case[4:6])))
def test_convolution(case, chip):
    n, c, extents, cout, kernel, steps, spread, pads, groups = case
    rng = np.random.default_rng(3)
    weight = (rng.normal(size=(cout, c // groups, *kernel)) / (c // groups * np.prod(kernel)) ** 0.5).astype(np.float16)
    bias = rng.normal(size=cout).astype(np.float16)
    x = rng.normal(size=(n, c, *extents)).astype(np.float16)
    b = GraphBuilder()
    options = {"strides": steps, "dilations": spread, "pad_type": "custom", "pad": pads, "groups": groups}
    b.output(b.conv(x=b.input("x", x.shape, "fp16"), weight=weight, bias=bias, **options))
    seen = windows(x.astype(float), list(zip(pads[::2], pads[1::2])), kernel, steps, spread)
    parts = [
        np.einsum("ncdhwijk,ocijk->nodhw", each, w.astype(float))
        for each, w in zip(np.split(seen, groups, 1), np.split(weight, groups))
    ]
    wholly_on_engine(b, {"x": x}, np.concatenate(parts, 1) + bias.astype(float)[:, None, None, None], chip)


TRANSPOSED = [  # channels, extents, results, kernel, strides, pads
    (4, (3, 5, 8), 8, (2, 2, 2), (2, 2, 2), (0, 0, 0, 0, 0, 0)),
    (4, (3, 5, 8), 4, (3, 3, 3), (2, 2, 2), (1, 0, 1, 0, 1, 0)),
    (3, (4, 4, 8), 4, (4, 4, 4), (2, 2, 2), (1, 1, 1, 1, 1, 1)),
    (3, (4, 4, 8), 4, (1, 2, 2), (2, 2, 2), (0, 0, 0, 0, 0, 0)),
    (3, (4, 4, 8), 4, (3, 3, 3), (1, 1, 1), (0, 0, 1, 1, 0, 0)),
]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("case", TRANSPOSED, ids=lambda case: "-".join(map(str, case[3:5])))
def test_transposed_convolution(case, chip):
    c, extents, cout, kernel, steps, pads = case
    rng = np.random.default_rng(4)
    weight = (rng.normal(size=(c, cout, *kernel)) / c**0.5).astype(np.float16)
    x = rng.normal(size=(1, c, *extents)).astype(np.float16)
    b = GraphBuilder()
    options = {"strides": steps, "pad_type": "custom", "pad": pads}
    b.output(b.conv_transpose(x=b.input("x", x.shape, "fp16"), weight=weight, **options))
    full = np.zeros((1, cout, *((e - 1) * s + k for e, s, k in zip(extents, steps, kernel))))
    for at in product(*map(range, kernel)):
        place = tuple(slice(p, p + (e - 1) * s + 1, s) for p, e, s in zip(at, extents, steps))
        full[(..., *place)] += np.einsum("ncdhw,co->nodhw", x.astype(float), weight[(..., *at)].astype(float))
    kept = tuple(slice(first, e - last) for first, last, e in zip(pads[::2], pads[1::2], full.shape[2:]))
    wholly_on_engine(b, {"x": x}, full[(..., *kept)], chip)


POOLS = [  # batch, extents, window, strides, pads
    (1, (6, 8, 16), (2, 2, 2), (2, 2, 2), (0, 0, 0, 0, 0, 0)),
    (2, (7, 8, 16), (3, 3, 3), (2, 2, 2), (1, 1, 1, 1, 1, 1)),
    (1, (6, 8, 16), (1, 2, 2), (1, 2, 2), (0, 0, 0, 0, 0, 0)),
    (1, (6, 8, 16), (3, 1, 1), (1, 1, 1), (1, 1, 0, 0, 0, 0)),
    (1, (6, 8, 16), (6, 8, 16), (1, 1, 1), (0, 0, 0, 0, 0, 0)),
]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["largest", "mean", "mean of what is there"])
@pytest.mark.parametrize("case", POOLS, ids=lambda case: "-".join(map(str, case[2:4])))
def test_pool(case, kind, chip):
    n, extents, size, steps, pads = case
    x = np.random.default_rng(5).normal(size=(n, 4, *extents)).astype(np.float16)
    b = GraphBuilder()
    value = b.input("x", x.shape, "fp16")
    options = {"kernel_sizes": size, "strides": steps, "pad_type": "custom", "pad": pads}
    ones = (1, 1, 1)
    pairs = list(zip(pads[::2], pads[1::2]))
    if kind == "largest":
        b.output(b.max_pool(x=value, **options))
        truth = windows(x.astype(float), pairs, size, steps, ones, -np.inf).max((-3, -2, -1))
    else:
        there = kind != "mean"
        b.output(b.avg_pool(x=value, exclude_padding_from_average=there, **options))
        truth = windows(x.astype(float), pairs, size, steps, ones).sum((-3, -2, -1))
        counted = windows(np.ones_like(x, float), pairs, size, steps, ones, 0.0 if there else 1.0).sum((-3, -2, -1))
        truth = truth / counted
    wholly_on_engine(b, {"x": x}, truth, chip)


def per_channel(b, x):
    return b.mul(x=x, y=np.array([0.5, 2.0, -1.0, 3.0], np.float16).reshape(1, 4, 1, 1, 1))


OPS = {
    "relu": (lambda b, x: b.relu(x=x), lambda x: np.maximum(x, 0)),
    "per channel": (per_channel, lambda x: x * np.array([0.5, 2.0, -1.0, 3.0]).reshape(1, 4, 1, 1, 1)),
    "one operand broadcast": (
        lambda b, x: b.add(x=x, y=b.slice_by_size(x=x, begin=[0, 0, 1, 0, 0], size=[-1, -1, 1, -1, -1])),
        lambda x: x + x[:, :, 1:2],
    ),
    "mean of a channel": (lambda b, x: b.reduce_mean(x=x, axes=[2, 3, 4]), lambda x: x.mean((2, 3, 4))),
    "mean of depths": (lambda b, x: b.reduce_mean(x=x, axes=[2], keep_dims=True), lambda x: x.mean(2, keepdims=True)),
    "largest of channels": (lambda b, x: b.reduce_max(x=x, axes=[1]), lambda x: x.max(1)),
    "concat": (lambda b, x: b.concat(values=(x, b.relu(x=x)), axis=2), lambda x: np.concatenate([x, x.clip(0)], 2)),
    "softmax": (
        lambda b, x: b.softmax(x=x, axis=2),
        lambda x: np.exp(x) / np.exp(x).sum(2, keepdims=True),
    ),
    "slice": (
        lambda b, x: b.slice_by_index(x=x, begin=[0, 1, 0, 0, 0], end=[2, 3, 6, 8, 16], stride=[1, 1, 2, 1, 1]),
        lambda x: x[:, 1:3, ::2],
    ),
    "an index": (
        lambda b, x: b.slice_by_index(
            x=x, begin=[0, 0, 2, 0, 0], end=[2, 4, 3, 8, 16], squeeze_mask=[False, False, True, False, False]
        ),
        lambda x: x[:, :, 2],
    ),
    "pad": (
        lambda b, x: b.pad(x=x, pad=[0, 0, 0, 0, 1, 2, 0, 0, 0, 0], mode="constant", constant_val=0.0),
        lambda x: np.pad(x, [(0, 0), (0, 0), (1, 2), (0, 0), (0, 0)]),
    ),
    "instance norm": (
        lambda b, x: b.instance_norm(x=x, epsilon=1e-5),
        lambda x: (x - x.mean((2, 3, 4), keepdims=True)) / np.sqrt(x.var((2, 3, 4), keepdims=True) + 1e-5),
    ),
    "transpose": (lambda b, x: b.transpose(x=x, perm=[0, 2, 1, 3, 4]), lambda x: x.transpose(0, 2, 1, 3, 4)),
    "reshape": (lambda b, x: b.relu(x=b.reshape(x=x, shape=[2, 24, 8, 16])), lambda x: x.clip(0).reshape(2, 24, 8, 16)),
}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", OPS)
def test_five_axes(name, chip):
    write, truth = OPS[name]
    x = np.random.default_rng(6).normal(size=(2, 4, 6, 8, 16)).astype(np.float16)
    b = GraphBuilder()
    b.output(write(b, b.input("x", x.shape, "fp16")))
    wholly_on_engine(b, {"x": x}, truth(x.astype(float)), chip)


def test_six_axes():
    x = np.random.default_rng(7).normal(size=(1, 2, 3, 4, 5, 6)).astype(np.float16)
    b = GraphBuilder()
    value = b.input("x", x.shape, "fp16")
    b.output(b.add(x=value, y=value))
    wholly_on_engine(b, {"x": x}, 2 * x.astype(float), "M1")


def test_a_kernel_that_is_computed_stays_on_the_host():
    b = GraphBuilder()
    x, weight = b.input("x", (1, 2, 3, 4, 8), "fp16"), b.input("w", (2, 2, 1, 1, 1), "fp16")
    b.output(b.conv(x=x, weight=weight))
    (segment,) = hexane.compile(b.graph).segments
    assert segment.kind == "host" and "weights are computed" in segment.reason


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_the_form_is_inferred_whatever_its_tasks_are(chip):
    """No mark is stronger than the rewriting: a convolution of depth 1 to 1 is one task that Apple's programs show."""
    b = GraphBuilder()
    x = b.input("x", (1, 4, 6, 8, 8), "fp16")
    b.output(b.conv(x=x, weight=np.full((8, 4, 1, 1, 1), 0.1, np.float16), name="y"))
    program = hexane.compile(b.graph, chip)
    marks = [plan.evidence for segment in program.segments for plan in segment.plans]
    assert marks and set(marks) == {"INFERRED"}, marks
    assert hexane.check(b.graph, chip, as_="hexane").rows[-1].evidence == "INFERRED"
    with pytest.raises(UnsupportedError, match="inferred only \\(a window over depth as one over rows"):
        hexane.compile(b.graph, chip, strict=True)
