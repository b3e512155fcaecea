"""Check that every task waits for the tasks before it with which it shares bytes (docs/reference/hazards.md).

The emulator runs one task after the other, so that no result shows a missing wait. The engine overlaps the loads,
the neural cores and the planar engine, and a task waits only for what its registers name: the source or the result of
the last task of either unit (the alias bits of L2), the task that it follows patch by patch (Dependent), and, through
DRAM, a task at a distance (DependencyMode and DependencyInterval) or by its number (DTID). A *hazard* is a shared
region without such a wait, or an earlier one that settles it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hexane import chips
from hexane.emulator.ends import OperandSource, OperandSurface
from hexane.emulator.l2 import UNIT, L2Marks, Place
from hexane.emulator.once import once
from hexane.emulator.regions import operands, result
from hexane.emulator.registers import Registers
from hexane.emulator.strides import Extent
from hexane.emulator.task import EngineTask, of_form, understand
from hexane.errors import EmulationError
from hexane.isa import Task as Words
from hexane.isa.channels import SCRATCH
from hexane.isa.granules import GRANULE
from hexane.kernels import windows_of
from hexane.rounding import ceil_div

UNITS = ("NE", "PE")
FOLLOWED = {1: "NE", 2: "PE"}
"""Values of a Dependent field."""
FOLLOWING = ("L2.SourceCfg.Dependent", "L2.SourceCfg.Src2Dependent", "L2.Src2Cfg.Dependent")
SOURCE_FLAGS = {"NE": "AliasConvSrc", "PE": "AliasPlanarSrc"}
RESULT_FLAGS = {"NE": "AliasConvRslt", "PE": "AliasPlanarRslt"}
NOBODY = -1


def hazards(tasks: Sequence[Words]) -> list[EmulationError]:
    """Every hazard of one engine program, in the order of its tasks; each names task, register and byte address."""
    order = TaskOrder(chips.generation(tasks[0].generation).l2_bytes)
    return [hazard for index, words in enumerate(tasks) for hazard in order.next(understand(Registers(index, words)))]


class Waits(NamedTuple):
    """Waits of an operand or a result: units whose last task has read its sources, or has written its result."""

    read: frozenset[str]
    written: frozenset[str]

    def __or__(self, other: Waits) -> Waits:
        return Waits(self.read | other.read, self.written | other.written)


@once
def _waits(r: Registers, register: str) -> Waits:
    """The alias bits and the Dependent field of one configuration."""
    units = {unit for unit in UNITS if r[f"L2.{register}.{RESULT_FLAGS[unit]}"]}
    units |= {FOLLOWED[value] for value in [r[f"L2.{register}.Dependent"]] if value in FOLLOWED}
    read = {unit for unit in UNITS if r[f"L2.{register}.{SOURCE_FLAGS[unit]}"]}
    return Waits(frozenset(read | units), frozenset(units))


NO_WAITS = Waits(frozenset(), frozenset())


@dataclass
class HazardUnit:
    """One unit's past: its last task, those that somebody has waited for, and who touched every 16 bytes of L2 last."""

    room: int
    latest: int = NOBODY
    has_read: int = NOBODY
    has_written: int = NOBODY

    def __post_init__(self) -> None:
        self.reader, self.writer = L2Marks(NOBODY, self.room), L2Marks(NOBODY, self.room)


class _Access(NamedTuple):
    """A task's use of a place in L2: the register of its base, and the one that says what it waits for."""

    place: Place
    does: str
    register: str
    config: str
    waits: Waits | None
    """None: for the task before, which hands strips over."""
    loads: bool


@of_form
def _accesses(task: EngineTask) -> tuple[_Access, ...]:
    """Those of the operands, then that of the result, which waits as the operands do, too."""
    r = task.registers
    sent, accesses = _waits(r, "ResultCfg"), []
    for operand, place in operands(task):
        split = operand.number == 2 and r.has("L2.Src2Cfg.SourceType")
        config = "Src2Cfg" if split else "SourceCfg"
        waits = None
        if operand.kind is not OperandSource.STRIPS:
            waits = _waits(r, config)
            follows = None if split else FOLLOWED.get(r["L2.SourceCfg.Src2Dependent"])
            if follows:
                waits |= Waits(frozenset({follows}), frozenset({follows}))
            sent |= waits
        loads = operand.kind in (OperandSource.KEEP, OperandSource.STREAM)
        does = "loads a source over" if loads else "reads"
        accesses.append(_Access(place, does, operand.base_register, config, waits, loads))
    place = result(task)
    return (*accesses, _Access(place, "writes its result over", "L2.ResultBase.Addr", "ResultCfg", sent, True))


