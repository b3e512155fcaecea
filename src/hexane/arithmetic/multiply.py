"""The multiply-accumulate unit, stated plainly (docs/reference/numerics.md 3 and 4).

Nothing here is fast. `mac.py` decides between this statement and the kernels of `fast/`; tests hold the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexane.arithmetic.formats import (
    LIMIT,
    UNIT_BITS,
    decode_multiplier,
    halfwords,
    multiplier_value,
    planar_value,
    round_half_away,
)
from hexane.arithmetic.hypotheses import chosen
from hexane.arithmetic.tables import lookup_plain

Activation = str | np.ndarray | None
"""What follows the sum: None, "relu", or the 64 halfwords of a look-up table."""


@dataclass(frozen=True)
class Sums:
    """Accumulators: exact sums in units (int64), and where the limit was met, with its sign (int8).

    A sum that overflowed stays overflowed whatever comes after it; its `units` mean nothing any more.
    """

    units: np.ndarray
    overflow: np.ndarray

    def value(self, unit_bits: int = UNIT_BITS) -> np.ndarray:
        """The sums as float64, infinite where they overflowed; a unit is 2^-unit_bits."""
        exact = np.ldexp(self.units.astype(np.float64), -unit_bits)
        return np.where(self.overflow == 0, exact, np.copysign(np.inf, self.overflow.astype(np.float64)))


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """One product per pair of halfwords, broadcast, as int64 units of 2^-16 (docs/reference/numerics.md 3.1)."""
    mx, ex = decode_multiplier(x)
    mw, ew = decode_multiplier(w)
    exponent = ex + ew
    p = mx * mw
    right = np.maximum(4 - exponent, 0)
    shift = np.maximum(exponent - 4, 0)
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    rounded = np.sign(p) * ((np.abs(p) + half) >> right) << shift
    return np.where(exponent <= -17, 0, rounded)


def bias_units(bias: np.ndarray) -> np.ndarray:
    """A bias as the accumulator's start value: the product with 1.0 (docs/reference/numerics.md 3.5 (1))."""
    return product(halfwords(bias, "bias"), np.array(0x3C00, np.uint16))


class Accumulator:
    """A running sum with the sticky limit (docs/reference/numerics.md 3.2, 3.3), for a whole array of outputs at
    once."""

    def __init__(self, start: np.ndarray) -> None:
        self.units = np.zeros_like(start, dtype=np.int64)
        self.overflow = np.zeros(start.shape, np.int8)
        self.add(start)

    def add(self, units: np.ndarray) -> None:
        """Add one integer to every sum that has not met the limit yet."""
        running = np.where(self.overflow == 0, self.units + units, self.units)
        met = (self.overflow == 0) & (np.abs(running) >= LIMIT)
        self.overflow = np.where(met, np.sign(running).astype(np.int8), self.overflow)
        self.units = running

    def sums(self) -> Sums:
        return Sums(self.units, self.overflow)


def accumulate(x: np.ndarray, w: np.ndarray, start: np.ndarray) -> Sums:
    """Sums of products of halfwords x (M, K) and w (K, N) from start (M, N), k after k.

    Source: docs/reference/numerics.md 3.2, 3.3.
    """
    accumulator = Accumulator(start)
    for k in range(x.shape[1]):
        accumulator.add(product(x[:, k, None], w[None, k, :]))
    return accumulator.sums()


def accumulate_int8(x: np.ndarray, w: np.ndarray) -> Sums:
    """Sums of products of int8 x (M, K) and w (K, N), unit 1 (docs/reference/numerics.md 4)."""
    accumulator = Accumulator(np.zeros((x.shape[0], w.shape[1]), np.int64))
    for k in range(x.shape[1]):
        accumulator.add(x[:, k, None].astype(np.int64) * w[None, k, :].astype(np.int64))
    return accumulator.sums()


