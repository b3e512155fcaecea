"""Intervals of confidence: Wilson's for proportions, Student's t for means and ratios of sums."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

import numpy as np

from hexane.errors import UnsupportedError

LEVEL = 0.95
Interval = tuple[float, float]
METHODS = {True: "Wilson", False: "Student's t"}


def wilson(successes: float, count: int, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a proportion (E. B. Wilson, 1927), without correction for continuity."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share, spread = successes / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * sqrt(share * (1 - share) / count + spread / (4 * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def of_ratio(above: np.ndarray, below: np.ndarray, level: float = LEVEL) -> Interval | None:
    """Student's interval of sum(above) / sum(below) over samples; of a mean, where ``below`` is 1.

    The ratio is taken as linear in both sums (Cochran, Sampling Techniques, 1977, 6.3). None for one sample, which
    says nothing of the spread, and where a score is not finite. Needs SciPy.
    """
    count = above.size
    total = float(below.sum())
    if count < 2 or total == 0 or not np.isfinite(above).all():
        return None
    ratio = float(above.sum()) / total
    difference = above - ratio * below
    error = sqrt(float(difference @ difference) / (count - 1) / count) / (total / count)
    half = student(count - 1, level) * error
    return ratio - half, ratio + half


def student(freedom: int, level: float = LEVEL) -> float:
    """The two-sided quantile of Student's t."""
    try:
        from scipy.special import stdtrit
    except ImportError:
        raise UnsupportedError("intervals of means need SciPy", hint="pip install 'hexane[scale]'") from None
    return float(stdtrit(freedom, 0.5 + level / 2))


def half_width(interval: Interval | None) -> float:
    """Infinite where nothing is known."""
    return float("inf") if interval is None else (interval[1] - interval[0]) / 2
