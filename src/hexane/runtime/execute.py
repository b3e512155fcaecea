"""Run a compiled program segment by segment, with a word after every task: for progress bars and reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.emulator import run as emulate
from hexane.emulator.l2 import UNIT
from hexane.emulator.trace import TaskReport

if TYPE_CHECKING:
    from hexane.program import Program, Segment

GAP_BYTES = 1024
"""Written runs of L2 that lie closer than this are one block of the memory map."""


@dataclass(frozen=True)
class Block:
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
    blocks: tuple[Block, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for report.json."""
        data = self.report.to_dict()
        data.update(segment=self.segment, op=self.op, seconds=round(self.seconds, 6))
        data["l2"] = [[block.start, block.end, block.kept] for block in self.blocks]
        return data


@dataclass
class Run:
    """What a run gave: the outputs, every value at a segment's edge, the tasks, and seconds per segment."""

    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    tasks: list[TaskRun] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """Names of the arithmetic hypotheses that took part; empty when every rule used was measured."""
        return tuple(sorted({name for task in self.tasks for name in task.report.rests_on}))


OnTask = Callable[[TaskRun | None], None]
"""Called after every task, and with None after a host segment."""


def execute(
    program: Program, inputs: Mapping[str, Any], *, on_task: OnTask | None = None, observe: bool = False
) -> Run:
    """Run a program on the emulated engine.

    Parameters
    ----------
    inputs : as for ``Program.run``.
    on_task : called after every task.
    observe : count the arithmetic's events (products dropped, sums overflowed, table ends hit) and note which bytes of
        L2 every task writes; slower.
    """
    done = Run(values=program.checked(inputs))
    for number, segment in enumerate(program.segments):
        start = time.perf_counter()
        if segment.image is None:
            done.values.update(segment.run(done.values))
            if on_task:
                on_task(None)
        else:
            _engine(number, segment, done, on_task, observe)
        done.seconds.append(time.perf_counter() - start)
    done.outputs = {port.name: done.values[port.name] for port in program.outputs}
    return done


def _engine(number: int, segment: Segment, done: Run, on_task: OnTask | None, observe: bool) -> None:
    latest: list[tuple[Block, ...]] = [()]
    clock = [time.perf_counter()]

    def watch(task: Any, _computation: Any, engine: Any) -> None:
        latest[0] = written(engine.l2.shadow, task.index)

    def trace(report: TaskReport) -> None:
        now = time.perf_counter()
        op = segment.plans[report.index].op if report.index < len(segment.plans) else ""
        task = TaskRun(number, report.index, op, report, latest[0], now - clock[0])
        clock[0] = now
        done.tasks.append(task)
        if on_task:
            on_task(task)

    assert segment.image is not None
    result = emulate(
        segment.image,
        segment.surfaces(done.values),
        trace=trace,
        observe=observe,
        watch=watch if observe else None,
    )
    done.values.update(segment.declared(result.outputs))


def written(shadow: np.ndarray, task: int) -> tuple[Block, ...]:
    """The blocks of L2 whose last writer is this task, from the emulator's shadow map (an entry per 16 bytes)."""
    blocks = []
    for mark, kept in ((task + 1, True), (-(task + 1), False)):
        at = np.flatnonzero(shadow == mark)
        if not at.size:
            continue
        cuts = np.flatnonzero(np.diff(at) > GAP_BYTES // UNIT) + 1
        for run in np.split(at, cuts):
            blocks.append(Block(int(run[0]) * UNIT, (int(run[-1]) + 1) * UNIT, kept))
    return tuple(blocks)
