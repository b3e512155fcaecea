"""First difference of two programs: the first task, and its first element, whose results differ for the same inputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from hexane.emulator.engine import Engine
from hexane.emulator.program import EmulatedProgram, Inputs
from hexane.emulator.run import Source, steps
from hexane.emulator.task import EngineTask
from hexane.emulator.trace import Computation


@dataclass(frozen=True)
class Difference:
    """``same``: all results agree. Else ``task`` is the first that differs, ``element`` is (g, d, c, h, w)."""

    same: bool
    task: int | None = None
    reason: str = ""
    element: tuple[int, ...] | None = None
    left: float | None = None
    right: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        if self.same:
            return "the programs give the same results in every task"
        if self.element is None:
            return f"task[{self.task}]: {self.reason}"
        at = ", ".join(map(str, self.element))
        return f"task[{self.task}] element (g, d, c, h, w) = ({at}): {self.left!r} and {self.right!r}; {self.reason}"


def first_difference(left: Source, right: Source, inputs: Inputs, *, layout: str = "nchw") -> Difference:
    """Run two programs side by side, task by task, and stop where their results differ."""
    for index, pair in enumerate(zip_longest(_results(left, inputs, layout), _results(right, inputs, layout))):
        difference = _compare(index, *pair)
        if difference is not None:
            return difference
    return Difference(True)


def _results(source: Source, inputs: Inputs, layout: str):
    """Each task's result in turn, as the unit gave it, with one line about the task."""
    program = EmulatedProgram.of(source)
    latest: list[np.ndarray] = []

    def watch(task: EngineTask, computation: Computation, engine: Engine) -> None:
        latest[:] = [np.ascontiguousarray(computation.values, np.float16)]

    engine = Engine(program.memory(inputs, layout=layout), program.l2_bytes)
    for _ in steps(program, engine, watch):
        yield latest[0], engine.report.tasks[-1].operation


def _compare(index: int, left: Any, right: Any) -> Difference | None:
    if left is None or right is None:
        return Difference(False, index, f"the {'first' if left is None else 'second'} program has no such task")
    (a, what_a), (b, what_b) = left, right
    what = what_a if what_a == what_b else f"{what_a} against {what_b}"
    if a.shape != b.shape:
        return Difference(False, index, f"results of shape {a.shape} and {b.shape}; {what}")
    differ = a.view(np.uint16) != b.view(np.uint16)
    if not differ.any():
        return None
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(differ)), a.shape))
    return Difference(False, index, what, at, float(a[at]), float(b[at]))
