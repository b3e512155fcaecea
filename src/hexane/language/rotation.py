"""Rotary positions: the angles of each position, computed on the host, as a decoder's configuration asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import numpy as np


@dataclass(frozen=True)
class Rotation:
    """``width`` values of a head turn in pairs (i, i + width / 2), by position times base^(-2 i / width).

    ``factor`` slows the turns (``linear``), or, with ``bands`` (low, high, original positions), only those whose wave
    is longer than what the model was first trained on, as Llama 3 does (``llama3``).
    """

    width: int
    base: float
    factor: float = 1.0
    bands: tuple[float, float, float] | None = None

    def frequencies(self) -> np.ndarray:
        """Radians per position of each pair, float64."""
        plain = self.base ** (-np.arange(0, self.width, 2, dtype=np.float64) / self.width)
        if self.bands is None:
            return plain / self.factor
        low, high, original = self.bands
        turns = original * plain / (2 * pi)
        share = np.clip((turns - low) / (high - low), 0, 1)
        return (1 - share) * plain / self.factor + share * plain

    def tables(self, positions: np.ndarray, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
        """cos and sin, float64 [1, 1, head_dim, positions]; the sine of a pair's first value is negative.

        So a head x turns into ``x * cos + swapped(x) * sin`` with the halves of its first ``width`` values swapped;
        what lies beyond them stays: cos 1, sin 0.
        """
        angles = self.frequencies()[:, None] * np.asarray(positions, np.float64)
        rest = np.ones((head_dim - self.width, len(positions)))
        cos = np.concatenate([np.cos(angles), np.cos(angles), rest])
        sin = np.concatenate([-np.sin(angles), np.sin(angles), 0 * rest])
        return cos[None, None], sin[None, None]
