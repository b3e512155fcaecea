"""Containers of H14 and later: slots, the section of kernels, the same bytes again."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

CHIPS = {
    "M2": ("h14", 4),
    "A16": ("h15", 6),
    "A17 Pro": ("h16", 6),
    "M4": ("h16", 6),
    "M5": ("h17", 6),
    "A19": ("h18", 6),
}


def network():
    builder = GraphBuilder()
    x = builder.input("x", (1, 16, 8, 8), "fp16")
    weight = np.linspace(-1, 1, 16 * 16 * 9).reshape(16, 16, 3, 3).astype(np.float16)
    y = builder.sigmoid(x=builder.conv(x=x, weight=weight, pad_type="same"))
    builder.output(builder.softmax(x=y, axis=-1, name="y"))
    return builder.graph


@pytest.mark.parametrize("chip", CHIPS)
def test_file_and_back(chip, tmp_path):
    generation, first = CHIPS[chip]
    image = hexane.compile(network(), chip).images[0]
    assert image.generation == generation
    image.save(tmp_path / "program.hwx")
    read = hexane.open_image(tmp_path / "program.hwx")
    assert read.to_bytes() == image.to_bytes() == read.rebuild()
    assert [task.words() for task in read.tasks] == [task.words() for task in image.tasks]
    assert {s.label: s.channel for s in read.surfaces} == {"x": first, "y": first + 1}
    assert read.const == image.const
    assert read.kernel_section == image.kernel_section
    assert read.kernel_channel == (None if generation in ("h14", "h15") else first + 2)


def test_weights_stand_where_the_tasks_say():
    packed = {chip: hexane.compile(network(), chip).images[0] for chip in CHIPS}
    assert not packed["M2"].kernel_section
    for chip in ("A17 Pro", "M4", "M5", "A19"):
        image = packed[chip]
        slots = {task.slot("KernelDMASrc.KernelBase") for task in image.tasks} - {None}
        assert slots == {4 * image.kernel_channel}
        assert image.kernel_section == packed["M4"].kernel_section


@pytest.mark.parametrize("chip", CHIPS)
def test_target_names_in_any_case(chip):
    image = hexane.compile(network(), chip).images[0]
    target = CHIPS[chip][0]
    named = hexane.compile(network(), target.upper()).images[0]
    assert named.generation == image.generation
