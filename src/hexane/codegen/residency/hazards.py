"""What a task waits for, read from the regions that it and the tasks before it touch.

Source: docs/reference/engine-h13.md 4.6: the alias fields of L2 speak of the last task of either unit.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from hexane.codegen.operations import After, SourceType
from hexane.codegen.plan import Plan
from hexane.codegen.residency.ends import RESULT, SOURCE, ends_of, held

Box = tuple[int, int]


@dataclass(frozen=True)
class Touched:
    """The regions of one task: those it reads, those a later task finds its kept source in, its result."""

    sources: tuple[Box, ...]
    kept: tuple[Box, ...]
    result: Box


FLAGS = {"NE": (After.NE_SOURCE, After.NE_RESULT), "PE": (After.PE_SOURCE, After.PE_RESULT)}
OTHERS = ~After.ANYTHING


def touched(plan: Plan, index: int) -> Touched:
    sources, kept = [], []
    result = (0, 0)
    for end in ends_of(plan, index):
        box = (end.region.base, end.region.base + held(plan, end))
        if end.side == RESULT:
            result = box
            continue
        sources.append(box)
        if end.side == SOURCE and plan.reads.type is SourceType.DMA_KEEP:
            kept.append(box)
    return Touched(tuple(sources), tuple(kept), result)


def meets(box: Box, others: Sequence[Box]) -> bool:
    return any(box[0] < end and start < box[1] for start, end in others)


def settle(plans: Sequence[Plan], moved: Set[int]) -> None:
    """Alias fields of the tasks that moved, from their regions; the program's first task keeps its own."""
    latest: dict[str, Touched] = {}
    finished: set[str] = set()  # units whose last task some task has waited for
    for i, plan in enumerate(plans):
        mine = touched(plan, i)
        if i in moved and i > 0:
            reads, writes = _waits(plan, mine, latest, finished)
            reads, writes = plan.reads.after & OTHERS | reads, plan.writes.after & OTHERS | writes
            if reads != plan.reads.after:
                plan.reads = replace(plan.reads, after=reads)
            if writes != plan.writes.after:
                plan.writes = replace(plan.writes, after=writes)
        for unit, (_, result) in FLAGS.items():
            if result in plan.reads.after:
                finished.add(unit)
        latest[plan.unit] = mine
        finished.discard(plan.unit)


def _waits(plan: Plan, mine: Touched, latest: dict[str, Touched], finished: set[str]) -> tuple[After, After]:
    reads = writes = After.NOTHING
    resident = plan.reads.type is SourceType.RESIDENT
    for unit, (source, result) in FLAGS.items():
        before = latest.get(unit)
        if before is None or unit in finished:
            continue
        for place, box in enumerate(mine.sources):
            by_dma = not resident if place == 0 else plan.src2 is not None
            if meets(box, [before.result]):
                reads |= result
            if meets(box, before.sources if by_dma else before.kept):
                reads |= source
        if result in reads:
            continue  # what it has waited for no longer reads or writes
        if meets(mine.result, [before.result]):
            writes |= result
        if meets(mine.result, before.sources):
            writes |= source
    return reads, writes
