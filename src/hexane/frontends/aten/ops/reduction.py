"""Reductions, cumulative sums, order."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, Refused, Translator, aten


def _axes(c: AtenNode, x: Operand, name: str = "dim") -> np.ndarray:
    return np.array(c.axes(c[name] if name in c.arguments else None, c.rank(x)), np.int32)


def _kept(c: AtenNode) -> bool:
    return bool(c.arguments.get("keepdim", False))


def _reduced(c: AtenNode, op: str, x: Operand, axes: np.ndarray, keep: bool) -> Operand:
    if c.rank(x) == 0:
        return x
    made = c.ops.op(op, x=x, axes=axes, keep_dims=keep or len(axes) == c.rank(x))
    return c.reshape(made, c.out().shape) if not keep and len(axes) == c.rank(x) else made


def _simple(op: str) -> Translator:
    def translate(c: AtenNode) -> Operand:
        x = c.cast(c.x(), c.out().dtype)
        return _reduced(c, op, x, _axes(c, x), _kept(c))

    return translate


aten("sum.dim_IntList", "sum.default")(_simple("reduce_sum"))
aten("mean.dim", "mean.default")(_simple("reduce_mean"))
aten("amax.default", "max.default")(_simple("reduce_max"))
aten("amin.default", "min.default")(_simple("reduce_min"))
aten("prod.default", "prod.dim_int")(_simple("reduce_prod"))


@aten("logsumexp.default")
def logsumexp(c: AtenNode) -> Operand:
    x = c.cast(c.x(), c.out().dtype)
    return _reduced(c, "reduce_log_sum_exp", x, _axes(c, x), _kept(c))


def _truth(op: str) -> Translator:
    def translate(c: AtenNode) -> Operand:
        x = c.cast(c.cast(c.x(), "bool"), "int32")
        if c.rank(x) == 0:
            return c.cast(x, "bool")
        return c.cast(_reduced(c, op, x, _axes(c, x), _kept(c)), "bool")

    return translate


aten("any.default", "any.dim", "any.dims")(_truth("reduce_max"))
aten("all.default", "all.dim", "all.dims")(_truth("reduce_min"))


def _with_place(op: str) -> Translator:
    """Values and indices along one axis."""

    def translate(c: AtenNode) -> tuple[Any, Any]:
        x = c.x()
        if c.rank(x) == 0:
            return x, np.zeros((), np.int64)
        axis = c.axis(c["dim"], c.rank(x))
        value = _reduced(c, f"reduce_{op}", x, np.array([axis], np.int32), _kept(c))
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
            axis = c.axis(c["dim"], c.rank(x))
        if c.dtype(x) == "bool":
            x = c.cast(x, "int32")
        return c.reshape(c.ops.op(op, x=x, axis=axis, keep_dims=True), c.out().shape)

    return translate


aten("argmax.default")(_place("reduce_argmax"))
aten("argmin.default")(_place("reduce_argmin"))


def variance(c: AtenNode, x: Operand, axes: np.ndarray, correction: float) -> tuple[Operand, Operand]:
    """(variance, mean), both with the axes kept."""
    count = int(np.prod([c.shape(x)[axis] for axis in axes], dtype=np.int64))
    mean = c.ops.reduce_mean(x=x, axes=axes, keep_dims=True)
    low = c.ops.sub(x=x, y=mean)
    square = c.ops.reduce_mean(x=c.ops.mul(x=low, y=low), axes=axes, keep_dims=True)
    if correction:
        if count <= correction:
            return c.ops.mul(x=square, y=c.like(np.nan, x)), mean
        square = c.ops.mul(x=square, y=c.like(count / (count - correction), x))
    return square, mean


@aten("var.correction", "var.dim", "var.default", "std.correction")
def var(c: AtenNode) -> Operand:
    x = c.x()
    if c.rank(x) == 0:
        raise Refused("the variance of one number")
    if "correction" in c.arguments:
        correction = c.number("correction", 1.0)
    else:
        correction = float(bool(c.arguments.get("unbiased", True)))
    found = variance(c, x, _axes(c, x), correction)[0]
    found = c.ops.sqrt(x=found) if "std" in str(c.node.target) else found
    return c.reshape(found, c.out().shape)


@aten("var_mean.correction")
def var_mean(c: AtenNode) -> tuple[Operand, Operand]:
    x = c.x()
    if c.rank(x) == 0:
        raise Refused("the variance of one number")
    found = variance(c, x, _axes(c, x), c.number("correction", 1.0))
    return c.reshape(found[0], c.out(0).shape), c.reshape(found[1], c.out(1).shape)


@aten("linalg_vector_norm.default")
def vector_norm(c: AtenNode) -> Operand:
    x = c.cast(c.x(), c.out().dtype)
    order = c.number("ord")
    axes, keep = _axes(c, x), _kept(c)
    if c.rank(x) == 0:
        return c.ops.abs(x=x) if order else c.cast(c.ops.not_equal(x=x, y=c.like(0, x)), c.out().dtype)
    size = c.ops.abs(x=x)
    if order == np.inf:
        return _reduced(c, "reduce_max", size, axes, keep)
    if order == -np.inf:
        return _reduced(c, "reduce_min", size, axes, keep)
    if order == 0:
        return _reduced(c, "reduce_sum", c.cast(c.ops.not_equal(x=x, y=c.like(0, x)), c.dtype(x)), axes, keep)
    if order == 1:
        return _reduced(c, "reduce_l1_norm", x, axes, keep)
    if order == 2:
        return _reduced(c, "reduce_l2_norm", x, axes, keep)
    powers = _reduced(c, "reduce_sum", c.ops.pow(x=size, y=c.like(order, x)), axes, keep)
    return c.ops.pow(x=powers, y=c.like(1 / order, x))


@aten("cumsum.default")
def cumsum(c: AtenNode) -> Operand:
    x = c.cast(c.x(), c.out().dtype)
    return x if c.rank(x) == 0 else c.ops.cumsum(x=x, axis=c.axis(c["dim"], c.rank(x)))


@aten("topk.default")
def topk(c: AtenNode) -> tuple[Operand, Operand]:
    x = c.x()
    if c.rank(x) == 0:
        return x, np.zeros((), np.int64)
    (k,) = c.ints("k")
    axis = c.axis(c["dim"], c.rank(x))
    made = c.ops.topk(x=x, k=k, axis=axis, ascending=not c["largest"])
    return made[0], made[1]


@aten("sort.default", "sort.stable")
def sort(c: AtenNode) -> tuple[Operand, Operand]:
    x = c.x()
    if c.rank(x) == 0:
        return x, np.zeros((), np.int64)
    axis = c.axis(c["dim"], c.rank(x))
    order = c.ops.argsort(x=x, axis=axis, ascending=not c["descending"])
    return c.ops.gather_along_axis(x=x, indices=order, axis=axis), order
