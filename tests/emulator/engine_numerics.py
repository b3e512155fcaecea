"""The engine's arithmetic once more, from docs/reference/numerics.md alone, in float64 and integers. Imports nothing
from hexane.

Everything here is a second opinion: written apart from hexane.arithmetic, slow, and as short as the rules are.
"""

from __future__ import annotations

import numpy as np

UNIT = 2.0**-16
LIMIT = 2.0**15


def half_away(value: np.ndarray) -> np.ndarray:
    """float64 -> float16, ties away from zero, zero always positive (numerics 3.4, 11 (11))."""
    v = np.asarray(value, np.float64)
    with np.errstate(over="ignore"):
        near = v.astype(np.float16).astype(np.float64)  # ties to even
    up = np.nextafter(np.abs(near).astype(np.float16), np.float16(np.inf)).astype(np.float64)
    size = np.abs(v)
    low = np.where(np.abs(near) > size, np.nextafter(np.abs(near).astype(np.float16), np.float16(0)), np.abs(near))
    low = low.astype(np.float64)
    high = np.where(np.abs(near) > size, np.abs(near), up)
    high_value = np.where(np.isinf(high), 65536.0, high)
    with np.errstate(invalid="ignore"):
        away = size - low >= high_value - size
    result = np.where(size == low, low, np.where(away, high, low))
    result = np.where(np.isinf(v), np.inf, result)
    return (np.copysign(result, v) + 0.0).astype(np.float16)


def _exponent(x: np.ndarray) -> np.ndarray:
    field = x.view(np.uint16) >> 10 & 31
    return np.maximum(field, 1).astype(np.int64) - 15


def read(x: np.ndarray) -> np.ndarray:
    """What the multiplier reads: exponent 31 is an ordinary binade (numerics 2)."""
    bits = np.ascontiguousarray(x).view(np.uint16).astype(np.int64)
    field, fraction = bits >> 10 & 31, bits & 1023
    magnitude = np.where(field > 0, 1024 + fraction, fraction) * 2.0 ** (np.maximum(field, 1) - 25)
    return np.where(bits >> 15, -magnitude, magnitude)


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rounded products as multiples of a unit (numerics 3.1); a and b broadcast."""
    exact = read(a) * read(b) / UNIT
    rounded = np.copysign(np.floor(np.abs(exact) + 0.5), exact)
    return np.where(_exponent(a) + _exponent(b) <= -17, 0.0, rounded)


def sums(terms: np.ndarray, start: np.ndarray | float = 0.0) -> np.ndarray:
    """Running sum along axis 0 with the sticky limit (numerics 3.3), as float64 values."""
    running = np.cumsum(np.concatenate([np.broadcast_to(start, (1, *terms.shape[1:])), terms]), 0) * UNIT
    over = np.abs(running) >= LIMIT
    first = over.argmax(0)
    sign = np.sign(np.take_along_axis(running, first[None], 0)[0])
    return np.where(over.any(0), np.copysign(np.inf, sign), running[-1])


def bias_units(bias: np.ndarray) -> np.ndarray:
    return products(bias, np.ones_like(bias))


def matmul(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """a (M, K) times b (K, N), float16, one rounding at the end."""
    out = np.empty((a.shape[0], b.shape[1]), np.float16)
    for m in range(a.shape[0]):
        start = 0.0 if bias is None else bias_units(bias[m : m + 1])[0]
        out[m] = half_away(sums(products(a[m, :, None], b), start))
    return out


def table(halfwords: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A look-up table of mode 0x01, 0x60, 0x0a, 0xc9, 0xc5, 0xc6 or 0x67 (numerics 8), one input after the other."""
    t = np.asarray(halfwords, np.uint16)
    values = t.view(np.float16).astype(np.float64)
    flat = [_table_one(t, values, float(v)) for v in np.asarray(x, np.float16).ravel()]
    return np.array(flat, np.float64).astype(np.float16).reshape(x.shape) + np.float16(0)


def _h(v: float) -> float:
    return float(half_away(np.array([v]))[0])


def _table_one(t: np.ndarray, values: np.ndarray, v: float) -> float:
    mode, spacing, nodes = int(t[42]), int(t[41]), values[4:37]
    if np.isnan(v):
        v = np.inf
    if mode & 0x80 and v < 0:
        return 0.0
    sign = -1.0 if v < 0 else 1.0
    compared = abs(v) if mode & 0x40 else v
    if compared <= values[0]:
        return values[2] * (sign if mode & 0x20 else 1.0)
    if compared >= values[1]:
        return values[3] * (sign if mode & 0x20 else 1.0)

    def interp(u: float, start: int = 0, step: int = 1) -> float:
        k = int(np.floor(u))
        base = nodes[start + step * k]
        following = nodes[min(max(start + step * (k + 1), 0), 32)]
        return _h(base + _h((u - k) * _h(following - base)))

    mantissa, exponent = np.frexp(abs(v))
    if mode == 0x01:
        if abs(v) <= 16 * 2.0**-spacing:
            return interp(abs(v) * 2.0**spacing, 16, int(sign))
        slope, intercept = (values[37], values[38]) if v < 0 else (values[39], values[40])
        return _h(slope * v + intercept)
    if mode == 0x60:
        return sign * interp(abs(v) * 2.0**spacing)
    if mode == 0x0A:
        k = np.floor(v)
        return _h(interp((v - k) * 32) * 2.0**k)
    if mode == 0xC9:
        return _h(interp((mantissa - 0.5) * 64) + exponent)
    if mode in (0xC5, 0xC6):
        k, odd = divmod(int(exponent), 2)
        return _h(interp(mantissa * (2 if odd else 1) * 16) * 2.0 ** (k if mode == 0xC5 else -k))
    if mode == 0x67:
        return sign * _h(interp((mantissa - 0.5) * 64) * 2.0 ** -float(exponent))
    raise ValueError(f"mode {mode:#x}")
