"""Long filters along signals as few taps over windows; windows as one copy."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder


def filtered(length, taps, step, *, cin=1, cout=12, pad=(0, 0), bias=True):
    rng = np.random.default_rng(taps)
    b = GraphBuilder()
    x = b.input("x", (1, cin, 1, length), "fp16")
    weight = (rng.normal(size=(cout, cin, 1, taps)) / np.sqrt(taps * cin)).astype(np.float16)
    given = {"bias": rng.normal(size=cout).astype(np.float16)} if bias else {}
    b.output(b.conv(x=x, weight=weight, strides=[1, step], pad_type="custom", pad=[0, 0, *pad], **given))
    return b.graph


def run(graph, chip="M1", **options):
    """The results of both levels, which have to agree, and the program."""
    rng = np.random.default_rng(1)
    data = {v.name: rng.normal(size=v.shape).astype(np.float16) for v in graph.main.inputs}
    program = hexane.compile(graph, chip, **options)
    made, bits, wanted = program.run(data), program.run(data, level="graph"), graph.evaluate(data)
    for name, array in bits.items():
        assert np.array_equal(made[name], array), name
        assert np.abs(array.astype(np.float32) - wanted[name]).max() < 0.01 * max(1.0, np.abs(wanted[name]).max())
    return program


CASES = {
    "every sample": (427, 256, 1, {}),
    "every second": (598, 256, 2, {}),
    "every eighth": (1626, 256, 8, {}),
    "steps of rows": (5736, 256, 32, {"cout": 36}),
    "an odd step": (700, 100, 3, {"pad": (5, 9)}),
    "a prime number of taps": (640, 211, 4, {"bias": False}),
    "several channels": (500, 64, 2, {"cin": 3}),
    "more taps than windows hold": (300, 37, 5, {"pad": (36, 0)}),
}


def kinds(program):
    return {op.type for op in program.graph.main.ops}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_filters(name, chip):
    length, taps, step, more = CASES[name]
    program = run(filtered(length, taps, step, **more), chip)
    assert "sliding_windows" in kinds(program)
    assert [segment.kind for segment in program.segments] == ["engine"]


def test_windows_are_taken_where_less_is_moved():
    """One filter over a long signal stays in blocks: windows would repeat the signal many times."""
    assert "sliding_windows" not in kinds(hexane.compile(filtered(12000, 256, 2, cout=1)))
    now, before = (hexane.compile(filtered(427, 256, 1, cout=36), without=w) for w in ((), ("signal-frames",)))
    assert "sliding_windows" in kinds(now) and "sliding_windows" not in kinds(before)
    assert hexane.estimate(now).engine_us < 0.5 * hexane.estimate(before).engine_us


@pytest.mark.parametrize("shape, axis, size, stride", [
    ((20, 40), 0, 5, 1),
    ((1, 9, 33), 1, 3, 2),
    ((2, 7, 33), 0, 2, 1),
    ((4, 12, 6), -2, 12, 1),
    ((1, 3, 10, 20), 2, 4, 3),
    ((3, 200), 1, 64, 32),
])  # fmt: skip
def test_windows(shape, axis, size, stride):
    b = GraphBuilder()
    x = b.input("x", shape, "fp16")
    b.output(b.sliding_windows(x=x, axis=axis, size=size, stride=stride))
    assert [segment.kind for segment in run(b.graph).segments] == ["engine"]


def test_windows_within_rows_are_the_hosts():
    b = GraphBuilder()
    b.output(b.sliding_windows(x=b.input("x", (1, 40), "fp16"), axis=1, size=5, stride=1))
    assert "host" in [segment.kind for segment in run(b.graph).segments]


def test_a_factor_behind_moves_of_a_convolution():
    """It is the scale of the convolution's task, whatever moves the result before."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 8, 6, 64), "fp16")
    y = b.conv(x=x, weight=rng.normal(size=(16, 8, 1, 1)).astype(np.float16))
    y = b.reshape(x=b.transpose(x=y, perm=[0, 2, 1, 3]), shape=[1, 1, 96, 64])
    b.output(b.mul(x=y, y=np.full((1, 1, 1, 1), -0.5, np.float16)))
    order = [op.type for op in run(b.graph).graph.main.ops]
    assert order.index("mul") == order.index("conv") + 1
