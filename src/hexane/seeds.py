"""Random numbers from a seed that a user gives: whole, from 0 on."""

from __future__ import annotations

from operator import index

import numpy as np

from hexane.errors import UsageError


def generator(seed: int, *further: int) -> np.random.Generator:
    """NumPy's generator of a seed (``further``: numbers that tell its streams apart); UsageError for what is none."""
    try:
        whole = index(seed)
    except TypeError:
        whole = -1
    if whole < 0:
        raise UsageError(f"{seed!r} is no seed", hint="a whole number from 0 on")
    return np.random.default_rng([whole, *further] if further else whole)
