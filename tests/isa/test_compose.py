"""The writer of H14 and later: Apple's programs taken apart into what they mean, and written again word for word.

What the writer is to find out by itself is taken away first: tags, header words, page masks, registers at their reset
value, kernel switches, idle lanes, telemetry, filler, the order and form of records. What a compiler would give too
much, it gets too much: strides of axes without a second element.
"""

from __future__ import annotations

import re

import pytest

from codegen.programs import every_program
from hexane.errors import UnsupportedError
from hexane.isa import Task, encode_stream, task_from_words
from hexane.isa.compose import TaskFields, compose
from hexane.isa.compose.rules import KERNEL, RESULT, SECOND, SOURCE, TABLE, rules_of
from hexane.isa.compose.shape import TaskShape
from hexane.isa.roles import roles_of
from hexane.isa.schema import FieldError
from isa.streams import apple_words

TARGETS = {"h14": "h14", "h15": "h15", "h16": "h16", "h16g": "h16"}
PATHS = {target: every_program(target) for target in TARGETS}
DERIVED = re.compile(
    r"\.Tag$|\.DataSetId$|CacheHints\.|^CacheDMA\.|MasterConfig\.(?!Sparse)|\.Filler$|\.BaseAddr(High)?\.|Src2BaseAddr"
    r"|^KernelDMASrc\.(Side|TableDMA|KernelBase|TableBase)|^Header\[(?!1\])"
)
SLOW_TABLE = 0xFFD800  # the one thing of word 4 that the fields do not say: a table of a slow function


