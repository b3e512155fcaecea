"""The plain roofline: peak arithmetic or peak bandwidth, whichever is slower, and one call floor. A yardstick."""

from __future__ import annotations

from hexane.chips import Chip
from hexane.cost.work import Work
from hexane.timing.measured import Case

BANDWIDTH_GBS = 60.0
"""Round DRAM rate of the engine's DMA on every chip."""
FLOOR_US = {
    "task": 0.0,
    "submit": 25.0,
    "evaluate": 100.0,
    "copies": 100.0,
    "copies_typical": 100.0,
    "coreml": 150.0,
    "coreml_awake": 150.0,
    "linux": 40.0,
}


def intensity(work: Work) -> tuple[float, float]:
    """Operations (two per multiply-accumulate, one per planar element) and bytes that must cross to memory."""
    flop = 2 * work.macs + sum(layer.elements * layer.count for layer in work.layers)
    traffic = 0.0
    tensors: set[str] = set()
    for layer in work.layers:
        if layer.weight_key is None or layer.weight_key not in tensors:
            traffic += layer.weight_bytes * (layer.count if layer.weight_key is None else 1)
        if layer.weight_key:
            tensors.add(layer.weight_key)
        traffic += layer.in_bytes * layer.reads_input + layer.out_bytes * layer.writes_output
    return flop, traffic


def roof_us(work: Work, chip: Chip, engines: int = 1, clock_mhz: float | None = None) -> float:
    """Microseconds under the roof, without any overhead."""
    flop, traffic = intensity(work)
    peak = 2 * chip.generation.cores * chip.macs_per_core_cycle * (clock_mhz or chip.clock_mhz) * engines
    return max(flop / peak, traffic / (BANDWIDTH_GBS * 1e3))


def roofline_us(case: Case) -> float:
    """The yardstick's prediction of a measured case."""
    us = roof_us(case.work, case.chip, case.engines, case.clock_mhz)
    if case.shallow is not None:
        us = (us - roof_us(case.shallow, case.chip, case.engines, case.clock_mhz)) / case.further
        return max(us, 1e-3)
    return max(case.calls * (us + FLOOR_US[case.interface]), 1e-3)
