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
from hexane.emulator.registers import Registers
from hexane.emulator.step_jobs import Aside
from hexane.isa.channels import FIRST_SURFACE, SCRATCH

if TYPE_CHECKING:
    from hexane.arithmetic.fast.jobs import CompiledJob, Span

KEPT_BYTES = 1 << 30
"""Limit of what one program keeps between runs beside its own bytes, all its machines together: L2, surfaces, scratch
and kernels made ready."""


class PreparedChain:
    """Tasks on one machine whose channels keep their places: checked at their first run, only computed from then on."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.steps: list[Step] = []
        self.plan: list[Span | Step] | None = None
        self.runs = self.bytes = 0

    def run(self, chain: Iterable[Registers], room: int | None = None) -> None:
        """Run on what the channels hold now: the tasks of ``chain``, and from the second run on the same, unread.

        The first run makes ``bytes`` of kernels ready, up to ``room`` and the last.
        """
        if self.runs:
            self._again()
        else:
            self._first(chain, room)

    def _first(self, chain: Iterable[Registers], room: int | None) -> None:
        """Check each task when its turn comes, and run it."""
        size, steps = 0, []
        for registers in chain:
            step = self.engine.prepare(registers)
            if room is None or size < room:
                size += step.work.keep()
            step.run()
            steps.append(step)
        self.steps, self.runs, self.bytes = steps, 1, size

    def _again(self) -> None:
        self.engine.l2.clear()
        if SCRATCH in self.engine.memory.channels:
            self.engine.memory.channels[SCRATCH].data[:] = 0
        self.runs += 1
        if self.runs == 2:
            for step in self.steps:
                step.work.tabulate()
                step.run()
            return
        if self.plan is None:
            self.plan = planned(self.steps)
        for part in self.plan:
            part.run()


class ReadyMachine:
    """One machine for one program; ``own_bytes`` are L2, surfaces and scratch."""

    def __init__(self, program: EmulatedProgram, sanitize: bool) -> None:
        self.program = program
        self.sanitize = sanitize
        self.rules = in_force()
        self.chain: PreparedChain | None = None
        self.own_bytes = 0

    @property
    def bytes(self) -> int:
        """Its own, and kernels made ready."""
        return self.own_bytes + (self.chain.bytes if self.chain else 0)

    def run(self, inputs: Inputs, layout: str) -> dict[str, np.ndarray]:
        """As `hexane.emulator.emulate`."""
        program, chain = self.program, self.chain
        if chain is None:
            engine = Engine(program.memory(inputs, layout=layout), program.l2_bytes, sanitize=self.sanitize)
            chain, self.own_bytes = PreparedChain(engine), _size(engine)
        else:
            for buffer in _surfaces(chain.engine):
                buffer.data[:] = 0
            program.fill(chain.engine.memory, inputs, layout=layout)
        chain.run(program.chain(), KEPT_BYTES - self.own_bytes)
        self.chain = chain
        return program.results(chain.engine.memory, layout=layout, sanitize=self.sanitize and chain.runs == 1)


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
    scratch = [buffer for channel, buffer in engine.memory.channels.items() if channel == SCRATCH]
    return engine.l2.data.nbytes + sum(map(len, [*_surfaces(engine), *scratch]))


def _surfaces(engine: Engine) -> list[DramBuffer]:
    """The surfaces' buffers (a section of kernels has a channel among theirs, and is the program's)."""
    return [b for channel, b in engine.memory.channels.items() if b.writable and channel >= FIRST_SURFACE]


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
