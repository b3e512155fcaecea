"""Programs that run again: a machine kept with its tasks checked, views in place and constants made ready.

A task's checks ask for registers and places, never for a number (`Engine.prepare`), so they hold for every later run of
the same program. From the third run on, steps in a row that compiled code knows are one call (`arithmetic.fast.jobs`).
What a machine holds is let go with the program that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from hexane.arithmetic import tier
from hexane.arithmetic.hypotheses import in_force
from hexane.emulator.engine import Engine, Step
from hexane.emulator.memory import DramBuffer
from hexane.emulator.program import EmulatedProgram, Inputs
from hexane.emulator.step_jobs import Aside
from hexane.isa.channels import FIRST_SURFACE, SCRATCH

if TYPE_CHECKING:
    from hexane.arithmetic.fast.jobs import CompiledJob, Span

KEPT_BYTES = 1 << 30
"""Limit of what one program keeps between runs beside its own bytes, all its machines together: L2, surfaces, scratch
and kernels made ready."""


class ReadyMachine:
    """One machine for one program.

    ``own_bytes`` are L2, surfaces and scratch, ``bytes`` the kernels made ready with them.
    """

    def __init__(self, program: EmulatedProgram, sanitize: bool) -> None:
        self.program = program
        self.sanitize = sanitize
        self.rules = in_force()
        self.engine: Engine | None = None
        self.steps: list[Step] = []
        self.plan: list[Span | Step] | None = None
        self.runs = 0
        self.own_bytes = 0
        self.bytes = 0

    def run(self, inputs: Inputs, layout: str) -> dict[str, np.ndarray]:
        """As `hexane.emulator.emulate`."""
        engine = self.engine
        if engine is None:
            engine = self._first(inputs, layout)
        else:
            self._again(engine, inputs, layout)
        results = self.program.results(engine.memory, layout=layout, sanitize=self.sanitize and not self.runs)
        self.engine, self.runs = engine, self.runs + 1
        return results

    def _first(self, inputs: Inputs, layout: str) -> Engine:
        """Check each task when its turn comes, and run it; kernels are packed while there is room for them."""
        program = self.program
        engine = Engine(program.memory(inputs, layout=layout), program.l2_bytes, sanitize=self.sanitize)
        self.own_bytes = self.bytes = _size(engine)
        for registers in self.program.chain():
            step = engine.prepare(registers)
            if self.bytes < KEPT_BYTES:
                self.bytes += step.work.keep()
            step.run()
            self.steps.append(step)
        return engine

    def _again(self, engine: Engine, inputs: Inputs, layout: str) -> None:
        engine.l2.clear()
        for buffer in _own(engine):
            buffer.data[:] = 0
        self.program.fill(engine.memory, inputs, layout=layout)
        if self.runs == 1:
            for step in self.steps:
                step.work.tabulate()
                step.run()
            return
        if self.plan is None:
            self.plan = planned(self.steps)
        for part in self.plan:
            part.run()


def planned(steps: Iterable[Step]) -> list[Span | Step]:
    """Equivalent of the steps: those that can be jobs as spans that compiled code runs, the others unchanged."""
    from hexane.arithmetic.fast.jobs import Span

    plan: list[Span | Step] = []
    jobs: list[CompiledJob] = []
    aside = Aside()
    for step in steps:
        mine = step.jobs(aside)
        if mine is not None:
            jobs += mine
            continue
        plan += [Span(jobs), step] if jobs else [step]
        jobs = []
    return [*plan, Span(jobs)] if jobs else plan


def _size(engine: Engine) -> int:
    """Bytes of a machine: L2, surfaces and scratch."""
    return engine.l2.data.nbytes + sum(map(len, _own(engine)))


def _own(engine: Engine) -> list[DramBuffer]:
    """The buffers that are not the program's bytes (a section of kernels has a channel among the surfaces')."""
    channels = engine.memory.channels.items()
    return [b for channel, b in channels if b.writable and (channel == SCRATCH or channel >= FIRST_SURFACE)]


@contextmanager
def machine_for(program: EmulatedProgram, *, sanitize: bool) -> Iterator[ReadyMachine]:
    """An idle machine that ran the program before, or a new one; it is kept if the run went well, on kernels.

    Calls from several threads each have a machine of their own; idle ones are kept up to `KEPT_BYTES` together.
    """
    try:
        ready = program.idle.pop()
    except IndexError:
        ready = ReadyMachine(program, sanitize)
    if (ready.sanitize, ready.rules) != (sanitize, in_force()):
        ready = ReadyMachine(program, sanitize)
    spent = tier.spent()
    with tier.while_cold():
        yield ready
    if tier.spent() > spent:  # its steps are plain statements, and slow
        return
    idle = sum(other.bytes for other in tuple(program.idle))
    if idle + (ready.bytes if idle else ready.own_bytes) <= KEPT_BYTES:
        program.idle.append(ready)
