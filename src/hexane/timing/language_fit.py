"""The constants of language models from ``llm.csv``, and the table of every row beside its prediction."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexane.chips.measured import constants_in
from hexane.cost.units import Numbers
from hexane.errors import UsageError
from hexane.timing.fit import Sample, factor, fit, folds
from hexane.timing.language import LANGUAGE_PARAMETERS, Decoding, decoding, token_us

TRUSTED = ("A", "B")
_RUNGS = re.compile(r"ladder ([\dK/]+)")


@dataclass(frozen=True)
class LanguageRow:
    """One published rate; ``work`` is None where the row does not say what ran, ``why_not`` why it is not fitted."""

    row: Mapping[str, str]
    work: Decoding | None
    why_not: str

    @property
    def rate(self) -> float:
        return float(self.row["decode_tok_s"])


def read(path: Path) -> list[LanguageRow]:
    """The rows of ``llm.csv`` that hold a decoding rate."""
    with open(path, newline="", encoding="utf-8") as file:
        return [_row(row) for row in csv.DictReader(file) if row["decode_tok_s"]]


def _row(row: Mapping[str, str]) -> LanguageRow:
    if not row["params_b"]:
        return LanguageRow(row, None, "size not stated")
    try:
        batch = int(row["batch"] or 1)
        work = decoding(row["chip"], float(row["params_b"]), row["quantisation"], _capacity(row), batch)
    except UsageError:
        return LanguageRow(row, None, "chip or format not stated")
    if not row["placement"].startswith("ane"):
        return LanguageRow(row, work, "GPU and engine together")
    if "CPU" in row["placement"]:
        return LanguageRow(row, work, "attention on the CPU")
    if row["spec_decode"] != "no":
        return LanguageRow(row, work, "speculative")
    if row["note"].startswith("end to end"):
        return LanguageRow(row, work, "prompt included")
    if row["trust"] not in TRUSTED:
        return LanguageRow(row, work, f"trust {row['trust']}")
    return LanguageRow(row, work, "")


def _capacity(row: Mapping[str, str]) -> float | None:
    """Positions that attention runs over: the next rung where the program has a ladder of capacities."""
    if not row["context_tokens"]:
        return None
    context = float(row["context_tokens"])
    ladder = _RUNGS.search(row["note"])
    if ladder:
        rungs = [float(r.rstrip("K")) * (1024 if r.endswith("K") else 1) for r in ladder.group(1).split("/") if r]
        return next((rung for rung in rungs if rung > context), context)
    return context


def fit_language(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """The section ``language`` of ``measured.json``: constants, scatter, error of models left out, and the table.

    ``content`` is the rest of that file: every other constant is what it says.
    """
    rows = read(path)
    chips_of_rows = {row.work.chip for row in rows if row.work is not None}
    fixed = {chip: {name: c.value for name, c in constants_in(content, chip).items()} for chip in chips_of_rows}

    def model(work: Any, c: Numbers) -> Any:
        return token_us(work, {**fixed[work.chip], **{p.name: c[p.name] for p in LANGUAGE_PARAMETERS}})

    usable = [row for row in rows if row.work is not None and not row.why_not]
    samples = [_sample(row) for row in usable]
    fitted = fit(samples, parameters=LANGUAGE_PARAMETERS, model=model, robust=False, enough=1e-8)
    numbers = {p.name: float(f"{fitted.numbers(())[p.name]:.4g}") for p in LANGUAGE_PARAMETERS}
    left_out = np.empty(len(samples))
    for test in folds(samples, len(samples)):
        others = [s for i, s in enumerate(samples) if i not in test]
        rest = fit(others, parameters=LANGUAGE_PARAMETERS, model=model, robust=False, enough=1e-8)
        for i in test:
            left_out[i] = math.log(model(samples[i].case, rest.numbers(())) / samples[i].us)
    inside = [math.log(model(s.case, numbers) / s.us) for s in samples]
    return {
        "constants": {
            p.name: {
                "value": numbers[p.name],
                "unit": p.unit,
                "factor": round(math.exp(min(fitted.error[("shared", p.name)], 1.0)), 3),
                "rows": fitted.rows[("shared", p.name)],
            }
            for p in LANGUAGE_PARAMETERS
        },
        "rows": len(samples),
        "mean_factor": round(factor(inside), 4),
        "mean_factor_left_out": round(factor(left_out), 4),
        "scatter": round(float(np.quantile(np.abs(left_out), 0.68)), 3),
        "table": [_entry(row, model, numbers) for row in rows],
    }


def _sample(row: LanguageRow) -> Sample:
    work = row.work
    assert work is not None
    return Sample(work, 1e6 * work.batch / row.rate, "language", row.row["model"], row.row["trust"])  # type: ignore[arg-type]


def _entry(row: LanguageRow, model: Any, numbers: Mapping[str, float]) -> list[Any]:
    """One line of the table: what ran, measured and predicted tokens per second, why it is not counted."""
    r = row.row
    rate = 1e6 * row.work.batch / float(model(row.work, numbers)) if row.work is not None else None
    columns = [r[name] for name in ("chip", "model", "quantisation", "context_tokens", "batch", "trust")]
    return [*columns, row.rate, None if rate is None else float(f"{rate:.4g}"), row.why_not, r["source"]]
