"""Plots of a report as PNG files: error per layer, L2 over tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hexane.report.figures import figure as new_figure

ERROR, MADE, KEPT, STREAMED = "#0b7285", "#e8590c", "#0b7285", "#99d5e0"


def save_errors(data: Mapping[str, Any], path: Path) -> None:
    """Relative error of every layer against the float32 network, and the part that each layer adds."""
    layers = data["layers"]
    if not layers:
        return
    figure = new_figure(8, 3.4)
    axes = figure.subplots()
    at = range(len(layers))
    bars = [(i - 0.4, i + 0.4, 1e-6, max(row["made"] or 0, 1e-6)) for i, row in enumerate(layers)]
    _add_boxes(axes, bars, color=MADE, alpha=0.5, label="made in this layer")
    axes.plot(at, [max(row["error"] or 0, 1e-6) for row in layers], color=ERROR, linewidth=1.4, label="arrived")
    axes.set(yscale="log", xlabel="layer", ylabel="relative error (rms)", ylim=(1e-6, None))
    axes.set_title("Error of the engine's arithmetic against float32", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=150)


def save_memory(data: Mapping[str, Any], path: Path) -> None:
    """Contents of L2 from task to task: tensors that stay for later tasks, and what streams through."""
    if not data["l2"]:
        return
    figure = new_figure(8, 3.4)
    axes = figure.subplots()
    for chart in data["l2"]:
        for stays in (False, True):
            boxes = [
                (chart["task"] + s["first"], chart["task"] + s["last"] + 1, s["start"] / 1024, s["stop"] / 1024)
                for s in chart["stays"]
                if s["kept"] == stays
            ]
            color, line = (KEPT, 0.3) if stays else (STREAMED, 0)
            _add_boxes(axes, boxes, facecolor=color, edgecolor="white", linewidth=line)
    peak, room = (max(chart[key] for chart in data["l2"]) for key in ("peak", "room"))
    axes.set(xlim=(0, len(data["tasks"])), ylim=(0, room / 1024), xlabel="task", ylabel="L2 address, KiB")
    axes.set_title(f"L2 over tasks: dark stays, light streams through; at most {peak / 1024:.0f} KiB", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _add_boxes(axes: Any, boxes: Sequence[tuple[float, float, float, float]], **style: Any) -> None:
    """Boxes by their left and right, lower and upper ends, as one collection: artists for each take seconds."""
    from matplotlib.collections import PolyCollection

    axes.add_collection(PolyCollection([[(a, c), (b, c), (b, d), (a, d)] for a, b, c, d in boxes], **style))
    axes.autoscale_view()
