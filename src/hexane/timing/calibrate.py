"""Calibration: published rows in, ``chips/measured.json`` and a report of the error out. ``make calibrate`` runs it."""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hexane.chips import CHIPS, Evidence
from hexane.errors import FormatError, UsageError
from hexane.files import write_whole
from hexane.timing.energy import ENERGY_PARAMETERS, energy_of_case
from hexane.timing.fit import HUBER, LEAVE_ONE_OUT, SHARED, Fitted, Sample, cross_validate, factor, fit
from hexane.timing.measured import case_of, predict_case
from hexane.timing.roofline import roofline_us

SHIPPED = Path(__file__).resolve().parents[1] / "chips" / "measured.json"


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of ``calibration.csv`` that may be fitted (``use`` = 1); errors name file and column."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = {"chip", "kind", "series", "fit_us", "includes", "use"} - set(reader.fieldnames or ())
            if missing:
                raise FormatError(f"no column {', '.join(sorted(missing))}", where=str(path))
            return [row for row in reader if row["use"] == "1"]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def samples_of(rows: Sequence[dict[str, str]]) -> list[Sample]:
    return [
        Sample(case_of(row), float(row["fit_us"]), row["kind"], f"{row['source']}/{row['series']}", row["trust"] or "B")
        for row in rows
    ]


def fit_energy(rows: Sequence[dict[str, str]], samples: Sequence[Sample], times: Fitted) -> tuple[Fitted, float]:
    """Energy constants from the rows with a measured power, and their mean factor error.

    Powers repeat well and contradict each other little: pseudo-Huber is robust enough.
    """
    powered = [
        replace(sample, us=float(row["power_ane_w"]) * sample.us)
        for row, sample in zip(rows, samples)
        if row.get("power_ane_w") and float(row["power_ane_w"]) > 0.2 and sample.case.interface is not None
    ]
    measured = {id(s.case): s.us for s in samples}

    def model(case, c):
        return energy_of_case(case, c, times.of(case.chip), measured[id(case)])

    fitted = fit(powered, parameters=ENERGY_PARAMETERS, model=model, shape=HUBER)
    ratios = [math.log(model(s.case, fitted.of(s.case.chip)) / s.us) for s in powered]
    return fitted, factor(ratios)


def errors(samples: Sequence[Sample], log_ratios: Sequence[float] | np.ndarray) -> dict:
    """Mean factor, median and 90th percentile over all rows, and by chip, kind and (chip, kind) cell."""
    absolute = np.abs(log_ratios)
    groups: dict[str, dict[str, list[float]]] = {"chip": defaultdict(list), "kind": defaultdict(list)}
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample, value in zip(samples, absolute):
        groups["chip"][sample.chip].append(value)
        groups["kind"][sample.kind].append(value)
        cells[(sample.chip, sample.kind)].append(value)
    return {
        "rows": len(samples),
        "mean_factor": round(factor(absolute), 4),
        "median": round(float(np.exp(np.median(absolute))), 4),
        "p90": round(float(np.exp(np.quantile(absolute, 0.9))), 4),
        "cells_mean": round(float(np.mean([factor(values) for values in cells.values()])), 4),
        **{
            f"by_{name}": {key: [len(values), round(factor(values), 4)] for key, values in sorted(group.items())}
            for name, group in groups.items()
        },
    }


def document(times: Fitted, energy: Fitted, provenance: dict) -> dict:
    """The content of ``measured.json``: for all chips, for families and for single chips where they have rows."""
    content: dict = {"provenance": provenance, "shared": {}, "families": {}, "chips": {}}
    families = {chip.name: chip.generation.family for chip in CHIPS}
    for fitted in (times, energy):
        table = {p.name: p for p in fitted.parameters}
        for (owner, name), rows in fitted.rows.items():
            above = () if owner == SHARED else (owner,) if owner in families.values() else (families[owner], owner)
            entry = {
                "value": float(f"{fitted.numbers(above)[name]:.5g}"),
                "unit": table[name].unit,
                "factor": float(f"{math.exp(min(fitted.error[(owner, name)], 1.0)):.3f}"),
                "rows": rows,
                "evidence": str(Evidence.SILICON if rows else Evidence.INFERRED),
            }
            if owner == SHARED:
                content["shared"][name] = entry
            elif rows:
                kind = "families" if owner in families.values() else "chips"
                content[kind].setdefault(owner, {})[name] = entry
    return content


def write_json(path: Path, content: dict) -> None:
    """Whole or not at all."""
    write_whole(path, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


def calibrate(path: Path, out: Path = SHIPPED, *, folds: int = LEAVE_ONE_OUT) -> dict:
    """Fit everything to the rows of ``path``, cross-validate, write ``out``; returns what was written."""
    rows = read_rows(path)
    samples = samples_of(rows)
    times = fit(samples)
    energy, energy_factor = fit_energy(rows, samples, times)
    inside = [math.log(predict_case(s.case, times.of(s.case.chip)) / s.us) for s in samples]
    roof = [math.log(roofline_us(s.case) / s.us) for s in samples]
    held_out = cross_validate(samples, folds) if folds else np.empty(0)
    provenance = {
        "source": "public measurements named row by row in the project's calibration data; rows with use = 1",
        "method": "log residuals, Student's t, normal priors, family and chip factors (hexane.timing.fit)",
        "fitted": errors(samples, inside),
        "cross_validated": {
            "left_out": "one series at a time" if folds >= LEAVE_ONE_OUT else f"{folds} folds of series",
            **errors(samples, held_out),
        }
        if folds
        else None,
        "roofline": errors(samples, roof),
        "energy_mean_factor": round(energy_factor, 4),
    }
    result = document(times, energy, provenance)
    write_json(out, result)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=calibrate.__doc__)
    parser.add_argument("rows", type=Path, help="calibration.csv")
    parser.add_argument("-o", "--out", type=Path, default=SHIPPED)
    parser.add_argument("--folds", type=int, default=LEAVE_ONE_OUT, help="0 leaves the cross-validation out")
    args = parser.parse_args()
    result = calibrate(args.rows, args.out, folds=args.folds)
    print(json.dumps(result["provenance"], indent=1))


if __name__ == "__main__":
    main()
