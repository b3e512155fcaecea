"""The engine: memory behind channels, L2, two units; runs a chain of tasks one after the other.

Tasks run to completion in the order of their links, as results are defined (docs/reference/engine-h13.md 1, 12.1).
Streams and rings, with which the hardware overlaps a task's DMA and computation, are modelled as docs/emulator.md says:
whole tensors in the right order, with their L2 regions checked for room and overlap and left undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hexane.arithmetic.copying import copy
from hexane.arithmetic.formats import from_bytes, to_bytes
from hexane.emulator import dma, kernel_fetch, ne, pe
from hexane.emulator.ends import OperandSource, TaskResult, TaskSource
from hexane.emulator.hazards import TaskOrder
from hexane.emulator.l2 import L2, L2Region, Place
from hexane.emulator.legal import require_legal, require_scratch_written, require_units_agree
from hexane.emulator.memory import Memory
from hexane.emulator.regions import operands, tile_of, whole_result
from hexane.emulator.registers import FormRegisters, Registers
from hexane.emulator.step_jobs import Aside, Part, jobs_of
from hexane.emulator.strides import Extent
from hexane.emulator.task import EngineTask, of_form, understand
from hexane.emulator.trace import Computation, TaskReport, TraceReport
from hexane.emulator.work import UnitWork
from hexane.frozen import dict_init, replace
from hexane.isa.channels import SCRATCH
from hexane.rounding import align

if TYPE_CHECKING:
    from hexane.arithmetic.fast.jobs import CompiledJob

Watcher = Callable[[EngineTask, Computation, "Engine"], None]


@dataclass(frozen=True)
class Step:
    """One task, checked against the state of the machine at its turn; run it any number of times from there.

    ``direct``, if there is one, is where the result lies in the end, for computations that can put it there at once.
    """

    task: EngineTask
    sources: tuple[OperandReader, ...]
    work: UnitWork
    places: tuple[ResultPlace, ...]
    direct: np.ndarray | None

    def store(self, values: np.ndarray) -> None:
        """Put a result where it belongs."""
        raw = _as_stored(values, self.task.result)
        for place in self.places:
            place.put(raw)

    def jobs(self, aside: Aside | None = None) -> list[CompiledJob] | None:
        """The same as jobs of compiled code, for a step that has run before; None where one of its parts is none."""
        return jobs_of(self, aside or Aside())

    def run(self) -> None:
        """Sources, computation, result."""
        values = self.work.compute(*[source.read() for source in self.sources], out=self.direct)
        if values is not self.direct:
            self.store(values)

    def watched(self, *, observe: bool) -> Computation:
        """The same, with what the numbers tell; ``observe`` counts events."""
        operands = tuple(source.read() for source in self.sources)
        values, (more, counters, convolution) = self.work.watched(operands, observe=observe)
        self.store(values)
        return Computation(values, self.work.operation, (*self.work.rests_on, *more), counters or {}, convolution)


@dataclass
class Engine:
    """State of the machine between two tasks.

    Parameters
    ----------
    memory : buffers behind the channels.
    l2_bytes : size of L2.
    sanitize : refuse what real hardware would hang on or read undefined, and tasks that do not wait for what they need
        (docs/reference/hazards.md); on by default.
    observe : count arithmetic events for the trace (slower).
    """

    memory: Memory
    l2_bytes: int
    sanitize: bool = True
    observe: bool = False
    report: TraceReport = field(default_factory=TraceReport)
    strips: Strips | None = None
    scratch_writers: set[int] = field(default_factory=set)
    forms: dict[Hashable, EngineTask] = field(default_factory=dict)
    """A task of each form that was checked."""

    def __post_init__(self) -> None:
        self.l2 = L2(self.l2_bytes, self.sanitize)
        self.order = TaskOrder(self.l2_bytes)

    def execute(self, r: Registers, watch: Watcher | None = None) -> None:
        """Run one task, and report on it."""
        step = self.prepare(r)
        computation = step.watched(observe=self.observe)
        self.report.tasks.append(_describe(step.task, computation))
        if watch is not None:
            watch(step.task, computation, self)

    def prepare(self, r: Registers, *, read_kernels: bool = True) -> Step:
        """Check a task whose turn it is, and note what it does to the state of the machine, numbers apart.

        No check asks for a number, so what holds now holds whenever the same tasks run in the same order. Without
        ``read_kernels`` constant kernels are not unpacked, which is all that a check of a program can leave out.
        """
        task, work, constant = self._request(r, read_kernels=read_kernels)
        sources, places = self._take_turn(task)
        return Step(task, sources, work, tuple(places), _direct(task, sources, places) if constant else None)

    def check(self, r: Registers) -> EngineTask:
        """``prepare`` for a program that is only checked: what the registers say is asked once of tasks of one form."""
        form = r.form
        if form not in self.forms:
            self.forms[form] = self._request(FormRegisters.of(r), read_kernels=False)[0]
        task = self.forms[form].at(r)
        self._take_turn(task)
        return task

    def _request(self, r: Registers, *, read_kernels: bool) -> tuple[EngineTask, UnitWork, bool]:
        """A task as its registers ask for it, its work, and whether its kernel, if it has one, is read once."""
        require_legal(r, on_ne=r.flag("Common.TaskInfo.NID"))
        task = understand(r)
        require_units_agree(r, task.unit == "NE")
        fetched = kernel_fetch.fetch(task, self.memory) if task.unit == "NE" else None
        if fetched is None:
            return task, pe.prepare(task), True
        if not read_kernels:
            fetched = replace(fetched, constant=False)
        return task, ne.prepare(task, fetched), fetched.constant

    def _take_turn(self, task: EngineTask) -> tuple[tuple[OperandReader, ...], list[ResultPlace]]:
        """Operands and places of a task whose turn it is; the machine then stands as it does behind the task."""
        require_scratch_written(task, self.scratch_writers)
        sources = tuple([self._source(task, operand, place) for operand, place in operands(task)])
        places = self._places(task)
        if self.sanitize:
            for hazard in self.order.next(task):
                raise hazard
        return sources, places

    # ---- sources -------------------------------------------------------------------------------------------------

    def _source(self, task: EngineTask, operand: TaskSource, place: Place) -> OperandReader:
        """Reader of an operand's logical tensor as float16, axes (g, d, c, h, w), size 1 along broadcast axes."""
        if operand.kind is OperandSource.RESIDENT:
            view = self.l2.read(place, task=task.index, register=operand.base_register)
            return _standing(view, operand)
        if operand.kind is OperandSource.STRIPS:
            take = self._take_strips(task, operand)
            return OperandReader(lambda: _decoded(_logical(take(), operand)), None)
        assert operand.surface is not None
        extent = operand.stored
        views = dma.source(self.memory, operand.surface, extent, task.registers, sanitize=self.sanitize)
        if operand.kind is OperandSource.KEEP:
            stay = self.l2.write(place, task=task.index, register=operand.base_register)
            plain = len(views) == 1 and operand.surface.interleave == 1
            stands, load = (_logical(stay, operand), (dma.gather(views), stay)) if plain else (None, None)
            return OperandReader(
                lambda: _decoded(_logical(_copied(dma.gather(views), stay), operand)), stay, stands, load
            )
        self._pass_through(task, place, tile_of(task, operand), operand.base_register)
        if len(views) == 1 and operand.surface.interleave == 1:
            return _standing(dma.gather(views), operand)
        blocks = None
        if operand.dtype == np.float16:
            blocks = Blocks(extent, dma.parts(views), lambda array: _logical(array, operand))
        return OperandReader(lambda: _decoded(_logical(dma.gather(views), operand)), views[0], blocks=blocks)

    def _pass_through(self, task: EngineTask, place: Place, extent: Extent, register: str) -> None:
        """A window or ring of a tensor: it needs room of its own, and what it held before is gone."""
        if self.sanitize:
            strict = extent.c > 1 or (task.unit == "NE" and extent.g == 1)
            stride = CHANNEL_STRIDES[register]
            self.l2.require_rows(place.region, extent, strict=strict, task=task.index, register=stride)
            self.l2.stream(place, task=task.index, register=register)

    def _take_strips(self, task: EngineTask, operand: TaskSource) -> Callable[[], np.ndarray]:
        """Type 3: the task before handed its result over strip by strip through a ring.

        Source: docs/reference/engine-h13.md 12.1.
        """
        if self.strips is None:
            raise task.registers.error("takes strips, and the task before hands none over", "L2.SourceCfg.SourceType")
        strips, self.strips = self.strips, None
        for name, ours, theirs in (
            ("L2.SourceBase.Addr", operand.region.base, strips.region.base),
            ("L2.SourceChannelStride.Stride", operand.region.channel, strips.region.channel),
            ("L2.SourceRowStride.Stride", operand.region.row, strips.region.row),
        ):
            if ours != theirs:
                raise task.registers.error(f"{ours:#x}, and the task before hands strips over at {theirs:#x}", name)
        if strips.extent != operand.stored:
            raise task.registers.error(
                f"{operand.stored} elements, and the task before gives {strips.extent}", "Common.InDim.Win"
            )
        return strips.values.pop

    # ---- result --------------------------------------------------------------------------------------------------

    def _places(self, task: EngineTask) -> list[ResultPlace]:
        """Destination of the result: L2, the next task, DRAM."""
        result = task.result
        if self.strips is not None:
            raise task.registers.error(
                "the task before hands strips over, and this one takes none", "L2.SourceCfg.SourceType"
            )
        if result.surface is None:
            return [self._place_in_l2(task)]
        places: list[ResultPlace] = []
        if result.automatic:
            self._automatic_buffer(task)
        elif _fits_whole(task):
            view = self.l2.write(whole_result(task), task=task.index, register="L2.ResultBase.Addr")
            if result.kind is OperandSource.STREAM:
                self._pass_result_through(task, result.stored)
            if result.kind is not OperandSource.STREAM or not self.sanitize:
                places.append(ResultPlace(lambda raw: _copied(raw, view), view))
        else:
            self._pass_result_through(task, tile_of(task, result))
        views = dma.destination(self.memory, result.surface, result.stored, task.registers, sanitize=self.sanitize)
        plain = len(views) == 1 and result.surface.interleave == 1
        in_memory = dma.gather(views) if plain else None
        blocks = None if plain else dma.parts(views)
        places.append(ResultPlace(lambda raw: dma.scatter(views, raw), in_memory, blocks))
        self.scratch_writers |= {task.index} if result.surface.channel == SCRATCH else set()
        return places

    def _place_in_l2(self, task: EngineTask) -> ResultPlace:
        result = task.result
        if result.kind is OperandSource.STRIPS:
            self._pass_result_through(task, result.stored)
            self.strips = Strips(result.region, result.stored, [])
            return ResultPlace(self.strips.values.append, None)
        view = self.l2.write(whole_result(task), task=task.index, register="L2.ResultBase.Addr")
        return ResultPlace(lambda raw: _copied(raw, view), view)

    def _pass_result_through(self, task: EngineTask, extent: Extent) -> None:
        region = task.result.region
        self._pass_through(task, Place(region, region.window(extent)), extent, "L2.ResultBase.Addr")

    def _automatic_buffer(self, task: EngineTask) -> None:
        """Only the base is given; the buffer holds at least a row of one patch (docs/reference/engine-h13.md 7.5)."""
        extent = task.result.stored
        element = task.result.region.element
        channel = align(min(extent.w, 128) * element, 16)
        row = Extent(1, 1, 1, 1, min(extent.w, 128))
        place = Place(L2Region(task.result.region.base, 0, 0, channel, 0, element), row)
        self._pass_through(task, place, row, "L2.ResultBase.Addr")


