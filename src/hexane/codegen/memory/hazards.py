"""Waits of a task, read from the regions that it and the tasks before it touch.

The alias fields of L2 speak of the last task of either unit, and whoever waits for that one has waited for those before
it (docs/reference/hazards.md).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hexane.codegen.operands import RESULT, SECOND, SOURCE, Extents, TaskOperand, at_once, held, operands_of, span
from hexane.codegen.operations import After, SourceType
from hexane.codegen.plan import Plan
from hexane.isa.granules import UNIT
from hexane.rounding import ceil_div

Box = tuple[int, int]


@dataclass(frozen=True)
class Touched:
    """The regions of one task: those it reads, those a later task finds its kept source in, its result."""

    sources: tuple[Box, ...]
    kept: tuple[Box, ...]
    result: Box


FOLLOWS = {"NE": After.FOLLOWS_NE, "PE": After.FOLLOWS_PE}
FLAGS = {"NE": (After.NE_SOURCE, After.NE_RESULT), "PE": (After.PE_SOURCE, After.PE_RESULT)}
OTHERS = ~After.ANYTHING
RESULTS = After.NE_RESULT | After.PE_RESULT
LOADS = (SourceType.DMA_KEEP, SourceType.DMA_STREAM)


def touched(plan: Plan, index: int) -> Touched:
    sources, regions = [], []
    result = (0, 0)
    for end in operands_of(plan, index):
        box = (end.region.base, end.region.base + held(plan, end))
        if end.side == RESULT:
            result = box
            continue
        sources.append(box)
        if end.side == SOURCE and plan.source.type is SourceType.DMA_KEEP:
            regions.append(box)
    return Touched(tuple(sources), tuple(regions), result)


def meets(box: Box, others: Sequence[Box]) -> bool:
    return any(box[0] < end and start < box[1] for start, end in others)


def settle(plans: list[Plan], movers: Set[int], *, in_order: bool = False) -> None:
    """Alias fields of the tasks that moved, from their regions; the program's first task keeps its own.

    ``in_order``: a unit's tasks write one after the other without being told so, as Apple's compiler takes it.
    """
    latest: dict[str, Touched] = {}
    finished: set[str] = set()  # units whose last task some task has waited for
    for i, plan in enumerate(plans):
        mine = touched(plan, i)
        if i in movers and i > 0:
            reads, writes = _waits(plan, mine, latest, finished, in_order=in_order)
            reads, writes = plan.source.after & OTHERS | reads, plan.result.after & OTHERS | writes
            if reads != plan.source.after:
                plan = plan.reading(after=reads)
            if writes != plan.result.after:
                plan = plan.writing(after=writes)
            plans[i] = plan
        for unit, (_, result) in FLAGS.items():
            if result in plan.source.after:
                finished.add(unit)
        latest[plan.unit] = mine
        finished.discard(plan.unit)


def _waits(
    plan: Plan, mine: Touched, latest: dict[str, Touched], finished: set[str], *, in_order: bool
) -> tuple[After, After]:
    reads = writes = After.NOTHING
    resident = plan.source.type is SourceType.RESIDENT
    for unit, (source, result) in FLAGS.items():
        before = latest.get(unit)
        if before is None or unit in finished:
            continue
        for place, box in enumerate(mine.sources):
            by_dma = not resident if place == 0 else plan.second.dma is not None
            if meets(box, [before.result]):
                reads |= result
            if meets(box, before.sources if by_dma else before.kept):
                reads |= source
        if result in reads or (in_order and unit == plan.unit):
            continue  # what it has waited for no longer reads or writes
        if meets(mine.result, [before.result]):
            writes |= result
        if meets(mine.result, before.sources):
            writes |= source
    return reads, writes


# -- waits that are missing --------------------------------------------------------------------------------------------


class OperandBytes(NamedTuple):
    """Regions of one end in L2 at one time."""

    start: int
    stop: int
    end: TaskOperand
    extents: Extents

    def units(self) -> np.ndarray:
        """Its units of L2, counted from 0."""
        region, (*counts, w) = self.end.region, self.extents
        at = np.arange(ceil_div(w * self.end.element, UNIT)) + region.base // UNIT
        for n, step in zip(counts, (region.group, region.depth, region.channel, region.row)):
            if n > 1:
                at = np.add.outer(np.arange(n) * (step // UNIT), at)
        return at

    @property
    def is_dense(self) -> bool:
        """True where it has no gaps."""
        g, d, c, h, w = self.extents
        return g * d * c * h * ceil_div(w * self.end.element, UNIT) * UNIT >= self.stop - self.start

    def meets(self, others: Sequence[OperandBytes]) -> bool:
        """True where it shares a unit with one of them."""
        near = [other for other in others if self.start < other.stop and other.start < self.stop]
        if not near:
            return False
        if self.is_dense and any(other.is_dense for other in near):
            return True
        mine = np.zeros(max(self.stop, *(other.stop for other in near)) // UNIT + 1, bool)
        mine[self.units()] = True
        return any(mine[other.units()].any() for other in near)


def _parts(plan: Plan, index: int) -> list[OperandBytes]:
    """Sources, then the result; of an automatic buffer the row of a patch, which is all that is known of it."""
    parts = []
    for end in operands_of(plan, index):
        if end.side == RESULT and plan.result.automatic:
            extents = Extents(1, 1, 1, 1, min(end.extents.w, 128))
        else:
            extents = at_once(plan, end)
        base = end.region.base
        parts.append(OperandBytes(base, base + span(end, extents), end, extents))
    return parts


@dataclass
class _Past:
    """Reads and writes of one unit's tasks that no task has waited for."""

    read: list[OperandBytes] = field(default_factory=list)
    written: list[OperandBytes] = field(default_factory=list)


