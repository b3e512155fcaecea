"""Kernels read from a task and its memory, and put back changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane.errors import FormatError, HexaneError, UnsupportedError, UsageError
from hexane.isa import Task
from hexane.kernels import (
    KernelLayout,
    known_table,
    layout_of,
    pack,
    read_kernel,
    replace_kernel,
    side_table,
    windows_of,
)
from kernels.test_streams import layouts, random_kernel

CODES = {"uint8": 0, "int8": 1, "float16": 2}


def task_with(layout: KernelLayout, packed, base: int = 0, generation: str = "h13") -> Task:
    """A task whose registers say what the layout says."""
    task = Task(generation)
    values = {
        "KernelDMASrc.MasterConfig.MasterEnable": 1,
        "KernelDMASrc.MasterConfig.SparseFmt": layout.sparse,
        "Common.Cin.Cin": layout.cin,
        "Common.Cout.Cout": layout.cout,
        "Common.ConvCfg.Kw": layout.kw,
        "Common.ConvCfg.Kh": layout.kh,
        "Common.ConvCfg.OCGSize" if generation == "h13" else "Common.OCGCfg.OCGSize": layout.ocg,
        "Common.ConvCfg.Sy": layout.stride[0],
        "Common.ConvCfg.Sx": layout.stride[1],
        "Common.ConvCfg.Oy": 1,
        "Common.ConvCfg.Ox": 2 if layout.widened else 1,
        "Common.ConvCfg3d.Kd": 1,
        "Common.GroupConvCfg.NumGroups": layout.groups,
        "Common.GroupConvCfg.UnicastEn": layout.unicast,
        "Common.GroupConvCfg.UnicastCin": layout.cin if layout.unicast else 1,
        "Common.Cfg.ActiveNE": layout.cores.bit_length() - 1,
        "NE.KernelCfg.KernelFmt": CODES[layout.dtype],
        "NE.KernelCfg.PalettizedEn": layout.binary or layout.palette > 0,
        "NE.KernelCfg.PalettizedBits": 1 if layout.binary else layout.palette or 8,
        "NE.KernelCfg.SparseFmt": layout.sparse,
        "NE.KernelCfg.SparseBinary": layout.binary,
        "NE.MACCfg.BiasMode": layout.bias,
        "NE.MACCfg.PostScaleMode": layout.scales,
        "NE.MACCfg.KernelMode": not layout.weighted,
        "NE.MACCfg.NonlinearMode": 2 if layout.table else 0,
    }
    addresses, sizes = packed.registers(base)
    for core, (address, size) in enumerate(zip(addresses, sizes)):
        values[f"KernelDMASrc.CoeffDMAConfig[{core}].En"] = 1
        values[f"KernelDMASrc.CoeffBaseAddr[{core}].Addr"] = address
        values[f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize"] = size
    for name, value in values.items():
        task.set(name, int(value))
    return task


def h13_layouts():
    """What H13's registers can say: no E4M3."""
    return layouts().map(lambda layout: replace(layout, dtype="int8") if layout.dtype == "e4m3" else layout)


def stored(kernel):
    """What stands in the stream for the weights."""
    return kernel.weights if kernel.indices is None else kernel.indices


