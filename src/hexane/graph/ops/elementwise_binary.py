"""Element-wise ops of two operands, comparisons, logic, ``select`` (docs/reference/mil.md 5.1); operands broadcast
as in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.graph.ops._gradients import passed, zero
from hexane.graph.ops._rules import bool_type, broadcast, broadcast_type
from hexane.graph.registry import op
from hexane.graph.traits import ELEMENTWISE
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation

_ARITHMETIC: dict[str, Any] = {
    "add": (np.add, "x + y", {"x": passed, "y": passed}),
    "sub": (np.subtract, "x - y", {"x": passed, "y": lambda d: -d.grad}),
    "mul": (np.multiply, "x times y", {"x": lambda d: d.grad * d.y, "y": lambda d: d.grad * d.x}),
    "maximum": (
        np.maximum,
        "the larger",
        {"x": lambda d: d.grad * _share(d.x, "greater", d.y), "y": lambda d: d.grad * _share(d.y, "greater", d.x)},
    ),
    "minimum": (
        np.minimum,
        "the smaller",
        {"x": lambda d: d.grad * _share(d.x, "less", d.y), "y": lambda d: d.grad * _share(d.y, "less", d.x)},
    ),
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


def _share(x: Formula, comparison: str, y: Formula) -> Formula:
    """1 where x is chosen, 1/2 where x and y are equal, else 0."""
    return (x.where(comparison, y) + x.where(f"{comparison}_equal", y)) * 0.5


_TRUTH = "a truth value is constant between its jumps"
_BROADCAST: dict[str, Any] = {"infer": broadcast_type, "dynamic": True, "traits": ELEMENTWISE}

for _name, (_function, _about, _derivative) in _ARITHMETIC.items():
    op(_name, "x:N y:N", about=_about, derivative=_derivative, **_BROADCAST)(lambda x, y, _f=_function: _f(x, y))
for _table, _letter in ((_COMPARISONS, "A"), (_LOGIC, "B")):
    for _name, (_function, _about) in _table.items():
        op(
            _name,
            f"x:{_letter} y:{_letter}",
            infer=bool_type,
            dynamic=True,
            about=_about,
            traits=ELEMENTWISE,
            derivative=_TRUTH,
        )(lambda x, y, _f=_function: _f(x, y))


@op(
    "real_div",
    "x:N y:N",
    derivative={"x": lambda d: d.grad / d.y, "y": lambda d: -(d.grad * d.out / d.y)},
    **_BROADCAST,
)
def real_div(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y; integers divide toward zero, and by zero give 0."""
    if x.dtype.kind == "f":
        return x / y
    if x.dtype.kind == "u":
        return x // y
    quotient = x // y
    return quotient + ((quotient < 0) & (quotient * y != x) & (y != 0)).astype(x.dtype)


@op("floor_div", "x:N y:N", derivative={"x": zero, "y": zero}, **_BROADCAST)
def floor_div(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """floor(x / y)."""
    return np.floor(x / y) if x.dtype.kind == "f" else x // y


@op("mod", "x:N y:N", derivative={"x": passed, "y": lambda d: -(d.grad * d.x.floor_div(y=d.y))}, **_BROADCAST)
def mod(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x - y floor(x / y): the remainder has the sign of y."""
    return np.mod(x, y)


def _power_of_base(d: Derivation) -> Formula:
    """y x^(y - 1); what a constant exponent leaves of it is written without a power."""
    number = d.y.number
    if number == 2:
        return d.grad * (d.x * 2.0)
    if number == 1:
        return d.grad
    if number is not None:
        return d.grad * (d.x.pow(y=number - 1) * number)
    return d.grad * (d.y * d.x.pow(y=d.y - 1.0))


def _power_of_exponent(d: Derivation) -> Formula:
    """x^y ln x, zero where x^y is."""
    return d.grad * (d.out * (d.x + d.x.where("equal", 0.0)).log())


@op("pow", "x:N y:N", derivative={"x": _power_of_base, "y": _power_of_exponent}, **_BROADCAST)
def power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x to the power y; a negative integer power truncates toward zero."""
    if x.dtype.kind in "iu" and y.dtype.kind == "i" and y.size and y.min() < 0:
        exact = np.power(x, np.maximum(y, 0))
        inverse = np.where(np.abs(x) == 1, np.where(y % 2 == 0, np.ones_like(x), x), np.zeros_like(x))
        return np.where(y < 0, inverse, exact)
    return np.power(x, y)


def _select_type(cond: TensorType, a: TensorType, b: TensorType) -> TensorType:
    return TensorType(a.dtype, broadcast(cond.shape, a.shape, b.shape))


@op(
    "select",
    "cond:B a:A b:A",
    infer=_select_type,
    dynamic=True,
    traits=ELEMENTWISE,
    derivative={
        "a": lambda d: d.cond.select(a=d.grad, b=d.grad.zeros(())),
        "b": lambda d: d.cond.select(a=d.grad.zeros(()), b=d.grad),
    },
)
def select(cond: np.ndarray, a: np.ndarray, b: np.ndarray) -> Any:
    """a where cond holds, else b."""
    return np.where(cond, a, b)
