"""Kernels of the real early programs: what they hold is what their networks say, and packing gives their bytes."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.kernels import KernelLayout, known_table, pack, read_kernel
from kernels.apple import table_layout


def section_and_tasks(facts, name):
    image = hexane.open_image(facts / "hwx" / f"{name}.hwx")
    return image.section("__TEXT", "__const"), image.tasks


@pytest.mark.parametrize(
    ("name", "channels", "value"), [("conv_3to3", 3, 2.0), ("conv_3to3_golden", 3, 3.0), ("gemm_512", 512, 0.0)]
)
def test_convolutions(facts, name, channels, value):
    section, (task,) = section_and_tasks(facts, name)
    kernel = read_kernel(task, section)
    weights = np.full((channels, channels, 1, 1), value, np.float16)
    assert np.array_equal(kernel.weights, weights)
    cores = min(16, 1 << (channels - 1).bit_length())
    layout = KernelLayout(
        channels, channels, bias=kernel.bias is not None, cores=cores, ocg=max(0, (channels // cores).bit_length() - 1)
    )
    assert kernel.layout == layout
    packed = pack(layout, weights, kernel.bias)
    assert section[: len(packed.data)] == packed.data
    assert not any(section[len(packed.data) :])


def test_table(facts):
    section, (task,) = section_and_tasks(facts, "sigmoid_w77")
    kernel = read_kernel(task, section)
    assert kernel.weights is None
    assert kernel.layout == table_layout(1)
    assert kernel.table == known_table("sigmoid").to_bytes()
    assert section[:128] == pack(table_layout(1), table=kernel.table).data


@pytest.mark.parametrize("name", ["relu_w77", "sum_c64", "concat_16384_16"])
def test_programs_without_kernel(facts, name):
    section, tasks = section_and_tasks(facts, name)
    assert all(read_kernel(task, section) is None for task in tasks)
    assert not any(section)
