"""Range of a prediction: the worth of its constants, and the scatter of its parts.

Two things add in quadrature. The constants' own errors, with what they have in common, as the fit leaves them: a
constant that no row of this chip speaks for keeps the width of its prior, so a chip that borrows a sibling's shows it.
And the scatter of each part of a time (an interface's calls, copies, the array, softmax ...) that no constant explains,
weighed by the part's share: fitted to series left out (``hexane.timing.calibrate``).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from hexane.chips import Chip
from hexane.cost.model import Timed
from hexane.cost.work import Layer
from hexane.timing.parameters import BY_NAME, SHARED

UNTIMED = "untimed"
UNTIMED_SCATTER = math.log(2)
"""A layer of a kind or format that nobody has timed: within a factor of two, two times of three. INFERRED."""
HOST = "host"
HOST_SCATTER = math.log(1.7)
"""Ops of the host at Core ML's assumed rates; never compared with a measurement. INFERRED."""
TIMED_PALETTES = (4.0, 6.0)
WIDEST, MOST_DILATED, LONGEST_STRIDE = 15, 2, 2


def is_untimed(layer: Layer, chip: Chip) -> bool:
    """True where nobody has published a time of such a layer: its kind, its window, or its weight format."""
    if layer.extrapolated:
        return True
    if layer.unit != "mac":
        return False
    window = max(layer.kh, layer.kw) > WIDEST or layer.dilation > MOST_DILATED or layer.stride > LONGEST_STRIDE
    return window or _has_untimed_format(layer, chip)


def _has_untimed_format(layer: Layer, chip: Chip) -> bool:
    if layer.weight_format == "palette":
        count = layer.dense_bytes / (1 if layer.int8 else 2)
        bits = round(8 * layer.weight_bytes / count, 1) if count else 4.0
        return not chip.generation.whole_indices and not any(abs(bits - timed) < 0.3 for timed in TIMED_PALETTES)
    if layer.weight_format == "int8" and not layer.int8:  # folded to fp16 by some compilers, streamed by others
        return chip.generation.folds_int8
    return layer.int8 and not chip.generation.int8_timed


def part_of(timed: Timed, chip: Chip, engines: int) -> str:
    """The part of a time that a layer counts as: what limits it, and how."""
    layer, limit = timed.layer, timed.cost.bottleneck
    if is_untimed(layer, chip):
        return UNTIMED
    if layer.unit == "mac":
        name = f"weights {layer.weight_format}" if limit == "weights" else limit
        return name + (" int8" if layer.int8 else "") + (", two engines" if engines > 1 else "")
    if limit == "activations":
        return limit
    return "norm" if layer.op in ("rms_norm", "l2_norm") else layer.unit


def layer_parts(timed: Sequence[Timed], chip: Chip, engines: int) -> dict[str, float]:
    """The microseconds of one program's layers by ``part_of``."""
    parts: dict[str, float] = defaultdict(float)
    for item in timed:
        parts[part_of(item, chip, engines)] += item.us
    return parts


@dataclass(frozen=True)
class Errors:
    """Openness of a fit: the covariance of the constants' logarithms, by (owner, name).

    ``scatter`` holds one log width per part of a time, ``base`` what every time scatters by, ``trust`` what a
    measurement of trust A, B or C adds, and ``others`` what a time adds that is of none of the ``sources`` fitted:
    other people write other networks and measure otherwise.
    """

    keys: dict[tuple[str, str], int]
    covariance: np.ndarray
    scatter: Mapping[str, float]
    base: float
    trust: Mapping[str, float]
    others: float = 0.0
    sources: frozenset[str] = frozenset()

    def constants_variance(self, chip: Chip, slopes: Mapping[str, float]) -> float:
        """Variance of a log time by its constants; ``slopes`` as ``hexane.timing.sensitivity`` gives them."""
        vector, open_variance = np.zeros(len(self.keys)), 0.0
        for name, slope in slopes.items():
            parameter = BY_NAME[name]
            owners: list[tuple[str, float]] = [(SHARED, 0.0)]
            if parameter.family_spread:
                owners.append((chip.generation.family, parameter.family_spread))
            if parameter.chip_spread:
                owners.append((chip.name, parameter.chip_spread))
            for owner, spread in owners:
                place = self.keys.get((owner, name))
                if place is None:
                    open_variance += (slope * spread) ** 2
                else:
                    vector[place] += slope
        return max(float(vector @ self.covariance @ vector), 0.0) + open_variance

    def scatter_variance(self, parts: Mapping[str, float], trust: str | None = None) -> float:
        """Variance of a log time by its parts, in microseconds; without ``trust`` that of an average measurement."""
        total = sum(parts.values())
        if total <= 0:
            return 0.0
        fixed = {UNTIMED: UNTIMED_SCATTER, HOST: HOST_SCATTER}
        own = sum((us / total * fixed.get(part, self.scatter.get(part, DEFAULT_SCATTER))) ** 2
                  for part, us in parts.items())  # fmt: skip
        return own + self.base**2 + self.trust.get(trust or AVERAGE, 0.0) ** 2

    def sigma(
        self,
        chip: Chip,
        slopes: Mapping[str, float],
        parts: Mapping[str, float],
        trust: str | None = None,
        source: str = "",
    ) -> float:
        """One standard deviation of a log time; ``source``: the publication that it is compared with."""
        other = 0.0 if source in self.sources else self.others**2
        return math.sqrt(self.constants_variance(chip, slopes) + self.scatter_variance(parts, trust) + other)


AVERAGE = "average"
DEFAULT_SCATTER = 0.1
"""A part that no series left out has spoken of. INFERRED, the middle of those that have."""


def to_json(errors: Errors) -> dict[str, Any]:
    """The errors as plain data: standard errors, and correlations of a percent or more as (place, place, percent)."""
    keys, covariance = list(errors.keys), errors.covariance
    deviation = np.sqrt(np.diag(covariance))
    percent = np.rint(100 * covariance / np.outer(deviation, deviation)).astype(int)
    places = [(i, j, int(percent[i, j])) for i in range(len(keys)) for j in range(i) if abs(percent[i, j]) >= 1]
    return {
        "keys": [f"{owner}/{name}" for owner, name in keys],
        "log_errors": [float(f"{value:.3g}") for value in deviation],
        "correlations_percent": places,
        "scatter": {part: float(f"{value:.3g}") for part, value in sorted(errors.scatter.items())},
        "base": float(f"{errors.base:.3g}"),
        "trust": {name: float(f"{value:.3g}") for name, value in sorted(errors.trust.items())},
        "others": float(f"{errors.others:.3g}"),
        "sources": sorted(errors.sources),
    }


@cache
def shipped() -> Errors:
    """The errors of the shipped constants (``chips/measured_errors.json``)."""
    data = json.loads(files("hexane.chips").joinpath("measured_errors.json").read_text())
    names = [tuple(key.split("/", 1)) for key in data["keys"]]
    deviation = np.array(data["log_errors"])
    correlation = np.eye(len(names))
    for i, j, percent in data["correlations_percent"]:
        correlation[i, j] = correlation[j, i] = percent / 100
    return Errors(
        {(owner, name): place for place, (owner, name) in enumerate(names)},
        correlation * np.outer(deviation, deviation),
        data["scatter"],
        data["base"],
        data["trust"],
        data["others"],
        frozenset(data["sources"]),
    )
