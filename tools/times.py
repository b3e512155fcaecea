"""Measured times beside predicted ones: of the rows that constants are fitted on, and of other people's networks.

    python tools/times.py [--rows] [--source WORD] [--json]

Rows: ``calibration.csv`` and ``others.csv`` of tests/data/perf; the networks that ``others.csv`` names are
``networks.zip`` there (graphs without weights). Prints rows, mean factor, median and the share within one standard
deviation, by source. ``--rows`` prints each row of other networks.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

import numpy as np  # noqa: E402

from hexane.timing.measured import case_of  # noqa: E402
from hexane.timing.others import TimedRow, rows, timed, timed_others  # noqa: E402

FOLDER = ROOT / "tests" / "data" / "perf"


@cache
def others() -> tuple[TimedRow, ...]:
    return timed_others(FOLDER)


@cache
def calibration() -> tuple[TimedRow, ...]:
    return tuple(timed(row, case_of(row)) for row in rows(FOLDER / "calibration.csv"))


def errors(found: Iterable[TimedRow]) -> dict[str, float]:
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


def by_source(found: Iterable[TimedRow]) -> dict[str, dict[str, float]]:
    groups: dict[str, list[TimedRow]] = defaultdict(list)
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
