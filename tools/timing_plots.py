"""One page of plots: the timing model against measured series.

python tools/timing_plots.py calibration.csv timing.png
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hexane.report.figures import figure as new_figure
from hexane.timing.calibrate import read_rows
from hexane.timing.measured import predict

Row = dict[str, str]
MEASURED, MODEL = "#c2255c", "#0b7285"


def _series(rows: Sequence[Row], *names: str, **equal: str) -> list[Row]:
    return [r for r in rows if r["series"] in names and all(r[k] == v for k, v in equal.items())]


def _gflops(row: Row, us: float) -> float:
    return 2 * float(row["cin"]) * float(row["cout"]) * float(row["h"]) * float(row["w"]) / us / 1e3


def _dots(axes: Any, xs: Sequence[float], us: Sequence[float], marker: str = "o") -> None:
    axes.plot(xs, us, marker, color=MEASURED, ms=4, alpha=0.6)


def _draw(axes: Any, rows: Sequence[Row], x: Callable[[Row], float], y: Callable[[Row, float], float]) -> None:
    """Measured points and the model's line over the same abscissa."""
    _dots(axes, [x(r) for r in rows], [y(r, float(r["fit_us"])) for r in rows])
    line = sorted({(x(r), y(r, predict(r))) for r in rows})
    axes.plot([p for p, _ in line], [q for _, q in line], "-", color=MODEL, lw=1.4)


def cliff(axes: Any, rows: Sequence[Row]) -> None:
    """Rate over weight size: the stream's limit, and the drop at powers of two."""
    points = [r for r in rows if r["chip"] == "M4 Max" and r["series"] == "de_sram"]
    _draw(axes, points, lambda r: 2 * float(r["cin"]) ** 2 / 2**20, _gflops)
    axes.set(xscale="log", xlabel="weights, MiB", ylabel="GFLOP/s")
    axes.set_title("M4 Max: one 1x1 layer, 64 pixels", loc="left", fontsize=9)


def floors(axes: Any, rows: Sequence[Row]) -> None:
    """Cost of a call when the work is next to nothing, by chip."""
    small = [r for r in rows if r["includes"] in ("call_copies", "call_eval") and float(r["fit_us"]) < 260]
    best: dict[str, Row] = {}
    for r in small:
        if r["chip"] not in best or float(r["fit_us"]) < float(best[r["chip"]]["fit_us"]):
            best[r["chip"]] = r
    names = sorted(best)
    axes.plot([float(best[n]["fit_us"]) for n in names], names, "o", color=MEASURED, ms=5, alpha=0.7)
    axes.plot([predict(best[n]) for n in names], names, "|", color=MODEL, ms=12, mew=2)
    axes.set(xlabel="µs", xlim=(0, None))
    axes.set_title("smallest measured call", loc="left", fontsize=9)


def slopes(axes: Any, rows: Sequence[Row]) -> None:
    """Time per further layer over the kernel's width: rewritten kernels from 9 on."""
    for series, marker in (("m6_kshape_4x32_e1_row", "o"), ("m6_kshape_32x32_e2_row", "s")):
        points = _series(rows, series)
        _dots(axes, [float(r["kw"]) for r in points], [float(r["fit_us"]) for r in points], marker)
        line = sorted((float(r["kw"]), predict(r)) for r in points)
        axes.plot([p for p, _ in line], [q for _, q in line], "-", color=MODEL, lw=1.4)
    axes.set(xlabel="kernel width", ylabel="µs per layer")
    axes.set_title("M6: layer slope, 256 channels (4x32, 32x32)", loc="left", fontsize=9)


def formats(axes: Any, rows: Sequence[Row]) -> None:
    """Weight formats: stored bytes set the time of a streamed layer."""
    points = sorted(_series(rows, "m6_wfmt_M4_m2048_r1"), key=lambda r: float(r["wbytes_layer"]))
    names = [r["wfmt"] for r in points]
    places = range(len(names))
    axes.plot(places, [float(r["fit_us"]) for r in points], "o", color=MEASURED, ms=5, alpha=0.7)
    axes.plot(places, [predict(r) for r in points], "_", color=MODEL, ms=14, mew=2)
    axes.set_xticks(list(places), names, rotation=45, fontsize=7)
    axes.set(ylabel="µs per layer", ylim=(0, None))
    axes.set_title("M4: 2048 channels by weight format", loc="left", fontsize=9)


def chains(axes: Any, rows: Sequence[Row]) -> None:
    """Depth of a chain: the call is a floor plus a slope; M6 completion bends in between."""
    for series in ("mini_peak_c512", "m6_stages_c512_s0", "m6_call_D_k1x1_c512_h1w128"):
        points = sorted(_series(rows, series), key=lambda r: float(r["layers"]))
        if series == "m6_stages_c512_s0":
            points = [r for r in points if r["includes"] == "submit_to_task_end"]
        _dots(axes, [float(r["layers"]) for r in points], [float(r["fit_us"]) for r in points])
        axes.plot([float(r["layers"]) for r in points], [predict(r) for r in points], "-", color=MODEL, lw=1.4)
    axes.set(xlabel="layers", ylabel="µs")
    axes.set_title("chains of 512-channel layers (M4, M6)", loc="left", fontsize=9)


def tiles(axes: Any, rows: Sequence[Row]) -> None:
    """Fused chains of wide maps: tiles run through all layers, shared out over two engines."""
    names = [f"m6_call_D_k1x1_c256_h1w{w}" for w in (2048, 4096, 6144, 8192, 16384, 24576)]
    _draw(axes, _series(rows, *names, layers="96"), lambda r: float(r["w"]), lambda r, us: us)
    axes.set(xlabel="width of the map", ylabel="µs")
    axes.set_title("M6: 96 fused layers, 256 channels", loc="left", fontsize=9)


PANELS = (cliff, floors, slopes, formats, chains, tiles)


def save_page(rows: Sequence[Row], path: Path) -> Path:
    """Draw all panels from measured rows (columns of ``calibration.csv``) into a PNG; needs matplotlib."""
    figure = new_figure(11, 6.4)
    for axes, panel in zip(figure.subplots(2, 3).flat, PANELS):
        panel(axes, rows)
        axes.grid(True, color="#e9ecef", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=7)
    figure.suptitle("measured (dots) and modelled (lines, ticks)", fontsize=9, x=0.01, ha="left")
    figure.savefig(path, dpi=120)
    return path


def main() -> None:
    print(save_page(read_rows(Path(sys.argv[1])), Path(sys.argv[2])))


if __name__ == "__main__":
    main()
