"""The planar engine's element-wise work, stated plainly.

Source: docs/reference/numerics.md 7.1, docs/reference/engine-h13.md 8.3 and 8.4.

Each operation is exact and then rounded half away to fp16, over the whole range to 65504. Operands broadcast as those
of NumPy do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic.formats import multiplier_value, planar_value, round_half_away
from hexane.arithmetic.hypotheses import chosen
from hexane.errors import UsageError


def _number(value: np.ndarray) -> np.ndarray:
    """inf - inf and 0 * inf are +0 (M1, docs/reference/numerics.md 7.1)."""
    return np.where(np.isnan(value), 0.0, value)


def _sum_square(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = _number(a + b)
    if chosen("planar-square") == "each-step":
        total = round_half_away(total).astype(np.float64)
    return total * total


_OPERATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "sumsq": _sum_square,
}

OPERATIONS = tuple(_OPERATIONS)
"""Names of the two-operand operations: Op 0 to 4 of the planar engine and the negated second source."""


def operate(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The exact result of one operation on float64 values, not rounded yet; `op` is one of `OPERATIONS`."""
    if op not in _OPERATIONS:
        raise UsageError(f"no planar operation is called {op!r}", where="op", hint=f"use {', '.join(OPERATIONS)}")
    with np.errstate(invalid="ignore", over="ignore"):
        return _number(_OPERATIONS[op](a, b))


def elementwise_plain(op: str, a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """a op b for fp16 arrays: exact, then half away; NaN reads as +inf, zeros come out as +0.

    Source: docs/reference/numerics.md 7.1.
    """
    return round_half_away(operate(op, planar_value(a), planar_value(b)))


def absolute(x: ArrayLike) -> np.ndarray:
    """|x|, exact; NaN becomes +inf."""
    return round_half_away(np.abs(planar_value(x)))


def relu(x: ArrayLike) -> np.ndarray:
    """max(x, 0), exact; NaN becomes +inf (docs/reference/numerics.md 7.1, M1)."""
    return round_half_away(np.maximum(planar_value(x), 0.0))


def square(x: ArrayLike) -> np.ndarray:
    """x * x rounded once; infinity from 256 on (docs/reference/numerics.md 7.1)."""
    value = planar_value(x)
    return round_half_away(value * value)


def scale_read(x: ArrayLike) -> np.ndarray:
    """An operand of the constant multiplier, as float64 (hypothesis ``scalar-exponent-31``,
    docs/reference/numerics.md 8)."""
    return multiplier_value(x) if chosen("scalar-exponent-31") == "binade" else planar_value(x)


def formula(
    op: str,
    a: ArrayLike,
    b: ArrayLike | None = None,
    *,
    scale: float = 1.0,
    bias: float = 0.0,
    absolute: bool = False,
    relu: bool = False,
) -> np.ndarray:
    """One planar task of kinds 2 and 3: (a op b) * scale + bias, then |.|, then max(., 0).

    Source: docs/reference/engine-h13.md 8.3.

    `a`, `b`: fp16, broadcast; without `b` the second source is 0. `scale` and `bias` are held as fp16. Which of them
    are rounded by themselves is hypothesis ``planar-scale``; with scale 1 and bias 0 the result is measured.
    """
    scale, bias = float(np.float16(scale)), float(np.float16(bias))
    exact = operate(op, planar_value(a), planar_value(np.float16(0) if b is None else b))
    rule = chosen("planar-scale")
    if rule != "once":
        h = round_half_away(exact)
        exact = scale_read(h) if scale != 1.0 else h.astype(np.float64)
    with np.errstate(invalid="ignore"):
        if scale != 1.0:
            exact = _number(exact * scale)
            if rule == "each-step":
                exact = round_half_away(exact).astype(np.float64)
        if bias != 0.0:
            exact = _number(exact + bias)
    if absolute:
        exact = np.abs(exact)
    if relu:
        exact = np.maximum(exact, 0.0)
    return round_half_away(exact)


def shift_scale(x: ArrayLike, shift: ArrayLike, scale: ArrayLike, *, subtract: bool = False) -> np.ndarray:
    """Kind 4: (x + shift) * scale, or (x - shift) * scale, per channel by broadcasting.

    Source: docs/reference/engine-h13.md 8.4.

    Rounded after each step (hypothesis ``planar-shift-scale``); measured where shift is 0 or scale is 1.
    """
    op = "sub" if subtract else "add"
    if chosen("planar-shift-scale") == "once":
        with np.errstate(invalid="ignore"):
            return round_half_away(_number(operate(op, planar_value(x), planar_value(shift)) * planar_value(scale)))
    return elementwise_plain("mul", elementwise_plain(op, x, shift), scale)
