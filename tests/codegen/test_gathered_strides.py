"""Strides beyond 2 whose pixels a convolution of ones makes channels: bits of graph level, error, tasks."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed

CASES = [  # height, width, cin, cout, kernel, strides, pads, tasks
    (67, 71, 3, 32, 11, (4, 4), (0, 0, 0, 0), 2),
    (64, 60, 3, 16, 11, (4, 4), (2, 2, 2, 2), 2),
    (64, 64, 3, 32, 16, (16, 16), (0, 0, 0, 0), 4),
    (57, 61, 3, 16, 7, (4, 4), (3, 3, 3, 3), 2),
    (57, 61, 3, 16, 7, (4, 4), (1, 0, 0, 1), 2),
    (33, 47, 8, 32, 4, (4, 4), (0, 0, 0, 0), 2),
    (64, 64, 3, 32, 8, (8, 8), (0, 0, 0, 0), 3),
    (31, 31, 3, 8, 5, (8, 8), (2, 2, 2, 2), 3),
    (40, 40, 3, 16, 1, (4, 4), (0, 0, 0, 0), 2),
    (50, 50, 3, 8, 10, (4, 8), (4, 4, 4, 4), None),
    (34, 45, 5, 16, 3, (6, 6), (1, 1, 1, 1), None),
]


def network(h, w, cin, cout, k, strides, pads):
    rng = np.random.default_rng(k)
    b = GraphBuilder()
    x = b.input("x", (1, cin, h, w), "fp16")
    weight = (rng.normal(size=(cout, cin, k, k)) / (cin * k * k) ** 0.5).astype(np.float16)
    bias = rng.normal(size=cout).astype(np.float16)
    y = b.conv(x=x, weight=weight, bias=bias, strides=list(strides), pad_type="custom", pad=list(pads))
    b.output(b.relu(x=y))
    return b.graph


def error(program, graph, x):
    made, wanted = agreed(program, {"x": x}), graph.evaluate({"x": x})
    (name,) = made
    assert made[name].shape == wanted[name].shape
    return float(np.abs(made[name].astype(float) - wanted[name]).max())


@pytest.mark.parametrize("case", CASES, ids=lambda case: "x".join(map(str, case[:5])))
def test_gathered(case):
    graph = network(*case[:7])
    x = np.random.default_rng(1).normal(size=graph.main.inputs[0].shape).astype(np.float16)
    program, plain = hexane.compile(graph), hexane.compile(graph, without=("gathered-strides",))
    assert error(program, graph, x) < 5e-3 and not program.stats()["host_segments"]
    assert case[7] is None or program.stats()["tasks"] == case[7]
    assert program.stats()["tasks"] < plain.stats()["tasks"]
    assert hexane.estimate(program).engine_us < hexane.estimate(plain).engine_us


def test_large_inputs():
    """Pixels of a picture from 0 to 255 come through whole."""
    graph = network(64, 60, 3, 16, 11, (4, 4), (2, 2, 2, 2))
    x = np.random.default_rng(1).integers(0, 256, graph.main.inputs[0].shape).astype(np.float16)
    assert error(hexane.compile(graph), graph, x) < 0.5
