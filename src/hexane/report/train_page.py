"""The page of a training run: curves, products that vanish, loss scales, predicted time and energy."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from pathlib import Path

import numpy as np

from hexane.files import write_whole
from hexane.report.page import render
from hexane.train.job import TrainingRun

WIDTH, HEIGHT, MARGIN = 720, 260, 44
MOST_POINTS = 1000
SHADES = ("#fff5eb", "#fdd0a2", "#fdae6b", "#fd8d3c", "#e6550d", "#a63603")
FLOOR = 1e-6
"""Share of lost products below which a field stays white."""


def write_page(run: TrainingRun, path: Path) -> None:
    """Write a run as one self-contained file. Needs jinja2 (extra ``report``): UnsupportedError without."""
    curves = [
        ("float32", "var(--soft)", run.curves["float32"]),
        (f"{run.trainer.chip.name}, level {run.trainer.level}", "var(--engine)", run.curves["loss"]),
    ]
    lines = [(label, colour, values) for label, colour, values in curves if any(map(isfinite, values))]
    top, paths = _plot([values for _, _, values in lines])
    worst = [max(column) for column in zip(*run.lost)]
    order = sorted(range(len(worst)), key=lambda i: -worst[i])
    sums = [(*run.sums[i], [(row[i], _shade(row[i])) for row in run.lost]) for i in order]
    text = render(
        "train.html", run=run, trainer=run.trainer, lines=list(zip(lines, paths)), top=top, sums=sums,
        size=(WIDTH, HEIGHT, MARGIN), differences=_differences(run),
    )  # fmt: skip
    write_whole(path, text.encode())


def _plot(series: Sequence[Sequence[float]]) -> tuple[list[tuple[float, float]], list[str]]:
    """Marks of the vertical axis as (place, value), and each series as the points of an SVG polyline."""
    values = [v for one in series for v in one if isfinite(v)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    high = high if high > low else low + 1.0
    up = lambda v: HEIGHT - MARGIN - (v - low) / (high - low) * (HEIGHT - 2 * MARGIN)  # noqa: E731
    lines = []
    for one in series:
        every = max(1, len(one) // MOST_POINTS)
        along = (WIDTH - 2 * MARGIN) / max(len(one) - 1, 1)
        points = [(MARGIN + n * along, up(one[n])) for n in range(0, len(one), every) if isfinite(one[n])]
        lines.append(" ".join(f"{x:.1f},{y:.1f}" for x, y in points))
    return [(up(v), v) for v in np.linspace(low, high, 5).tolist()], lines


def _shade(share: float) -> str:
    if share < FLOOR:
        return "transparent"
    steps = np.log10(share / FLOOR) / -np.log10(FLOOR) * len(SHADES)
    return SHADES[min(int(steps), len(SHADES) - 1)]


def _differences(run: TrainingRun) -> dict[str, float]:
    """Mean losses of the last tenth of the steps, and by how much the engine's is above float32's, relative."""
    last = max(1, len(run.curves["loss"]) // 10)
    ours, theirs = (float(np.mean(run.curves[name][-last:] or [inf])) for name in ("loss", "float32"))
    return {"steps": last, "loss": ours, "float32": theirs, "relative": (ours - theirs) / theirs if theirs else inf}
