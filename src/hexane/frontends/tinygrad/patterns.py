"""Functions that tinygrad spells out of powers of two and comparisons, under the name that the engine has for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

_SPREADING = ("RESHAPE", "EXPAND", "PERMUTE", "CAST", "CONTIGUOUS")
_CONSTANT: dict[str, Callable[..., Any]] = {
    "MUL": lambda a, b: a * b,
    "ADD": lambda a, b: a + b,
    "RECIPROCAL": lambda a: 1 / a if a else math.inf,
    "NEG": lambda a: -a,
}


def number(u: Any) -> float | int | bool | None:
    """The one number that a tensor holds everywhere; None where it does not, or nobody can say cheaply."""
    while u.op.name in _SPREADING and u.op.name != "CAST":
        u = u.src[0]
    if u.op.name == "CONST":
        return u.arg if isinstance(u.arg, bool | int | float) else None
    if u.op.name in _CONSTANT:
        parts = [number(source) for source in u.src]
        if all(part is not None for part in parts):
            return _CONSTANT[u.op.name](*parts)
    return None


def is_op(u: Any, name: str) -> bool:
    return bool(u.op.name == name)


def _near(value: float | None, target: float) -> bool:
    return value is not None and math.isclose(value, target, rel_tol=1e-6)


def times(u: Any, factor: float) -> Any:
    """Operand that is multiplied by a number; None where that is something else."""
    if is_op(u, "MUL"):
        for one, other in ((u.src[0], u.src[1]), (u.src[1], u.src[0])):
            if _near(number(other), factor):
                return one
    return None


def plus(u: Any, summand: float) -> Any:
    """Operand that a number is added to; None where that is something else."""
    if is_op(u, "ADD"):
        for one, other in ((u.src[0], u.src[1]), (u.src[1], u.src[0])):
            if _near(number(other), summand):
                return one
    return None


def sigmoid(u: Any) -> Any:
    """x of 1 / (1 + 2^(-x log2 e))."""
    inner = plus(u.src[0], 1.0) if is_op(u, "RECIPROCAL") else None
    return times(inner.src[0], -1 / math.log(2)) if inner is not None and is_op(inner, "EXP2") else None


def tanh(u: Any) -> Any:
    """x of 2 sigmoid(2 x) - 1."""
    inner = plus(u, -1.0)
    doubled = times(inner, 2.0) if inner is not None else None
    argument = sigmoid(doubled) if doubled is not None else None
    return times(argument, 2.0) if argument is not None else None


def exp(u: Any) -> Any:
    """x of 2^(x log2 e)."""
    return times(u.src[0], 1 / math.log(2)) if is_op(u, "EXP2") else None


def log(u: Any) -> Any:
    """x of log2(x) ln 2."""
    inner = times(u, math.log(2))
    return inner.src[0] if inner is not None and is_op(inner, "LOG2") else None


def relu(u: Any) -> Any:
    """x of "x where 0 < x, else 0"."""
    if is_op(u, "WHERE") and is_op(u.src[0], "CMPLT"):
        low, x = u.src[0].src
        if number(low) == 0 and u.src[1] is x and number(u.src[2]) == 0:
            return x
    return None


def extremum(u: Any) -> tuple[str, Any, Any] | None:
    """ "b where a < b, else a" and ``a where a < b, else b``: the maximum and the minimum."""
    if is_op(u, "WHERE") and is_op(u.src[0], "CMPLT"):
        a, b = u.src[0].src
        if _same(u.src[1], b) and _same(u.src[2], a):
            return "maximum", a, b
        if _same(u.src[1], a) and _same(u.src[2], b):
            return "minimum", a, b
    return None


def _same(a: Any, b: Any) -> bool:
    return a is b or (number(a) is not None and number(a) == number(b))


def absolute(u: Any) -> Any:
    """x of x times its sign, the sign spelled by comparisons."""
    if not is_op(u, "MUL"):
        return None
    for x, other in ((u.src[0], u.src[1]), (u.src[1], u.src[0])):
        if _is_sign(other, x):
            return x
    return None


def _is_sign(u: Any, x: Any) -> bool:
    if not (is_op(u, "WHERE") and is_op(u.src[0], "CMPNE") and u.src[0].src[0] is x and number(u.src[0].src[1]) == 0):
        return False
    inner = u.src[1]
    if number(u.src[2]) != 0 or not (is_op(inner, "WHERE") and is_op(inner.src[0], "CMPLT")):
        return False
    return (
        inner.src[0].src[0] is x
        and number(inner.src[0].src[1]) == 0
        and (number(inner.src[1]) == -1 and number(inner.src[2]) == 1)
    )


def negation(u: Any) -> Any:
    """x of "x is not True"."""
    if is_op(u, "CMPNE"):
        for x, other in ((u.src[0], u.src[1]), (u.src[1], u.src[0])):
            if number(other) is True and str(x.dtype) == "dtypes.bool":
                return x
    return None
