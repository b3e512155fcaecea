"""The regions of L2 that a task touches, read from its registers (docs/reference/engine-h13.md 7, 12.1)."""

from __future__ import annotations

from hexane.emulator.ends import OperandSource, TaskResult, TaskSource
from hexane.emulator.l2 import Place
from hexane.emulator.strides import Extent
from hexane.emulator.task import EngineTask, of_form
from hexane.isa.tiles import source_rows


@of_form
def operands(task: EngineTask) -> tuple[tuple[TaskSource, Place], ...]:
    """Every operand with its place in L2: whole where it stays there, else the window or ring that it passes."""
    places = []
    for operand in (task.source1, task.source2):
        if operand is not None:
            stays = operand.kind in (OperandSource.RESIDENT, OperandSource.KEEP)
            part = operand.stored if stays else operand.region.window(tile_of(task, operand))
            places.append((operand, Place(operand.region, part)))
    return tuple(places)


@of_form
def result(task: EngineTask) -> Place:
    """The result's place; of an automatic buffer, of which only the base is known, its row of a patch."""
    end = task.result
    if end.automatic:
        width = min(end.stored.w, 128)
        return Place(end.region, end.stored._replace(g=1, d=1, c=1, h=1, w=width))
    if end.kind in (OperandSource.STREAM, OperandSource.STRIPS):
        return Place(end.region, end.region.window(tile_of(task, end)))
    return Place(end.region, end.stored)


@of_form
def whole_result(task: EngineTask) -> Place:
    """The same with all its elements."""
    return Place(task.result.region, task.result.stored)


def stays(task: EngineTask) -> bool:
    """True where the result is left in L2 for later tasks."""
    return not task.result.automatic and task.result.kind in (OperandSource.RESIDENT, OperandSource.KEEP)


def tile_of(task: EngineTask, end: TaskSource | TaskResult) -> Extent:
    """The rows of an operand or a result that one tile needs room for (docs/reference/engine-h13.md 7.4, 7.5)."""
    extent = end.stored
    if task.tile_height >= task.hout:
        return extent
    if not isinstance(end, TaskSource):
        return extent._replace(h=min(extent.h, task.tile_height))
    kernel, stride, pad = (task.registers[f"Common.ConvCfg.{name}"] for name in ("Kh", "Sy", "Py"))
    most, _ = source_rows(task.tile_height, extent.h, task.hout, kernel, stride, pad)
    return extent._replace(h=min(extent.h, most))
