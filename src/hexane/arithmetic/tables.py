"""Look-up tables of 33 nodes (docs/reference/numerics.md 8, docs/reference/engine-h13.md 10), stated plainly.

A table is 64 halfwords: limits 0 and 1, results beyond them 2 and 3, nodes 4 to 36, end lines 37 to 40, spacing 41,
mode 42. Interpolation rounds three times to fp16: the difference of two nodes, its product with the fraction, the sum.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic.formats import halfwords, planar_value, round_half_away
from hexane.errors import UnsupportedError, UsageError

LOW_LIMIT, HIGH_LIMIT, BELOW, ABOVE, NODES, LOW_LINE, HIGH_LINE, SPACING, MODE = 0, 1, 2, 3, 4, 37, 39, 41, 42

NEGATIVE_IS_ZERO, USE_MAGNITUDE, RESTORE_SIGN = 0x80, 0x40, 0x20
"""Bits 7, 6 and 5 of the mode (docs/reference/engine-h13.md 10)."""

LARGEST_SPACING = 0x40
"""The largest spacing of a table of Apple's, that of a step function (docs/reference/engine-h13.md 10)."""


def table_halfwords(table: ArrayLike) -> np.ndarray:
    """The 64 halfwords of a table given as halfwords or as float16 of the same bits."""
    bits = np.asarray(table)
    if bits.dtype not in (np.float16, np.uint16):
        raise UsageError(
            f"table has dtype {bits.dtype}",
            where="table",
            hint="a look-up table is 64 halfwords: uint16, or float16 of the same bits",
        )
    bits = halfwords(bits)
    if bits.shape != (64,):
        raise UsageError(f"a look-up table has 64 halfwords, got shape {bits.shape}", where="table")
    return bits


def _h(value: ArrayLike) -> np.ndarray:
    return round_half_away(value).astype(np.float64)


class _Table:
    def __init__(self, bits: np.ndarray) -> None:
        values = bits.view(np.float16).astype(np.float64)
        self.low_limit, self.high_limit = values[LOW_LIMIT], values[HIGH_LIMIT]
        self.below, self.above = values[BELOW], values[ABOVE]
        self.nodes = values[NODES : NODES + 33]
        self.low_line = values[LOW_LINE], values[LOW_LINE + 1]
        self.high_line = values[HIGH_LINE], values[HIGH_LINE + 1]
        self.spacing = int(bits[SPACING])
        self.mode = int(bits[MODE])

    def interpolate(self, u: np.ndarray, start: int = 0, direction: np.ndarray | int = 1) -> np.ndarray:
        """The node `u` steps from node `start`, and on towards the next by the fraction of a step."""
        k = np.floor(u)
        index = np.clip(start + direction * k.astype(np.int64), 0, 32)
        base, following = self.nodes[index], self.nodes[np.clip(index + direction, 0, 32)]
        with np.errstate(invalid="ignore"):
            return _h(base + _h(np.nan_to_num((u - k) * _h(following - base), posinf=np.inf, neginf=-np.inf)))


def _centred(t: _Table, v: np.ndarray) -> np.ndarray:
    reach = 16 * 2.0**-t.spacing
    inside = np.abs(v) <= reach
    u = np.where(inside, np.abs(v), 0.0) * 2.0**t.spacing
    with np.errstate(invalid="ignore"):
        line = np.where(v < 0, t.low_line[0] * v + t.low_line[1], t.high_line[0] * v + t.high_line[1])
    return np.where(
        inside, t.interpolate(u, 16, np.where(v < 0, -1, 1)), _h(np.nan_to_num(line, posinf=np.inf, neginf=-np.inf))
    )


def _odd(t: _Table, v: np.ndarray) -> np.ndarray:
    u = np.minimum(np.abs(v) * 2.0**t.spacing, 32.0)
    return np.copysign(t.interpolate(u), v)


def _exp2(t: _Table, v: np.ndarray) -> np.ndarray:
    k = np.floor(v)
    return _h(np.ldexp(t.interpolate((v - k) * 32), k.astype(np.int64)))


def _log2(t: _Table, v: np.ndarray) -> np.ndarray:
    a, e = np.frexp(np.abs(v))
    return _h(np.where(v == 0, 0.0, t.interpolate(np.maximum(a - 0.5, 0.0) * 64) + e))


def _power_of_four(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, e = np.frexp(np.abs(v))
    k = e >> 1
    return np.where(e & 1, 2 * a, a), k


def _sqrt(t: _Table, v: np.ndarray) -> np.ndarray:
    a, k = _power_of_four(v)
    return _h(np.ldexp(t.interpolate(a * 16), k))


def _rsqrt(t: _Table, v: np.ndarray) -> np.ndarray:
    a, k = _power_of_four(v)
    return _h(np.ldexp(t.interpolate(a * 16), -k))


def _inverse(t: _Table, v: np.ndarray) -> np.ndarray:
    a, e = np.frexp(np.abs(v))
    return np.copysign(_h(np.ldexp(t.interpolate(np.maximum(a - 0.5, 0.0) * 64), -e)), v)


def _fraction(t: _Table, v: np.ndarray) -> np.ndarray:
    return v - np.trunc(v)


def _integer(t: _Table, v: np.ndarray) -> np.ndarray:
    return np.trunc(v)


_MODES: dict[int, Callable[[_Table, np.ndarray], np.ndarray]] = {
    0x01: _centred,
    0x60: _odd,
    0x0A: _exp2,
    0xC9: _log2,
    0xC5: _sqrt,
    0xC6: _rsqrt,
    0x67: _inverse,
    0x63: _fraction,
    0x64: _integer,
}
"""The modes with a known evaluation; all that Apple's tables use (docs/reference/engine-h13.md 10)."""


def lookup_plain(table: ArrayLike, x: ArrayLike) -> np.ndarray:
    """f(x) for fp16 x by a table of 64 halfwords; fp16 result, never -0 and never NaN (docs/reference/numerics.md 8).

    Raises `UnsupportedError` for a mode that no table of Apple's uses.
    """
    t = _Table(table_halfwords(table))
    if t.mode not in _MODES:
        raise UnsupportedError(
            f"no rule is known for look-up table mode {t.mode:#04x}",
            where="table[42]",
            hint=f"known modes: {', '.join(hex(m) for m in sorted(_MODES))}",
        )
    if t.spacing > LARGEST_SPACING:
        raise UnsupportedError(
            f"nodes 2^-{t.spacing} apart", where="table[41]", hint=f"the spacing is known up to {LARGEST_SPACING}"
        )
    bits = halfwords(x)
    v = planar_value(bits)
    limited = np.abs(v) if t.mode & USE_MAGNITUDE else v
    inside = np.isfinite(v) & (limited > t.low_limit) & (limited < t.high_limit)
    result = np.asarray(_MODES[t.mode](t, np.where(inside, v, 1.0)))
    sign = np.where(v < 0, -1.0, 1.0) if t.mode & RESTORE_SIGN else 1.0
    result = np.where(limited <= t.low_limit, sign * t.below, np.where(limited >= t.high_limit, sign * t.above, result))
    if t.mode & NEGATIVE_IS_ZERO:
        result = np.where(v < 0, 0.0, result)
    return round_half_away(result)