@settings(max_examples=120, deadline=None)
@given(h13_layouts(), st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_a_kernel_reads_back_through_its_registers(layout, seed, before):
    parts = random_kernel(layout, seed)
    packed = pack(layout, **parts)
    task = task_with(layout, packed, 64 * before)
    read = layout_of(task)
    assert read is not None
    assert replace(read, ocg=layout.ocg) == layout
    assert layout.unicast or read.ocg == layout.ocg
    memory = bytes(64 * before) + packed.data
    kernel = read_kernel(task, memory)
    assert stored(kernel).tobytes() == parts["weights"].tobytes()
    same, unchanged = replace_kernel(task, memory)
    assert same is task
    assert unchanged == memory


@settings(max_examples=80, deadline=None)
@given(h13_layouts(), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_replaced_parts_are_read_back(layout, seed, other):
    old, new = random_kernel(layout, seed), random_kernel(layout, other)
    if layout.sparse:
        new["weights"][old["weights"] == 0] = 0  # so that no stream grows
    packed = pack(layout, **old)
    task, memory = task_with(layout, packed), packed.data + b"behind"
    task, memory = replace_kernel(task, memory, **new)
    assert memory.endswith(b"behind")
    assert len(memory) == len(packed.data) + 6
    kernel = read_kernel(task, memory)
    assert stored(kernel).tobytes() == new["weights"].tobytes()
    if layout.palette:
        assert kernel.palette.tobytes() == new["palette"].tobytes()
    if layout.scales:
        assert kernel.scales.tobytes() == new["scales"].tobytes()
    assert kernel.consumed == tuple(window.size for window in windows_of(task))
    if layout.bias:
        assert kernel.bias.tobytes() == new["bias"].tobytes()
    assert kernel.table == new.get("table")


def test_a_sparse_kernel_cannot_grow_in_place():
    layout = KernelLayout(16, 8, 3, 3, sparse=True, stride=(2, 2))
    packed = pack(layout, np.zeros(layout.weight_shape, "<f2"))
    with pytest.raises(UsageError, match="cannot grow"):
        replace_kernel(task_with(layout, packed), packed.data, np.ones(layout.weight_shape, "<f2"))


def test_a_shared_table_is_replaced_for_all_cores():
    layout = KernelLayout(1, 1, unicast=True, weighted=False, table=True, cores=8)
    packed = pack(layout, table=known_table("sigmoid").to_bytes())
    task = task_with(layout, packed, 128)
    memory = bytes(128) + packed.data
    task, memory = replace_kernel(task, memory, table=known_table("tanh").to_bytes())
    assert read_kernel(task, memory).table == known_table("tanh").to_bytes()
    assert memory[:128] == bytes(128)


@settings(max_examples=60, deadline=None)
@given(h13_layouts(), st.integers(0, 2**32 - 1))
def test_a_later_generation_keeps_tables_beside_the_lanes(layout, seed):
    """H14: the table has a channel of its own, and masks of sparse streams count sixteen elements."""
    layout = replace(layout, table=False, mask_elements=16 if layout.sparse else 8)
    parts = random_kernel(layout, seed)
    packed = pack(layout, **parts)
    task = task_with(layout, packed, generation="h14")
    assert replace(layout_of(task), ocg=layout.ocg) == layout
    assert side_table(task) is None
    task.set("NE.MACCfg.NonlinearMode", 2)
    task.set("KernelDMASrc.SideDMAConfig[3].En", 1)
    task.set("KernelDMASrc.TableBase.Addr", len(packed.data) // 64)
    task.set("KernelDMASrc.TableSize.MemBfrSize", 2)
    memory = packed.data + known_table("gelu").to_bytes()
    kernel = read_kernel(task, memory)
    assert stored(kernel).tobytes() == parts["weights"].tobytes()
    assert kernel.table == known_table("gelu").to_bytes()
    _, memory = replace_kernel(task, memory, table=known_table("silu").to_bytes())
    assert memory == packed.data + known_table("silu").to_bytes()


def test_a_table_task_of_a_later_generation():
    task = Task("h14")
    for name, value in {
        "KernelDMASrc.MasterConfig.MasterEnable": 1,
        "KernelDMASrc.SideDMAConfig[3].En": 1,
        "KernelDMASrc.TableBase.Addr": 2,
        "KernelDMASrc.TableSize.MemBfrSize": 2,
        "NE.MACCfg.KernelMode": 1,
        "NE.MACCfg.NonlinearMode": 2,
    }.items():
        task.set(name, value)
    memory = bytes(128) + known_table("sigmoid").to_bytes()
    assert read_kernel(task, memory).table == known_table("sigmoid").to_bytes()
    _, memory = replace_kernel(task, memory, table=known_table("tanh").to_bytes())
    assert memory == bytes(128) + known_table("tanh").to_bytes()


@pytest.mark.parametrize("generation", ["h11", "h19"])
def test_generations_whose_kernels_are_not_read(generation):
    with pytest.raises(UnsupportedError):
        layout_of(Task(generation))


def test_a_task_without_kernel():
    assert layout_of(Task("h13")) is None
    assert windows_of(Task("h13")) == []
    assert read_kernel(Task("h13"), b"") is None
    with pytest.raises(UnsupportedError):
        replace_kernel(Task("h13"), b"")


def test_memory_must_hold_the_windows():
    layout = KernelLayout(32, 8)
    packed = pack(layout, np.ones(layout.weight_shape, "<f2"))
    with pytest.raises(FormatError, match="behind the end"):
        read_kernel(task_with(layout, packed), packed.data[:-1])


@pytest.mark.parametrize(
    "values",
    [
        {"NE.KernelCfg.PalettizedEn": 1, "NE.KernelCfg.PalettizedBits": 5},
        {"NE.KernelCfg.PalettizedEn": 1, "NE.KernelCfg.PalettizedBits": 4, "NE.KernelCfg.SparseBinary": 1},
        {"NE.KernelCfg.PalettizedEn": 1, "NE.KernelCfg.PalettizedBits": 4, "NE.KernelCfg.SparseFmt": 1},
        {"NE.MACCfg.PostScaleMode": 1},
        {"Common.ConvCfg.Ox": 2},
        {"Common.ConvCfg.Oy": 2},
        {"NE.KernelCfg.KernelFmt": 3},
    ],
)
def test_registers_whose_stream_is_not_known(values):
    layout = KernelLayout(32, 8)
    task = task_with(layout, pack(layout, np.ones(layout.weight_shape, "<f2")))
    for field, value in values.items():
        task.set(field, value)
    with pytest.raises(UnsupportedError):
        layout_of(task)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_registers_end_in_a_layout_or_an_error(data):
    """No register value makes a reader fail in another way, or ask for memory without bound."""
    layout = KernelLayout(32, 8)
    packed = pack(layout, np.ones(layout.weight_shape, "<f2"))
    task = task_with(layout, packed)
    names = st.sampled_from(
        [
            "Common.ConvCfg",
            "Common.GroupConvCfg",
            "Common.Cin",
            "Common.Cout",
            "Common.Cfg",
            "NE.KernelCfg",
            "NE.MACCfg",
        ]
    )
    for name in data.draw(st.lists(names, min_size=1, max_size=3)):
        task.set(name, data.draw(st.integers(0, 2**32 - 1)))
    try:
        read_kernel(task, packed.data)
    except HexaneError:
        return
