"""Bytes that writing the known parts of a file would lose, kept so that reading loses nothing."""

from __future__ import annotations

import numpy as np

from hexane.image.container import Remainder

RUN_GAP = 16
"""Unexplained bytes closer together than this go into one `Remainder`."""


def remainders(rewritten: bytes, data: bytes) -> tuple[Remainder, ...]:
    """Bytes that writing the parts alone would lose, as runs."""
    if rewritten == data:
        return ()
    differs = np.flatnonzero(np.frombuffer(rewritten, np.uint8) != np.frombuffer(data, np.uint8))
    breaks = np.flatnonzero(np.diff(differs) > RUN_GAP)
    firsts = np.concatenate(([0], breaks + 1))
    lasts = np.concatenate((breaks, [len(differs) - 1]))
    return tuple(Remainder(int(differs[a]), data[int(differs[a]) : int(differs[b]) + 1]) for a, b in zip(firsts, lasts))
