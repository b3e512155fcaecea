"""Depth-first execution: a run of tasks stripe by stripe, so that what is between them fits L2.

A chain of maps that are too large for L2 is computed some rows at a time through all its tasks. Each stripe has buffers
of its own for what only the run needs; neighbouring stripes compute the rows twice that both of them need (halos), and
every task fetches its kernels once for each stripe. Whether that pays is asked of the price (``striping``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hexane.cached import cached_property
from hexane.codegen.memory.facts import OFF
from hexane.codegen.memory.layout import Grid, RowLayout
from hexane.codegen.memory.rows import Rows, by_rows, cut, second_moves, source_of
from hexane.codegen.operands import RESULT, SECOND, SOURCE, TaskOperand
from hexane.codegen.operations import Axes, PeKind
from hexane.codegen.plan import Buffer, Dma, Plan
from hexane.frozen import replace
from hexane.rounding import ceil_div

if TYPE_CHECKING:
    from hexane.codegen.targets import Target

NOTE = "rows band by band through several tasks"


@dataclass(frozen=True)
class StripeBuffer:
    """A part of a buffer: rows of every channel, as one stripe needs them."""

    of: Hashable
    buffer: Buffer
    grid: Grid


@dataclass
class StripedPlans:
    """Plans of a run in stripes, each with the index of the plan that it is a part of."""

    plans: list[Plan] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    buffers: list[StripeBuffer] = field(default_factory=list)


@dataclass(frozen=True)
class Use:
    """One end of a task by the rows of its buffer: local row r is buffer row ``start + r * step``.

    ``grid`` is None where nothing is known of the buffer but that rows follow each other.
    """

    key: Hashable
    grid: Grid | None
    start: int = 0
    step: int = 1

    def rows(self, local: Rows) -> Rows:
        """Buffer rows of local ones."""
        return Rows(self.start + local.first * self.step, self.start + (local.end - 1) * self.step + 1)


Uses = dict[tuple[int, str], Use]


def use_of(end: TaskOperand, key: Hashable, layout: RowLayout) -> Use | None:
    """Walk of an end through the rows of its buffer; None if not row by row."""
    assert end.dma is not None
    grid = layout.grid
    if grid.n > 1 or layout.region(end.dma, end.extents, end.element) is None:
        return None
    _, _, start, _ = grid.steps(end.dma.offset)
    n, c, step, x = grid.steps(end.dma.row)
    if end.extents.c > 1:
        plane = grid.steps(end.dma.plane)
        if plane[0] or plane[2] or plane[3]:
            return None
    if end.extents.h == 1:
        return Use(key, grid, start, 1)
    if n or c or x or not step:
        return None
    return Use(key, grid, start, step)


def runs(plans: Sequence[Plan]) -> list[tuple[int, int]]:
    """First and last index of every run of tasks that can be cut by rows, of two tasks at least; whole groups."""
    spans = []
    start = None
    for i, plan in enumerate([*plans, None]):
        alone = plan is not None and by_rows(plan) and (not (i and plans[i - 1].holds) or is_last_of_group(plans, i))
        if alone and start is None:
            start = i
        if not alone and start is not None:
            if i - start > 1:
                spans.append((start, i - 1))
            start = None
    return spans


def is_last_of_group(plans: Sequence[Plan], i: int) -> bool:
    """True where a task is the last of its group and finds there no rows, only a number for each channel."""
    plan = plans[i]
    alike = plan.pe.kind is PeKind.SCALE_SHIFT or (
        plan.pe.kind is PeKind.BINARY and bool(plan.second.broadcast & Axes.H)
    )
    return i > 0 and plans[i - 1].holds and not plan.holds and plan.second.dma is None and alike


@dataclass
class StripeTasks:
    """Tasks ``first`` to ``last``, and the keys of the buffers that only they touch."""

    target: Target
    plans: Sequence[Plan]
    first: int
    last: int
    uses: Uses
    inner: set[Hashable]

    @cached_property
    def lowest(self) -> int:
        """The least height among results that tasks outside see."""
        heights = [
            self.plans[i].hout for i in range(self.first, self.last + 1) if self.uses[i, RESULT].key not in self.inner
        ]
        return min(heights, default=1)

    @cached_property
    def joins(self) -> list[tuple[int, Hashable]]:
        """Tasks with the buffers that only the run touches, once for each end."""
        tasks = range(self.first, self.last + 1)
        uses = ((i, self.uses.get((i, side))) for i in tasks for side in OFF)
        return [(i, use.key) for i, use in uses if use is not None and use.key in self.inner]

    @cached_property
    def within(self) -> list[int]:
        """Of each task the operands in buffers that only the run touches: bits of ``memo.OFF``."""
        return [
            sum(bit for side, bit in OFF.items() if (i, side) in self.uses and self.uses[i, side].key in self.inner)
            for i in range(self.first, self.last + 1)
        ]

    def needs(self, stripe: int, count: int) -> tuple[dict[int, Rows], dict[Hashable, Rows]] | None:
        """Rows of the result of every task, and of every inner buffer, that one of ``count`` stripes computes."""
        wanted: dict[Hashable, Rows] = {}
        rows: dict[int, Rows] = {}
        lowest, uses = self.lowest, self.uses
        for i in range(self.last, self.first - 1, -1):
            plan, use = self.plans[i], uses[i, RESULT]
            asked = wanted.get(use.key)
            mine = None if asked is None else _local(asked, use, plan.hout)
            if use.key not in self.inner:
                share = _share(plan.hout, stripe, count, lowest)
                mine = share.with_(mine) if share.height else mine
            if mine is None or mine.end <= mine.first:
                continue
            rows[i] = mine
            for side in (SOURCE, SECOND):
                source = uses.get((i, side))
                read = source_of(plan, mine) if side == SOURCE else mine
                if read.end <= read.first:
                    return None
                if source is not None:
                    wanted[source.key] = source.rows(read).with_(wanted.get(source.key))
        return rows, {key: rows for key, rows in wanted.items() if key in self.inner}

    def in_stripes(self, count: int, name: str) -> StripedPlans | None:
        """The run in ``count`` stripes; None where a stripe has a window with no row."""
        striped = StripedPlans()
        for stripe in range(count):
            found = self.needs(stripe, count)
            if found is None:
                return None
            rows, inner = found
            parts = {key: self._part(key, r, f"{name}~{stripe}") for key, r in inner.items()}
            striped.buffers += parts.values()
            for i in range(self.first, self.last + 1):
                if i in rows:
                    plan = self._plan(i, rows[i], parts, inner)
                    striped.plans.append(plan.inferred(NOTE))
                    striped.origins.append(i)
        return striped

    def _part(self, key: Hashable, rows: Rows, name: str) -> StripeBuffer:
        use, dma = next(
            (use, _walk(self.plans[i], side))
            for (i, side), use in self.uses.items()
            if use.key == key and self.first <= i <= self.last
        )
        assert use.grid is not None
        return StripeBuffer(
            key, Buffer(f"{dma.buffer.name}~{name}", dma.buffer.space), replace(use.grid, h=rows.height)
        )

    def _plan(self, i: int, rows: Rows, parts: dict[Hashable, StripeBuffer], inner: dict[Hashable, Rows]) -> Plan:
        plan = self.plans[i]

        def moved(side: str, local: Rows) -> Dma:
            use, dma = self.uses[i, side], _walk(plan, side)
            if use.key not in parts:
                return dma.moved(local.first * dma.row)
            part = parts[use.key]
            return _within(dma, use, local, part, inner[use.key])

        src2 = plan.second.dma
        if (i, SECOND) in self.uses:
            src2 = moved(SECOND, rows)
        return cut(self.target, plan, rows, moved(SOURCE, source_of(plan, rows)), src2, moved(RESULT, rows))


def _walk(plan: Plan, side: str) -> Dma:
    dma = plan.operand(side).dma
    assert dma is not None
    return dma


def _local(asked: Rows, use: Use, count: int) -> Rows:
    """Rows of a result that write into these rows of its buffer."""
    first = ceil_div(asked.first - use.start, use.step)
    end = (asked.end - 1 - use.start) // use.step + 1
    return Rows(max(0, first), min(count, end))


def _share(height: int, stripe: int, count: int, lowest: int) -> Rows:
    """The rows of a result that a stripe computes: even numbers, but for the last; a multiple of those of the lowest.

    So results of different heights, one a whole multiple of the other, are cut at the same places.
    """
    if height > lowest and height % lowest == 0:
        rows, times = _share(lowest, stripe, count, lowest), height // lowest
        return Rows(rows.first * times, rows.end * times)
    step = ceil_div(height, count)
    step += step % 2
    return Rows(min(height, stripe * step), min(height, (stripe + 1) * step))


def _within(dma: Dma, use: Use, local: Rows, part: StripeBuffer, rows: Rows) -> Dma:
    """A walk through the whole buffer as one through the rows that a stripe has of it."""
    grid, before = part.grid, use.grid
    assert before is not None

    def distance(bytes_: int) -> int:
        _, c, h, x = before.steps(bytes_)
        return c * grid.plane + h * grid.row_bytes + x

    _, c, _, x = before.steps(dma.offset)
    at = use.start + local.first * use.step - rows.first
    whole = grid.c * grid.plane
    return Dma(
        part.buffer,
        c * grid.plane + at * grid.row_bytes + x,
        distance(dma.row),
        distance(dma.plane),
        whole,
        whole,
        dma.element,
        dma.interleave,
    )


def uses_of(
    plans: Sequence[Plan],
    walks: Iterable[Sequence[tuple[TaskOperand, Hashable]]],
    layouts: Mapping[Hashable, RowLayout],
) -> Uses:
    """The uses of a run's tasks, whose ``walks`` through DRAM are given, that go row by row through a known grid."""
    uses: Uses = {}
    for end, key in (walk for mine in walks for walk in mine):
        if end.side == SECOND and not second_moves(plans[end.index]):
            continue
        layout = layouts.get(key)
        use = Use(key, None) if layout is None else use_of(end, key, layout)
        if use is not None:
            uses[end.index, end.side] = use
    return uses
