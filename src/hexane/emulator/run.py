"""Run a program: from an image and arrays to arrays and a report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hexane.arithmetic import tier
from hexane.counts import counted
from hexane.emulator.engine import Engine, Watcher
from hexane.emulator.program import EmulatedProgram, Inputs
from hexane.emulator.ready import machine_for
from hexane.emulator.trace import TaskReport, TraceReport
from hexane.errors import UsageError
from hexane.image import Image

Source = EmulatedProgram | Image | str | os.PathLike[str] | bytes
Trace = bool | Callable[[TaskReport], None]


@dataclass(frozen=True)
class Result:
    """Result of a run: outputs by name, the report, and the machine as it stands afterwards."""

    outputs: dict[str, np.ndarray]
    report: TraceReport
    engine: Engine


def emulate(
    image: Source, inputs: Inputs, trace: Trace = False, *, layout: str = "nchw", sanitize: bool = True
) -> dict[str, np.ndarray]:
    """Execute an engine program as the hardware would, and return its outputs.

    Parameters
    ----------
    image : an Image, a path, or a file's bytes; programs of H13 to H18.
    inputs : name -> array. Plain NCHW arrays of the surface's dtype (float16, or uint8 for booleans); axes of size 1
        may be left out. With ``layout="raw"`` the surface's bytes (uint8), padding included.
    trace : True prints one line per task to stderr; a function is called with every TaskReport.
    layout : "nchw" or "raw", for inputs and outputs.
    sanitize : refuse reads of undefined bytes and the like; on by default. What leaves a buffer is always refused.

    Returns
    -------
    dict : output name -> array (N, C, H, W), or the surface's bytes.

    Raises
    ------
    UsageError : an input is missing, or has another shape or dtype.
    EmulationError : the program does something that hangs the engine, or that no rule covers; the error names
        task, register and byte address.
    """
    if trace:
        return run(image, inputs, trace=trace, layout=layout, sanitize=sanitize).outputs
    with machine_for(EmulatedProgram.of(image), sanitize=sanitize) as machine:
        return machine.run(inputs, layout)


def run(
    image: Source,
    inputs: Inputs,
    *,
    trace: Trace = False,
    layout: str = "nchw",
    sanitize: bool = True,
    observe: bool | None = None,
    until: int | None = None,
    watch: Watcher | None = None,
) -> Result:
    """As :func:`emulate`, with the report and the machine's state.

    Parameters
    ----------
    observe : count arithmetic events in the report (products rounded and dropped, sums overflowed, table ends hit);
        slower. None: with ``trace`` only.
    until : stop after the task of this index; outputs are then as far as they were written.
    watch : called after every task with (task, computation, engine).
    """
    if not (isinstance(trace, bool) or callable(trace)):
        raise UsageError(f"trace is True, False or a function, not {trace!r}", where="trace")
    program = EmulatedProgram.of(image)
    engine = Engine(
        program.memory(inputs, layout=layout),
        program.l2_bytes,
        sanitize=sanitize,
        observe=bool(trace) if observe is None else observe,
    )
    show = _print if trace is True else trace
    stopped = False
    with tier.while_cold():
        for index, _ in enumerate(steps(program, engine, watch)):
            if show:
                show(engine.report.tasks[-1])
            if index == until:
                stopped = True
                break
    if until is not None and not stopped:
        raise UsageError(f"the program has no task {until}", hint=f"it has {counted(len(engine.report.tasks), 'task')}")
    outputs = program.results(engine.memory, layout=layout, sanitize=sanitize and not stopped)
    return Result(outputs, engine.report, engine)


def steps(program: EmulatedProgram, engine: Engine, watch: Watcher | None = None) -> Iterator[int]:
    """Execute task after task; yields each task's index when it is done."""
    for registers in program.chain():
        engine.execute(registers, watch)
        yield registers.index


def _print(report: TaskReport) -> None:
    print(report, file=sys.stderr)
