"""Reductions of the planar engine (docs/reference/numerics.md 7.2, docs/reference/engine-h13.md 8.5).

Maxima are exact. The order of long sums is open: hypothesis ``reduction-sum`` holds what is assumed. Its default gives
every published value for sums of up to 1025 terms, and no published checksum for rows of 4096.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic import tier
from hexane.arithmetic.elementwise import elementwise
from hexane.arithmetic.formats import halfwords, planar_value, round_half_away
from hexane.arithmetic.hypotheses import chosen
from hexane.errors import UsageError
from hexane.isa.numbers import LARGEST_HALF

CUT_BITS = 12
"""The significand that the first stage's adder keeps of either operand (docs/reference/numerics.md 7.2)."""


def cut_add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b after both were cut towards zero to multiples of 2^(e - 11), e the larger exponent of the two."""
    largest = np.maximum(np.abs(a), np.abs(b))
    finite = np.isfinite(largest) & (largest > 0)
    _, exponent = np.frexp(np.where(finite, largest, 1.0))
    step = np.ldexp(1.0, exponent - CUT_BITS)
    with np.errstate(invalid="ignore"):
        total = np.trunc(a / step) * step + np.trunc(b / step) * step
        total = np.where(finite, total, a + b)
    return np.where(np.isnan(total), 0.0, total)


def _sum(value: np.ndarray) -> np.ndarray:
    """Sum along the last axis, exact or by the hypothesis; float64 values with few enough bits to be exact."""
    if chosen("reduction-sum") == "groups-of-four":
        missing = -value.shape[-1] % 4
        value = np.concatenate([value, np.zeros((*value.shape[:-1], missing))], -1)
        lanes = value.reshape(*value.shape[:-1], -1, 4)
        group = lanes[..., 0]
        for lane in range(1, 4):
            group = cut_add(group, lanes[..., lane])
        value = group
    with np.errstate(invalid="ignore"):
        total = value.sum(-1)
    return np.where(np.isnan(total), 0.0, total)


def reduce(
    x: ArrayLike,
    axes: int | tuple[int, ...] = -1,
    mode: str = "sum",
    *,
    op: str | None = None,
    other: ArrayLike | None = None,
    scale: float = 1.0,
    epsilon: float = 0.0,
    nonlinear: str | None = None,
    relu: bool = False,
    keepdims: bool = False,
    exact: bool = False,
) -> np.ndarray:
    """One reduction task (kinds 5 and 6): fp16 in, fp16 out (docs/reference/engine-h13.md 8.3, 8.5).

    Parameters
    ----------
    x : fp16. The reduced axes are read in row-major order of their own order in `axes`.
    mode : "sum" or "max" (ReduceMode 0 and 2).
    op, other : the operation before the reduction, x op other (kind 6), rounded to fp16; "sumsq" alone is x^2.
    scale : FinalScale, a float32; 1/N makes a mean.
    epsilon : fp16, added after FinalScale.
    nonlinear : None, "reciprocal", "rsqrt" or "sqrt" of the result.
    exact : the plain statement instead of the fast kernel; same bits.

    Exact for "max"; hypotheses ``reduction-sum`` and ``reduction-finish`` for the rest.
    """
    if mode not in ("sum", "max"):
        raise UsageError(f"no reduction is called {mode!r}", where="mode", hint="use 'sum' or 'max'")
    if nonlinear not in FUNCTIONS:
        raise UsageError(
            f"no such function behind a reduction: {nonlinear!r}", hint="use 'reciprocal', 'rsqrt' or 'sqrt'"
        )
    source = np.asarray(x)
    exact = exact or tier.plain(elements=source.size)
    if op is not None:
        source = elementwise(op, source, np.float16(0) if other is None else other, exact)
    value = halfwords(source)
    chosen_axes = (axes,) if isinstance(axes, int) else tuple(axes)
    try:
        rows = np.moveaxis(value, chosen_axes, range(value.ndim - len(chosen_axes), value.ndim))
    except (np.exceptions.AxisError, ValueError) as error:
        raise UsageError(f"axes {axes} do not fit an array of {value.ndim} axes", where="axes") from error
    outer_shape = rows.shape[: value.ndim - len(chosen_axes)]
    rows = rows.reshape(*outer_shape, -1)
    if rows.shape[-1] == 0:
        raise UsageError("an empty extent cannot be reduced", where="x")
    scale, epsilon = float(np.float32(scale)), float(np.float16(epsilon))
    if exact or (mode == "sum" and chosen("reduction-sum") != "groups-of-four"):
        totals = planar_value(rows).max(-1) if mode == "max" else _sum(planar_value(rows))
    else:
        from hexane.arithmetic.fast.reduction import reduce_rows

        totals = reduce_rows(rows.reshape(-1, rows.shape[-1]), mode).reshape(outer_shape)
    large = np.zeros(outer_shape, bool)
    if op == "sumsq" and chosen("reduction-range") == "wide":
        base = np.asarray(x) if other is None else elementwise("add", x, other, exact)
        lines = np.moveaxis(halfwords(base), chosen_axes, range(value.ndim - len(chosen_axes), value.ndim))
        totals, large = _wide(rows, lines.reshape(rows.shape), totals, scale)
    if exact or chosen("reduction-finish") != "after-scale":
        h = _finish(totals, scale, epsilon, nonlinear)
    else:
        from hexane.arithmetic.fast.reduction import finish

        out = np.empty(outer_shape, np.uint16)
        finish(totals.ravel(), scale, epsilon, FUNCTIONS.index(nonlinear), out.ravel())
        h = out.view(np.float16)
    if nonlinear is not None and large.any():
        h[large] = _finish(totals[large], scale, epsilon, nonlinear, limit=False)
    if relu:
        h = round_half_away(np.maximum(h.astype(np.float64), 0.0))
    if keepdims:
        h = np.expand_dims(h, tuple(a % value.ndim for a in chosen_axes))
    return h


def _wide(rows: np.ndarray, base: np.ndarray, totals: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Sums of squares where a square left fp16 (hypothesis ``reduction-range``), and which means are beyond it.

    ``rows``: halfwords of the squares; ``base``: of what was squared.
    """
    overflows = ((rows == INFINITY) & ((base & 0x7FFF) < INFINITY)).any(-1)
    if overflows.any():
        totals = totals.copy()
        totals[overflows] = _sum(eleven_bits(planar_value(base[overflows]) ** 2))
    return totals, overflows | (totals * scale > LARGEST_HALF)


