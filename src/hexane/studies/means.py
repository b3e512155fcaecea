"""The best k means of weighted points on a line, exactly.

On a line the best clusters are runs of neighbours. The least cost of the first j points in m runs follows from that of
m - 1 runs, and the best cut moves with j, so that each of the k rounds takes n log n steps (divide and conquer).
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np


def best_means(line: np.ndarray, weight: np.ndarray, count: int) -> np.ndarray:
    """``count`` means of ascending points with weights, all float64, with the least weighted squared error.

    Costs ``count * n log n`` steps and 4 ``count * n`` bytes for n points; there are more points than means.
    """
    shift = float(line @ weight / weight.sum())
    centred = line - shift
    ahead = np.zeros((3, line.size + 1))
    np.cumsum(np.stack([weight, weight * centred, weight * centred**2]), axis=1, out=ahead[:, 1:])
    cuts = np.zeros((count, line.size + 1), np.int32)
    _walks().cut(ahead, cuts)
    ends = np.empty(count + 1, np.int64)
    ends[count] = line.size
    for run in range(count - 1, -1, -1):
        ends[run] = cuts[run, ends[run + 1]] if run else 0
    weights, moments = ahead[0][ends[1:]] - ahead[0][ends[:-1]], ahead[1][ends[1:]] - ahead[1][ends[:-1]]
    return moments / weights + shift


@cache
def _walks() -> SimpleNamespace:
    """Compiled at the first call."""
    from hexane.arithmetic.fast.compiled import compiled

    @compiled()
    def cut(ahead, cuts):
        """cuts[m, j]: where the last of m + 1 runs over the first j points begins."""
        runs, points = cuts.shape[0], cuts.shape[1] - 1
        before, after = np.empty(points + 1), np.empty(points + 1)
        for j in range(points + 1):
            mass = ahead[0, j]
            before[j] = ahead[2, j] - ahead[1, j] ** 2 / mass if mass > 0 else 0.0
        stack = np.empty((64, 4), np.int64)
        for m in range(1, runs):
            after[:] = np.inf
            top = 1
            stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = m + 1, points, m, points - 1
            while top:
                top -= 1
                low, high, first, last = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
                if low > high:
                    continue
                j = (low + high) // 2
                best, where = np.inf, first
                for i in range(first, min(last, j - 1) + 1):
                    mass, moment = ahead[0, j] - ahead[0, i], ahead[1, j] - ahead[1, i]
                    cost = before[i] + (ahead[2, j] - ahead[2, i]) - moment * moment / mass
                    if cost < best:
                        best, where = cost, i
                after[j], cuts[m, j] = best, where
                stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = low, j - 1, first, where
                top += 1
                stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = j + 1, high, where, last
                top += 1
            before, after = after, before

    return SimpleNamespace(cut=cut)
