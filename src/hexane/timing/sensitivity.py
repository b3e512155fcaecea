"""Sensitivity of a prediction to each constant: the slopes of its logarithm, all from one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hexane.cost.units import Numbers

STEP = 1e-5
"""Step of a constant's logarithm: slopes are one-sided differences."""


class Watched(dict):
    """Constants that remember which of them were asked for."""

    def __init__(self, numbers: Mapping[str, float]) -> None:
        super().__init__(numbers)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.asked.add(name)
        return super().__getitem__(name)


def asked(predict: Callable[[Numbers], Any], numbers: Mapping[str, float]) -> list[str]:
    """The constants that a prediction asks for, by name."""
    watched = Watched(numbers)
    predict(watched)
    return sorted(watched.asked)


def logs(predict: Callable[[Numbers], Any], names: list[str], numbers: list[float]) -> np.ndarray:
    """Logarithms of the prediction: first as it is, then with each constant in turn moved up by ``STEP``."""
    count = len(names)
    varied = np.repeat(np.array(numbers)[:, None], count + 1, axis=1)
    varied[np.arange(count), np.arange(1, count + 1)] *= math.exp(STEP)
    c = dict(zip(names, varied))
    return np.log(np.broadcast_to(predict(c), (len(names) + 1,)))


def slopes(predict: Callable[[Numbers], Any], numbers: Mapping[str, float]) -> dict[str, float]:
    """The change of a prediction's logarithm with that of each constant it asks for."""
    names = asked(predict, numbers)
    samples = logs(predict, names, [numbers[name] for name in names])
    return dict(zip(names, ((samples[1:] - samples[0]) / STEP).tolist()))