@of_form
def _fits_whole(task: EngineTask) -> bool:
    """True where the result's region has a place for each element, or only for a strip, a tile or one group."""
    place = whole_result(task)
    return place.region.holds(place.extent.w) and task.tile_height >= task.hout and place.is_distinct


CHANNEL_STRIDES = {
    "L2.SourceBase.Addr": "L2.SourceChannelStride.Stride",
    "L2.Src2Base.Addr": "L2.Src2ChannelStride.Stride",
    "L2.ResultBase.Addr": "L2.ConvResultChannelStride.Stride",
}
"""Register of a region's base -> register of its channel stride."""


@dataclass(frozen=True)
class Strips:
    """A result on its way to the next task: where its ring stands, its extent, and, between the two, its elements."""

    region: L2Region
    extent: Extent
    values: list[np.ndarray]


@dataclass(frozen=True)
class Blocks:
    """An operand that stands in memory in parts: its stored extent, the parts, and how its logical axes are found."""

    shape: tuple[int, ...]
    parts: list[Part]
    logical: Callable[[np.ndarray], np.ndarray]


@dict_init
@dataclass(frozen=True)
class OperandReader:
    """Reader of an operand, and the memory that it may read from for as long as the task runs.

    ``stands``, if the operand lies in memory as it is read, is where; ``load`` is what is copied there first, and to
    what. ``blocks``, if it lies there in parts.
    """

    read: Callable[[], np.ndarray]
    memory: np.ndarray | None
    stands: np.ndarray | None = None
    load: tuple[np.ndarray, np.ndarray] | None = None
    blocks: Blocks | None = None