@of_form
def _leaders(task: EngineTask) -> tuple[tuple[str, str], ...]:
    """The registers that make the task follow the one before of a unit, and the unit."""
    units = ((register, FOLLOWED.get(task.registers[register])) for register in FOLLOWING)
    return tuple((register, unit) for register, unit in units if unit)


class TaskOrder:
    """The state of the check between two tasks of a program, for an L2 of ``room`` bytes."""

    def __init__(self, room: int) -> None:
        self.units = {name: HazardUnit(room) for name in UNITS}
        self.memory = HazardMemory()
        self.last = ""

    def next(self, task: EngineTask) -> list[EmulationError]:
        """The hazards of the next task."""
        errors = [*self._without_leader(task), *self._in_l2(task), *self.memory.next(task)]
        unit = self.units[task.unit]
        unit.latest = task.index
        unit.reader.forget(unit.has_read)
        unit.writer.forget(unit.has_written)
        for _, place in operands(task):
            unit.reader.add(task.index, place)
        unit.writer.add(task.index, result(task))
        self.last = task.unit
        return errors

    def _without_leader(self, task: EngineTask) -> Iterator[EmulationError]:
        """Waits for a task that is not there: an engine may wait for ever; no program of Apple's has one (APPLE)."""
        r = task.registers
        for register, unit in _leaders(task):
            if self.units[unit].latest == NOBODY:
                yield r.error(f"follows the {unit} task before, and there is none", register)
        if r.index == 0:
            for config in ("TileDMASrc.DMAConfig", "TileDMASrc.Src2DMAConfig", "TileDMADst.DMAConfig"):
                register = f"{config}.DependencyMode"
                if r[register]:
                    yield r.error("waits for an earlier task, and this is the first", register)

    def _in_l2(self, task: EngineTask) -> Iterator[EmulationError]:
        before = NO_WAITS
        for access in _accesses(task):
            is_result = access.config == "ResultCfg"
            waits = access.waits or Waits(frozenset({self.last}), frozenset({self.last}))
            if access.waits is None:
                before = waits
            elif is_result:
                waits |= before
            for name, unit in self.units.items():
                if is_result and name == task.unit:
                    continue  # a unit finishes its tasks in order
                if name not in waits.written and unit.latest > unit.has_written:
                    yield from self._collision(task, access, name, "result")
                loads = access.loads and name != task.unit
                if loads and name not in waits.read and unit.latest > unit.has_read:
                    yield from self._collision(task, access, name, "source")
        for name, unit in self.units.items():
            if name in waits.written:
                unit.has_written = unit.latest
            if name in waits.read:
                unit.has_read = unit.latest

    def _collision(self, task: EngineTask, access: _Access, name: str, end: str) -> Iterator[EmulationError]:
        """The hazard with the last task of another unit whose result or source is at the place."""
        unit, place = self.units[name], access.place
        is_result = end == "result"
        touched, settled = (unit.writer, unit.has_written) if is_result else (unit.reader, unit.has_read)
        flag = (RESULT_FLAGS if is_result else SOURCE_FLAGS)[name]
        other = touched.last(place, settled)
        if other == NOBODY:
            return
        cells = place.units(touched.map())
        where = np.unravel_index(int(np.argmax(cells)), cells.shape)
        steps = (*place.region.strides()[:4], UNIT)
        yield EmulationError(
            f"{access.does} the {end} of task[{other}] ({name}) and waits for no task of that unit since",
            task=task.index,
            register=access.register,
            address=place.region.base + sum(int(i) * step for i, step in zip(where, steps)),
            hint=f"set {task.registers.roles.field(f'L2.{access.config}.{flag}')} (docs/reference/hazards.md)",
        )


