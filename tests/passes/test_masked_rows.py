"""Attention as PyTorch writes it: rows that a mask hides whole are zero, and cost nothing where there are none."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .comparing import types_of

RNG = np.random.default_rng(3)
SHAPE = (1, 2, 8, 16)
HIDDEN = np.zeros((8, 8), np.float32)
HIDDEN[3:, 3:] = -np.inf
WHOLE = HIDDEN.copy()
WHOLE[5] = -np.inf


def all_hidden(b, scores):
    """aten._safe_softmax: not any(scores != -inf)."""
    other = b.logical_not(x=b.equal(x=scores, y=np.float32(-np.inf)))
    found = b.reduce_max(x=b.cast(x=other, dtype="int32"), axes=[-1], keep_dims=True)
    return b.logical_not(x=b.not_equal(x=found, y=np.int32(0)))


def attention(mask, asked="all", shape=SHAPE):
    b = GraphBuilder()
    q, k, v = (b.input(name, shape, "fp32") for name in "qkv")
    scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float32(0.25))
    if mask is not None:
        scores = b.add(x=scores, y=b.input("m", (8, 8), "fp32") if isinstance(mask, str) else mask)
    weights = b.softmax(x=scores, axis=-1)
    cond = {
        "all": lambda: all_hidden(b, scores),
        "nan": lambda: b.op("onnx.IsNaN", x=weights),
        "itself": lambda: b.not_equal(x=weights, y=weights),
    }[asked]()
    weights = b.select(cond=cond, a=np.float32(0), b=weights)
    b.output(b.matmul(x=weights, y=v, name="y"))
    return b.graph


def inputs(mask):
    values = {name: RNG.standard_normal(SHAPE).astype(np.float16).astype(np.float32) for name in "qkv"}
    return {**values, "m": WHOLE} if isinstance(mask, str) else values


def wanted(values, mask):
    scores = values["q"] @ values["k"].swapaxes(-1, -2) * 0.25 + (0 if mask is None else mask)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
    return np.nan_to_num(weights) @ values["v"]


@pytest.mark.parametrize("asked", ["all", "nan", "itself"])
@pytest.mark.parametrize("mask", ["input", None, HIDDEN, WHOLE], ids=["input", "none", "parts", "whole row"])
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_rows_that_are_hidden_are_zero(mask, asked, chip):
    graph, values = attention(mask, asked), inputs(mask)
    program = hexane.compile(graph, chip)
    assert {segment.kind for segment in program.segments} == {"engine"}
    got = program.run(values)["y"]
    np.testing.assert_array_equal(got, program.run(values, level="graph")["y"])
    truth = wanted(values, WHOLE if isinstance(mask, str) else mask)
    np.testing.assert_allclose(got, truth, atol=0.01)
    np.testing.assert_allclose(graph.evaluate(values)["y"], truth, atol=1e-5)
    kept = "reduce_max" in types_of(program.graph)
    assert kept == (mask is WHOLE or isinstance(mask, str))


def test_sums_of_products_are_finite():
    """Scores that are sums of products hide no row, also those of a transposed convolution: the question goes."""
    weight = np.ones((8, 8, 1, 1), np.float32)
    for make in ("conv", "conv_transpose"):
        b = GraphBuilder()
        x = b.input("x", (1, 8, 4, 8), "fp32")
        scores = b.op(make, x=x, weight=weight, pad_type="valid")
        weights = b.softmax(x=scores, axis=-1)
        b.output(b.select(cond=all_hidden(b, scores), a=np.float32(0), b=weights, name="y"))
        assert not {"select", "reduce_max"} & set(types_of(hexane.compile(b.graph).graph)), make


def test_another_question_stays():
    """All of the row -1, any of it -inf, another axis: none of these is what the pass knows."""
    for change in ("number", "any", "axis"):
        b = GraphBuilder()
        scores = b.mul(x=b.input("x", (1, 2, 8, 8), "fp32"), y=np.float32(2))
        weights = b.softmax(x=scores, axis=-1)
        hit = b.equal(x=scores, y=np.float32(-1 if change == "number" else -np.inf))
        other = hit if change == "any" else b.logical_not(x=hit)
        axes = [-2] if change == "axis" else [-1]
        found = b.reduce_max(x=b.cast(x=other, dtype="int32"), axes=axes, keep_dims=True)
        cond = b.not_equal(x=found, y=np.int32(0))
        cond = cond if change == "any" else b.logical_not(x=cond)
        b.output(b.select(cond=cond, a=np.float32(0), b=weights, name="y"))
        program = hexane.compile(b.graph)
        assert "select" in types_of(program.graph)
        x = RNG.standard_normal((1, 2, 8, 8)).astype(np.float32)
        x[0, 0, 2, 1], x[0, 1, 3], x[0, 1, :, 4] = -np.inf, -0.5, -np.inf
        np.testing.assert_allclose(program.run({"x": x})["y"], b.graph.evaluate({"x": x})["y"], atol=5e-3)
