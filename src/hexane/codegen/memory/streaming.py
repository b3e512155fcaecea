"""Streamed operands: they only pass through L2 from or to DRAM, as rings of tiles, windows or automatic buffers.

They take what room a task finds beside the values that stay; a task that finds little runs in lower tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hexane.codegen import l2
from hexane.codegen.memory.arena import Arena, ArenaBlock
from hexane.codegen.operands import RESULT, SECOND, SOURCE, TaskOperand, held, source_rows
from hexane.codegen.operations import NeOp, ResultType
from hexane.codegen.plan import Plan, Region
from hexane.isa.granules import UNIT
from hexane.rounding import align


@dataclass(frozen=True)
class Fit:
    """A task's tile height, and the base of each operand that passes through."""

    tile: int
    bases: dict[str, int]


def least(plan: Plan, ends: Sequence[TaskOperand]) -> int:
    """Bytes that the operands take in the lowest tile."""
    low = lowest(plan)
    return sum(bytes_of(low, end) for end in ends)


def lowest(plan: Plan) -> Plan:
    """The task in its lowest tile."""
    return replace_tile(plan, lowest_tile(plan))


def bytes_of(plan: Plan, end: TaskOperand) -> int:
    """Bytes that an operand takes in the task's tile, rounded up."""
    return align(held(plan, end), 64)


def reserved(plan: Plan, ends: Sequence[TaskOperand], *, whole: bool) -> tuple[list[tuple[str, ArenaBlock]], int]:
    """Blocks for the sources in the lowest tile, by side, and the bytes above all that is live for the result.

    ``whole``: the result has to lie in L2 at once, so that the task cannot be cut.
    """
    low = plan if whole else lowest(plan)
    blocks, above = [], 0
    for end in ends:
        size = align(held(low, end), UNIT)
        if end.side == RESULT:
            above = align(size, 64) + UNIT
        elif end.side == SECOND:
            blocks.append((end.side, ArenaBlock(size, end.index, end.index, offset=l2.second_operand_base(0))))
        else:
            blocks.append((end.side, ArenaBlock(size, end.index, end.index, unit=64)))
    return blocks, above


def lowest_tile(plan: Plan) -> int:
    """The least tile height that a task can run in: a row of patches, or what it has if it cannot be cut."""
    if plan.fat_tile or plan.pe.reduces or plan.streams or plan.streams_in or plan.groups > 1:
        return plan.tile
    if plan.unit == "NE" and plan.ne.op is NeOp.MAXIMUM:
        return plan.tile
    return min(plan.tile, plan.patch_rows)


def replace_tile(plan: Plan, tile: int) -> Plan:
    if tile == plan.tile:
        return plan
    if plan.unit == "NE" and plan.result.type is ResultType.DMA_STREAM:
        return plan.writing(automatic=True).but(tile=tile)
    return plan.but(tile=tile)


def fit(plan: Plan, ends: Sequence[TaskOperand], arena: Arena, *, whole: bool = False) -> Fit | None:
    """Bases beside what is live: sources one behind the other, the result behind them, nothing live above a buffer.

    ``whole``: the result has to lie in L2 at once, so that the task cannot be cut.
    """
    index = ends[0].index
    bases = _bases(plan, ends, arena, index)
    if bases is not None:
        return Fit(plan.tile, bases)
    if whole or lowest_tile(plan) == plan.tile:
        return None
    low, high = 1, (plan.tile - 1) // plan.patch_rows
    best = None
    while low <= high:
        middle = (low + high) // 2
        tile = middle * plan.patch_rows
        bases = _bases(replace_tile(plan, tile), ends, arena, index)
        if bases is None:
            high = middle - 1
        else:
            best, low = Fit(tile, bases), middle + 1
    return best


def last_resort(
    plan: Plan,
    ends: Sequence[TaskOperand],
    sources: Sequence[tuple[str, ArenaBlock]],
    arena: Arena,
    *,
    whole: bool = False,
) -> Fit:
    """The tile that ``reserved`` made room for, at the places that were kept for it."""
    bases = {side: block.base for side, block in sources}
    if any(end.side == RESULT for end in ends):
        bases[RESULT] = align(max([arena.top(ends[0].index), *(block.end for _, block in sources)]), UNIT)
    return Fit(plan.tile if whole else lowest_tile(plan), bases)


def _bases(plan: Plan, ends: Sequence[TaskOperand], arena: Arena, index: int) -> dict[str, int] | None:
    top = arena.top(index)
    bases: dict[str, int] = {}
    at = align(top, 64)
    spare = [gap for gap in arena.gaps(index) if gap[1] <= top]
    sources = [end for end in ends if end.side != RESULT]
    sizes = {end.side: align(held(plan, end), 16) for end in ends}
    room = arena.room - at - sum(sizes.values())
    for end in sources:
        size = sizes[end.side]
        if room < 0:
            gap = next((g for g in spare if align(g[0], 64) + size <= g[1]), None)
            if gap is not None:
                bases[end.side] = align(gap[0], 64)
                spare[spare.index(gap)] = (bases[end.side] + size, gap[1])
                room += size
                continue
        base = l2.second_operand_base(at) if end.side == SECOND and SOURCE in bases else at
        bases[end.side] = base
        at = base + size
    if RESULT in sizes:
        bases[RESULT] = at
        at += sizes[RESULT]
    return bases if at <= arena.room else None


def settled(plan: Plan, fit: Fit) -> Plan:
    """The task with its operands moved, cut where it has to be."""
    if fit.tile != plan.tile:
        plan = replace_tile(plan, fit.tile)
        if plan.unit == "NE":
            _, read = source_rows(plan, plan.tile)
            plan = plan.but(read_rows=max(0, read - plan.h))
        plan = plan.inferred("a tile height that leaves room for other values")
    for side, base in fit.bases.items():
        automatic = side == RESULT and plan.result.automatic
        plan = plan.on(side, region=Region(base) if automatic else plan.operand(side).region.at(base))
    return plan
