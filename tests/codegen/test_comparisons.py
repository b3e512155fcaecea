"""Comparisons are those of IEEE for all numbers and infinities; Apple's form by pairs differs, as it is known to."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed

OPS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
ODD = [0, -0.0, 6e-8, -6e-8, 1e-6, 6e-5, 1, -1, 1.001, 32768, 4e4, -4e4, 65504, -65504, np.inf, -np.inf]
FIRST, SECOND = (np.array(v, np.float16).reshape(1, 4, 8, 8) for v in zip(*product(ODD, ODD)))
FINITE = np.where(np.isfinite(SECOND), SECOND, np.float16(5))

OTHERS = {
    "computed": lambda x, y: (x, y),
    "itself": lambda x, y: (x, x),
    "number": lambda x, y: (x, np.float16(-4e4)),
    "number first": lambda x, y: (np.float16(1e-6), x),
    "per channel": lambda x, y: (x, FINITE[:, :, :1, 1:2]),
    "constant": lambda x, y: (x, FINITE),
    "constant first": lambda x, y: (FINITE, x),
}


def compared(op, operands, shape=FIRST.shape, second=FIRST.shape):
    b = GraphBuilder()
    x, y = b.input("x", shape, "fp16"), b.input("y", second, "fp16")
    first, other = operands(x, y)
    b.output(b.cast(x=b.op(op, x=first, y=other), dtype="fp16", name="z"))
    return b.graph


def check(graph, inputs, chip):
    program = hexane.compile(graph, chip)
    assert {segment.kind for segment in program.segments} == {"engine"}
    made = program.run(inputs)["z"]
    np.testing.assert_array_equal(made, program.run(inputs, level="graph")["z"])
    np.testing.assert_array_equal(made, graph.evaluate(inputs)["z"])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_every_pair_of_odd_numbers(op, chip):
    for name, operands in OTHERS.items():
        if name == "itself" and op in ("equal", "not_equal"):
            continue  # that asks for NaN
        check(compared(op, operands), {"x": FIRST, "y": SECOND}, chip)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_infinite_numbers(op, number):
    for operands in (lambda x, y: (x, np.float16(number)), lambda x, y: (np.float16(number), x)):
        graph = compared(op, operands)
        program = hexane.compile(graph)
        made = program.run({"x": FIRST, "y": SECOND})["z"]
        np.testing.assert_array_equal(made, graph.evaluate({"x": FIRST, "y": SECOND})["z"])
        assert "host" in {segment.kind for segment in program.segments}  # what is given may be NaN
    if op in ("equal", "not_equal"):
        b = GraphBuilder()
        x, y = b.input("x", FIRST.shape, "fp16"), b.input("y", FIRST.shape, "fp16")
        found = b.op(op, x=b.maximum(x=x, y=y), y=np.float16(number))
        b.output(b.cast(x=found, dtype="fp16", name="z"))
        check(b.graph, {"x": FIRST, "y": SECOND}, "M4")


def test_what_asks_for_nan_is_the_hosts():
    x = np.where(SECOND == 1, np.float16(np.nan), SECOND)
    for op in ("equal", "not_equal"):
        graph = compared(op, lambda x, y: (x, x))
        program = hexane.compile(graph)
        assert any("asks for NaN" in segment.reason for segment in program.segments if segment.kind == "host")
        made = program.run({"x": x, "y": x})["z"]
        np.testing.assert_array_equal(made, graph.evaluate({"x": x, "y": x})["z"])


@pytest.mark.parametrize("second", [(3, 4, 8, 8), (1, 4, 8, 8), (3, 4, 1, 8)])
def test_batches(second):
    x = np.repeat(FIRST, 3, 0)
    y = np.repeat(SECOND, second[0], 0)[:, :, : second[2]]
    if second[0] == 1:
        graph = compared("less", lambda x, y: (x, np.float16(1)), x.shape, second)
    else:
        graph = compared("less", lambda x, y: (x, y), x.shape, second)
    check(graph, {"x": x, "y": y}, "M1")


def test_pairs_of_apples_form():
    """Sums of products that are multiples of 2^-16, and an infinity that stays from 2^15 on."""
    graph = compared("equal", lambda x, y: (x, y), (1, 1, 1, 4), (1, 1, 1, 4))
    inputs = {
        "x": np.array([1e-6, 40000, 1, 2], np.float16).reshape(1, 1, 1, 4),
        "y": np.array([2e-6, 40000, 1, 3], np.float16).reshape(1, 1, 1, 4),
    }
    program = hexane.compile(graph, dialect="apple")
    np.testing.assert_array_equal(program.run(inputs)["z"].ravel(), [1, 0, 1, 0])
    agreed(program, inputs)
