"""Two reports side by side: the figures, the ops whose place differs, the layers whose error differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hexane.errors import FormatError, UsageError
from hexane.files import read_json
from hexane.formats.strict_json import strict_json
from hexane.report.data import SCHEMA as REPORT_SCHEMA
from hexane.report.folders import whole_folder
from hexane.report.page import render
from hexane.report.schema import check_answer

SCHEMA = "hexane-comparison/1"


def read_report(folder: Path) -> dict[str, Any]:
    """The data of a report folder (or of its ``report.json``); UsageError or FormatError for anything else."""
    path = folder / "report.json" if folder.is_dir() else folder
    if not path.is_file():
        raise UsageError("there is no report", where=str(folder), hint="make one with `hexane run MODEL --report DIR`")
    data = read_json(path, "a report", "report", "`hexane run MODEL --report DIR` writes one, into DIR")
    if not isinstance(data, dict) or data.get("schema") != REPORT_SCHEMA:
        schema = data.get("schema") if isinstance(data, dict) else None
        raise FormatError(f"has the schema {schema!r}", where=str(path), hint=f"a report has {REPORT_SCHEMA!r}")
    wrong = check_answer(data)
    if wrong:
        what = f"a report does not hold what it should ({wrong[0]})"
        raise FormatError(what, where=str(path), hint="make it again with `hexane run MODEL --report DIR`")
    return data


def figures(data: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a report that a reader compares, by what they are called."""
    run, placement, estimate = data["run"], data["placement"], data["estimate"]
    values: dict[str, Any] = {"network": run["model"], "chip": run["chip"], "level": run["level"]}
    if placement:
        values["ops on the engine"] = f"{placement['totals']['engine_ops']} of {placement['totals']['ops']}"
        if placement["totals"]["macs"]:
            values["multiply-accumulates on the engine"] = f"{placement['totals']['macs_on_engine']:.2%}"
    if run["program"]:
        values["tasks"] = run["program"]["tasks"]
        values["host segments"] = run["program"]["host_segments"]
        values["constants, bytes"] = run["program"]["const_bytes"]
    if run.get("verdict"):
        values["verdict"] = run["verdict"]
    for row in run["agreement"]:
        values[f"{row['name']}: infinite or NaN"] = row["nonfinite"]
        values[f"{row['name']}: largest error"] = _number(row["largest"])
        values[f"{row['name']}: relative error"] = _number(row["relative"])
    if estimate:
        values["estimated call, µs"] = round(estimate["latency_us"], 1)
        values["estimated energy, mJ"] = _number(estimate["energy_mj"])
    values["layers that lose products"] = len(data["scaling"])
    values["first layer that goes wrong"] = data["first_wrong"] or "none"
    for stage in ("compile", "run"):
        if stage in run["seconds"]:
            values[f"{stage}, seconds"] = run["seconds"][stage]
    return values


def _number(value: float | str | None) -> str:
    return "nothing finite" if value is None else value if isinstance(value, str) else f"{value:.3g}"


def compare(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Figures, ops that changed place, layers by how much their error changed (schema ``hexane-comparison/1``).

    FormatError for a report whose file was changed by hand or damaged.
    """
    try:
        return _compared(left, right)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        what = f"{type(error).__name__}: {error}"
        raise FormatError(f"a report does not hold what it should ({what})", hint="make it again") from None


def _compared(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    a, b = figures(left), figures(right)
    names = list(dict.fromkeys((*a, *b)))
    places = [{row["name"]: row for row in (data["placement"] or {"rows": []})["rows"]} for data in (left, right)]
    moves = [
        {"op": name, "type": row["op"], "left": row["place"], "right": places[1][name]["place"],
         "reason": (row if row["place"] == "host" else places[1][name])["reason"]}
        for name, row in places[0].items()
        if name in places[1] and places[1][name]["place"] != row["place"]
    ]  # fmt: skip
    errors = [
        {row["name"]: row["error"] for row in data["layers"] if row["error"] is not None} for data in (left, right)
    ]
    both = [
        {"layer": name, "left": value, "right": errors[1][name]}
        for name, value in errors[0].items()
        if name in errors[1]
    ]
    both.sort(key=lambda row: -abs(row["left"] - row["right"]))
    return {
        "schema": SCHEMA,
        "figures": [{"name": n, "left": a.get(n, "–"), "right": b.get(n, "–")} for n in names],
        "moved": moves,
        "layers": [row for row in both if row["left"] != row["right"]][:40],
        "files": ["index.html", "report.json"],
    }


def write_comparison(comparison: dict[str, Any], titles: tuple[str, str], folder: Path) -> None:
    """``index.html`` and ``report.json`` of a comparison, whole or not at all."""
    with whole_folder(folder) as path:
        (path / "report.json").write_text(strict_json(comparison, indent=1))
        (path / "index.html").write_text(render("compare.html", data=comparison, titles=titles))
