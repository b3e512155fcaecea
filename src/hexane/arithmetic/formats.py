"""Number formats: how each unit reads a halfword, and how a value becomes one again (docs/reference/numerics.md 2).

The multiplier and the planar engine read the same sixteen bits differently. Everything here works on whole arrays;
halfwords are `uint16`, their meaning as numbers is exact (`int64` significands or `float64`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic import tier
from hexane.arithmetic.hypotheses import chosen
from hexane.errors import UsageError

UNIT_BITS = 16
"""The accumulator counts in units of 2^-16 (docs/reference/numerics.md 2)."""

LIMIT = 1 << 31
"""A sum that reaches this many units in magnitude has overflowed (docs/reference/numerics.md 3.3)."""


WORTH_COMPILED = 1 << 12
"""Elements from which a conversion is worth a call of compiled code, where a process has some."""


def halfwords(x: ArrayLike, name: str = "x") -> np.ndarray:
    """The bits of a float16 array (or a uint16 array of halfwords, unchanged)."""
    array = np.asarray(x)
    if array.dtype == np.float16:
        return array.view(np.uint16) if array.flags.c_contiguous else np.ascontiguousarray(array).view(np.uint16)
    if array.dtype == np.uint16:
        return array
    raise UsageError(
        f"{name} has dtype {array.dtype}, the engine computes in float16",
        where=name,
        hint="convert it with .astype(numpy.float16)",
    )


def decode_multiplier(bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Halfwords as the multiplier reads them: signed significand and exponent, value = m * 2^(e - 10).

    Subnormals count as exponent -14 and are not normalised; field 31 is an ordinary binade
    (docs/reference/numerics.md 2, [HW] M6).
    """
    field = (bits >> 10) & 31
    significand = ((bits & 1023) + np.where(field > 0, 1024, 0)).astype(np.int64)
    exponent = np.maximum(field, 1).astype(np.int64) - 15
    return np.where(bits & 0x8000, -significand, significand), exponent


def multiplier_value(x: ArrayLike) -> np.ndarray:
    """Values as the multiplier reads them: float64, infinity is 65536, NaN to 131008 (docs/reference/numerics.md 2)."""
    significand, exponent = decode_multiplier(halfwords(x))
    return np.ldexp(significand.astype(np.float64), exponent - 10)


def planar_value(x: ArrayLike) -> np.ndarray:
    """Values as the planar engine reads them, float64: NaN is +infinity, the sign of zero is lost.

    Source: docs/reference/numerics.md 2, 7.1.
    """
    value = halfwords(x).view(np.float16).astype(np.float64)
    return np.where(np.isnan(value), np.inf, value) + 0.0


def round_half_away(value: ArrayLike) -> np.ndarray:
    """h(v): float64 to float16, to nearest, ties away from zero; from 65520 on infinity; never -0.

    See docs/reference/numerics.md 0, 2.

    NaN, which no unit produces, becomes +infinity as it would be read.
    """
    v = np.asarray(value, np.float64)
    magnitude = np.abs(v)
    finite = np.isfinite(v)
    _, exponent = np.frexp(np.where(finite, magnitude, 1.0))
    step = np.maximum(exponent - 11, -24)
    scaled = np.ldexp(np.where(finite, magnitude, 0.0), -step)
    whole = np.floor(scaled)
    whole += scaled - whole >= 0.5
    rounded = np.ldexp(whole, step)
    rounded = np.where(finite & (rounded < 65536.0), rounded, np.inf)
    result = np.copysign(rounded, np.where(np.isnan(v), 1.0, v))
    return (result + 0.0).astype(np.float16)


def canonical(x: ArrayLike) -> np.ndarray:
    """A copy through the planar engine: NaN becomes +infinity, -0 becomes +0, all else stays.

    Source: docs/reference/numerics.md 7.1.
    """
    bits = halfwords(x)
    magnitude = bits & 0x7FFF
    bits = np.where(magnitude > 0x7C00, np.uint16(0x7C00), np.where(magnitude == 0, np.uint16(0), bits))
    return bits.view(np.float16)


def from_float32(x: ArrayLike) -> np.ndarray:
    """The host's conversion on the way in: to nearest, ties to even; NaN and infinities stay what they are.

    A host does this in software or with its own instructions, not the engine (data/numerics README;
    docs/reference/numerics.md 2: a signalling NaN is quietened on the way).
    """
    array = np.asarray(x, np.float32)
    if array.size >= WORTH_COMPILED and array.flags.c_contiguous and tier.in_use():
        from hexane.arithmetic.fast.narrowing import narrow

        out = np.empty(array.shape, np.uint16)
        narrow(array.reshape(-1).view(np.int32), out.reshape(-1))
        return out.view(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float16)


def from_bytes(x: ArrayLike) -> np.ndarray:
    """uint8 or int8 elements as the engine's fp16 (format codes 0 and 1, docs/reference/engine-h13.md 4.3); exact."""
    array = np.asarray(x)
    if array.dtype not in (np.uint8, np.int8):
        raise UsageError(f"expected uint8 or int8, got {array.dtype}", where="x")
    return array.astype(np.float16)


def to_bytes(x: ArrayLike, dtype: str = "uint8") -> np.ndarray:
    """fp16 results stored as uint8 or int8 (docs/reference/engine-h13.md 4.3 OutFmt).

    Only 0 and 1 have been seen to be stored (comparisons, docs/reference/engine-h13.md 13); for all else the hypothesis
    ``byte-store`` decides. NaN reads as +infinity.
    """
    if dtype not in ("uint8", "int8"):
        raise UsageError(f"no 8-bit format is called {dtype!r}", where="dtype", hint="use 'uint8' or 'int8'")
    limits = np.iinfo(dtype)
    value = planar_value(x)
    rounding = chosen("byte-store")
    if rounding == "half-away":
        value = np.where(np.isfinite(value), np.copysign(np.floor(np.abs(value) + 0.5), value), value)
    else:
        value = np.trunc(value)
    return np.clip(value, limits.min, limits.max).astype(dtype)


def quantize(x: ArrayLike, scale: float, zero_point: int = 0, dtype: str = "int8") -> np.ndarray:
    """Quantise: x / scale + zero_point to 8 bits, a planar-engine task whose rounding was not measured.

    The quotient is taken as a product with fp16(1 / scale), rounded to fp16 like every planar result, then stored as
    ``byte-store`` says. See docs/reference/numerics.md 4.
    """
    inverse = float(np.float16(1.0 / scale)) if scale else np.inf
    product = round_half_away(planar_value(x) * inverse)
    return to_bytes(round_half_away(planar_value(product) + float(zero_point)), dtype)


def dequantize(x: ArrayLike, scale: float, zero_point: int = 0) -> np.ndarray:
    """(x - zero_point) * scale in fp16, the scale as fp16, one rounding (docs/reference/numerics.md 4, 7.1)."""
    array = np.asarray(x)
    if array.dtype not in (np.uint8, np.int8):
        raise UsageError(f"expected uint8 or int8, got {array.dtype}", where="x")
    difference = array.astype(np.float64) - float(zero_point)
    return round_half_away(difference * float(np.float16(scale)))
