"""Energy on the engine's own rail: linear in work, traffic and time (docs/timing.md)."""

from __future__ import annotations

from hexane.cost.model import Timed, time_work
from hexane.cost.units import Numbers
from hexane.timing.measured import Case
from hexane.timing.parameters import TimingParameter

ENERGY_PARAMETERS: tuple[TimingParameter, ...] = (
    TimingParameter("energy_mac_pj", 1.0, "pJ", "one fp16 multiply-accumulate", 0.5, chip_spread=0.3),
    TimingParameter("energy_byte_pj", 15, "pJ", "one byte of DMA", 0.7, chip_spread=0.4),
    TimingParameter("idle_w", 0.7, "W", "engine awake during a call", 0.5, chip_spread=0.3),
)
INT8_SHARE = 0.75
"""int8 work needs 70 to 80 % of the energy per operation (docs/timing.md)."""


def energy_uj(timed: list[Timed], call_us: float, c: Numbers) -> float:
    """Microjoules of one call of ``call_us`` microseconds; DRAM's own rail (about 42 pJ per byte) is not included."""
    picojoules = 0.0
    for item in timed:
        layer = item.layer
        mac = c["energy_mac_pj"] * (INT8_SHARE if layer.int8 else 1.0)
        picojoules += layer.macs * layer.density * mac + item.cost.dma_bytes * layer.count * c["energy_byte_pj"]
    return picojoules * 1e-6 + c["idle_w"] * call_us


def energy_of_case(case: Case, c: Numbers, times: Numbers, measured_us: float) -> float:
    """Microjoules of a measured case: its own call time, the model's traffic with the constants ``times``."""
    timed = time_work(case.work, case.chip, times, engines=case.engines, clock_mhz=case.clock_mhz)
    return energy_uj(timed, measured_us, c)
