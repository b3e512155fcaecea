"""Operands, results and operation of each task of an engine program, without running it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hexane.emulator.ends import OperandSurface, TaskResult, TaskSource
from hexane.emulator.engine import Engine
from hexane.emulator.ne import MAXIMUM, SUM
from hexane.emulator.program import EmulatedProgram
from hexane.emulator.registers import Registers
from hexane.emulator.task import EngineTask
from hexane.errors import HexaneError
from hexane.image import Image
from hexane.isa.channels import CONST, SCRATCH
from hexane.rounding import ceil_div


@dataclass(frozen=True)
class OperandPlacement:
    """One task: ``reads`` and ``writes`` are places (``x + 0x0``, ``L2 0x4000``, ``constants + 0x80``), ``does`` says
    the rest in words."""

    reads: tuple[str, ...]
    writes: str
    does: str


def placements(image: Image) -> tuple[dict[int, OperandPlacement], str]:
    """Placement by number of the task, in the order in which they run, and what ended the walk ("" at the end).

    The walk asks of each task what the emulator asks before it computes; it ends at the first that is refused.
    """
    rows: dict[int, OperandPlacement] = {}
    try:
        program = EmulatedProgram.of(image)
        names = {surface.channel: surface.name for surface in image.surfaces if surface.channel is not None}
        engine = Engine(program.buffers(), program.l2_bytes, sanitize=False)
        for registers in program.chain():
            task = engine.check(registers)
            rows[task.index] = _placement(task, names)
    except HexaneError as error:
        return rows, str(error)
    return rows, ""


def with_placements(summary: dict[str, Any], image: Image) -> dict[str, Any]:
    """The plain values of `hexane.image.summary.summary_of` with ``reads``, ``writes`` and ``does`` of every task."""
    rows, ended = placements(image) if all("task" in row for row in summary["tasks"]) else ({}, "")
    nothing = OperandPlacement((), "", "")
    tasks = [{**row, **asdict(rows.get(row.get("task", -1), nothing))} for row in summary["tasks"]]
    return {**summary, "tasks": tasks, "not_followed": ended}


def _placement(task: EngineTask, names: dict[int, str]) -> OperandPlacement:
    sources = [task.source1, *([task.source2] if task.source2 else [])]
    return OperandPlacement(
        tuple(_place(one, names) for one in sources), _place(task.result, names), _does(task, sources)
    )


def _place(end: TaskSource | TaskResult, names: dict[int, str]) -> str:
    if end.surface is None:
        return f"L2 {end.region.base:#x}"
    channel = end.surface.channel
    name = {CONST: "constants", SCRATCH: "scratch"}.get(channel) or names.get(channel) or f"channel {channel}"
    return f"{name} + {end.surface.base:#x}"


def _does(task: EngineTask, sources: list[TaskSource]) -> str:
    """The window, then steps and turns of the sources and of the result: what a copy is for, mostly."""
    words = _window(task.registers) if task.unit == "NE" else []
    for operand in sources:
        which = "" if len(sources) == 1 else f" of source {operand.number}"
        if operand.transposed:
            words.append(f"channels{which} along the width")
        words += [f"{text}{which}" for text in _steps(operand, "takes")]
        extent, whole = operand.extent, (task.cin, task.hin, task.win)
        flat = [axis for axis, own, full in zip("chw", (extent.c, extent.h, extent.w), whole) if own == 1 < full]
        if flat and len(sources) > 1:
            words.append(f"repeats{which} along {', '.join(flat)}")
        if operand.relu:
            words.append(f"relu{which}")
    if task.result.transposed:
        words.append("writes channels along the width")
    words += _steps(task.result, "writes")
    return "; ".join(words)


def _window(r: Registers) -> list[str]:
    """Window over the input, its stride and padding as rows x columns; a copy has none."""
    mode = r["NE.MACCfg.OpMode"]
    if mode not in (SUM, MAXIMUM):
        return []
    alone = r.flag("Common.GroupConvCfg.UnicastEn")
    summed = "sum" if r.flag("NE.MACCfg.KernelMode") else "depthwise convolution" if alone else "convolution"
    groups, columns = r["Common.GroupConvCfg.NumGroups"], r["Common.ConvCfg.Ox"]
    texts = [summed if mode == SUM else "maximum"] + ([f"{groups} groups"] if groups > 1 else [])
    stride, padding = (tuple(r[f"Common.ConvCfg.{name}{axis}"] for axis in "yx") for name in "SP")
    if stride != (1, columns):
        texts.append(f"stride {stride[0]} x {stride[1] // columns}")
    return [", ".join(texts + ([f"padding {padding[0]} x {padding[1]}"] if any(padding) else []))]


def _steps(end: TaskSource | TaskResult, verb: str) -> list[str]:
    """Axes of a surface along which elements or rows lie further apart than they are long."""
    surface: OperandSurface | None = end.surface
    if surface is None:
        return []
    extent = end.stored
    texts = []
    if surface.interleave > 1:
        texts.append(f"{verb} {surface.interleave} channels interleaved")
    row = extent.w * surface.element * surface.interleave
    if extent.h > 1 and surface.row < row:
        texts.append(f"{verb} rows that overlap ({surface.row} bytes apart, {row} long)")
    elif extent.h > 1 and surface.row >= 2 * ceil_div(row, 64) * 64:
        texts.append(f"{verb} a row of {row} bytes every {surface.row}")
    return texts
