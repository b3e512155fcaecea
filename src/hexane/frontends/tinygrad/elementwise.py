"""tinygrad's element-wise ops in the graph's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hexane.formats.operands import Operand, type_of
from hexane.frontends.tinygrad import patterns
from hexane.frontends.tinygrad.types import dtype_of, is_weak
from hexane.graph.types import FLOATS

Rule = Callable[[Any, Any, "list[Operand]"], Operand]


def _binary(name: str) -> Rule:
    return lambda r, u, v: r.ops.op(name, x=v[0], y=v[1])


def _logical(on_bool: str, on_int: str) -> Rule:
    return lambda r, u, v: r.ops.op(on_bool if type_of(v[0]).dtype == "bool" else on_int, x=v[0], y=v[1])


def _times(r: Any, u: Any, v: list[Operand]) -> Operand:
    if dtype_of(u) == "bool":
        return r.ops.logical_and(x=v[0], y=v[1])
    return r.ops.mul(x=v[0], y=v[1])


def _plus(r: Any, u: Any, v: list[Operand]) -> Operand:
    if dtype_of(u) == "bool":
        return r.ops.logical_or(x=v[0], y=v[1])
    for one, other in ((0, 1), (1, 0)):  # x + (-1) y
        negated = patterns.times(u.src[other], -1.0) if not is_weak(u.src[other]) else None
        if negated is not None and not is_weak(negated):
            return r.ops.sub(x=v[one], y=r.narrow(negated))
    return r.ops.add(x=v[0], y=v[1])


def _maximum(r: Any, u: Any, v: list[Operand]) -> Operand:
    return r.ops.logical_or(x=v[0], y=v[1]) if dtype_of(u) == "bool" else r.ops.maximum(x=v[0], y=v[1])


def _compare(name: str) -> Rule:
    def rule(r: Any, u: Any, v: list[Operand]) -> Operand:
        if type_of(v[0]).dtype == "bool":
            if name == "not_equal":
                return r.ops.logical_xor(x=v[0], y=v[1])
            v = [r.cast(operand, "int32") for operand in v]
        return r.ops.op(name, x=v[0], y=v[1])

    return rule


def _trunc(r: Any, u: Any, v: list[Operand]) -> Operand:
    if dtype_of(u) not in FLOATS:
        return v[0]
    return r.ops.mul(x=r.ops.sign(x=v[0]), y=r.ops.floor(x=r.ops.abs(x=v[0])))


def _c_division(r: Any, u: Any, v: list[Operand]) -> Operand:
    """Towards zero, as in C."""
    x, y = v
    quotient = r.ops.floor_div(x=r.ops.abs(x=x), y=r.ops.abs(x=y))
    return r.ops.mul(x=quotient, y=r.ops.mul(x=r.ops.sign(x=x), y=r.ops.sign(x=y)))


def _c_modulo(r: Any, u: Any, v: list[Operand]) -> Operand:
    return r.ops.op("onnx.Mod", x=v[0], y=v[1], fmod=True)


def _shift(direction: str) -> Rule:
    return lambda r, u, v: r.ops.op("onnx.BitShift", x=v[0], y=v[1], direction=direction)


def _where(r: Any, u: Any, v: list[Operand]) -> Operand:
    fixed = patterns.number(u.src[0])
    if fixed is not None:
        place = 1 if fixed else 2
        return v[place] if is_weak(u.src[place]) else r.value(u.src[place])
    if isinstance(v[0], np.ndarray) and (v[0].all() or not v[0].any()):
        return v[1] if v[0].all() else v[2]
    return r.ops.select(cond=v[0], a=v[1], b=v[2])


ELEMENTWISE: dict[str, Rule] = {
    "ADD": _plus,
    "SUB": _binary("sub"),
    "MUL": _times,
    "FDIV": _binary("real_div"),
    "MAX": _maximum,
    "POW": _binary("pow"),
    "FLOORDIV": _binary("floor_div"),
    "FLOORMOD": _binary("mod"),
    "CDIV": _c_division,
    "CMOD": _c_modulo,
    "CMPLT": _compare("less"),
    "CMPNE": _compare("not_equal"),
    "CMPEQ": _compare("equal"),
    "AND": _logical("logical_and", "onnx.BitwiseAnd"),
    "OR": _logical("logical_or", "onnx.BitwiseOr"),
    "XOR": _logical("logical_xor", "onnx.BitwiseXor"),
    "SHL": _shift("LEFT"),
    "SHR": _shift("RIGHT"),
    "WHERE": _where,
    "EXP2": lambda r, u, v: r.ops.exp2(x=v[0]),
    "LOG2": lambda r, u, v: r.scale(r.ops.log(x=v[0], epsilon=0.0), 1 / np.log(2)),
    "SIN": lambda r, u, v: r.ops.sin(x=v[0]),
    "SQRT": lambda r, u, v: r.ops.sqrt(x=v[0]),
    "RECIPROCAL": lambda r, u, v: r.ops.real_div(x=r.like(1, v[0]), y=v[0]),  # inverse loses -0
    "NEG": lambda r, u, v: r.scale(v[0], -1),
    "TRUNC": _trunc,
    "BITCAST": lambda r, u, v: r.ops.op("onnx.BitCast", x=v[0], source=type_of(v[0]).dtype, dtype=dtype_of(u)),
    "MULACC": lambda r, u, v: r.ops.add(x=r.ops.mul(x=v[0], y=v[1]), y=v[2]),
}
"""tinygrad's element-wise ops: reader, node and operands to a value."""

FUNCTIONS = frozenset({"EXP2", "LOG2", "SIN", "SQRT", "RECIPROCAL"})
"""Of one operand, whose dtype is that of the result."""
