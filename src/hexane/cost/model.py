"""The time of a program: its layers one after another, and what it shares among engines and tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from hexane.chips import Chip
from hexane.cost.units import FURTHER_TASK_US, LayerCost, Numbers, OperatingPoint, larger, layer_cost
from hexane.cost.work import Layer, Work
from hexane.frozen import replace, slot_init

TILE_BYTES = 1024 * 1024
SMALL_BYTES = 32 * 1024
"""Below this a tensor is one tile, and a change between NE and PE cannot hide behind its rest. INFERRED."""


@slot_init
@dataclass(frozen=True, slots=True)
class Timed:
    """A layer with the cost of one repetition."""

    layer: Layer
    cost: LayerCost

    @property
    def us(self) -> float:
        """Microseconds over all repetitions."""
        return self.cost.us * self.layer.count


def engines_used(layers: Iterable[Layer], chip: Chip) -> int:
    """Engines that one program runs on: an M6 shares large maps over both (docs/timing.md), others use one."""
    if not chip.generation.joins_engines:
        return 1
    pixels = max((max(layer.pixels, layer.elements / 256) for layer in layers), default=0)
    return chip.engines if pixels > 256 else 1


def tile_count(work: Work) -> int:
    """Tiles that a chain is cut into (docs/timing.md)."""
    if not work.chain:
        return 1
    size = TILE_BYTES if work.layer_count > 2 else 2 * TILE_BYTES
    return int(work.largest_tensor_bytes // size) + 1


class Alone(NamedTuple):
    """The cost of one layer by itself, and what of it matters beside the layer in front of it.

    ``small``: a change of the unit in front of it cannot hide behind the rest of its data.
    """

    cost: LayerCost
    times: int
    core: Literal["NE", "PE"]
    small: bool
    follows: bool


def alone(layer: Layer, cost: LayerCost, chip: Chip) -> Alone:
    """A layer and its cost."""
    core: Literal["NE", "PE"] = "NE" if layer.unit in ("mac", "runtime") else "PE"
    small = chip.generation.family == "early" and max(layer.in_bytes, layer.out_bytes) <= SMALL_BYTES
    return Alone(cost, layer.count, core, small, layer.follows and (layer.placed or runs_in_step(layer, chip)))


def runs_in_step(layer: Layer, chip: Chip) -> bool:
    """True for a layer whose maps L2 holds as a whole, as locked tasks leave them there, and that are several tiles."""
    fits = layer.in_bytes + layer.out_bytes <= chip.generation.l2_bytes
    return fits and layer.in_bytes / layer.operands > SMALL_BYTES


def in_turn(layers: Iterable[Alone], c: Numbers) -> Iterator[LayerCost]:
    """Costs of layers one behind the other: with changes of the unit, and less what locked pairs overlap.

    A task that runs patch by patch behind one of the other unit counts for what it takes longer than that one
    (docs/reference/engine-h13.md 12.1).
    """
    before: Alone | None = None
    before_us: Any = 0.0
    for layer in layers:
        cost = layer.cost
        if layer.small and before is not None and layer.core != before.core and not layer.follows:
            switch = c["unit_switch_us"]
            cost = replace(cost, us=cost.us + switch, extra_us=cost.extra_us + switch)
        if layer.follows and before is not None:
            cost = replace(cost, us=larger(cost.us - before_us, FURTHER_TASK_US))
        before, before_us = layer, cost.us * layer.times
        yield cost


def time_work(
    work: Work, chip: Chip, c: Numbers, *, engines: int | None = None, clock_mhz: float | None = None
) -> list[Timed]:
    """Cost of every layer on ``chip`` with constants ``c``; linear in the number of layers."""
    engine_count = engines_used(work.layers, chip) if engines is None else engines
    clock = chip.clock_mhz if clock_mhz is None else clock_mhz
    at = OperatingPoint(chip, c, engine_count, clock, work.chain, tile_count(work))
    costs: dict[tuple[object, ...], LayerCost] = {}
    layers: list[Alone] = []
    for layer in work.layers:
        cost = costs.get(layer.form)
        if cost is None:
            cost = layer_cost(layer, at)
            costs[layer.form] = cost
        layers.append(alone(layer, cost, chip))
    return [Timed(layer, cost) for layer, cost in zip(work.layers, in_turn(layers, c))]