def taken_apart(task: Task, target: str) -> TaskFields:
    """What a compiler would say of this task."""
    values: dict[str, int] = {}
    slots = task.slots()
    addresses = {
        name: (slots[name] // 4, task.get(name)) for name in (KERNEL, TABLE, SOURCE, SECOND, RESULT) if name in slots
    }
    for name, bits in task.fields().items():
        lane = re.match(r"KernelDMASrc\.CoeffDMAConfig\[\d+\]", name)
        if DERIVED.search(name) or (lane and not task.get(f"{lane.group()}.En")):
            continue
        values[name] = bits
    if task.get("Header[4].DebugLogEvents") & SLOW_TABLE == SLOW_TABLE & ~0x68 and task.get("Header[4]") & 0x2000 == 0:
        values["Header[4].DebugLogEvents"] = SLOW_TABLE
    flags = rules_of(target).flags
    if task.get(flags) & 2:
        written_by = f"Header[{int(flags[7:-1]) + 1}].DTID"
        values[written_by] = task.get(written_by)
    runtime = KERNEL in addresses and addresses[KERNEL][0] != 1 and target == "h14"
    runtime |= "KernelDMASrc.CoeffDMAConfig[0]" in slots
    return TaskFields(values, addresses, runtime)


def with_unused_strides(task: Task, given: TaskFields, target: str) -> TaskFields:
    """The same with a value for every stride that does not count."""
    roles = roles_of(task.generation)
    shape = TaskShape(lambda role: task.read(roles.handle(role)), given.addresses)
    values = dict(given.values)
    for register, used in shape.used_strides().items():
        if not used:
            row = task.table.handle(register).register.rows[0]
            values[f"{register}.{row.name}"] = 0x155
    return TaskFields(values, given.addresses, given.runtime_kernel)


@pytest.mark.parametrize("target", TARGETS)
def test_apples_programs_are_written_again(target):
    """Every word of every program, also with strides that must be left out."""
    assert len(PATHS[target]) >= {"h14": 68, "h15": 27, "h16": 70, "h16g": 20}[target]
    for path in PATHS[target]:
        listed = apple_words(path)
        tasks = [task_from_words(words, TARGETS[target]) for _, words in listed]
        given = [taken_apart(task, target) for task in tasks]
        made = compose(target, [with_unused_strides(task, one, target) for task, one in zip(tasks, given)])
        for mine, task in zip(made, tasks):
            assert mine.registers() == task.registers(), path.stem
        assert [task.words() for task in made] == [words for _, words in listed], path.stem
        stream = encode_stream(made, TARGETS[target])
        for offset, words in listed:
            assert stream[offset : offset + 4 * len(words)] == b"".join(w.to_bytes(4, "little") for w in words)


@pytest.mark.parametrize("target", TARGETS)
def test_registers_at_their_reset_are_left_out(target):
    """All registers of the generation named with their reset value: not one more word."""
    for path in PATHS[target][::7]:
        tasks = [task_from_words(words, TARGETS[target]) for _, words in apple_words(path)]
        table = tasks[0].table
        resets = {
            f"{name}.{row.name}": register.reset >> row.low & row.limit
            for key, (name, register) in table.by_key.items()
            if key >= 0 and register.reset is not None and not name.startswith("KernelDMASrc")
            for row in register.fields
        }
        given = [taken_apart(task, target) for task in tasks]
        made = compose(
            target, [TaskFields({**resets, **one.values}, one.addresses, one.runtime_kernel) for one in given]
        )
        assert [task.words() for task in made] == [task.words() for task in tasks]


def add(**more: int) -> TaskFields:
    values = {
        "Common.InDim.Win": 8, "Common.InDim.Hin": 8, "Common.OutDim.Wout": 8, "Common.OutDim.Hout": 8,
        "Common.TileCfg.TileHeight": 8, "Common.Cfg.PEKind": 3, "PE.Cfg.SecSrc": 2,
    }  # fmt: skip
    return TaskFields({**values, **more}, {SOURCE: (4, 0), RESULT: (5, 64)})


def test_position_in_the_program_decides():
    tasks = compose("h14", [add(), add(), add()])
    assert [task.get("Header[0].TID") for task in tasks] == [0, 1, 2]
    assert [task.get("Header[2].LogEvents") for task in tasks] == [8, 0, 0x22]
    assert [task.written("KernelDMASrc.MasterConfig") for task in tasks] == [False, False, True]
    assert [task.get("TileDMASrc.DMAConfig.Tag") for task in tasks] == [0, 1, 2]
    assert tasks[0].slot("TileDMADst.BaseAddr") == 20 and tasks[0].get("TileDMADst.BaseAddr.Addr") == 1


def test_no_h14_task_ends_on_a_multiple_of_64_bytes():
    """Tasks of every length: with filler where they would, and never more than two."""
    for extra in range(24):
        names = [
            f"L2.{side}{axis}Stride.Stride"
            for side in ("Source", "Src2", "ConvResult")
            for axis in ("Channel", "Row", "Depth", "Group")
        ]
        strides = dict.fromkeys([*names, *names][:extra], 1)
        depth = {"Common.InDepth.Din": 2, "Common.GroupConvCfg.NumGroups": 2, "Common.OutDepth.Dout": 2}
        task = compose("h14", [add(**strides, **depth)])[0]
        fillers = [record for record, _ in task.records() if record.base == 0x1524]
        assert (1 + -(-len(task.words()) // 4)) % 4 and len(fillers) <= 2


def test_what_is_wrong_is_named():
    with pytest.raises(FieldError, match="no register or field"):
        compose("h14", [TaskFields({"Common.Nothing": 1})])
    with pytest.raises(FieldError, match="does not fit"):
        compose("h14", [TaskFields({"Common.InDim.Win": 1 << 15})])
    with pytest.raises(UnsupportedError, match="h13"):
        compose("h13", [])
    with pytest.raises(UnsupportedError, match="h19"):
        compose("h19", [])


@pytest.mark.parametrize("target", ["h17", "h18"])
def test_later_generations_have_h16s_frame(target):
    """No program of them is at hand: what is written reads back as what was given."""
    values = {"Common.Win.Win": 8, "Common.Hin.Hin": 8, "Common.Cfg.PEKind": 3, "PE.Cfg.Op": 1}
    values = {name: value for name, value in values.items() if name != "PE.Cfg.Op"}
    (task,) = compose(target, [TaskFields(values, {SOURCE: (6, 0), RESULT: (7, 0)})])
    assert all(task.get(name) == value for name, value in values.items())
    slotted = {"h17": "TileDMASrc.DMAConfig", "h18": "TileDMASrc.Event"}[target]
    assert task.get("Header[8].LastTask") == 1 and task.slot(slotted) == 16
    assert task_from_words(task.words(), target).registers() == task.registers()
