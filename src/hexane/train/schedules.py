"""Schedule of the rate from step to step: a factor between 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi

from hexane.errors import UsageError

KINDS = ("constant", "cosine", "step")


@dataclass(frozen=True)
class Schedule:
    """``schedule(step)``, steps counted from 0.

    ``kind``: "constant"; "cosine", which falls from 1 to ``lowest`` at step ``steps`` and stays there; "step", a
    factor of ``factor`` every ``every`` steps. ``warm_up``: that many steps of a straight line come first.
    """

    kind: str = "constant"
    warm_up: int = 0
    steps: int = 0
    lowest: float = 0.0
    every: int = 0
    factor: float = 0.1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"there is no schedule {self.kind!r}", hint=f"one of {', '.join(KINDS)}")
        if self.kind == "cosine" and self.steps <= self.warm_up:
            raise UsageError("a cosine needs its last step", hint="steps, more than warm_up")
        if self.kind == "step" and self.every < 1:
            raise UsageError("a schedule in steps needs their length", hint="every, 1 or more")

    def __call__(self, step: int) -> float:
        if step < self.warm_up:
            return (step + 1) / self.warm_up
        if self.kind == "cosine":
            along = min(1.0, (step - self.warm_up) / (self.steps - self.warm_up))
            return self.lowest + (1 - self.lowest) * (1 + cos(pi * along)) / 2
        return self.factor ** ((step - self.warm_up) // self.every) if self.kind == "step" else 1.0


def schedule_of(schedule: Callable[[int], float] | str | None) -> Callable[[int], float]:
    """A schedule; a name gives the one without parameters."""
    if callable(schedule):
        return schedule
    return Schedule(schedule or "constant")
