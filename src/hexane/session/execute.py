"""Run a compiled program on the emulator with a word after every task: for progress bars and reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.arithmetic.convolution_results import ConvolutionResults
from hexane.emulator import run as emulate
from hexane.emulator.l2 import UNIT
from hexane.emulator.trace import Computation, TaskReport
from hexane.program.run import Device, Loaded, Session

if TYPE_CHECKING:
    from hexane.program import Program, Segment
    from hexane.program.run import Values

GAP_BYTES = 1024
"""Written runs of L2 that lie closer than this are one block of the memory map."""


@dataclass(frozen=True)
class ExecutedBlock:
    """Bytes ``start`` to ``end`` of L2 that a task wrote; ``kept`` for later tasks, or streamed through."""

    start: int
    end: int
    kept: bool


@dataclass(frozen=True)
class TaskRun:
    """One executed task: its segment and index there, the op it belongs to, the emulator's report, what it wrote."""

    segment: int
    index: int
    op: str
    report: TaskReport
    blocks: tuple[ExecutedBlock, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for report.json."""
        data = self.report.to_dict()
        data.update(segment=self.segment, op=self.op, seconds=round(self.seconds, 6))
        data["l2"] = [[block.start, block.end, block.kept] for block in self.blocks]
        return data


@dataclass
class Execution:
    """Result of a run: the outputs, every value at a segment's edge, the tasks, and seconds per segment.

    ``convolutions``: the results of those of an observed run.
    """

    outputs: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    tasks: list[TaskRun]
    seconds: list[float]

    observed: bool = True
    convolutions: ConvolutionResults | None = None

    @property
    def hypotheses(self) -> tuple[str, ...] | None:
        """Names of the arithmetic hypotheses that took part; empty when every rule used was measured.

        None where the run was not observed: a device that is not the emulator tells nothing of its tasks.
        """
        if not self.observed:
            return None
        return tuple(sorted({name for task in self.tasks for name in task.report.rests_on}))


OnTask = Callable[[TaskRun | None], None]
"""Called after every task, and with None after a host segment."""


class ObservedEmulator(Device):
    """The emulator that notes every task of a program: see :func:`execute`."""

    name = "emulator"

    def __init__(self, program: Program, on_task: OnTask | None, observe: bool) -> None:
        self.numbers = {id(segment): number for number, segment in enumerate(program.segments)}
        self.on_task = on_task
        self.observe = observe
        self.tasks: list[TaskRun] = []
        self.convolutions = ConvolutionResults()

    def load(self, segment: Segment) -> ObservedSegment:
        """Any segment with an image."""
        return ObservedSegment(self, segment)


@dataclass(frozen=True)
class ObservedSegment(Loaded):
    """An engine segment on the emulator, observed."""

    device: ObservedEmulator
    segment: Segment

    def run(self, values: Values) -> dict[str, np.ndarray]:
        """Outputs by name; the device learns of every task."""
        device, segment = self.device, self.segment
        latest: list[tuple[ExecutedBlock, ...]] = [()]
        clock = [time.perf_counter()]

        def watch(task: Any, computation: Computation, engine: Any) -> None:
            if computation.convolution is not None:
                device.convolutions.add(computation.convolution, computation.values)
            latest[0] = written(engine.l2.shadow.map(), task.index)

        def trace(report: TaskReport) -> None:
            now = time.perf_counter()
            op = segment.plans[report.index].op if report.index < len(segment.plans) else ""
            task = TaskRun(device.numbers[id(segment)], report.index, op, report, latest[0], now - clock[0])
            clock[0] = now
            device.tasks.append(task)
            if device.on_task:
                device.on_task(task)

        assert segment.image is not None
        result = emulate(
            segment.image,
            segment.surfaces(values),
            trace=trace,
            observe=device.observe,
            watch=watch if device.observe else None,
        )
        return segment.declared(result.outputs)


def execute(
    program: Program,
    inputs: Mapping[str, Any],
    *,
    on_task: OnTask | None = None,
    observe: bool = False,
    device: Device | None = None,
) -> Execution:
    """Run a program on the emulated engine, or on another device.

    Parameters
    ----------
    inputs : as for ``Program.run``.
    on_task : called after every task.
    observe : count the arithmetic's events (products dropped, sums overflowed, table ends hit) and note which bytes of
        L2 every task writes; slower.
    device : None or the emulator is observed; of any other device only the outputs and the times are known.
    """
    if device is not None and device.name != "emulator":
        return _unobserved(program, inputs, device, on_task)
    emulator = ObservedEmulator(program, on_task, observe)

    def after(_number: int, segment: Segment) -> None:
        if on_task and segment.image is None:
            on_task(None)

    run = Session(program, emulator).record(inputs, keep=False, on_segment=after)
    return Execution(run.outputs, run.values, emulator.tasks, run.seconds, convolutions=emulator.convolutions)


def _unobserved(program: Program, inputs: Mapping[str, Any], device: Device, on_task: OnTask | None) -> Execution:
    def after(_number: int, segment: Segment) -> None:
        for _ in range(len(segment.image.tasks) if segment.image is not None else 1):
            if on_task:
                on_task(None)

    run = Session(program, device).record(inputs, keep=False, on_segment=after)
    return Execution(run.outputs, run.values, [], run.seconds, observed=False)


def written(shadow: np.ndarray, task: int) -> tuple[ExecutedBlock, ...]:
    """The blocks of L2 whose last writer is this task, from the emulator's shadow map (an entry per 16 bytes)."""
    blocks = []
    for mark, is_first in ((task + 1, True), (-(task + 1), False)):
        at = np.flatnonzero(shadow == mark)
        if not at.size:
            continue
        cuts = np.flatnonzero(np.diff(at) > GAP_BYTES // UNIT) + 1
        for run in np.split(at, cuts):
            blocks.append(ExecutedBlock(int(run[0]) * UNIT, (int(run[-1]) + 1) * UNIT, is_first))
    return tuple(blocks)