@dataclass(frozen=True)
class ResultPlace:
    """Writer of a result as it lies in memory, and the view that it fills, where it is one, or the parts."""

    put: Callable[[np.ndarray], object]
    view: np.ndarray | None
    blocks: list[Part] | None = None

    @property
    def parts(self) -> list[Part] | None:
        """View that the result fills, channels by channels."""
        return self.blocks if self.view is None else [(slice(None), self.view)]


def _standing(stored: np.ndarray, operand: TaskSource) -> OperandReader:
    """An operand that is read where it stands."""
    logical = _logical(stored, operand)
    if operand.dtype == np.float16:
        return OperandReader(lambda: logical, stored, logical)
    return OperandReader(lambda: _decoded(logical), stored)


def _direct(task: EngineTask, sources: tuple[OperandReader, ...], places: Sequence[ResultPlace]) -> np.ndarray | None:
    """The result's only place, if its elements lie there as a unit gives them, and nothing that the task reads does."""
    view = places[0].view
    if len(places) > 1 or view is None or view.strides[4] != 2:
        return None
    if task.result.dtype != np.float16 or task.result.transposed:
        return None
    if any(s.memory is None or np.may_share_memory(s.memory, view) for s in sources):
        return None
    return view.view(np.float16)


def _copied(values: np.ndarray, view: np.ndarray) -> np.ndarray:
    copy(view, values)
    return view


