"""Programs that run again: a machine kept with its tasks checked, views in place and constants made ready.

A task's checks ask for registers and places, never for a number (`Engine.prepare`), so they hold for every later run of
the same program. The first run of a program checks; from the second on, kernels too are made ready once. What a machine
holds is let go with the program that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hexane.arithmetic.hypotheses import in_force
from hexane.emulator.engine import Engine, Step
from hexane.emulator.memory import FIRST_SURFACE, SCRATCH, Buffer
from hexane.emulator.program import Inputs, Program

KEPT_BYTES = 1 << 30
"""What one program may keep between runs beside its own bytes: surfaces and scratch, then kernels made ready."""


class Ready:
    """One machine for one program."""

    def __init__(self, program: Program, sanitize: bool) -> None:
        self.program = program
        self.sanitize = sanitize
        self.rules = in_force()
        self.engine: Engine | None = None
        self.steps: list[Step] = []
        self.kept = False

    def run(self, inputs: Inputs, layout: str) -> dict[str, np.ndarray]:
        """As `hexane.emulator.emulate`."""
        if self.engine is None:
            return self._first(inputs, layout)
        self._again(self.engine, inputs, layout)
        return self.program.results(self.engine.memory, layout=layout, sanitize=False)

    def _first(self, inputs: Inputs, layout: str) -> dict[str, np.ndarray]:
        engine = Engine(self.program.memory(inputs, layout=layout), sanitize=self.sanitize)
        for registers in self.program.chain():
            step = engine.prepare(registers)
            step.run()
            self.steps.append(step)
        results = self.program.results(engine.memory, layout=layout, sanitize=self.sanitize)
        self.engine = engine
        return results

    def _again(self, engine: Engine, inputs: Inputs, layout: str) -> None:
        engine.l2.clear()
        for buffer in _own(engine):
            buffer.data[:] = 0
        self.program.fill(engine.memory, inputs, layout=layout)
        if not self.kept:
            self._keep(KEPT_BYTES - self.nbytes)
        for step in self.steps:
            step.run()

    def _keep(self, room: int) -> None:
        """Make kernels ready while there is room; the others are made ready in each run."""
        for step in self.steps:
            if room > 0:
                room -= step.work.keep()
        self.kept = True

    @property
    def nbytes(self) -> int:
        """Bytes of the machine: L2, surfaces and scratch."""
        return 0 if self.engine is None else self.engine.l2.data.nbytes + sum(map(len, _own(self.engine)))


def _own(engine: Engine) -> list[Buffer]:
    """The buffers that are not the program's bytes."""
    return [b for channel, b in engine.memory.channels.items() if channel == SCRATCH or channel >= FIRST_SURFACE]


@contextmanager
def machine_for(program: Program, *, sanitize: bool) -> Iterator[Ready]:
    """The machine that a program ran on before, if it is idle, or a new one; it is kept if the run went well."""
    try:
        ready = program.idle.pop()
    except IndexError:
        ready = Ready(program, sanitize)
    if (ready.sanitize, ready.rules) != (sanitize, in_force()):
        ready = Ready(program, sanitize)
    yield ready
    if not program.idle and ready.nbytes <= KEPT_BYTES:
        program.idle.append(ready)
