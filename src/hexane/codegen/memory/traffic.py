"""Bytes that tasks move to and from memory: elements, not the bursts that carry them (as ``hexane.timing.traffic``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hexane.codegen.operands import TaskOperand, elements, read_again
from hexane.codegen.plan import Plan

Price = Callable[[Sequence[Plan]], Sequence[float]]
"""Predicted microseconds of each of some tasks, one after the other."""

US_PER_BYTE = 1 / 400_000
"""What a byte that need not move is worth beside time, about an eighth of what it takes alone. INFERRED: it costs
energy, and room that other programs have on the same memory; so of plans that take the same time the leaner one is
made."""


class Cost(NamedTuple):
    """Predicted microseconds, and bytes to and from memory."""

    us: float
    bytes: int

    def weighed(self, gain: float = 0.0) -> float:
        """One number: time, with a margin ``gain`` of it, and bytes for what they are worth."""
        return (1 + gain) * self.us + US_PER_BYTE * self.bytes

    def plus(self, other: Cost) -> Cost:
        return Cost(self.us + other.us, self.bytes + other.bytes)

    def times(self, count: int) -> Cost:
        return Cost(self.us * count, self.bytes * count)


def total(costs: Iterable[Cost]) -> Cost:
    us, bytes_ = 0.0, 0
    for cost in costs:
        us += cost.us
        bytes_ += cost.bytes
    return Cost(us, bytes_)


KERNELS = "kernels"


def moved_bytes(plan: Plan, ends: Iterable[TaskOperand]) -> dict[str, int]:
    """Operands by DMA, the result if it is sent to memory, kernel streams; rows that tiles share count twice."""
    moves = {KERNELS: sum(plan.kernel.sizes) if plan.kernel is not None else 0}
    for end in ends:
        if end.dma is not None:
            moves[end.side] = elements(end) * end.element + read_again(plan, end)
    return moves
