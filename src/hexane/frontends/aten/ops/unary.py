"""Element-wise operators of one operand."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from hexane.formats.compositions import Refused
from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, Translator, aten


def floats(c: AtenNode, name: str = "self") -> Operand:
    """An operand in the result's float type: integers are converted first, as PyTorch does."""
    return c.cast(c.x(name), c.out().dtype)


def plain(op: str, **more: Any) -> Translator:
    """An op of one operand, in the result's element type."""
    return lambda c: c.ops.op(op, x=floats(c), **more)


for _name in (
    "abs", "acos", "asin", "atan", "atanh", "cos", "cosh", "erf", "exp", "exp2", "sin", "sinh", "sqrt", "tan",
    "tanh", "sigmoid", "sign",
):  # fmt: skip
    aten(f"{_name}.default")(plain(_name))
aten("log.default")(plain("log", epsilon=0.0))
aten("rsqrt.default")(plain("rsqrt", epsilon=0.0))
aten("reciprocal.default")(plain("inverse", epsilon=0.0))


def _rounding(op: str) -> Translator:
    return lambda c: c.ops.op(op, x=c.x()) if c.out().dtype.startswith("fp") else c.x()


for _name in ("ceil", "floor", "round"):
    aten(f"{_name}.default")(_rounding(_name))


@aten("trunc.default")
def trunc(c: AtenNode) -> Operand:
    x = c.x()
    return truncated(c, x) if c.dtype(x).startswith("fp") else x


def truncated(c: AtenNode, x: Operand) -> Operand:
    """Toward zero."""
    return c.ops.select(cond=c.ops.less(x=x, y=c.like(0, x)), a=c.ops.ceil(x=x), b=c.ops.floor(x=x))


@aten("neg.default")
def neg(c: AtenNode) -> Operand:
    return c.scale(c.x(), -1)


@aten("expm1.default")
def expm1(c: AtenNode) -> Operand:
    x = floats(c)
    return c.ops.sub(x=c.ops.exp(x=x), y=c.like(1, x))


@aten("log1p.default")
def log1p(c: AtenNode) -> Operand:
    x = floats(c)
    return c.ops.log(x=c.ops.add(x=x, y=c.like(1, x)), epsilon=0.0)


def _log_to(base: float) -> Translator:
    return lambda c: c.scale(c.ops.log(x=floats(c), epsilon=0.0), 1 / log(base))


aten("log2.default")(_log_to(2.0))
aten("log10.default")(_log_to(10.0))


@aten("acosh.default")
def acosh(c: AtenNode) -> Operand:
    """ln(x + sqrt(x - 1) sqrt(x + 1)): no square, which would overflow half precision."""
    x = floats(c)
    one = c.like(1, x)
    root = c.ops.mul(x=c.ops.sqrt(x=c.ops.sub(x=x, y=one)), y=c.ops.sqrt(x=c.ops.add(x=x, y=one)))
    return c.ops.log(x=c.ops.add(x=x, y=root), epsilon=0.0)


@aten("asinh.default")
def asinh(c: AtenNode) -> Operand:
    """sign(x) ln(|x| + sqrt(x x + 1)); from 128 on ln(2 |x|), which is the same in half precision."""
    x = floats(c)
    size = c.ops.abs(x=x)
    small = c.ops.minimum(x=size, y=c.like(128, x))
    root = c.ops.sqrt(x=c.ops.add(x=c.ops.mul(x=small, y=small), y=c.like(1, x)))
    near = c.ops.log(x=c.ops.add(x=small, y=root), epsilon=0.0)
    far = c.ops.add(x=c.ops.log(x=c.ops.maximum(x=size, y=c.like(1, x)), epsilon=0.0), y=c.like(log(2.0), x))
    magnitude = c.ops.select(cond=c.ops.greater(x=size, y=c.like(128, x)), a=far, b=near)
    return c.ops.mul(x=magnitude, y=c.ops.sign(x=x))


@aten("erfc.default")
def erfc(c: AtenNode) -> Operand:
    x = floats(c)
    return c.ops.sub(x=c.like(1, x), y=c.ops.erf(x=x))


@aten("isnan.default")
def isnan(c: AtenNode) -> Operand:
    x = c.x()
    return c.ops.not_equal(x=x, y=x)


@aten("isinf.default")
def isinf(c: AtenNode) -> Operand:
    x = c.x()
    if not c.dtype(x).startswith("fp"):
        return c.cast(c.ops.mul(x=x, y=c.like(0, x)), "bool")
    return c.ops.equal(x=c.ops.abs(x=x), y=c.like(np.inf, x))


@aten("logical_not.default")
def logical_not(c: AtenNode) -> Operand:
    return c.ops.logical_not(x=c.cast(c.x(), "bool"))


@aten("bitwise_not.default")
def bitwise_not(c: AtenNode) -> Operand:
    x = c.x()
    if c.dtype(x) == "bool":
        return c.ops.logical_not(x=x)
    if c.dtype(x).startswith("u"):
        raise Refused("bits of unsigned integers")
    return c.ops.sub(x=c.like(-1, x), y=x)


@aten("_to_copy.default", "dim_order_ops::_to_dim_order_copy.default")
def to_copy(c: AtenNode) -> Operand:
    x, dtype = c.x(), c.out().dtype
    if str(c.results[0].device) != "cpu":
        raise Refused(f"a tensor on {c.results[0].device}")
    return c.cast(x, dtype)


@aten(
    "clone.default", "alias.default", "detach.default", "detach_.default", "lift_fresh_copy.default",
    "lift_fresh.default", "contiguous.default", "alias_copy.default", "detach_copy.default",
    "dim_order_ops::_clone_dim_order.default",
)  # fmt: skip
def same(c: AtenNode) -> Operand:
    return c.x()


@aten("dropout.default", "native_dropout.default")
def dropout(c: AtenNode) -> Any:
    name = "input" if "input" in c.arguments else "self"
    if c["train"]:
        raise Refused("dropout while training")
    x = c.x(name)
    return x if len(c.results) == 1 else (x, None)
