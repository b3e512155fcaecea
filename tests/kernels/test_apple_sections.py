"""The constant sections of Apple's programs: every recorded hash, and every size and layout, from network and rules."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from facts import fact_files, fact_params
from hexane.kernels import (
    KernelLayout,
    clip_table,
    is_zero_table,
    known_table,
    layout_of,
    not_zero_table,
    pack,
    read_kernel,
    windows_of,
)
from kernels import apple

TABLES = {
    "gelu": ["gelu"],
    "pow": ["log2", "exp2"],
    "real_div": ["recip"],
    "rsqrt": ["rsqrt"],
    "sigmoid": ["sigmoid"],
    "silu": ["silu"],
    "softmax": ["exp2"],
    "sqrt": ["sqrt"],
    "tanh": ["tanh"],
}
EMPTY = bytes(0x4000)


def weighted_operation(program: dict, start: int) -> dict | None:
    """The next operation with constant weights, from the given index on."""
    roles = {row["name"]: row["role"] for row in program["network"]["constants"]}
    for operation in program["network"]["operations"][start:]:
        names = [name for name in operation["inputs"].values() if isinstance(name, str)]
        if any(roles.get(name) == "weight" for name in names):
            return operation
    return None


def operands(program: dict, operation: dict, first_task) -> tuple[np.ndarray, np.ndarray | None]:
    """OIHW weights and bias of an operation, from the network."""
    values = apple.constants(program)
    inputs, parameters = operation["inputs"], operation["parameters"]
    name = inputs.get("weight") or inputs.get("y")
    weights = values[name]
    if weights.ndim == 2:
        if not (operation["op"] == "linear" or parameters.get("transpose_y")):
            weights = weights.T
        weights = weights.reshape(*weights.shape, 1, 1)
    bias = values.get(inputs.get("bias"))
    if first_task.get("NE.AccBias.AccBias"):
        bias = None  # one value for all channels, held in a register
    return weights, bias


def blocks(layouts: list[KernelLayout], outputs: int, *, ascending: bool) -> list[tuple[KernelLayout, int]]:
    """The layouts of one operation's tasks, each with its first output channel: the highest come first."""
    counts = np.cumsum([layout.weight_shape[0] for layout in layouts])
    used = int(np.searchsorted(counts, outputs)) + 1
    assert counts[used - 1] == outputs
    starts = [0, *counts[: used - 1]] if ascending else outputs - counts[:used]
    return list(zip(layouts, map(int, starts)))


def weight_section(program: dict, tasks: list) -> bytes:
    """The section of a program whose kernels are weights: registers against the network, blocks in task order."""
    section, index, position = b"", 0, 0
    weighted = [task for task in tasks if (layout := layout_of(task)) and layout.weighted and not layout.binary]
    layouts = [layout for task in weighted if (layout := layout_of(task))]
    while (operation := weighted_operation(program, position)) is not None:
        position = program["network"]["operations"].index(operation) + 1
        weights, bias = operands(program, operation, weighted[index])
        stride = tuple(operation["parameters"].get("strides", (1, 1)))
        table = None
        if layouts[index].table:
            following = program["network"]["operations"][position]["op"]
            table = known_table(*TABLES[following]).to_bytes()
        ascending = bool(weighted[index].get("Common.Cfg.OutTrans"))
        for layout, first in blocks(layouts[index:], len(weights), ascending=ascending):
            assert layout.weight_shape[1:] == weights.shape[1:]
            assert layout.bias == (bias is not None)
            assert layout.widened or layout.stride == stride
            mine = slice(first, first + layout.weight_shape[0])
            packed = pack(layout, weights[mine], None if bias is None else bias[mine], table)
            windows = windows_of(weighted[index])
            assert [window.size for window in windows] == list(packed.sizes)
            assert [window.offset for window in windows] == [len(section) + offset for offset in packed.offsets]
            section += packed.data
            index += 1
    assert index == len(weighted)
    return section


def padding_section(program: dict) -> bytes:
    """Padding as a convolution: a one-hot kernel, then the weights themselves."""
    one_hot = KernelLayout(8, 1, 1, 2, unicast=True, sparse=True, binary=True, cores=8)
    first = pack(one_hot, np.tile(np.array([1, 0], "<f2"), (8, 1)).reshape(8, 1, 1, 2))
    (weights,) = apple.constants(program).values()
    second = pack(KernelLayout(8, 1, *weights.shape[2:], unicast=True, cores=8), weights)
    return first.data + second.data


