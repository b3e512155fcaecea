"""The energy of a call: so much for each multiply-accumulate, for each byte of DMA, for each microsecond awake."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hexane import chips
from hexane.chips.measured import values
from hexane.cost.model import Timed, time_work
from hexane.graph import GraphBuilder
from hexane.timing.energy import energy_uj
from hexane.timing.from_graph import work_of

NOTHING = {"energy_mac_pj": 0.0, "energy_byte_pj": 0.0, "idle_w": 0.0}
MACS = 3 * 64 * 64 * 9 * 32 * 32


def timed() -> list[Timed]:
    b = GraphBuilder()
    x = b.input("x", (1, 64, 32, 32), "fp16")
    for _ in range(3):
        x = b.conv(x=x, weight=np.ones((64, 64, 3, 3), np.float16), pad_type="same")
    b.output(x)
    chip = chips.get("M1")
    return time_work(work_of(b.graph), chip, values(chip))


def with_layers(items: list[Timed], **changes: object) -> list[Timed]:
    return [replace(item, layer=replace(item.layer, **changes)) for item in items]


def test_each_part_by_itself() -> None:
    items = timed()
    assert energy_uj(items, 20.0, {**NOTHING, "idle_w": 0.7}) == pytest.approx(14.0)
    work = energy_uj(items, 20.0, {**NOTHING, "energy_mac_pj": 2.0})
    assert work == pytest.approx(2e-6 * MACS)
    moved = energy_uj(items, 20.0, {**NOTHING, "energy_byte_pj": 3.0})
    surfaces, weights = 2 * 64 * 32 * 32 * 2, 3 * 64 * 64 * 9 * 2
    assert moved == pytest.approx(3e-6 * (surfaces + weights), rel=0.1)
    every = {"energy_mac_pj": 2.0, "energy_byte_pj": 3.0, "idle_w": 0.7}
    assert energy_uj(items, 20.0, every) == pytest.approx(work + moved + 14.0)


def test_sparse_and_int8_products_take_less() -> None:
    items, c = timed(), {**NOTHING, "energy_mac_pj": 2.0}
    work = energy_uj(items, 20.0, c)
    assert energy_uj(with_layers(items, density=0.25), 20.0, c) == pytest.approx(work / 4)
    assert 0.7 <= energy_uj(with_layers(items, int8=True), 20.0, c) / work <= 0.8


def test_a_repeated_layer_moves_its_bytes_each_time() -> None:
    items, c = timed(), {**NOTHING, "energy_byte_pj": 3.0}
    assert energy_uj(with_layers(items, count=5), 20.0, c) == pytest.approx(5 * energy_uj(items, 20.0, c))