def complete(plans: list[Plan], *, sources_apart: bool) -> None:
    """Add the waits in L2 that are missing; ``sources_apart``: each source says its own."""
    past = {unit: _Past() for unit in FLAGS}
    for i, plan in enumerate(plans):
        parts = _parts(plan, i)
        if i:
            plans[i] = _completed(plan, plans[i - 1].unit, parts, past, sources_apart)
        past[plan.unit].read += parts[:-1]
        past[plan.unit].written.append(parts[-1])


def _completed(plan: Plan, before: str, parts: list[OperandBytes], past: dict[str, _Past], sources_apart: bool) -> Plan:
    sent = After.NOTHING
    for part in parts[:-1]:
        after = _source_waits(plan, part.end.side, before, sources_apart)
        more = _missing(plan, part, after, past)
        if more and not sources_apart:
            plan = plan.waiting(more)
        elif more and part.end.side == SECOND:
            plan = plan.against(besides=plan.second.besides | more)
        elif more:
            plan = plan.reading(besides=plan.source.besides | more)
        sent = _joined(sent, _settled(_joined(after, more)))
    sent = _joined(sent, _settled(plan.result.after))
    more = After.NOTHING
    for unit, (source, result) in FLAGS.items():
        if unit == plan.unit:
            continue  # a unit takes its tasks in order
        if result not in sent and parts[-1].meets(past[unit].written):
            more |= result
        elif source not in sent and parts[-1].meets(past[unit].read):
            more |= source
    if more:
        plan = plan.waiting(result=more)
        sent |= _settled(more)
    for unit, (source, result) in FLAGS.items():
        if result in sent:
            past[unit] = _Past()
        elif source in sent:
            past[unit].read = []
    return plan


def _source_waits(plan: Plan, side: str, before: str, sources_apart: bool) -> After:
    """Waits of a source, as the target writes them."""
    after = plan.source.after
    if side == SOURCE:
        if plan.source.type is SourceType.STRIPS:
            return FLAGS[before][1]
        second = plan.pe.operands == 2 and plan.second.dma is None
        if sources_apart and second and plan.source.type is not SourceType.RESIDENT:
            after &= ~RESULTS  # the second source says those
        return _joined(after, plan.source.besides)
    if sources_apart:
        after &= After.ANYTHING if plan.second.dma is not None else RESULTS
    return _joined(after, plan.second.besides)


def _missing(plan: Plan, part: OperandBytes, after: After, past: dict[str, _Past]) -> After:
    more = After.NOTHING
    by_dma = plan.second.dma is not None if part.end.side == SECOND else plan.source.type in LOADS
    settled = _settled(after)
    for unit, (source, result) in FLAGS.items():
        if result not in settled and part.meets(past[unit].written):
            locked = FOLLOWS[unit] in plan.source.after and part.end.side == SECOND
            more |= (
                FOLLOWS[unit] if locked else result
            )  # in order behind the leader, which is all that a lock waits for
        elif by_dma and unit != plan.unit and source not in settled and part.meets(past[unit].read):
            more |= source
    return more


@lru_cache(maxsize=1024)
def _joined(one: After, other: After) -> After:
    return one | other


@lru_cache(maxsize=256)
def _settled(after: After) -> After:
    """Sources and results that are done with after such a wait."""
    done = after & After.ANYTHING
    for unit, (source, result) in FLAGS.items():
        if after & (FOLLOWS[unit] | result):
            done |= source | result
    return done
