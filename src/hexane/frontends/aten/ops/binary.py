"""Element-wise operators of two and three operands."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

from hexane.formats.compositions import Refused
from hexane.formats.operands import Operand
from hexane.frontends.aten.node import DTYPES, AtenNode, Translator, aten
from hexane.frontends.aten.ops.unary import truncated


def both(c: AtenNode, dtype: str | None = None, names: tuple[str, str] = ("self", "other")) -> tuple[Operand, Operand]:
    """Two operands in the result's element type."""
    dtype = dtype or c.out().dtype
    x, y = c.cast(c[names[0]], dtype), c.cast(c[names[1]], dtype)
    return x, y


def compared(c: AtenNode) -> tuple[Operand, Operand]:
    """Two operands in the type in which PyTorch compares them."""
    import torch

    def fake(name: str) -> Any:
        argument = c.arguments[name]
        return argument.meta["val"] if hasattr(argument, "meta") else argument

    dtype = str(torch.result_type(fake("self"), fake("other"))).removeprefix("torch.")
    if dtype not in DTYPES:
        raise Refused(f"its elements are {dtype}")
    return both(c, DTYPES[dtype])


@aten("add.Tensor", "add.Scalar")
def add(c: AtenNode) -> Operand:
    x, y = both(c)
    if c.out().dtype == "bool":
        return c.ops.logical_or(x=x, y=y)
    return c.ops.add(x=x, y=c.scale(y, c.arguments.get("alpha", 1)))


@aten("sub.Tensor", "sub.Scalar")
def sub(c: AtenNode) -> Operand:
    x, y = both(c)
    return c.ops.sub(x=x, y=c.scale(y, c.arguments.get("alpha", 1)))


@aten("mul.Tensor", "mul.Scalar")
def mul(c: AtenNode) -> Operand:
    x, y = both(c)
    return c.ops.logical_and(x=x, y=y) if c.out().dtype == "bool" else c.ops.mul(x=x, y=y)


@aten("div.Tensor", "div.Scalar")
def div(c: AtenNode) -> Operand:
    x, y = both(c)
    return c.ops.real_div(x=x, y=y)


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(c: AtenNode) -> Operand:
    x, y = both(c)
    mode = c["rounding_mode"]
    whole = not c.out().dtype.startswith("fp")
    if whole and not isinstance(y, np.ndarray):
        raise Refused("a division of integers by what is known at run time only (PyTorch raises for zero)")
    if mode is None:
        return c.ops.real_div(x=x, y=y)
    if mode == "floor":
        return c.ops.floor_div(x=x, y=y)
    quotient = c.ops.real_div(x=x, y=y)
    return quotient if whole else truncated(c, quotient)


@aten("remainder.Tensor", "remainder.Scalar")
def remainder(c: AtenNode) -> Operand:
    x, y = both(c)
    return c.ops.mod(x=x, y=y)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(c: AtenNode) -> Operand:
    """The remainder with the sign of x."""
    x, y = both(c)
    rest = c.ops.mod(x=c.ops.abs(x=x), y=c.ops.abs(x=y))
    return c.ops.mul(x=rest, y=c.ops.sign(x=x))


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(c: AtenNode) -> Operand:
    dtype = c.out().dtype
    exponent = c.arguments["exponent"]
    if isinstance(exponent, int | float):
        x = c.cast(c["self"], dtype)
        if exponent == 2:
            return c.ops.mul(x=x, y=x)
        if exponent == 1:
            return x
        if exponent == 0.5 and dtype.startswith("fp"):
            return c.ops.sqrt(x=x)
        if exponent == 3:
            return c.ops.mul(x=c.ops.mul(x=x, y=x), y=x)
        if exponent == -1 and dtype.startswith("fp"):
            return c.ops.inverse(x=x, epsilon=0.0)
    x, y = both(c, names=("self", "exponent"))
    return c.ops.pow(x=x, y=y)


@aten("maximum.default", "minimum.default")
def maximum(c: AtenNode) -> Operand:
    x, y = both(c)
    largest = "maximum" in str(c.node.target)
    if c.out().dtype == "bool":
        return c.ops.op("logical_or" if largest else "logical_and", x=x, y=y)
    return c.ops.op("maximum" if largest else "minimum", x=x, y=y)


