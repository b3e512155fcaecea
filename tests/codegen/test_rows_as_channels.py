"""Tall kernels of few outputs as convolutions of several rows at once."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .levels import near

NAME = "rows-as-channels"


def conv(b, x, cout, kh, kw, pads, bias=True):
    rng = np.random.default_rng(kh * kw)
    weight = (rng.normal(size=(cout, x.shape[1], kh, kw)) / np.sqrt(x.shape[1] * kh * kw)).astype(np.float16)
    given = {"bias": rng.normal(size=cout).astype(np.float16)} if bias else {}
    return b.conv(x=x, weight=weight, pad_type="custom", pad=list(pads), **given)


def kernels(program):
    return [tuple(op.inputs["weight"].shape) for op in program.graph.main.ops if op.type == "conv"]


CASES = {
    "two rows": ((3, 80, 20), 8, 39, 3, (19, 19, 1, 1), (16, 6, 21, 3)),
    "no padding": ((2, 61 * 2, 9), 5, 31, 1, (0, 0, 0, 0), (10, 4, 16, 1)),
    "three rows, since two are too tall": ((2, 120, 8), 4, 61, 2, (30, 30, 0, 1), (12, 6, 21, 2)),
    "one output": ((4, 96, 16), 1, 33, 5, (16, 16, 2, 2), (2, 8, 17, 5)),
    "uneven padding": ((2, 90, 12), 6, 40, 3, (7, 32, 1, 0), (12, 4, 21, 3)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chip", ["M1", "M5"])
def test_tall_kernels(name, chip):
    shape, cout, kh, kw, pads, kernel = CASES[name]
    b = GraphBuilder()
    b.output(conv(b, b.input("x", (1, *shape), "fp16"), cout, kh, kw, pads, bias=name != "no padding"))
    assert kernels(near(b.graph, chip)) == [kernel]
    assert kernels(near(b.graph, chip, without=(NAME,))) != [kernel]


@pytest.mark.parametrize("case", [(9, 80), (8, 81), (16, 80)])
def test_many_outputs_and_odd_rows_stay_as_they_were(case):
    cout, height = case
    b = GraphBuilder()
    b.output(conv(b, b.input("x", (1, 2, height, 12), "fp16"), cout, 39, 3, (19, 19, 1, 1)))
    assert kernels(near(b.graph)) == [(cout, 4, 20, 3)]


@pytest.mark.parametrize("function", ["relu", "sigmoid", None])
def test_the_next_convolution_takes_the_rows_as_they_stand(function):
    b = GraphBuilder()
    y = conv(b, b.input("x", (1, 4, 88, 20), "fp16"), 8, 39, 3, (19, 19, 1, 1))
    y = y if function is None else b.op(function, x=y)
    b.output(conv(b, y, 2, 5, 5, (2, 2, 2, 2)))
    program = near(b.graph)
    assert kernels(program) == [(16, 8, 21, 3), (4, 16, 3, 5)]
    turns = [op for op in program.graph.main.ops if op.type == "transpose"]
    assert len(turns) == 2  # into channels, and out of them at the end


def test_less_time_where_cores_were_idle():
    b = GraphBuilder()
    b.output(conv(b, b.input("x", (1, 8, 264, 172), "fp16"), 8, 39, 3, (19, 19, 1, 1)))
    now, before = (hexane.estimate(hexane.compile(b.graph, without=off)).engine_us for off in ((), (NAME,)))
    assert now < 0.75 * before
