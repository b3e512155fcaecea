"""Measured times beside predicted ones: of the rows that constants are fitted on, and of other people's networks.

    python tools/times.py [--rows] [--source WORD] [--json]

Rows: ``calibration.csv`` and ``others.csv`` of tests/data/perf; the networks that ``others.csv`` names are
``networks.zip`` there (graphs without weights). Prints rows, mean factor, median and the share within one standard
deviation, by source. ``--rows`` prints each row of other networks.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

import numpy as np  # noqa: E402

from hexane.chips.measured import values  # noqa: E402
from hexane.formats.mil.reader import parse_mil  # noqa: E402
from hexane.graph import Graph  # noqa: E402
from hexane.timing.measured import Case, case_of, case_parts, predict_case  # noqa: E402
from hexane.timing.ranges import shipped  # noqa: E402
from hexane.timing.sensitivity import slopes  # noqa: E402

FOLDER = ROOT / "tests" / "data" / "perf"


@dataclass(frozen=True)
class Timed:
    """One row: predicted microseconds, and how many standard deviations the measurement is away."""

    row: dict[str, str]
    us: float
    sigma: float

    @property
    def log_ratio(self) -> float:
        return math.log(self.us / float(self.row["fit_us"]))

    @property
    def source(self) -> str:
        """Whose measurement it is: owner and name of the publication, without the file."""
        return self.row["source"].split(":")[0].split(" ")[0]


@cache
def network(name: str) -> Graph:
    with zipfile.ZipFile(FOLDER / "networks.zip") as packed:
        return parse_mil(packed.read(f"{name}.mil").decode())


def network_name(row: Mapping[str, str]) -> str:
    """The network of a row of kind ``model``: its op, with the batch and, where the op has several, the channels."""
    batch = f"_n{row['n']}" if row["n"] not in ("", "1") else ""
    return row["op"] + batch + (f"_{row['cin']}" if row["cin"] else "")


def rows(name: str) -> list[dict[str, str]]:
    with open(FOLDER / name, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["use"] == "1"]


def other_case(row: dict[str, str]) -> Case:
    return case_of(row, network(network_name(row)) if row["kind"] == "model" else None)


def timed(row: dict[str, str], case: Case) -> Timed:
    """A row by the shipped constants, with the width that an estimate states."""
    numbers = values(case.chip)
    follow = slopes(partial(predict_case, case), numbers)
    sigma = shipped().sigma(case.chip, follow, case_parts(case, numbers), row["trust"] or None)
    return Timed(row, float(predict_case(case, numbers)), sigma)


@cache
def others() -> tuple[Timed, ...]:
    return tuple(timed(row, other_case(row)) for row in rows("others.csv"))


@cache
def calibration() -> tuple[Timed, ...]:
    return tuple(timed(row, case_of(row)) for row in rows("calibration.csv"))


def errors(found: Iterable[Timed]) -> dict[str, float]:
    """Rows, mean factor, median factor, and the share of rows within one standard deviation."""
    found = list(found)
    absolute = np.abs([item.log_ratio for item in found])
    inside = np.mean([abs(item.log_ratio) <= item.sigma for item in found])
    return {
        "rows": len(found),
        "mean_factor": round(float(np.exp(absolute.mean())), 3),
        "median": round(float(np.exp(np.median(absolute))), 3),
        "inside": round(float(inside), 3),
    }


def by_source(found: Iterable[Timed]) -> dict[str, dict[str, float]]:
    groups: dict[str, list[Timed]] = defaultdict(list)
    for item in found:
        groups[item.source].append(item)
    return {name: errors(items) for name, items in sorted(groups.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", action="store_true", help="print each row of other networks")
    parser.add_argument("--source", default="", help="only rows whose source has this word in it")
    parser.add_argument("--json", action="store_true", help="print JSON (schema hexane-times/1)")
    args = parser.parse_args()
    chosen = [item for item in others() if args.source in item.row["source"]]
    tables: dict[str, Any] = {"other networks": errors(chosen), **by_source(chosen)}
    if not args.source:
        tables["calibration"] = errors(calibration())
    if args.json:
        print(json.dumps({"schema": "hexane-times/1", **tables}))
        return
    if args.rows:
        for item in chosen:
            row, mark = item.row, "" if abs(item.log_ratio) <= item.sigma else "  outside"
            print(f"{row['id']:8} {row['chip']:8} {row['workload'][:44]:44} {float(row['fit_us']):10.1f} "
                  f"{item.us:10.1f} {math.exp(item.log_ratio):5.2f}{mark}")  # fmt: skip
    for name, e in tables.items():
        print(f"{name:50} {e['rows']:4}  {e['mean_factor']:.3f}  {e['median']:.3f}  {e['inside']:.1%}")


if __name__ == "__main__":
    main()
