"""Numbers behind bytes: the scale and zero point of quantised maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexane.errors import UnsupportedError
from hexane.graph import Op

BYTES = ("int8", "uint8")


@dataclass(frozen=True)
class Affine:
    """Numbers behind bytes: ``(byte - zero) * scale``, the scale as fp16 holds it."""

    scale: float
    zero: int

    @property
    def inverse(self) -> float:
        """1 / scale as fp16 holds it, which quantising multiplies by."""
        with np.errstate(over="ignore", divide="ignore"):
            return float(np.float16(1.0 / np.float64(self.scale)))


def affine_of(op: Op) -> Affine:
    """Scale and zero point of a ``quantize`` or ``dequantize``.

    UnsupportedError where they are computed, or differ from channel to channel, or fp16 holds no such scale.
    """
    scale, zero = op.inputs["scale"], op.inputs.get("zero_point")
    if not scale.is_constant or (zero is not None and not zero.is_constant):
        raise UnsupportedError("a scale or zero point that is computed")
    points = np.zeros(1) if zero is None else np.asarray(zero.data).reshape(-1)
    factors = np.asarray(scale.data, np.float64).reshape(-1)
    if factors.size != 1 or points.size != 1:
        raise UnsupportedError("a scale for each channel of a map")
    with np.errstate(over="ignore"):
        affine = Affine(float(np.float16(factors[0])), int(points[0]))
    if not 0 < affine.scale < np.inf or not 0 < affine.inverse < np.inf:
        raise UnsupportedError(f"a scale of {factors[0]:g}, which fp16 does not hold together with its reciprocal")
    return affine
