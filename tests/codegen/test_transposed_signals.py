"""Transposed convolutions over one axis are on the engine, as over two; float32 is held against the definition."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder


def network(stride: int, taps: int, groups: int, dilation: int, pad: tuple[int, int], channels: int = 16):
    rng = np.random.default_rng(stride + taps)
    b = GraphBuilder()
    x = b.input("x", (1, channels, 40), "fp32")
    weight = (rng.standard_normal((channels, 8 // groups, taps)) * 0.2).astype(np.float32)
    b.output(b.conv_transpose(
        x=x, weight=weight, bias=rng.standard_normal(8).astype(np.float32), strides=[stride], dilations=[dilation],
        pad_type="custom", pad=list(pad), groups=groups, name="y",
    ))  # fmt: skip
    return b.graph, rng.standard_normal((1, channels, 40)).astype(np.float32)


CASES = [(2, 4, 1, 1, (1, 1)), (1, 3, 1, 1, (1, 1)), (2, 3, 1, 1, (0, 1)), (4, 8, 1, 1, (2, 2)), (8, 16, 1, 1, (4, 4)),
         (2, 4, 2, 1, (1, 1)), (2, 3, 1, 2, (0, 0)), (3, 7, 1, 1, (2, 2)), (5, 3, 1, 1, (0, 0))]  # fmt: skip


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("case", CASES)
def test_it_is_on_the_engine_and_right(case: tuple, chip: str) -> None:
    graph, x = network(*case)
    program = hexane.compile(graph, chip=chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    (tasks,), (bits,) = program.run({"x": x}).values(), program.run({"x": x}, level="graph").values()
    exact = graph.evaluate({"x": x})["y"]
    assert np.array_equal(tasks, bits) and tasks.shape == exact.shape
    assert np.linalg.norm(tasks - exact) < 3e-3 * np.linalg.norm(exact)


def scattered(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int, groups: int, dilation: int):
    """The definition, in float64: every element adds its weights to the places that it reaches; no padding."""
    (_, channels, length), (_, outputs, taps) = x.shape, weight.shape
    y = np.zeros((1, groups * outputs, (length - 1) * stride + (taps - 1) * dilation + 1))
    for c in range(channels):
        first = c * groups // channels * outputs
        for at in range(length):
            begin = at * stride
            y[0, first : first + outputs, begin : begin + taps * dilation : dilation] += x[0, c, at] * weight[c]
    return y + bias[:, None]


@pytest.mark.parametrize("case", CASES)
def test_the_reference_is_the_definition(case: tuple) -> None:
    (stride, _, groups, dilation, pad), (graph, x) = case, network(*case)
    (op,) = graph.main.ops
    x, weight, bias = (np.asarray(a, np.float64) for a in (x, op.inputs["weight"].data, op.inputs["bias"].data))
    full = scattered(x, weight, bias, stride, groups, dilation)
    right = full[..., pad[0] : full.shape[-1] - pad[1]]
    assert np.allclose(graph.evaluate({"x": x.astype(np.float32)})["y"], right, atol=1e-5)
