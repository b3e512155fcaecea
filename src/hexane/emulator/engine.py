"""The engine: memory behind channels, L2, two units; runs a chain of tasks one after the other.

Tasks run to completion in the order of their links, as results are defined (spec/engine-h13 §1, §12.1). Streams and
rings, with which the hardware overlaps a task's DMA and computation, are modelled as docs/emulator.md says: whole
tensors in the right order, with their L2 regions checked for room and overlap and left undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from hexane.arithmetic.formats import from_bytes, to_bytes
from hexane.emulator import dma, kernel_fetch, ne, pe
from hexane.emulator.l2 import L2, Region
from hexane.emulator.legal import require_legal, require_units_agree
from hexane.emulator.memory import Memory
from hexane.emulator.registers import Registers
from hexane.emulator.strides import Extent, overlaps_itself
from hexane.emulator.task import Operand, Result, SourceType, Task, understand
from hexane.emulator.trace import Computation, Report, TaskReport

Watcher = Callable[[Task, Computation, "Engine"], None]


@dataclass
class Engine:
    """State of the machine between two tasks.

    Parameters
    ----------
    memory : buffers behind the channels.
    sanitize : refuse what real hardware would hang on or read undefined; on by default.
    observe : count arithmetic events for the trace (slower).
    """

    memory: Memory
    sanitize: bool = True
    observe: bool = False
    l2: L2 = field(default_factory=L2)
    report: Report = field(default_factory=Report)
    strips: tuple[Region, Extent, np.ndarray] | None = None
    scratch_writers: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.l2.sanitize = self.sanitize

    def execute(self, r: Registers, watch: Watcher | None = None) -> None:
        """Run one task."""
        task = _understood(r)
        require_units_agree(task, self.scratch_writers)
        a = self._operand(task, task.source1)
        b = self._operand(task, task.source2) if task.source2 else None
        if task.unit == "NE":
            done = ne.run(task, a, kernel_fetch.fetch(task, self.memory), observe=self.observe)
        else:
            done = pe.run(task, a, b)
        self._store(task, done.values)
        self.report.tasks.append(_describe(task, done))
        if watch is not None:
            watch(task, done, self)

    # ---- sources -------------------------------------------------------------------------------------------------

    def _operand(self, task: Task, operand: Operand) -> np.ndarray:
        """An operand's logical tensor as float16, axes (g, d, c, h, w), size 1 along broadcast axes."""
        stored = self._stored(task, operand)
        if operand.transposed:
            stored = stored.swapaxes(2, 4)
        if operand.dtype == np.float16:
            return stored.view(np.float16)
        return from_bytes(stored.view(operand.dtype))

    def _stored(self, task: Task, operand: Operand) -> np.ndarray:
        r, region, extent = task.registers, operand.region, operand.stored
        if operand.kind is SourceType.RESIDENT:
            return self.l2.read(region, extent, task=task.index, register=operand.base_register)
        if operand.kind is SourceType.STRIPS:
            return self._take_strips(task, operand)
        assert operand.surface is not None
        values = dma.read(self.memory, operand.surface, extent, r, sanitize=self.sanitize)
        if operand.kind is SourceType.KEEP:
            view = self.l2.write(region, extent, task=task.index, register=operand.base_register)
            view[...] = values
            return view
        self._pass_through(task, region, self._source_rows(task, extent), operand.base_register)
        return values

    def _source_rows(self, task: Task, extent: Extent) -> Extent:
        """The rows of a streamed source that are in L2 at one time (spec/engine-h13 §7.4)."""
        if task.tile_height >= task.hout:
            return extent
        r = task.registers
        rows = (task.tile_height - 1) * r["Common.ConvCfg.Sy"] + r["Common.ConvCfg.Kh"]
        return extent._replace(h=min(extent.h, rows))

    def _pass_through(self, task: Task, region: Region, extent: Extent, register: str) -> None:
        """A window or ring: it needs room of its own, and what it held before is gone."""
        if self.sanitize:
            self.l2.stream(region, region.window(extent), task=task.index, register=register)

    def _take_strips(self, task: Task, operand: Operand) -> np.ndarray:
        """Type 3: the task before handed its result over strip by strip through a ring (spec/engine-h13 §12.1)."""
        if self.strips is None:
            raise task.registers.error("takes strips, and the task before hands none over", "L2.SourceCfg.SourceType")
        region, extent, values = self.strips
        self.strips = None
        for name, ours, theirs in (
            ("L2.SourceBase.Addr", operand.region.base, region.base),
            ("L2.SourceChannelStride.Stride", operand.region.channel, region.channel),
            ("L2.SourceRowStride.Stride", operand.region.row, region.row),
        ):
            if ours != theirs:
                raise task.registers.error(f"{ours:#x}, and the task before hands strips over at {theirs:#x}", name)
        if extent != operand.stored:
            raise task.registers.error(
                f"{operand.stored} elements, and the task before gives {extent}", "Common.InDim.Win"
            )
        return values

    # ---- result --------------------------------------------------------------------------------------------------

    def _store(self, task: Task, values: np.ndarray) -> None:
        result = task.result
        raw = _as_stored(values, result)
        if self.strips is not None:
            raise task.registers.error(
                "the task before hands strips over, and this one takes none", "L2.SourceCfg.SourceType"
            )
        if result.surface is None:
            self._store_in_l2(task, raw)
            return
        if result.automatic:
            self._automatic_buffer(task)
        elif self._fits_whole(task):
            view = self.l2.write(result.region, result.stored, task=task.index, register="L2.ResultBase.Addr")
            view[...] = raw
            if result.kind is SourceType.STREAM:
                self._pass_through(task, result.region, result.stored, "L2.ResultBase.Addr")
        else:
            self._pass_through(task, result.region, self._result_rows(task), "L2.ResultBase.Addr")
        dma.write(self.memory, result.surface, raw, task.registers, sanitize=self.sanitize)
        self.scratch_writers |= {task.index} if result.surface.channel == 3 else set()

    @staticmethod
    def _fits_whole(task: Task) -> bool:
        """Whether the result's region has a place for each element, or only for a strip, a tile or one group."""
        region, stored = task.result.region, task.result.stored
        apart = not overlaps_itself(stored, region.strides(), region.element)
        return region.holds(stored.w) and task.tile_height >= task.hout and apart

    def _store_in_l2(self, task: Task, raw: np.ndarray) -> None:
        result = task.result
        if result.kind is SourceType.STRIPS:
            self._pass_through(task, result.region, result.stored, "L2.ResultBase.Addr")
            self.strips = (result.region, result.stored, raw)
            return
        self.l2.write(result.region, result.stored, task=task.index, register="L2.ResultBase.Addr")[...] = raw

    def _result_rows(self, task: Task) -> Extent:
        return task.result.stored._replace(h=min(task.tile_height, task.result.stored.h))

    def _automatic_buffer(self, task: Task) -> None:
        """Only the base is given; the buffer holds at least a row of one patch (spec/engine-h13 §7.5)."""
        stored = task.result.stored
        element = task.result.region.element
        channel = -(-min(stored.w, 128) * element // 16) * 16
        row = Region(task.result.region.base, 0, 0, channel, 0, element)
        self._pass_through(task, row, Extent(1, 1, 1, 1, min(stored.w, 128)), "L2.ResultBase.Addr")


def _as_stored(values: np.ndarray, result: Result) -> np.ndarray:
    """The result's elements as they lie in memory: number format, and channels along W where it is transposed."""
    if result.dtype == np.float16:
        raw = np.asarray(values, np.float16).view(np.uint16) if values.flags.c_contiguous else _bits(values)
    else:
        raw = to_bytes(values, result.dtype.name).view(np.uint8)
    return raw.swapaxes(2, 4) if result.transposed else raw


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint16)