def scaled(value: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    """The product of a value (float64, +-inf where a sum overflowed) with a constant; 0 * inf is +0."""
    with np.errstate(invalid="ignore"):
        result = value * scale
    return np.where(np.isnan(result), 0.0, result)


def finish(value: np.ndarray, post_scale: float = 1.0, activation: Activation = None) -> np.ndarray:
    """From the sum to the fp16 result: post-scale, then ReLU or table, half away (docs/reference/numerics.md 3.4, 3.5).

    `value` is float64 and exact. The scale is the fp16 value nearest to `post_scale`, as its register holds it.
    """
    scale = float(np.float16(post_scale))
    result = value
    if scale != 1.0:
        rule = chosen("post-scale")
        result = scaled(round_half_away(value).astype(np.float64) if rule == "twice" else value, scale)
        if rule == "fixed-point":
            units = np.ldexp(result, UNIT_BITS)
            finite = np.isfinite(units)
            result = np.where(finite, np.ldexp(np.copysign(np.floor(np.abs(units) + 0.5), units), -UNIT_BITS), result)
    return activate(round_half_away(result), activation)


def activate(h: np.ndarray, activation: Activation) -> np.ndarray:
    """ReLU or a table on fp16 values; ReLU before or after rounding gives the same bits.

    Source: docs/reference/numerics.md 3.5.
    """
    if activation is None:
        return h
    if isinstance(activation, str):
        return round_half_away(np.maximum(planar_value(h), 0.0))
    return lookup_plain(activation, h)


def scaled_exactly(value: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    """Integers below 2^53 times float32 scales, so that rounding the result rounds the exact product.

    The product may have more bits than float64 holds; where it has, the next float64 towards it stands for it, which
    lies on the same side of every tie.
    """
    finite = np.isfinite(value)
    whole = np.where(finite, value, 0.0)
    high = np.trunc(whole / 65536.0) * 65536.0
    a, b = high * scale, (whole - high) * scale
    total = a + b
    rest = b - (total - a)
    result = np.where(rest == 0, total, np.nextafter(total, np.copysign(np.inf, rest)))
    return np.where(finite, result, scaled(value, scale))


def relative(value: np.ndarray) -> np.ndarray:
    """float64 rounded to eleven significant bits, ties away from zero, without a limit of range."""
    finite = np.isfinite(value)
    significand, exponent = np.frexp(np.where(finite, value, 0.0))
    cells = np.ldexp(np.abs(significand), 11)
    whole = np.floor(cells)
    whole += cells - whole >= 0.5
    return np.where(finite, np.copysign(np.ldexp(whole, exponent - 11), value), value)


def scaled_sum(value: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    """Exact sums of integer products times a scale, before the last rounding (hypothesis ``integer-scale``)."""
    twice = chosen("integer-scale") == "twice"
    return scaled_exactly(relative(value) if twice else value, scale)


def finish_int8(value: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    """From the int8 sum to fp16: h(h(sum) * scale) (hypothesis ``integer-scale``)."""
    return round_half_away(scaled_sum(value, np.asarray(scale, np.float32).astype(np.float64)))


def multiply_inputs(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """OpMode 2: the product of two inputs, rounded once (hypothesis ``product-mode``, docs/reference/numerics.md 5)."""
    return round_half_away(scaled(planar_value(x), planar_value(w)))


def scale_input(x: np.ndarray, post_scale: float = 1.0, add: float = 0.0, activation: Activation = None) -> np.ndarray:
    """A task without a sum: OpMode 4, or the constant of AccBias added before the table.

    Source: docs/reference/numerics.md 3.5, 3.6.

    Values pass unharmed when nothing is to be done; h(x + AccBias), then h(x * PostScale), then ReLU or table.
    """
    h = halfwords(x).view(np.float16)
    if float(np.float16(add)) != 0.0:
        h = round_half_away(planar_value(h) + float(np.float16(add)))
    if float(np.float16(post_scale)) != 1.0:
        read = multiplier_value if chosen("scalar-exponent-31") == "binade" else planar_value
        h = round_half_away(scaled(read(h), float(np.float16(post_scale))))
    return activate(h, activation)
