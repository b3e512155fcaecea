"""Apple's own estimate of a task, the duration word of its H13 compiler: a separate model, never measured time.

The word is what the scheduler is told (docs/reference/engine-h13.md 16): half of the memory's peak rate, no call, no
kernel passes. hexane's compiler writes it by the same rule (``hexane.codegen.cost``), so that a network's estimate by
Apple's rule is that of its compiled tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hexane.chips import Evidence
from hexane.errors import UsageError

LABEL = "Apple's compiler estimate (header word 1), not a measurement"


@dataclass(frozen=True)
class AppleEstimate:
    """Whole microseconds per task as the compiler writes them (truncated), and their sum."""

    task_us: tuple[int, ...]
    label: str = LABEL
    evidence: Evidence = Evidence.APPLE

    @property
    def total_us(self) -> int:
        return sum(self.task_us)


def apple_estimate(x: Any) -> AppleEstimate:
    """Apple's estimate of an Image, a Program, or a Graph (compiled for M1 first); UsageError for anything else."""
    if hasattr(x, "main") and hasattr(x, "functions"):
        from hexane.codegen import compile

        x = compile(x, chip="M1")
    images = x.images if hasattr(x, "images") else [x]
    if not all(hasattr(image, "tasks") for image in images):
        raise UsageError(f"no tasks in a {type(x).__name__}", hint="give an image, a program or a graph")
    return AppleEstimate(tuple(task.get("Header[1].ExeCycles") for image in images for task in image.tasks))
