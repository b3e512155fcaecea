"""Plots of a report as PNG files: error per layer, L2 over tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hexane.report.figures import figure as new_figure

ERROR, MADE, KEPT, STREAMED = "#0b7285", "#e8590c", "#0b7285", "#99d5e0"
L2_KIB = 2048


def save_errors(data: Mapping[str, Any], path: Path) -> None:
    """Relative error of every layer against the float32 network, and the part that each layer adds."""
    layers = data["layers"]
    if not layers:
        return
    figure = new_figure(8, 3.4)
    axes = figure.subplots()
    at = range(len(layers))
    axes.bar(at, [max(row["made"] or 0, 1e-6) for row in layers], color=MADE, alpha=0.5, label="made in this layer")
    axes.plot(at, [max(row["error"] or 0, 1e-6) for row in layers], color=ERROR, linewidth=1.4, label="arrived")
    axes.set(yscale="log", xlabel="layer", ylabel="relative error (rms)", ylim=(1e-6, None))
    axes.set_title("Error of the engine's arithmetic against float32", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def save_memory(data: Mapping[str, Any], path: Path) -> None:
    """What stands in L2 from task to task: tensors that stay for later tasks, and what streams through."""
    if not data["l2"]:
        return
    figure = new_figure(8, 3.4)
    axes = figure.subplots()
    for chart in data["l2"]:
        for stay in sorted(chart["stays"], key=lambda s: s["kept"]):
            axes.broken_barh(
                [(chart["task"] + stay["first"], stay["last"] + 1 - stay["first"])],
                (stay["start"] / 1024, (stay["stop"] - stay["start"]) / 1024),
                facecolor=KEPT if stay["kept"] else STREAMED,
                edgecolor="white",
                linewidth=0.3 if stay["kept"] else 0,
            )
    peak = max(chart["peak"] for chart in data["l2"])
    axes.set(xlim=(0, len(data["tasks"])), ylim=(0, L2_KIB), xlabel="task", ylabel="L2 address, KiB")
    axes.set_title(f"L2 over tasks: dark stays, light streams through; at most {peak / 1024:.0f} KiB", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
