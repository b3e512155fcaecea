"""Report of a run: an entry per task, and whether its numbers rest on measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexane.arithmetic.convolution_results import ConvolutionCall


@dataclass(frozen=True)
class Computation:
    """Result of a unit for one task: values and how we know them.

    ``rests_on`` names the hypotheses of :mod:`hexane.arithmetic` that took part; empty means that every rule used
    has been measured on silicon. ``convolution`` is what was computed, if it was one and somebody looks on.
    """

    values: np.ndarray
    operation: str
    rests_on: tuple[str, ...] = ()
    counters: dict[str, int] = field(default_factory=dict)
    convolution: ConvolutionCall | None = None


@dataclass(frozen=True)
class TaskReport:
    """One executed task, for a reader.

    ``minimum`` and ``maximum`` are of the result as numbers; ``counters`` count events of the arithmetic: products
    rounded and dropped, sums overflowed, table ends hit.
    """

    index: int
    unit: str
    operation: str
    shapes: str
    source: str
    destination: str
    minimum: float
    maximum: float
    rests_on: tuple[str, ...]
    counters: dict[str, int]

    @property
    def evidence(self) -> str:
        """``measured``, or ``hypothesis (name, ...)``."""
        return f"hypothesis ({', '.join(self.rests_on)})" if self.rests_on else "measured"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**vars(self), "rests_on": list(self.rests_on), "evidence": self.evidence}

    def __str__(self) -> str:
        counts = " ".join(f"{name}={count}" for name, count in self.counters.items() if count)
        return (
            f"task[{self.index}] {self.unit} {self.operation}: {self.shapes}; {self.source} -> {self.destination}; "
            f"[{self.minimum:g}, {self.maximum:g}]; {self.evidence}{'; ' + counts if counts else ''}"
        )


@dataclass
class TraceReport:
    """All tasks of a run."""

    tasks: list[TaskReport] = field(default_factory=list)

    @property
    def measured(self) -> bool:
        """True where every task rests on measured rules only."""
        return not self.hypotheses

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """Names of all hypotheses that took part, sorted."""
        return tuple(sorted({name for task in self.tasks for name in task.rests_on}))

    def rows(self) -> Sequence[tuple[str, ...]]:
        """Rows for a table: task, unit, operation, shapes, from, to, range, evidence, counters."""
        return [
            (
                str(t.index),
                t.unit,
                t.operation,
                t.shapes,
                t.source,
                t.destination,
                f"{t.minimum:g} .. {t.maximum:g}",
                t.evidence,
                " ".join(f"{k}={v}" for k, v in t.counters.items() if v),
            )
            for t in self.tasks
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "measured": self.measured,
            "hypotheses": list(self.hypotheses),
            "tasks": [task.to_dict() for task in self.tasks],
        }

    def __str__(self) -> str:
        return "\n".join(map(str, self.tasks))


COLUMNS = ("task", "unit", "operation", "shapes", "from", "to", "range", "evidence", "counters")
