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
from typing import Any

import numpy as np

from hexane.chips import CHIPS, Evidence
from hexane.chips.measured import constants_in
from hexane.errors import FormatError, UsageError
from hexane.files import write_whole
from hexane.timing.energy import ENERGY_PARAMETERS, energy_of_case
from hexane.timing.fit import LEAVE_ONE_OUT, SHARED, Fitted, Sample, cross_validate, factor, fit
from hexane.timing.language import head_row
from hexane.timing.language_fit import fit_language
from hexane.timing.measured import case_of, predict_case
from hexane.timing.others import timed_others, width_of_others
from hexane.timing.ranges import shipped, to_json
from hexane.timing.roofline import roofline_us
from hexane.timing.scatter import fit_scatter

SHIPPED = Path(__file__).resolve().parents[1] / "chips" / "measured.json"
ERRORS = "measured_errors.json"


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


PALETTE_LAYERS = (
    ("M5 Max", "fp16", 211), ("M5 Max", "w8", 109), ("M5 Max", "p4", 108),
    ("M6", "fp16", 218), ("M6", "w8", 103), ("M6", "p4", 45), ("M6", "p3", 50), ("M6", "p2", 28), ("M6", "p1", 26),
)  # fmt: skip
"""Microseconds of one 1x1 layer, 4096 to 4096 channels, 16 pixels, by weight format. SILICON, Anemll/anemll-forge."""
_PALETTE_LAYER = {"kind": "conv_chain", "op": "conv", "cin": "4096", "cout": "4096", "h": "1", "w": "16",
                  "layers": "slope", "weights": "distinct", "includes": "layer_slope", "engines": "1"}  # fmt: skip


