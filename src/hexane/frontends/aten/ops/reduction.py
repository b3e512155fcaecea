"""Reductions, cumulative sums, order."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hexane.formats.compositions import Refused
from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, Translator, aten


def _axes(c: AtenNode, x: Operand) -> list[int]:
    return c.axes(c["dim"] if "dim" in c.arguments else None, c.rank(x))


def _reduced(c: AtenNode, op: str, x: Operand) -> Operand:
    """A reduction over the axes that the call names."""
    if c.rank(x) == 0:
        return x
    axes = _axes(c, x)
    keep = bool(c.arguments.get("keepdim", False)) or len(axes) == c.rank(x)
    return c.reshape(c.ops.op(op, x=x, axes=axes, keep_dims=keep), c.out().shape)


def _simple(op: str) -> Translator:
    return lambda c: _reduced(c, op, c.cast(c.x(), c.out().dtype))


aten("sum.dim_IntList")(_simple("reduce_sum"))
aten("mean.dim", "mean.default")(_simple("reduce_mean"))
aten("amax.default", "max.default")(_simple("reduce_max"))
aten("amin.default", "min.default")(_simple("reduce_min"))
aten("prod.default", "prod.dim_int")(_simple("reduce_prod"))


@aten("any.default", "any.dim", "any.dims")
def any_(c: AtenNode) -> Operand:
    return c.cast(_reduced(c, "reduce_max", c.cast(c.cast(c.x(), "bool"), "int32")), "bool")


def _with_place(op: str) -> Translator:
    """Values and indices along one axis."""

    def translate(c: AtenNode) -> tuple[Any, Any]:
        x = c.x()
        if c.rank(x) == 0:
            return x, np.zeros((), np.int64)
        axis = c.axis(x)
        value = _reduced(c, f"reduce_{op}", x)
        place = c.ops.op(f"reduce_arg{op}", x=x, axis=axis, keep_dims=True) if c.used(1) else None
        return value, None if place is None else c.reshape(place, c.out(1).shape)

    return translate


aten("max.dim")(_with_place("max"))
aten("min.dim")(_with_place("min"))


def _place(op: str) -> Translator:
    def translate(c: AtenNode) -> Operand:
        x = c.x()
        if c.rank(x) == 0:
            return np.zeros((), np.int64)
        if c["dim"] is None:
            x, axis = c.reshape(x, (int(np.prod(c.shape(x))),)), 0
        else:
            axis = c.axis(x)
        if c.dtype(x) == "bool":
            x = c.cast(x, "int32")
        return c.reshape(c.ops.op(op, x=x, axis=axis, keep_dims=True), c.out().shape)

    return translate


aten("argmax.default")(_place("reduce_argmax"))
aten("argmin.default")(_place("reduce_argmin"))


@aten("var.correction", "var_mean.correction")
def var(c: AtenNode) -> Any:
    x = c.x()
    if c.rank(x) == 0:
        raise Refused("the variance of one number")
    correction = c.number("correction", 1.0)
    axes = _axes(c, x)
    count = prod(c.shape(x)[axis] for axis in axes)
    _, mean, square = c.moments(x, axes)
    square = c.scale(square, count / (count - correction) if count > correction else np.nan)
    square = c.reshape(square, c.out().shape)
    return (square, c.reshape(mean, c.out(1).shape)) if "var_mean" in str(c.node.target) else square


@aten("linalg_vector_norm.default")
def vector_norm(c: AtenNode) -> Operand:
    x = c.cast(c.x(), c.out().dtype)
    order = c.number("ord")
    if order == 0:
        return _reduced(c, "reduce_sum", c.cast(c.ops.not_equal(x=x, y=c.like(0, x)), c.dtype(x)))
    if c.rank(x) == 0:
        return c.ops.abs(x=x)
    if abs(order) == np.inf:
        return _reduced(c, "reduce_max" if order > 0 else "reduce_min", c.ops.abs(x=x))
    return c.reshape(c.lp_norm(x, order, _axes(c, x), True), c.out().shape)


@aten("cumsum.default")
def cumsum(c: AtenNode) -> Operand:
    x = c.cast(c.x(), c.out().dtype)
    return x if c.rank(x) == 0 else c.ops.cumsum(x=x, axis=c.axis(x))


@aten("topk.default")
def topk(c: AtenNode) -> tuple[Operand, Operand]:
    x = c.x()
    if c.rank(x) == 0:
        return x, np.zeros((), np.int64)
    (k,) = c.ints("k")
    axis = c.axis(x)
    results = c.ops.topk(x=x, k=k, axis=axis, ascending=not c["largest"])
    return results[0], results[1]


@aten("sort.default", "sort.stable")
def sort(c: AtenNode) -> tuple[Operand, Operand]:
    x = c.x()
    if c.rank(x) == 0:
        return x, np.zeros((), np.int64)
    axis = c.axis(x)
    order = c.ops.argsort(x=x, axis=axis, ascending=not c["descending"])
    return c.ops.gather_along_axis(x=x, indices=order, axis=axis), order
