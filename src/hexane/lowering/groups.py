"""Grouped convolutions: which run as the engine's loop over groups, which densely with zeros between groups."""

from __future__ import annotations

import numpy as np

from hexane.chips import Generation
from hexane.rounding import ceil_div

MOST_GROUPS = 4096  # of the loop of one task
PATCH_PIXELS, TALLEST_PATCH_LOG2 = 128, 4


def single_patch(width: int, height: int) -> bool:
    """True where one patch of the neural cores covers a map: (128 >> s) x 2^s pixels."""
    return any(width <= PATCH_PIXELS >> s and height <= 1 << s for s in range(TALLEST_PATCH_LOG2 + 1))


def is_loop(shape: tuple[int, ...], groups: int, limits: Generation, *, bias: bool, width: int, height: int) -> bool:
    """True where weights [O, I / groups, ...] run group by group in one task over a result of ``width`` x ``height``.

    Output channels of a group fill the cores evenly, and its kernel fits a core; else zeros make the kernel dense.
    """
    cout, cin, taps = shape[0] // groups, shape[1], int(np.prod(shape[1:]))
    lanes = max(1, cout // limits.cores)
    regular = cout % limits.cores == 0 or cout in (1, 2, 4, 8)
    halfwords = lanes * (taps + bias)
    burst = limits.dma_granule_bytes
    per_core = groups * ceil_div(2 * halfwords, burst) * burst
    fits = per_core <= limits.kernel_bytes_per_core or single_patch(width, height)
    return regular and cin > 1 and fits and groups <= MOST_GROUPS


def dense(weights: np.ndarray, groups: int) -> np.ndarray:
    """Dense weights of a grouped convolution: zero wherever a channel belongs to another group."""
    cout, cin, *kernel = weights.shape
    per = cout // groups
    whole = np.zeros((groups, per, groups, cin, *kernel), weights.dtype)
    for g in range(groups):
        whole[g, :, g] = weights[g * per : (g + 1) * per]
    return whole.reshape(cout, groups * cin, *kernel)
