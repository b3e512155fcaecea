"""Facts about plans that a search needs, computed once: the forms of a program that it compares share most of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hexane.cached import cached_property
from hexane.codegen.memory import streaming
from hexane.codegen.memory.traffic import Cost, Price, moved_bytes
from hexane.codegen.operands import RESULT, SECOND, SOURCE, TaskOperand, held, operands_of, stays_in_l2
from hexane.codegen.plan import Plan

OFF = {SOURCE: 1, SECOND: 2, RESULT: 4}
"""Side of a task -> its bit in a set of operands that are in L2 alone."""
BOTH = {SOURCE: 8, RESULT: 16}
"""The same of operands that are there and move: a source that the task brings, a result that goes to DRAM too."""


@dataclass(eq=False)
class PlanFacts:
    """Facts that follow from one plan alone, wherever in a program it stands; ends are those of task 0."""

    plan: Plan
    turned: dict[int, Plan] = field(default_factory=dict)
    """The plan with operands in L2, by which of them are there and how: bits of ``OFF`` and ``BOTH``."""
    without: dict[int, Plan] = field(default_factory=dict)
    """The plan less walks through DRAM, by bits of ``OFF``."""
    names: list[Hashable] | None = None
    """What tells the buffers of its ends from others, once somebody has asked."""
    _at: dict[int, list[TaskOperand]] = field(default_factory=dict)

    @cached_property
    def ends(self) -> tuple[TaskOperand, ...]:
        return tuple(operands_of(self.plan, 0))

    def ends_at(self, index: int) -> list[TaskOperand]:
        """The ends where the plan is this task of a program."""
        if index not in self._at:
            self._at[index] = [end.at(index) for end in self.ends]
        return self._at[index]

    @cached_property
    def stays(self) -> tuple[int | None, ...]:
        """Of each end whose region other tasks meet in L2 the bytes that it takes there."""
        return tuple(held(self.plan, end) if stays_in_l2(self.plan, end) else None for end in self.ends)

    @cached_property
    def staying(self) -> list[tuple[int, int]]:
        """Those that have some: place among the ends, and bytes."""
        return [(place, size) for place, size in enumerate(self.stays) if size is not None]

    @cached_property
    def passing(self) -> int:
        """Bytes that all operands take that only pass through, in the lowest tile."""
        return sum([self.least[end.side] for end, stays in zip(self.ends, self.stays) if stays is None])

    @cached_property
    def least(self) -> dict[str, int]:
        """Bytes that each operand takes while it passes through L2, in the lowest tile, by side."""
        lowest = streaming.lowest(self.plan)
        return {end.side: streaming.bytes_of(lowest, end) for end in self.ends}

    @cached_property
    def least_moved(self) -> tuple[int, int, int]:
        """The same of the source, the second source and the result, where they go to DRAM or come from there."""
        least = {end.side: self.least[end.side] for end in self.ends if end.dma is not None}
        return least.get(SOURCE, 0), least.get(SECOND, 0), least.get(RESULT, 0)

    @cached_property
    def moves(self) -> dict[str, int]:
        """Bytes that the task moves to and from memory, by side and for its kernels."""
        return moved_bytes(self.plan, self.ends)

    @cached_property
    def moved(self) -> int:
        """All of them."""
        return sum(self.moves.values())


@dataclass(eq=False)
class FactCache:
    """Facts by plan, as long as one search goes on."""

    _facts: dict[Plan, PlanFacts] = field(default_factory=dict)
    tensors: dict[Hashable, tuple[Any, list[Plan]]] = field(default_factory=dict)
    """Values that could stay (``values``), or why they could not, and their plans: by name and plans."""

    def of(self, plan: Plan) -> PlanFacts:
        facts = self._facts.get(plan)
        if facts is None:
            facts = self._facts[plan] = PlanFacts(plan)
        return facts

    def without(self, plan: Plan, off: int) -> Plan:
        """The plan as it is priced when some operands (bits of ``OFF``) are in L2 alone."""
        if not off:
            return plan
        facts = self.of(plan)
        if off not in facts.without:
            moves = facts.moves | {side: 0 for side, bit in OFF.items() if off & bit}
            for side, bit in OFF.items():
                plan = plan.on(side, dma=None) if off & bit else plan
            facts.without[off] = plan
            self.of(plan).moves = moves
        return facts.without[off]

    def costs_of(self, plans: Sequence[Plan], price: Price) -> list[Cost]:
        """Of each task."""
        return [Cost(us, self.of(plan).moved) for us, plan in zip(price(plans), plans)]

    def cost_of(self, plans: Sequence[Plan], price: Price) -> Cost:
        return Cost(sum(price(plans)), sum(self.of(plan).moved for plan in plans))
