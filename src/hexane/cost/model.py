"""The time of a program: its layers one after another, and what it shares among engines and tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hexane.chips import Chip
from hexane.cost.units import FURTHER_TASK_US, Cost, Numbers, larger, layer_cost
from hexane.cost.work import Layer, Work
from hexane.frozen import slot_init

TILE_BYTES = 1024 * 1024
SMALL_BYTES = 32 * 1024
"""Below this a tensor is one tile, and a change between NE and PE cannot hide behind its rest. INFERRED."""


@slot_init
@dataclass(frozen=True, slots=True)
class Timed:
    """A layer with the cost of one repetition."""

    layer: Layer
    cost: Cost

    @property
    def us(self) -> float:
        """Microseconds over all repetitions."""
        return self.cost.us * self.layer.count


def engines_used(work: Work, chip: Chip) -> int:
    """Engines that one program runs on: an M6 shares large maps over both (docs/timing.md), others use one."""
    if chip.generation_name != "h19" or not work.layers:
        return 1
    pixels = max(max(layer.pixels, layer.elements / 256) for layer in work.layers)
    return chip.engines if pixels > 256 else 1


def tile_count(work: Work) -> int:
    """Tiles that a chain is cut into (docs/timing.md)."""
    if not work.chain:
        return 1
    size = TILE_BYTES if work.layer_count > 2 else 2 * TILE_BYTES
    return int(work.largest_tensor_bytes // size) + 1


Costs = dict[tuple[object, ...], Cost]
"""Costs by all that they depend on."""


def time_work(
    work: Work,
    chip: Chip,
    c: Numbers,
    *,
    engines: int | None = None,
    clock_mhz: float | None = None,
    known: Costs | None = None,
) -> list[Timed]:
    """Cost of every layer on ``chip`` with constants ``c``; linear in the number of layers.

    ``known`` may be given for several works on one chip with the same constants, of compiled tasks (``placed``).

    A task that runs patch by patch behind one of the other unit counts for what it takes longer than that one: locked
    pairs overlap in time (docs/reference/engine-h13.md 12.1).
    """
    used = engines_used(work, chip) if engines is None else engines
    clock = chip.clock_mhz if clock_mhz is None else clock_mhz
    tiles = tile_count(work)
    seen: Costs = {} if known is None else known
    timed: list[Timed] = []
    before: str | None = None
    early = chip.generation.family == "early"
    for layer in work.layers:
        core = "NE" if layer.unit in ("mac", "runtime") else "PE"
        small = early and max(layer.in_bytes, layer.out_bytes) <= SMALL_BYTES
        switches = small and before not in (None, core) and not layer.follows
        before = core
        cost = seen.get(layer.form)
        if cost is None:
            cost = layer_cost(layer, chip, c, engines=used, clock_mhz=clock, chain=work.chain, tiles=tiles)
            seen[layer.form] = cost
        if switches:
            switch = c["unit_switch_us"]
            cost = replace(cost, us=cost.us + switch, extra_us=cost.extra_us + switch)
        if layer.follows and timed:
            cost = replace(cost, us=larger(cost.us - timed[-1].us, FURTHER_TASK_US))
        timed.append(Timed(layer, cost))
    return timed
