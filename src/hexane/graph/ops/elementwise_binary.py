"""Element-wise ops of two operands, comparisons, logic, ``select`` (docs/reference/mil.md 5.1); operands broadcast
as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.graph.ops._rules import bool_type, broadcast, broadcast_type
from hexane.graph.registry import op
from hexane.graph.traits import ELEMENTWISE
from hexane.graph.types import TensorType

_ARITHMETIC: dict[str, Any] = {
    "add": (np.add, "x + y"),
    "sub": (np.subtract, "x - y"),
    "mul": (np.multiply, "x times y"),
    "maximum": (np.maximum, "the larger"),
    "minimum": (np.minimum, "the smaller"),
}
_COMPARISONS: dict[str, Any] = {
    "equal": (np.equal, "x = y"),
    "not_equal": (np.not_equal, "x other than y"),
    "greater": (np.greater, "x > y"),
    "greater_equal": (np.greater_equal, "x >= y"),
    "less": (np.less, "x < y"),
    "less_equal": (np.less_equal, "x <= y"),
}
_LOGIC: dict[str, Any] = {
    "logical_and": (np.logical_and, "both"),
    "logical_or": (np.logical_or, "either or both"),
    "logical_xor": (np.logical_xor, "one of them"),
}

for _table, _letter, _rule in (
    (_ARITHMETIC, "N", broadcast_type),
    (_COMPARISONS, "A", bool_type),
    (_LOGIC, "B", bool_type),
):
    for _name, (_function, _about) in _table.items():
        op(_name, f"x:{_letter} y:{_letter}", infer=_rule, dynamic=True, about=_about, traits=ELEMENTWISE)(
            lambda x, y, _f=_function: _f(x, y)
        )


@op("real_div", "x:N y:N", infer=broadcast_type, dynamic=True, traits=ELEMENTWISE)
def real_div(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y; integers divide toward zero, and by zero give 0."""
    if x.dtype.kind == "f":
        return x / y
    if x.dtype.kind == "u":
        return x // y
    quotient = x // y
    return quotient + ((quotient < 0) & (quotient * y != x) & (y != 0)).astype(x.dtype)


@op("floor_div", "x:N y:N", infer=broadcast_type, dynamic=True, traits=ELEMENTWISE)
def floor_div(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """floor(x / y)."""
    return np.floor(x / y) if x.dtype.kind == "f" else x // y


@op("mod", "x:N y:N", infer=broadcast_type, dynamic=True, traits=ELEMENTWISE)
def mod(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x - y floor(x / y): the remainder has the sign of y."""
    return np.mod(x, y)


@op("pow", "x:N y:N", infer=broadcast_type, dynamic=True, traits=ELEMENTWISE)
def power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x to the power y; a negative integer power truncates toward zero."""
    if x.dtype.kind in "iu" and y.dtype.kind == "i" and y.size and y.min() < 0:
        exact = np.power(x, np.maximum(y, 0))
        inverse = np.where(np.abs(x) == 1, np.where(y % 2 == 0, np.ones_like(x), x), np.zeros_like(x))
        return np.where(y < 0, inverse, exact)
    return np.power(x, y)


def _select_type(cond: TensorType, a: TensorType, b: TensorType) -> TensorType:
    return TensorType(a.dtype, broadcast(cond.shape, a.shape, b.shape))


@op("select", "cond:B a:A b:A", infer=_select_type, dynamic=True, traits=ELEMENTWISE)
def select(cond: np.ndarray, a: np.ndarray, b: np.ndarray) -> Any:
    """a where cond holds, else b."""
    return np.where(cond, a, b)
