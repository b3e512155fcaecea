"""Functions that NumPy lacks, in NumPy: to the last bits of the argument's dtype."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

_STEP = 1 / 64
_REACH = 6.0  # erf(6) is 1 to double precision


@lru_cache(maxsize=1)
def _erf_table() -> np.ndarray:
    """Taylor coefficients of erf, orders 0 to 5, at the multiples of 1/64 from 0 to 6."""
    points = np.arange(int(_REACH / _STEP) + 1) * _STEP
    slope = 2 / math.sqrt(math.pi) * np.exp(-points * points)
    t = points
    return np.stack(
        [
            np.array([math.erf(point) for point in points]),
            slope,
            slope * -t,
            slope * (4 * t**2 - 2) / 6,
            slope * (-8 * t**3 + 12 * t) / 24,
            slope * (16 * t**4 - 48 * t**2 + 12) / 120,
        ],
    )


def erf(x: np.ndarray) -> np.ndarray:
    """The error function: a table at 385 points and a Taylor step of degree 5; absolute error below 2e-14."""
    table = _erf_table()
    size = np.minimum(np.abs(x), x.dtype.type(_REACH))
    size = np.where(np.isnan(size), x.dtype.type(0), size)
    index = np.rint(size / _STEP).astype(np.intp)
    orders = 6 if x.dtype == np.float64 else 4
    coefficients = table.astype(x.dtype) if x.dtype != np.float64 else table
    step = size - index.astype(x.dtype) * x.dtype.type(_STEP)
    total = coefficients[orders - 1][index]
    for order in range(orders - 2, -1, -1):
        total = total * step + coefficients[order][index]
    result = np.copysign(total, x)
    return np.where(np.isnan(x), x, result)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow on either side."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), small) / (1 + small)


def softplus(x: np.ndarray) -> np.ndarray:
    """ln(1 + exp(x)) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