@aten("fmax.default", "fmin.default")
def fmax(c: AtenNode) -> Operand:
    """The larger (smaller) one, or the one that is a number."""
    x, y = both(c)
    result = c.ops.op("maximum" if "fmax" in str(c.node.target) else "minimum", x=x, y=y)
    result = c.ops.select(cond=c.ops.not_equal(x=x, y=x), a=y, b=result)
    return c.ops.select(cond=c.ops.not_equal(x=y, y=y), a=x, b=result)


@aten("hypot.default")
def hypot(c: AtenNode) -> Operand:
    """larger sqrt(1 + (smaller / larger)^2): no square that could overflow half precision."""
    x, y = (c.ops.abs(x=one) for one in both(c))
    large, small = c.ops.maximum(x=x, y=y), c.ops.minimum(x=x, y=y)
    zero = c.ops.equal(x=large, y=c.like(0, x))
    ratio = c.ops.real_div(x=small, y=c.ops.select(cond=zero, a=c.like(1, x), b=large))
    root = c.ops.sqrt(x=c.ops.add(x=c.ops.mul(x=ratio, y=ratio), y=c.like(1, x)))
    return c.ops.mul(x=large, y=root)


def _comparison(op: str) -> Translator:
    def translate(c: AtenNode) -> Operand:
        x, y = compared(c)
        if c.dtype(x) == "bool" and op not in ("equal", "not_equal"):
            x, y = c.cast(x, "int32"), c.cast(y, "int32")
        return c.ops.op(op, x=x, y=y)

    return translate


for _name, _op in {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}.items():  # fmt: skip
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_op))


def _logical(op: str, bits: bool) -> Translator:
    def translate(c: AtenNode) -> Operand:
        if bits and c.out().dtype != "bool":
            raise Refused("bits of integers")
        return c.ops.op(op, x=c.cast(c["self"], "bool"), y=c.cast(c["other"], "bool"))

    return translate


for _name, _op in {"and": "logical_and", "or": "logical_or", "xor": "logical_xor"}.items():
    aten(f"logical_{_name}.default")(_logical(_op, bits=False))
    aten(f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar")(_logical(_op, bits=True))


@aten("where.self")
def where(c: AtenNode) -> Operand:
    x, y = both(c)
    condition = c.cast(c.x("condition"), "bool")
    shape = c.out().shape
    if c.shape(x) != shape and c.shape(y) != shape and c.shape(condition) != shape:
        x = c.broadcast(x, shape)
    return c.ops.select(cond=condition, a=x, b=y)


@aten("clamp.default", "clamp.Tensor")
def clamp(c: AtenNode) -> Operand:
    dtype = c.out().dtype
    x = c.cast(c.x(), dtype)
    low, high = c.arguments["min"], c.arguments["max"]
    if isinstance(low, int | float) and isinstance(high, int | float) and dtype.startswith("fp") and low <= high:
        return c.ops.clip(x=x, alpha=float(low), beta=float(high))
    if low is not None:
        x = c.ops.maximum(x=x, y=c.cast(c["min"], dtype))
    if high is not None:
        x = c.ops.minimum(x=x, y=c.cast(c["max"], dtype))
    return x


@aten("atan2.default")
def atan2(c: AtenNode) -> Operand:
    """The angle of (x, y) by the arc tangent of y / x and the quadrant."""
    y, x = both(c)
    zero = c.like(0, x)
    base = c.ops.atan(x=c.ops.real_div(x=y, y=x))
    below = c.ops.less(x=y, y=zero)
    turn = c.ops.select(cond=below, a=c.ops.sub(x=base, y=c.like(pi, x)), b=c.ops.add(x=base, y=c.like(pi, x)))
    angle = c.ops.select(cond=c.ops.less(x=x, y=zero), a=turn, b=base)
    upright = c.ops.mul(x=c.ops.sign(x=y), y=c.like(pi / 2, x))
    return c.ops.select(cond=c.ops.equal(x=x, y=zero), a=upright, b=angle)