def table_section(program: dict, tasks: list) -> bytes:
    """Tables alone: each is padded to 128 bytes per core."""
    operation = program["network"]["operations"][-1]
    if operation["op"] == "maximum":
        (value,) = apple_scalars(program)
        tables = [clip_table(value)]
    elif operation["op"] == "select":
        tables = [is_zero_table(), not_zero_table()]
    else:
        names = [row["op"] for row in program["network"]["operations"] if row["op"] in TABLES]
        tables = [known_table(name) for op in names for name in TABLES[op]]
    users = [task for task in tasks if (layout := layout_of(task)) and not layout.weighted]
    assert len(users) == len(tables)
    section = b""
    for task, table in zip(users, tables):
        layout = apple.table_layout(len(windows_of(task)))
        packed = pack(layout, table=table.to_bytes())
        assert {(window.offset, window.size) for window in windows_of(task)} == {(len(section), 128)}
        section += packed.data
    return section


def apple_scalars(program: dict) -> list[float]:
    return [float(row["value"].split()[1]) for row in program["network"]["constants"]]


def section_of(program: dict, tasks: list) -> bytes:
    layouts = [layout for task in tasks if (layout := layout_of(task)) is not None and not layout.runtime]
    if not layouts:
        rows = program["network"]["constants"]
        if not rows:
            return EMPTY
        assert program["network"]["operations"][0]["op"] == "tile"
        (values,) = apple.constants(program).values()
        data = values.tobytes()
        return data + bytes(-len(data) % 64)
    if any(layout.binary for layout in layouts):
        return padding_section(program)
    if any(layout.weighted for layout in layouts):
        return weight_section(program, tasks)
    return table_section(program, tasks)


def with_text(*texts: str) -> list:
    """Programs (H13 and H14) whose file has one of the texts."""
    every = fact_params("apple/h1[34]/*.json")
    if not fact_files("apple/h1[34]/*.json"):
        return every
    for row in every:
        every[every.index(row)] = pytest.param(*row.values, id=f"{row.values[0].parent.name}-{row.id}")
    return [row for row in every if any(text in row.values[0].read_text() for text in texts)]


@pytest.mark.parametrize("path", with_text('"sha256_recorded": true'))
def test_recorded_hash(path):
    """Every constant section whose hash was recorded, from the network's own constants."""
    program = apple.load(path)
    record = program["constant_section"]
    section = section_of(program, apple.tasks(program))
    assert len(section) == record["size"]
    assert hashlib.sha256(section).hexdigest() == record["sha256"]


@pytest.mark.parametrize("path", with_text('"role": "weight"'))
def test_layouts_and_windows(path):
    """Layout from the network = layout from the registers, and every core's offset and size, for all weights."""
    program = apple.load(path)
    tasks = apple.tasks(program)
    layouts = [layout for task in tasks if (layout := layout_of(task)) is not None]
    constant = [layout for layout in layouts if layout.weighted and not layout.runtime]
    assert constant
    section = section_of(program, tasks)
    if program["constant_section"]["size_certain"]:
        assert len(section) == program["constant_section"]["size"]
    assert not any(layout.inferred for layout in constant)
    for task in tasks:
        kernel = read_kernel(task, section)
        if kernel is not None and kernel.layout.weighted:
            assert kernel.consumed == tuple(window.size for window in windows_of(task))


@pytest.mark.parametrize("path", fact_params("apple/h13/*rr_*.json"))
def test_runtime_kernels_have_the_stated_geometry(path):
    """Kernels that the program computes: rows of K coefficients, I of them interleaved per core (§9.7)."""
    tasks = apple.tasks(apple.load(path))
    found = [(layout, windows_of(task)) for task in tasks if (layout := layout_of(task)) is not None and layout.runtime]
    for layout, windows in found:
        assert [window.size for window in windows] == [layout.core_bytes(core) for core in range(layout.active)]
    if "candidate" not in path.stem and "bcast" not in path.stem:
        assert found