class HazardMemory:
    """Last writer and readers of every 64 bytes behind the channels, and the task up to which somebody has waited."""

    def __init__(self) -> None:
        self.settled = NOBODY
        self.writer: dict[int, np.ndarray] = {}
        self.reader: dict[int, np.ndarray] = {}

    def next(self, task: EngineTask) -> list[EmulationError]:
        """The hazards of the next task through DRAM."""
        use, errors = _memory_use(task), []
        self._settle(task, use)
        for channel, cells in use.sources:
            errors += self._unwritten(task, channel, cells, "TileDMASrc.DMAConfig.DependencyMode")
        for channel, cells in self._kernel(task, use.kernel):
            errors += self._unwritten(task, channel, cells, "Task.DTID" if channel == SCRATCH else "Task.TDE")
        for channel, cells in use.results:
            if task.registers.has("TileDMADst.DMAConfig.DependencyMode"):
                errors += self._unread(task, channel, cells)
            _mark(self.writer, channel, cells, task.index)
        return errors

    def _settle(self, task: EngineTask, use: _MemoryUse) -> None:
        """A task at a distance, or by its number: with it those before it."""
        for interval in use.intervals:
            self.settled = max(self.settled, task.index - 1 - interval)
        if use.kernel == SCRATCH:
            self.settled = max(self.settled, task.registers["Task.DTID"])

    def _unwritten(self, task: EngineTask, channel: int, place: Granules, register: str) -> list[EmulationError]:
        writer = _last(self.writer, channel, place)
        _mark(self.reader, channel, place, task.index)
        if writer <= self.settled:
            return []
        return [task.registers.error(
            f"reads what task[{writer}] sends to channel {channel} and does not wait for it", register,
            hint=f"set it to {writer if register == 'Task.DTID' else 1} (docs/reference/hazards.md)",
        )]  # fmt: skip

    def _unread(self, task: EngineTask, channel: int, place: Granules) -> list[EmulationError]:
        r, reader = task.registers, _last(self.reader, channel, place)
        config = "TileDMADst.DMAConfig"
        waits = r[f"{config}.DependencyMode"] and task.index - 1 - r[f"{config}.DependencyInterval"] >= reader
        if reader == NOBODY or waits or reader == task.index:
            return []
        return [r.error(
            f"writes over what task[{reader}] reads from channel {channel} and does not wait for it",
            f"{config}.DependencyMode",
            hint=f"set it to 1 for a source, 2 for a kernel, and DependencyInterval to at most "
            f"{min(15, task.index - 1 - reader)} (docs/reference/hazards.md)",
        )]  # fmt: skip

    def _kernel(self, task: EngineTask, channel: int | None) -> Iterator[tuple[int, Granules]]:
        if channel in self.writer or channel == SCRATCH:
            assert channel is not None
            for window in windows_of(task.registers.descriptor):
                first = window.offset // GRANULE
                yield channel, Granules(first, (ceil_div(window.offset + window.size, GRANULE) - first,), (1,))


class Granules(NamedTuple):
    """Place of a tensor behind its channel, in granules: the first, and how many how far apart."""

    first: int
    counts: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def stop(self) -> int:
        return self.first + 1 + sum((count - 1) * step for count, step in zip(self.counts, self.steps))

    def of(self, cells: np.ndarray) -> np.ndarray:
        """The entries of an array with one per granule; a view."""
        size = cells.itemsize
        steps = [step * size for step in self.steps]
        return np.ndarray(self.counts, cells.dtype, cells, self.first * size, steps)


def _granules(surface: OperandSurface, extent: Extent) -> Granules:
    blocks = ceil_div(extent.c, surface.interleave)
    width = ceil_div(extent.w * surface.element * surface.interleave, GRANULE)
    axes = (
        (extent.g, surface.group), (extent.d, surface.depth), (blocks, surface.plane), (extent.h, surface.row),
        (width, GRANULE),
    )  # fmt: skip
    counts, steps = zip(*((count, step // GRANULE) for count, step in axes if count > 1 or step == GRANULE))
    return Granules(surface.base // GRANULE, counts, steps)


class _MemoryUse(NamedTuple):
    """A task's use of DRAM: how far back its sources wait, where they and its result are, the kernel's channel."""

    intervals: tuple[int, ...]
    sources: tuple[tuple[int, Granules], ...]
    results: tuple[tuple[int, Granules], ...]
    kernel: int | None


@of_form
def _memory_use(task: EngineTask) -> _MemoryUse:
    r = task.registers
    configs = [f"TileDMASrc.{name}" for name in ("DMAConfig", "Src2DMAConfig")]
    intervals = tuple(r[f"{c}.DependencyInterval"] for c in configs if r[f"{c}.DependencyMode"])
    ends = [(end.surface, end.stored) for end in (task.source1, task.source2, task.result) if end is not None]
    places = [(s.channel, _granules(s, extent)) if s else None for s, extent in ends]
    sources, results = (tuple(filter(None, some)) for some in (places[:-1], places[-1:]))
    return _MemoryUse(intervals, sources, results, r.channel("kernel"))


def _cells(touched: dict[int, np.ndarray], channel: int, place: Granules) -> np.ndarray:
    """The entries of a place; what nobody has touched yet counts as NOBODY's."""
    tasks = touched.get(channel)
    if tasks is None or len(tasks) < place.stop:
        longer = np.full(max(place.stop, 0 if tasks is None else 2 * len(tasks)), NOBODY, np.int32)
        if tasks is not None:
            longer[: len(tasks)] = tasks
        touched[channel] = tasks = longer
    return place.of(tasks)


def _last(touched: dict[int, np.ndarray], channel: int, place: Granules) -> int:
    return int(_cells(touched, channel, place).max()) if channel in touched else NOBODY


def _mark(touched: dict[int, np.ndarray], channel: int, place: Granules, index: int) -> None:
    _cells(touched, channel, place)[...] = index