def published_samples(folder: Path) -> list[Sample]:
    """Samples beside ``calibration.csv``: heads of language models (``lm_head.csv``) and layers by weight format."""
    samples = []
    heads = folder / "lm_head.csv"
    if heads.exists():
        with open(heads, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                for fmt, column in (("fp16", "fp16_ms"), ("p6", "lut6_ms")):
                    case = case_of(head_row(row["chip"], fmt))
                    samples.append(Sample(case, 1e3 * float(row[column]), "lm_head", f"heads/{row['chip']}", "A"))
    for chip, fmt, us in PALETTE_LAYERS:
        case = case_of({**_PALETTE_LAYER, "chip": chip, "wfmt": fmt})
        samples.append(Sample(case, float(us), "format", f"formats/{chip}", "A"))
    return samples


def fit_energy(rows: Sequence[dict[str, str]], samples: Sequence[Sample], times: Fitted) -> tuple[Fitted, float]:
    """Energy constants from the rows with a measured power, and their mean factor error.

    Powers repeat well and contradict each other little: pseudo-Huber is robust enough.
    """
    powered = [
        replace(sample, us=float(row["power_ane_w"]) * sample.us)
        for row, sample in zip(rows, samples)
        if row.get("power_ane_w") and float(row["power_ane_w"]) > 0.2 and sample.case.shallow is None
    ]
    measured = {id(s.case): s.us for s in samples}

    def model(case, c):
        return energy_of_case(case, c, times.of(case.chip), measured[id(case)])

    fitted = fit(powered, parameters=ENERGY_PARAMETERS, model=model, robust=False)
    ratios = [math.log(model(s.case, fitted.of(s.case.chip)) / s.us) for s in powered]
    return fitted, factor(ratios)


def errors(samples: Sequence[Sample], log_ratios: Sequence[float] | np.ndarray) -> dict[str, Any]:
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


def document(times: Fitted, energy: Fitted, provenance: dict[str, Any]) -> dict[str, Any]:
    """The content of ``measured.json``: for all chips, for families and for single chips where they have rows."""
    content: dict[str, Any] = {"provenance": provenance, "shared": {}, "families": {}, "chips": {}}
    families = {chip.name: chip.generation.family for chip in CHIPS}
    for fitted in (times, energy):
        table = {p.name: p for p in fitted.parameters}
        for (owner, name), rows in fitted.rows.items():
            above = () if owner == SHARED else (owner,) if owner in families.values() else (families[owner], owner)
            owners = (SHARED, *above)
            error = math.sqrt(sum(fitted.error.get((one, name), 0.0) ** 2 for one in owners))
            entry = {
                "value": float(f"{fitted.numbers(above)[name]:.5g}"),
                "unit": table[name].unit,
                "factor": float(f"{math.exp(min(error, 1.0)):.3f}"),
                "rows": rows,
                "evidence": str(Evidence.SILICON if rows else Evidence.INFERRED),
            }
            if owner == SHARED:
                content["shared"][name] = entry
            elif rows:
                kind = "families" if owner in families.values() else "chips"
                content[kind].setdefault(owner, {})[name] = entry
    return content


def write_json(path: Path, content: dict[str, Any], *, indent: int | None = 1) -> None:
    """Whole or not at all."""
    write_whole(path, (json.dumps(content, indent=indent, sort_keys=True) + "\n").encode())


def _inside(samples: Sequence[Sample], content: dict[str, Any]) -> list[float]:
    """Errors with the constants of a document, as they are shipped: rounded."""
    numbers = {chip: {name: c.value for name, c in constants_in(content, chip).items()} for chip in CHIPS}
    return [math.log(predict_case(s.case, numbers[s.case.chip]) / s.us) for s in samples]


def _whole_networks(
    rows: Sequence[dict[str, str]], samples: Sequence[Sample], content: dict[str, Any], held_out: Sequence[float]
) -> list[list[Any]]:
    """Rows of whole networks: chip, what ran, microseconds, ratio of the fitted and of the held-out prediction."""
    ratios = zip(rows, samples, _inside(samples, content), held_out)
    return [
        [s.chip, row["workload"], round(s.us, 1), round(math.exp(inside), 3), round(math.exp(outside), 3)]
        for row, s, inside, outside in ratios
        if s.kind == "model"
    ]


def calibrate(path: Path, out: Path = SHIPPED, *, folds: int = LEAVE_ONE_OUT, workers: int = 1) -> dict[str, Any]:
    """Fit everything to the rows of ``path`` and the tables beside it, cross-validate, write ``out``; returns that.

    Beside ``out`` (``measured.json``) goes ``measured_errors.json``: what the fit leaves open, and the widths of
    ranges, both from series left out. Needs scipy (extra ``hexane[fit]``).
    """
    rows = read_rows(path)
    own = samples_of(rows)
    samples = [*own, *published_samples(path.parent)]
    times = fit(samples)
    energy, energy_factor = fit_energy(rows, own, times)
    left_out = cross_validate(samples, times, folds, workers=workers)
    held_out = [item.log_ratio for item in left_out]
    widths, covered = fit_scatter(own, left_out[: len(own)], times)
    extra = samples[len(own) :]
    content = document(times, energy, {})
    provenance = {
        "source": "public measurements named row by row in the project's calibration data; rows with use = 1, the "
        "heads of language models, and layers by weight format",
        "method": "log residuals under Cauchy's loss, normal priors as residuals, family and chip factors, "
        "scipy.optimize.least_squares (hexane.timing.fit)",
        "fitted": errors(own, _inside(own, content)),
        "cross_validated": {
            "left_out": "one series at a time" if folds >= LEAVE_ONE_OUT else f"{folds} folds of series",
            **errors(own, held_out[: len(own)]),
        },
        "heads_and_formats": {
            "fitted": errors(extra, _inside(extra, content)),
            "cross_validated": errors(extra, held_out[len(own) :]),
        }
        if extra
        else None,
        "coverage_of_rows_left_out": covered,
        "whole_networks": _whole_networks(rows, own, content, held_out),
        "roofline": errors(own, [math.log(roofline_us(s.case) / s.us) for s in own]),
        "energy_mean_factor": round(energy_factor, 4),
    }
    result = {**content, "provenance": provenance}
    rates = path.parent / "llm.csv"
    if rates.exists():
        result["language"] = fit_language(rates, result)
    write_json(out, result)
    write_json(out.with_name(ERRORS), to_json(replace(widths, sources=_sources(rows))), indent=None)
    return result


def _sources(rows: Sequence[dict[str, str]]) -> frozenset[str]:
    return frozenset(row["source"] for row in rows)


def state_errors(path: Path) -> dict[str, Any]:
    """Rest that the shipped constants leave open now that prices around them changed, and language models fitted again.

    Written into the shipped file; errors of series left out stay those of the fit.
    """
    own = samples_of(read_rows(path))
    extra = published_samples(path.parent)
    content = json.loads(SHIPPED.read_text())
    content["provenance"]["fitted"] = errors(own, _inside(own, content))
    if extra:
        content["provenance"]["heads_and_formats"]["fitted"] = errors(extra, _inside(extra, content))
    content["language"] = fit_language(path.parent / "llm.csv", content)
    write_json(SHIPPED, content)
    return content


def calibrate_others(path: Path) -> dict[str, Any]:
    """Scatter of other people's networks with the shipped constants; written into the shipped files."""
    errors_now = replace(shipped(), others=0.0, sources=_sources(read_rows(path)))
    rows_timed = timed_others(path.parent, errors_now)
    width, covered = width_of_others(rows_timed)
    content = json.loads(SHIPPED.read_text())
    absolute = np.abs([item.log_ratio for item in rows_timed])
    content["provenance"]["other_networks"] = {
        "rows": len(rows_timed),
        "mean_factor": round(factor(absolute), 4),
        "median": round(float(np.exp(np.median(absolute))), 4),
        "covered_sources_left_out": round(covered, 4),
    }
    write_json(SHIPPED, content)
    write_json(SHIPPED.with_name(ERRORS), to_json(replace(errors_now, others=width)), indent=None)
    return content


def main() -> None:
    parser = argparse.ArgumentParser(description=calibrate.__doc__)
    parser.add_argument("rows", type=Path, help="calibration.csv")
    parser.add_argument("-o", "--out", type=Path, default=SHIPPED)
    parser.add_argument("--folds", type=int, default=LEAVE_ONE_OUT, help="folds of series instead of one series each")
    parser.add_argument("--workers", type=int, default=2, help="processes for the cross-validation")
    parser.add_argument("--others", action="store_true", help="only the width of other people's networks, as shipped")
    parser.add_argument("--errors", action="store_true", help="only errors and language models, constants as shipped")
    args = parser.parse_args()
    if args.errors:
        print(json.dumps(state_errors(args.rows)["provenance"]["fitted"], indent=1))
        return
    if args.others:
        print(json.dumps(calibrate_others(args.rows)["provenance"]["other_networks"], indent=1))
        return
    result = calibrate(args.rows, args.out, folds=args.folds, workers=args.workers)
    print(json.dumps(result["provenance"], indent=1))


if __name__ == "__main__":
    main()
