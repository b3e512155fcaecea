"""The page of a study of weight formats: error, size and time of each format and layer on every chip, Pareto plots."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexane.files import write_whole
from hexane.report.figures import figure as new_figure
from hexane.report.page import _data_uri, render

if TYPE_CHECKING:
    from hexane.studies.figures import Figures, Point, Study

ROW, MIXED, CHOSEN = "#0b7285", "#99d5e0", "#e8590c"
SMALLEST = 1e-6
"""Errors below this stand on the lower edge of a plot: its axis is logarithmic."""


def write_page(study: Study, path: Path, *, marked: Figures | None = None) -> None:
    """Write the study as one self-contained file; ``marked`` is the row that a budget led to.

    Needs jinja2 and matplotlib (extra ``report``): UnsupportedError without.
    """
    write_whole(path, page_of(study, marked=marked).encode())


def page_of(study: Study, *, marked: Figures | None = None) -> str:
    """The page's text."""
    formats = list(dict.fromkeys(choice.form.name for choice in study.choices))
    plots = [("size", "MB of weights in a file", _svg(study, "bytes", marked))]
    plots += [(chip.name, f"ms on {chip.name}, predicted", _svg(study, chip.name, marked)) for chip in study.chips]
    return render(
        "compress.html",
        study=study,
        chosen=marked,
        plots=plots,
        formats=formats,
        layers=_layers(study, marked),
        pareto={name: sorted(_pareto(study, name)) for name in ("bytes", *(chip.name for chip in study.chips))},
    )


def _layers(study: Study, figures: Figures | None) -> list[dict[str, Any]]:
    """One row for each layer: error and bytes by format, microseconds by chip and format."""
    rows: dict[str, dict[str, Any]] = {}
    for choice in study.choices:
        row = rows.setdefault(choice.layer, {"name": choice.layer, "cells": {}, "chosen": ""})
        row["cells"][choice.form.name] = {"error": choice.error, "bytes": choice.bytes, "us": dict(choice.us_on)}
        row["chosen"] = figures.layers.get(choice.layer, "") if figures is not None else ""
    return list(rows.values())


def cost_of(row: Figures, measure: str) -> float:
    """Bytes, or microseconds on a chip."""
    return float(row.bytes) if measure == "bytes" else row.us[measure]


def _pareto(study: Study, measure: str) -> set[str]:
    """Rows that no other row beats in both cost and error."""
    best = set()
    for row in study.rows:
        cost = cost_of(row, measure)
        beaten = any(
            (cost_of(other, measure), other.error) != (cost, row.error)
            and cost_of(other, measure) <= cost
            and other.error <= row.error
            for other in study.rows
        )
        if not beaten:
            best.add(row.name)
    return best


def _svg(study: Study, measure: str, figures: Figures | None) -> str:
    """The plot of error over cost as a data URI."""
    scale = 1e-6 if measure == "bytes" else 1e-3
    figure = new_figure(7.2, 4)
    axes = figure.subplots()
    plain = next(row for row in study.rows if row.name == "fp16")
    if study.choices:
        points = _placed(study.mixtures(measure), cost_of(plain, measure), plain.error, measure)
        axes.step(
            [x * scale for x, _ in points], [max(y, SMALLEST) for _, y in points], where="post", color=MIXED,
            linewidth=1.6, label="mixed by layer (errors added as squares)", zorder=1,
        )  # fmt: skip
    best = _pareto(study, measure)
    for row in study.rows:
        x, y = cost_of(row, measure) * scale, row.error
        if not y < float("inf"):
            continue
        colour = CHOSEN if row is figures else ROW
        axes.plot(x, max(y, SMALLEST), "o", color=colour, markerfacecolor=colour if row.name in best else "white", ms=6)
        axes.annotate(row.name, (x, max(y, SMALLEST)), xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.set(yscale="log", xlabel="MB of weights" if measure == "bytes" else f"ms on {measure}", ylabel="error (rms)")
    axes.margins(0.15)
    axes.grid(True, color="#e9ecef", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if study.choices:
        axes.legend(frameon=False, fontsize=8)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=130)
    return _data_uri(out.getvalue())


def _placed(points: list[Point], whole: float, least: float, measure: str) -> list[tuple[float, float]]:
    """Costs of the whole network where those of its layers are known: what is not a layer's weights stays."""
    first = points[0].cost
    rest = 0.0 if measure == "bytes" else whole - first
    return [(point.cost + rest, (point.error**2 + least**2) ** 0.5) for point in points]