@lru_cache(maxsize=1024)
def _understood(r: Registers) -> Task:
    """A program that runs again is not read again."""
    require_legal(r, on_ne=r.flag("Common.TaskInfo.NID"))
    return understand(r)


# ---- what a reader sees ---------------------------------------------------------------------------------------------


def _describe(task: Task, done: Computation) -> TaskReport:
    inputs = [str(operand.extent) for operand in (task.source1, task.source2) if operand]
    sources = [_place(operand) for operand in (task.source1, task.source2) if operand]
    rests_on = done.rests_on
    if task.result.dtype != np.float16:
        rests_on = (*rests_on, "byte-store")
    low, high = _range(done.values)
    return TaskReport(
        index=task.index,
        unit=task.unit,
        operation=done.operation,
        shapes=f"{', '.join(inputs)} -> {task.result.extent}",
        source=", ".join(sources),
        destination=_place(task.result),
        minimum=low,
        maximum=high,
        rests_on=rests_on,
        counters=done.counters,
    )


def _place(end: Operand | Result) -> str:
    if end.surface is not None:
        return f"channel {end.surface.channel} + {end.surface.base:#x}"
    strips = " (strips)" if end.kind is SourceType.STRIPS else ""
    return f"L2 {end.region.base:#x}{strips}"


def _range(values: np.ndarray) -> tuple[float, float]:
    """Smallest and largest element, from bit patterns: as integers, halves of one sign are in order of magnitude."""
    bits = np.asarray(values, np.float16).view(np.uint16)
    signed = bits.view(np.int16)
    low, high = bits.max(), signed.max()
    if low < 0x8000:  # none negative
        low = bits.min()
    if high < 0:  # all negative
        high = signed.min()
    return float(low.view(np.float16)), float(high.view(np.float16))