def _logical(stored: np.ndarray, operand: TaskSource) -> np.ndarray:
    """The operand's elements in its own number format, channels and width in their logical places."""
    return (stored.swapaxes(2, 4) if operand.transposed else stored).view(operand.dtype)


def _decoded(logical: np.ndarray) -> np.ndarray:
    return logical if logical.dtype == np.float16 else from_bytes(logical)


def _as_stored(values: np.ndarray, result: TaskResult) -> np.ndarray:
    """The result's elements as they lie in memory: number format, and channels along W where it is transposed."""
    if result.dtype == np.float16:
        raw = np.ascontiguousarray(values, np.float16).view(np.uint16)
    else:
        raw = to_bytes(values, result.dtype.name).view(np.uint8)
    return raw.swapaxes(2, 4) if result.transposed else raw


# ---- what a reader sees ---------------------------------------------------------------------------------------------


def _describe(task: EngineTask, computation: Computation) -> TaskReport:
    inputs = [str(operand.extent) for operand in (task.source1, task.source2) if operand]
    sources = [_place(operand) for operand in (task.source1, task.source2) if operand]
    rests_on = computation.rests_on
    if task.result.dtype != np.float16:
        rests_on = (*rests_on, "byte-store")
    low, high = _range(computation.values)
    return TaskReport(
        index=task.index,
        unit=task.unit,
        operation=computation.operation,
        shapes=f"{', '.join(inputs)} -> {task.result.extent}",
        source=", ".join(sources),
        destination=_place(task.result),
        minimum=low,
        maximum=high,
        rests_on=rests_on,
        counters=computation.counters,
    )


def _place(end: TaskSource | TaskResult) -> str:
    if end.surface is not None:
        return f"channel {end.surface.channel} + {end.surface.base:#x}"
    strips = " (strips)" if end.kind is OperandSource.STRIPS else ""
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
