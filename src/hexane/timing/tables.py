"""The tables of an estimate, once for the terminal and the notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hexane.timing.estimate import Estimate

RIGHT = tuple(range(2, 12))
LAYER_RIGHT = tuple(range(2, 7))


def parts_row(label: str, estimate: Estimate) -> list[str]:
    """An estimate as a row: who, call, range, launches, host, copies, engine, calls per second, energy, limit."""
    parts = estimate.parts
    low, high = estimate.latency_range_us
    calls = f"{estimate.calls_per_second:.0f}" if estimate.latency_us >= 1 else "-"
    return [
        estimate.chip, label, f"{estimate.latency_us:.1f}", f"{low:.0f}..{high:.0f}", f"{parts.launches} x",
        f"{parts.launch_us:.1f}", f"{parts.host_us:.1f}", f"{parts.copies_us:.1f}", f"{parts.engine_us:.1f}",
        calls, f"{estimate.energy_mj:.4f}", f"{estimate.utilisation:.1%}",
        estimate.bottleneck,
    ]  # fmt: skip


HEAD = ["chip", "as compiled by", "call us", "range", "launches", "launch us", "host us", "copies us", "engine us",
        "calls/s", "mJ", "of peak", "limited by"]  # fmt: skip
LAYER_HEAD = ["layer", "op", "us", "compute", "weights", "activations", "of peak", "limited by"]


def layer_rows(estimate: Estimate) -> list[list[str]]:
    """A row per layer or task, under ``LAYER_HEAD``; times in microseconds."""
    return [
        [op.name, op.op, f"{op.us:.2f}", f"{op.compute_us:.2f}", f"{op.weights_us:.2f}", f"{op.activations_us:.2f}",
         f"{op.utilisation:.1%}", op.bottleneck + (" (extrapolated)" if op.extrapolated else "")]
        for op in estimate.ops
    ]  # fmt: skip
