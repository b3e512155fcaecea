"""Means over features as products with ones, which the engine's fixed-point accumulator holds.

A sum is a number of units 2^-16 below 32768, beyond which it is infinite (docs/reference/numerics.md 3.3). So a mean of
squares is taken in two or three ranges, each with a weight of its own: the first keeps small squares, the last holds
the largest. To all but the first a summand is added that exceeds what their terms lose in rounding: where an earlier
range is finite, its result is the smaller one and the better.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Value
from hexane.passes.rewriting import as_dtype

UNIT = 2.0**-16
CLOSENESS = 21.5
"""log2 of the step between two ranges times the features: what is added is at most 2^-9.5 of a sum that needs it."""
FINEST, COARSEST = -4, -2
"""log2 of 1 / weight of the first range: 1/16 unit for each square, and what is still fine enough with two ranges."""
ROOT_TOO_LARGE = 3.25e-4
"""The table of 1 / sqrt gives on average this share too much (its nodes on numbers from 1e-4 to 6e4)."""


def mean(x: Value, b: GraphBuilder) -> Value:
    """The mean over the channels of [1, C, B, S]; sums up to 32768 sqrt(C)."""
    channels = x.shape[1]
    weight = 2.0 ** -round(np.log2(channels) / 2)
    return _sum(x, weight, 0.0, float(_fp16(1 / (weight * channels))), b)


def ranges(channels: int) -> list[int]:
    """log2 of 1 / weight of each range in which squares of so many channels are added."""
    last = int(np.ceil(np.log2(2 * channels)))
    step = max(1, int(CLOSENESS - np.log2(channels)))
    widths = [last]
    while widths[0] > COARSEST:
        widths.insert(0, max(widths[0] - step, FINEST))
    return widths


def mean_squares(x: Value, extra: float, b: GraphBuilder, correction: float = 1.0) -> list[Value]:
    """The mean over the channels of squares ``x``, plus ``extra``, in each range: infinite, or hardly too large."""
    channels = x.shape[1]
    values = []
    for i, exponent in enumerate(ranges(channels)):
        weight, factor = _numbers(exponent, channels, correction)
        start = extra * channels * weight + (channels * UNIT if i else 0.0)
        values.append(_sum(x, weight, start, factor, b))
    return values


def inverse_root(x: Value, extra: float, b: GraphBuilder) -> Value:
    """1 / sqrt(mean over the channels of squares ``x`` + extra): 0 of an infinite mean, so the largest is right."""
    means = mean_squares(x, extra, b, 1 + 2 * ROOT_TOO_LARGE)
    roots, *others = (b.rsqrt(x=value, epsilon=0.0) for value in means)
    for other in others:
        roots = b.maximum(x=roots, y=other)
    return roots


def _sum(x: Value, weight: float, start: float, factor: float, b: GraphBuilder) -> Value:
    kernel = as_dtype(np.full((1, x.shape[1], 1, 1), weight), x)
    operands = {"bias": as_dtype(np.array([start]), x)} if np.float16(start) else {}
    return b.mul(x=b.conv(x=x, weight=kernel, **operands), y=as_dtype(np.array(factor), x).reshape(()))


@lru_cache(256)
def _numbers(exponent: int, channels: int, correction: float) -> tuple[float, float]:
    """A weight near 2^-exponent and a factor, both fp16, whose product is the correction over the channels."""
    weights = 2.0**-exponent * (1 + np.arange(128) / 1024)
    factors = _fp16(correction / (weights * channels))
    best = int(np.argmin(np.abs(weights * factors * channels - correction)))
    return float(weights[best]), float(factors[best])


def _fp16(values: np.ndarray | float) -> np.ndarray:
    return np.asarray(values).astype(np.float16).astype(np.float64)
