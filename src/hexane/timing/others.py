"""Rows of other people's networks: measured times that no constant is fitted on, and what predictions scatter by there.

``others.csv`` has the columns of ``calibration.csv``; ``op`` of a ``model`` row names a graph of ``networks.zip``.
"""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from hexane.chips.measured import values
from hexane.formats.mil.reader import parse_mil
from hexane.graph import Graph
from hexane.timing.measured import Case, case_of, case_parts, predict_case
from hexane.timing.ranges import Errors, shipped
from hexane.timing.sensitivity import slopes

WIDTHS = np.linspace(0.0, 0.6, 601)
WITHIN = {1: 0.6827, 2: 0.9545}
"""Shares of a normal distribution within one and two standard deviations."""


@dataclass(frozen=True)
class TimedRow:
    """One row: predicted microseconds, and the standard deviation of their logarithm."""

    row: Mapping[str, str]
    us: float
    sigma: float

    @property
    def log_ratio(self) -> float:
        """Of prediction over measurement."""
        return math.log(self.us / float(self.row["fit_us"]))

    @property
    def source(self) -> str:
        """Whose measurement it is: owner and name of the publication, without the file."""
        return self.row["source"].split(":")[0].split(" ")[0]


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table that may be compared (``use`` = 1)."""
    with open(path, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["use"] == "1"]


@cache
def network(folder: Path, name: str) -> Graph:
    """A graph of ``networks.zip``; its weights have shapes and no values."""
    with zipfile.ZipFile(folder / "networks.zip") as packed:
        return parse_mil(packed.read(f"{name}.mil").decode())


def network_name(row: Mapping[str, str]) -> str:
    """The network of a row of kind ``model``: its op, with the batch and, where the op has several, the channels."""
    batch = f"_n{row['n']}" if row["n"] not in ("", "1") else ""
    return row["op"] + batch + (f"_{row['cin']}" if row["cin"] else "")


def case_of_other(row: Mapping[str, str], folder: Path) -> Case:
    return case_of(row, network(folder, network_name(row)) if row["kind"] == "model" else None)


def timed(row: Mapping[str, str], case: Case, errors: Errors | None = None) -> TimedRow:
    """A row by the shipped constants, with the width that a range of it has."""
    numbers = values(case.chip)
    follow = slopes(partial(predict_case, case), numbers)
    widths = errors or shipped()
    sigma = widths.sigma(case.chip, follow, case_parts(case, numbers), row["trust"] or None, source=row["source"])
    return TimedRow(row, float(predict_case(case, numbers)), sigma)


def timed_others(folder: Path, errors: Errors | None = None) -> tuple[TimedRow, ...]:
    return tuple(timed(row, case_of_other(row, folder), errors) for row in rows(folder / "others.csv"))


def width_of_others(rows_timed: Sequence[TimedRow]) -> tuple[float, float]:
    """Scatter of predictions of other people's networks, and the coverage of sources left out.

    ``rows_timed`` with widths that do not count it yet. The width is the one whose coverage of one and of two standard
    deviations comes nearest to a normal distribution's; the coverage is of one, each source by the width of the rest.
    """
    ratio, sigma = np.array([abs(item.log_ratio) for item in rows_timed]), np.array([item.sigma for item in rows_timed])
    sources = np.array([item.source for item in rows_timed])
    inside = np.zeros(len(rows_timed), bool)
    for source in set(sources.tolist()):
        own_source = sources == source
        inside[own_source] = ratio[own_source] <= np.hypot(
            sigma[own_source], _width(ratio[~own_source], sigma[~own_source])
        )
    return _width(ratio, sigma), float(inside.mean())


def _width(ratio: np.ndarray, sigma: np.ndarray) -> float:
    def off(width: float) -> float:
        z = ratio / np.hypot(sigma, width)
        return max(abs(float((z <= k).mean()) - share) for k, share in WITHIN.items())

    return float(WIDTHS[int(np.argmin([off(width) for width in WIDTHS]))])
