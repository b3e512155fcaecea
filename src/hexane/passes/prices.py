"""Prices for passes: layers of the cost model for what an op becomes, before there are tasks.

The same functions time plans and programs (hexane.cost), with the constants of the chip that is compiled for.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from hexane.chips import Chip
from hexane.chips.measured import values
from hexane.cost.model import time_work
from hexane.cost.work import Layer, Unit, Work

MOST_LAYERS = 4096
"""Layers that are remembered: those of a network are few again and again."""


def stays_bytes(chip: Chip) -> int:
    """Bytes of a map up to which it and a second one stay in L2 between tasks."""
    return chip.generation.l2_bytes // 2


def price_us(layers: Iterable[Layer], chip: Chip) -> float:
    """Microseconds of these layers one after the other on a chip."""
    return sum(float(item.us) for item in time_work(Work(tuple(layers)), chip, values(chip)))


@lru_cache(maxsize=MOST_LAYERS)
def pass_us(unit: Unit, count: int, chip: Chip) -> float:
    """Microseconds of one planar task or copy of so many elements on a chip."""
    (item,) = time_work(Work((planar(unit, count, chip),)), chip, values(chip))
    return float(item.us)


@lru_cache(maxsize=MOST_LAYERS)
def planar(unit: Unit, count: int, chip: Chip, operands: int = 1, *, follows: bool = False) -> Layer:
    """A planar task or a copy of so many elements; ``operands`` of them from memory where L2 does not hold two."""
    size = 2.0 * count
    away = size > stays_bytes(chip)
    return Layer(
        "",
        unit,
        unit,
        in_bytes=size * (operands if away else 1),
        out_bytes=size,
        elements=float(count),
        operands=operands,
        reads_input=away,
        writes_output=away,
        follows=follows,
        placed=True,
    )


@lru_cache(maxsize=MOST_LAYERS)
def dense_sum(pixels: int, cin: int, cout: int, chip: Chip, *, follows: bool = False, groups: int = 1) -> Layer:
    """A 1x1 convolution with fp16 weights."""
    weights = 2.0 * cin * cout / groups
    read, read_bytes = 2.0 * pixels * cin, 2.0 * pixels * cout
    most = stays_bytes(chip)
    return Layer(
        "",
        "NE conv",
        "mac",
        pixels=pixels,
        cin=cin,
        cout=cout,
        groups=groups,
        reads_input=read > most,
        writes_output=read_bytes > most,
        weight_bytes=weights,
        dense_bytes=weights,
        in_bytes=read,
        out_bytes=read_bytes,
        follows=follows,
        placed=True,
    )
