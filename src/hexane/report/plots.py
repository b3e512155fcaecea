"""Plots of a report as PNG files: error per layer, L2 over tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hexane.errors import UnsupportedError

ERROR, MADE, KEPT, STREAMED = "#0b7285", "#e8590c", "#0b7285", "#99d5e0"
L2_KIB = 2048


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError("plots need matplotlib", hint="pip install 'hexane[report]'") from None
    return Figure(figsize=(8, 3.4), layout="constrained")


def save_errors(data: Mapping[str, Any], path: Path) -> None:
    """Relative error of every layer against the float32 network, and the part that each layer adds."""
    layers = data["layers"]
    if not layers:
        return
    figure = _figure()
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
    """Which bytes of L2 every task writes: kept for later tasks, or streamed through."""
    tasks = [task for task in data["tasks"] if task["l2"]]
    if not tasks:
        return
    figure = _figure()
    axes = figure.subplots()
    for place, task in enumerate(data["tasks"]):
        for start, end, kept in task["l2"]:
            axes.broken_barh(
                [(place, 1)], (start / 1024, (end - start) / 1024), color=KEPT if kept else STREAMED, linewidth=0
            )
    axes.set(xlim=(0, len(data["tasks"])), ylim=(0, L2_KIB), xlabel="task", ylabel="L2 address, KiB")
    axes.set_title("L2 over tasks: dark is kept, light streams through", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
