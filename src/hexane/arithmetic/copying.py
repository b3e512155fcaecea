"""Copies between strided views: NumPy for few elements, compiled for many."""

from __future__ import annotations

import numpy as np

from hexane.arithmetic import tier

WORTH_IT = 1 << 11
"""Elements from which the compiled copy is faster."""


def copy(target: np.ndarray, source: np.ndarray) -> None:
    """target[...] = source, both uint16 or uint8 of one shape with five axes; they may overlap."""
    if source.size < WORTH_IT or np.may_share_memory(target, source) or tier.plain():
        target[...] = source
        return
    from hexane.arithmetic.fast.copy import copy as fast

    fast(target, source)
