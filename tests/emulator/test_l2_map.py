"""The map of L2 over time: from the registers alone, and what the compiler meant."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.emulator.l2_map import l2_map
from hexane.errors import EmulationError
from hexane.graph import GraphBuilder

L2_BYTES = 2 << 20

MAP = 16 * 20 * 48  # bytes of 16 channels of 20 x 20 in L2: rows of 40 bytes take 48


def network():
    """A value that the third task reads again, behind two that each live for one step."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder()
    value = builder.input("x", (1, 16, 20, 20), "fp16")
    made = []
    for _ in range(3):
        value = builder.conv(x=value, weight=rng.standard_normal((16, 16, 1, 1)).astype(np.float16))
        made.append(value)
    builder.output(builder.add(x=value, y=made[0], name="y"))
    return builder.graph


@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
def test_stays_last_from_writer_to_last_reader(chip):
    program = hexane.compile(network(), chip)
    (chart,) = program.l2_maps()
    kept = [(stay.first, stay.last, stay.used) for stay in chart.stays if stay.kept]
    assert kept == [(0, 3, MAP), (1, 2, MAP), (2, 3, MAP)]
    assert chart.in_use[2] == 3 * MAP  # all three while the third task runs
    assert 3 * MAP <= chart.peak <= chart.end <= chart.room == L2_BYTES
    assert len(chart.in_use) == len(program.images[0].tasks)


def test_the_same_stays_in_apples_form_of_a_chain():
    (chart,) = hexane.compile(network(), dialect="apple").l2_maps()
    kept = [(stay.first, stay.last, stay.used) for stay in chart.stays if stay.kept]
    assert kept == [(0, 3, MAP), (1, 2, MAP), (2, 3, MAP)]


def test_a_region_beyond_the_end():
    (image,) = hexane.compile(network()).images
    task = image.tasks[0].copy()
    task.set("L2.ResultBase.Addr", (L2_BYTES >> 4) - 1)
    with pytest.raises(EmulationError, match="beyond"):
        l2_map([task])
