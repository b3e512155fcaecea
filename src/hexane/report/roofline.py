"""A roofline of a network on a chip: every layer by its intensity and rate, under what the chip can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hexane import chips
from hexane.chips import Chip
from hexane.files import make_folder, plain_errors
from hexane.report.figures import figure as new_figure
from hexane.timing import Estimate, estimate
from hexane.timing.roofline import BANDWIDTH_GBS


def save_roofline(x: Any, chip: str | Chip, folder: Path, result: Estimate | None = None) -> Path:
    """Write ``roofline-<chip>.png`` into ``folder`` (made when it is missing) and return its path.

    Axes are operations per byte of memory traffic and 1e9 operations per second, both logarithmic; the area of a dot
    is the layer's share of the time. ``result`` is the estimate of ``x`` where it is known. Needs matplotlib (extra
    ``report``): UnsupportedError without it.
    """
    target = chips.get(chip)
    result = result or estimate(x, target)
    peak = 2 * target.peak_macs_per_us / target.engines * result.engines / 1e3
    figure = new_figure(7.2, 4.6)
    axes = figure.subplots()
    ridge = peak / BANDWIDTH_GBS
    span = [0.05, ridge, max(4000.0, 4 * ridge)]
    axes.plot(span, [min(peak, BANDWIDTH_GBS * i) for i in span], color="#444", linewidth=1.5)
    colours = {
        "array": "#0b7285",
        "planar engine": "#5f3dc4",
        "weights": "#c2255c",
        "activations": "#e67700",
        "overhead": "#868e96",
    }
    for kind, colour in colours.items():
        dots = [op for op in result.ops if op.bottleneck == kind and op.macs and op.us]
        if dots:
            axes.scatter(
                [2 * op.macs / max(op.dma_bytes, 1.0) for op in dots],
                [2 * op.macs / op.us / 1e3 for op in dots],
                [12 + 600 * op.us / max(result.engine_us, 1e-9) for op in dots],
                color=colour,
                alpha=0.65,
                linewidths=0,
                label=f"limited by {kind}",
            )
    axes.set(xscale="log", yscale="log", xlim=(span[0], span[-1]), ylim=(peak / 3e4, peak * 2))
    axes.set(xlabel="operations per byte of memory traffic", ylabel="10⁹ operations per second")
    axes.set_title(
        f"{target.name}: {result.latency_us:.0f} µs a call, {result.engine_us:.0f} µs on the engine", loc="left"
    )
    axes.grid(True, which="major", color="#e9ecef", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="lower right", markerscale=0.6)
    make_folder(folder)
    path = folder / f"roofline-{target.name.lower().replace(' ', '-')}.png"
    with plain_errors(path):
        figure.savefig(path, dpi=150)
    return path
