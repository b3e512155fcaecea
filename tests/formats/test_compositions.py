"""Compositions that front ends share, against NumPy: of a computed operand and of a constant one alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hexane.errors import GraphError
from hexane.formats.compositions import Composer, axis_in
from hexane.formats.operands import Folder
from hexane.graph import Graph, GraphBuilder

RNG = np.random.default_rng(7)
X = RNG.normal(0, 2, (2, 6, 5, 4)).astype(np.float32)


class Writer(Composer):
    """A composer on a graph of its own."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.ops = Folder(self.builder)


def written(build: Callable[[Writer, Any], Any], x: np.ndarray) -> Graph:
    c = Writer()
    c.builder.output(c.ops.value(build(c, c.builder.input("x", x.shape, "bool" if x.dtype == bool else "fp32"))))
    return c.builder.graph


def norm(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    away = x - x.mean(axes, keepdims=True)
    return away / np.sqrt((away * away).mean(axes, keepdims=True) + 1e-3)


VECTOR = RNG.normal(1, 0.2, 6).astype(np.float32)
COLUMN = VECTOR.reshape(6, 1, 1)
WIDTHS = [(-1, 2), (1, 0), (0, -2)]
CASES: dict[str, tuple[Callable[[Writer, Any], Any], np.ndarray]] = {
    "elu": (lambda c, x: c.elu(x, 0.7), np.where(X > 0, X, 0.7 * np.expm1(X))),
    "celu": (lambda c, x: c.elu(x, 2.0, inner=0.5), np.where(X > 0, X, 2 * np.expm1(X / 2))),
    "selu": (lambda c, x: c.elu(x, 1.7, scale=1.05), 1.05 * np.where(X > 0, X, 1.7 * np.expm1(X))),
    "swish": (lambda c, x: c.swish(x, 1.7), X / (1 + np.exp(-1.7 * X))),
    "log_softmax": (lambda c, x: c.log_softmax(x, 1), X - np.log(np.exp(X).sum(1, keepdims=True))),
    "lp_norm": (lambda c, x: c.lp_norm(x, 3, [1, 2], False), (np.abs(X) ** 3).sum((1, 2)) ** (1 / 3)),
    "centre": (lambda c, x: c.centre(x, [2, 3], 1e-3)[0], norm(X, (2, 3))),
    "layer_norm": (lambda c, x: c.layer_norm(x, [3], VECTOR[:4], None, 1e-3), norm(X, (3,)) * VECTOR[:4]),
    "group_norm": (lambda c, x: c.group_norm(x, 3, 1e-3), norm(X.reshape(2, 3, 40), (2,)).reshape(X.shape)),
    "batch_norm": (
        lambda c, x: c.batch_norm(x, {"mean": VECTOR, "variance": VECTOR, "gamma": None, "beta": VECTOR}, 1e-3),
        (X - COLUMN) / np.sqrt(COLUMN + 1e-3) + COLUMN,
    ),
    "pad": (
        lambda c, x: c.pad(x, WIDTHS, value=3),
        np.pad(X[:, 1:, :, :2], ((0, 0), (0, 2), (1, 0), (0, 0)), constant_values=3),
    ),
    "wrap": (lambda c, x: c.pad(x, [(2, 3)], "wrap"), np.pad(X, ((0, 0), (0, 0), (0, 0), (2, 3)), "wrap")),
    "window": (lambda c, x: c.window(x, {1: slice(4, None, -2), 3: slice(1, 3)}), X[:, 4::-2, :, 1:3]),
    "broadcast": (
        lambda c, x: c.broadcast(c.window(x, {1: slice(0, 1)}), (3, *X.shape)),
        np.broadcast_to(X[:, :1], (3, *X.shape)),
    ),
    "stack": (lambda c, x: c.stack([x, x, x], -1), np.stack([X, X, X], -1)),
    "tril": (lambda c, x: c.triangle(x, -1, upper=False), np.tril(X, -1)),
    "triu": (lambda c, x: c.triangle(x, 1, upper=True), np.triu(X, 1)),
    "linear": (lambda c, x: c.linear(x, X[0, 0], VECTOR[:5]), X @ X[0, 0].T + VECTOR[:5]),
    "weighted": (lambda c, x: c.weighted(2, x, 0.5, x), 2.5 * X),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_composition_computes_what_its_formula_says(name: str) -> None:
    build, wanted = CASES[name]
    (result,) = written(build, X).evaluate({"x": X}).values()
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-5)
    c = Writer()
    np.testing.assert_allclose(np.asarray(build(c, X)), wanted, rtol=2e-5, atol=2e-5)
    assert not c.builder.function.ops  # constants are computed at once


def test_infinities_outside_a_triangle_are_zeros() -> None:
    x = np.full((3, 3), np.inf, np.float32)
    (result,) = written(lambda c, v: c.triangle(v, 0, upper=True), x).evaluate({"x": x}).values()
    np.testing.assert_array_equal(result, np.where(np.triu(np.ones((3, 3))), np.inf, 0))


def test_truth_is_padded() -> None:
    x = X[0, 0] > 0
    (result,) = written(lambda c, v: c.pad(v, [(1, 1)], value=1), x).evaluate({"x": x}).values()
    np.testing.assert_array_equal(result, np.pad(x, ((0, 0), (1, 1)), constant_values=True))


@pytest.mark.parametrize("cut", [[(1, 1), (0, 1)], [(0, -1), (1, -2)]])
def test_a_transposed_convolution_is_cut_or_gets_rows_of_its_bias(cut: list[tuple[int, int]]) -> None:
    weight, bias = RNG.normal(0, 1, (6, 2, 3, 3)).astype(np.float32), np.float32([1, -1])
    whole = written(lambda c, v: c.conv_transpose(v, weight, None, [(0, 0)] * 2, strides=[2, 2]), X)
    (full,) = whole.evaluate({"x": X}).values()
    (result,) = (
        written(lambda c, v: c.conv_transpose(v, weight, bias, cut, strides=[2, 2]), X).evaluate({"x": X}).values()
    )
    rows, columns = ((max(-a, 0), max(-b, 0)) for a, b in cut)
    inner = full[:, :, max(cut[0][0], 0) :, max(cut[1][0], 0) :]
    inner = inner[:, :, : inner.shape[2] - max(cut[0][1], 0), : inner.shape[3] - max(cut[1][1], 0)]
    wanted = np.pad(inner, ((0, 0), (0, 0), rows, columns)) + bias.reshape(2, 1, 1)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def test_what_does_not_fit_is_said() -> None:
    c = Writer()
    with pytest.raises(GraphError, match="does not broadcast"):
        c.broadcast(X, (2, 6, 5, 3))
    with pytest.raises(GraphError, match="axis 4"):
        axis_in(4, 4)
    with pytest.raises(GraphError, match="6 channels in 4 groups"):
        c.group_norm(X, 4, 1e-3)