INFINITY = 0x7C00


def eleven_bits(value: np.ndarray) -> np.ndarray:
    """float64 rounded half away to the significand of fp16, without a limit of range."""
    significand, exponent = np.frexp(value)
    return np.ldexp(np.copysign(np.floor(np.abs(significand) * 2048 + 0.5), significand), exponent - 11)


def _finish(
    totals: np.ndarray, scale: float, epsilon: float, nonlinear: str | None, *, limit: bool = True
) -> np.ndarray:
    """Steps behind the sum or maximum, up to the non-linearity (hypothesis ``reduction-finish``).

    ``limit``: whether what stands before the non-linearity ends where fp16 does.
    """
    if not limit:
        value = eleven_bits(eleven_bits(totals * scale) + epsilon)
        with np.errstate(divide="ignore", invalid="ignore"):
            return round_half_away(
                {"reciprocal": 1.0 / value, "sqrt": np.sqrt(value)}.get(nonlinear or "", 1.0 / np.sqrt(value))
            )
    if chosen("reduction-finish") == "every-step":
        totals = round_half_away(totals).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        h = round_half_away(np.nan_to_num(totals * scale, nan=0.0, posinf=np.inf, neginf=-np.inf))
        if epsilon != 0.0:
            h = round_half_away(h.astype(np.float64) + epsilon)
    if nonlinear == "reciprocal":
        return reciprocal(h)
    if nonlinear == "sqrt":
        return square_root(h)
    return reciprocal_sqrt(h) if nonlinear == "rsqrt" else h


FUNCTIONS = (None, "reciprocal", "rsqrt", "sqrt")
"""What may follow, in the order of PE.Cfg.NonlinearMode and of the fast kernel's codes."""


def reciprocal(x: ArrayLike) -> np.ndarray:
    """1/x, hypothesis ``reciprocal``; 1/0 is +infinity.

    A quotient of two fp16 values is never so near to a tie that float64 could not tell (24 bits would do).
    """
    with np.errstate(divide="ignore"):
        return round_half_away(1.0 / planar_value(x))


def reciprocal_sqrt(x: ArrayLike) -> np.ndarray:
    """1/sqrt(x), hypothesis ``reciprocal``; of 0 it is +infinity, of a negative value +0 as in the tables."""
    value = planar_value(x)
    with np.errstate(divide="ignore", invalid="ignore"):
        return round_half_away(np.where(value < 0, 0.0, 1.0 / np.sqrt(np.maximum(value, 0.0))))


def square_root(x: ArrayLike) -> np.ndarray:
    """sqrt(x), hypothesis ``reciprocal``; of a negative value +0 as in the table."""
    return round_half_away(np.sqrt(np.maximum(planar_value(x), 0.0)))
