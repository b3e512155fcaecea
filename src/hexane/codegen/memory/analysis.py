"""Analysis of a program for the search for stripes, whatever stays in L2: walks of its tasks, runs that can be cut.

It is found once; every form that is tried (``search``) asks for the same runs, rows and prices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hexane.cached import cached_property
from hexane.codegen.memory import stripes
from hexane.codegen.memory.clusters import ResidentOperands
from hexane.codegen.memory.disjoint import Places, are_disjoint, places_of
from hexane.codegen.memory.facts import OFF, FactCache
from hexane.codegen.memory.layout import Grid, RowLayout, grid_of
from hexane.codegen.memory.rows import Rows, source_of
from hexane.codegen.memory.stripes import StripedPlans, StripeTasks, Uses, is_last_of_group
from hexane.codegen.memory.traffic import Cost, Price
from hexane.codegen.memory.unshare import unshared
from hexane.codegen.memory.values import Stored
from hexane.codegen.operands import RESULT, SECOND, SOURCE, TaskOperand
from hexane.codegen.plan import SIDES, Buffer, Plan

if TYPE_CHECKING:
    from hexane.codegen.targets import Target

Lives = dict[Hashable, tuple[int, int]]


@dataclass(eq=False)
class Stripe:
    """One stripe of a run: each task over its rows, when the buffers of the stripe live, and the bytes that these take.

    ``least``: bytes of L2 that each operand takes while it passes through, in the lowest tile.
    """

    run: StripeTasks
    parts: dict[int, Plan]
    lives: Lives
    buffers: Counter[int]
    least: dict[int, tuple[int, int, int]]
    lowest: int
    needed: dict[tuple[int, ...], list[tuple[int, int]]] = field(default_factory=dict)
    costs: dict[tuple[int, ...], Cost] = field(default_factory=dict)

    def needs(self, off: tuple[int, ...]) -> list[tuple[int, int]]:
        """Bytes of L2 that each task needs, counted from the first of the run; ``off``: what each finds there."""
        if off not in self.needed:
            found = self.needed[off] = []
            for i in self.parts:
                mine = off[i - self.run.first]
                need = self.buffers[i] + sum(size for bit, size in zip(OFF.values(), self.least[i]) if not mine & bit)
                found.append((i - self.run.first, need))
        return self.needed[off]


@dataclass(eq=False)
class StripeAnalysis:
    """The tasks of a program, with the walks that can be cut by rows."""

    target: Target
    whole_plans: Sequence[Plan]
    held: ResidentOperands
    identity: Callable[[Buffer, int], Hashable]
    stored: Callable[[Hashable], Stored]
    price: Price
    memo: FactCache
    pieces: dict[Hashable, Any] = field(default_factory=dict)
    """The pieces of runs that a search has found, by all that they depend on."""
    striped: dict[Hashable, Any] = field(default_factory=dict)
    """Cost and piece of runs in stripes, in the same way."""
    cuts: dict[Hashable, Any] = field(default_factory=dict)
    """Programs in stripes that a search has made, by their pieces."""
    marks: dict[Hashable, int] = field(default_factory=dict)
    """All that stripes may depend on at a task -> a number for it."""

    def __post_init__(self) -> None:
        self.plans, together = unshared(self.whole_plans, self.held)
        self.opens = {first for first, _ in together}
        self.begin = self.opens | {last for _, last in together if is_last_of_group(self.plans, last)}
        self.finish = {last for _, last in together}
        self.runs = stripes.runs(self.plans)
        self._runs: dict[tuple[int, int], StripeTasks | None] = {}
        self._stripes: dict[tuple[int, int, int], Stripe | None] = {}
        self._parts: dict[tuple[int, int, int], Plan] = {}
        self._lines: dict[Hashable, int] = {}
        self._places: dict[tuple[int, str], Places | None] = {}
        self._cut: dict[tuple[int, int, int], StripedPlans | None] = {}
        self._costs: dict[tuple[Plan, ...], Cost] = {}

    @cached_property
    def walks(self) -> list[list[tuple[TaskOperand, Hashable]]]:
        """Of each task the ends that use DRAM, with what tells their buffers apart."""
        ends = [self.memo.of(plan).ends_at(i) for i, plan in enumerate(self.plans)]
        return [[(e, self.identity(e.dma.buffer, e.index)) for e in mine if e.dma is not None] for mine in ends]

    @cached_property
    def touching(self) -> dict[Hashable, list[TaskOperand]]:
        """Of every buffer the ends that use it in DRAM, in order; not of those that tasks read as kernels."""
        found: dict[Hashable, list[TaskOperand]] = {}
        pinned: set[Hashable] = {None}
        for i, plan in enumerate(self.plans):
            if plan.kernel_buffer is not None:
                pinned.add(self.identity(plan.kernel_buffer, i))
            if plan.source.staged or plan.result.staged:
                walks = (dma for dma in (plan.source.dma, plan.second.dma, plan.result.dma) if dma is not None)
                pinned.update(self.identity(dma.buffer, i) for dma in walks)
            for end, key in self.walks[i]:
                found.setdefault(key, []).append(end)
        return {key: ends for key, ends in found.items() if key not in pinned}

    @cached_property
    def grids(self) -> dict[Hashable, Grid]:
        found = {}
        for key, ends in self.touching.items():
            about = self.stored(key)
            grid = grid_of(ends, about.shape, about.size) if about.size or about.shape else None
            if grid is not None:
                found[key] = grid
        return found

    @cached_property
    def layouts(self) -> dict[Hashable, RowLayout]:
        """Layout of each buffer in L2."""
        return {key: RowLayout(grid) for key, grid in self.grids.items()}

    @cached_property
    def uses(self) -> Uses:
        """The ends that go row by row."""
        found: Uses = {}
        for first, last in self.runs:
            found |= stripes.uses_of(self.plans, self.walks[first : last + 1], self.layouts)
        return found

    @cached_property
    def spans(self) -> dict[Hashable, tuple[int, int]]:
        """First and last task of each buffer that a run may have for itself: made by a task, by rows everywhere."""
        return {
            key: (ends[0].index, ends[-1].index)
            for key, ends in self.touching.items()
            if key in self.grids
            and ends[0].side == RESULT
            and not self.stored(key).surface
            and all((end.index, end.side) in self.uses for end in ends)
        }

    def run(self, first: int, last: int) -> StripeTasks | None:
        """Tasks that could go in stripes together; None where they cannot, or where nothing joins them."""
        if (first, last) not in self._runs:
            self._runs[first, last] = self._run(first, last)
        return self._runs[first, last]

    def _run(self, first: int, last: int) -> StripeTasks | None:
        uses = self.uses
        if any((i, SOURCE) not in uses or (i, RESULT) not in uses for i in range(first, last + 1)):
            return None
        begins, ends = self.spans.get(uses[first, RESULT].key), self.spans.get(uses[last, SOURCE].key)
        if begins is None or begins[0] < first or begins[1] > last:
            return None
        if (ends is None or ends[0] < first or ends[1] > last) and (last, SECOND) not in uses:
            return None
        sides = [(i, side) for i in range(first, last + 1) for side in SIDES if (i, side) in uses]
        inner = {uses[place].key for place in sides if self._within(uses[place].key, first, last)}
        run = StripeTasks(self.target, self.plans, first, last, uses, inner)
        return run if self._ordered(run, sides) else None

    def _within(self, key: Hashable, first: int, last: int) -> bool:
        span = self.spans.get(key)
        return span is not None and first <= span[0] and span[1] <= last

    def _ordered(self, run: StripeTasks, sides: Sequence[tuple[int, str]]) -> bool:
        """True where no task of the run writes over what one before it wrote or read of a buffer that stays whole."""
        before: dict[Hashable, list[tuple[int, str]]] = {}
        for place in sides:
            key = self.uses[place].key
            if key in run.inner or key is None:
                continue
            others = before.setdefault(key, [])
            if place[1] == RESULT and not all(are_disjoint(self._place(place), self._place(other)) for other in others):
                return False
            others.append(place)
        return True

    def _place(self, at: tuple[int, str]) -> Places | None:
        """Part of its buffer that an end covers; None where that is not known."""
        if at not in self._places:
            end, key = next(walk for walk in self.walks[at[0]] if walk[0].side == at[1])
            grid = self.grids.get(key)
            self._places[at] = None if grid is None else places_of(end.dma, end.extents, end.element, grid)
        return self._places[at]

    def stripe(self, run: StripeTasks, count: int) -> Stripe | None:
        """A stripe in the middle of ``count``; None where one has a window with no row."""
        at = run.first, run.last, count
        if at not in self._stripes:
            found = run.needs(count // 2, count)
            self._stripes[at] = None if found is None or not found[0] else self._stripe(run, *found)
        return self._stripes[at]

    def _stripe(self, run: StripeTasks, rows: dict[int, Rows], inner: dict[Hashable, Rows]) -> Stripe:
        lives: Lives = {}
        for i, key in run.joins:
            if i in rows and key in inner:
                lives[key] = lives[key][0] if key in lives else i, i
        sizes = {key: self.line_bytes(key) * r.height for key, r in inner.items()}
        parts = {i: self._part(i, mine) for i, mine in rows.items()}
        buffers: Counter[int] = Counter()
        for key, (first, last) in lives.items():
            buffers.update(dict.fromkeys(range(first, last + 1), sizes[key]))
        least = {i: self.memo.of(plan).least_moved for i, plan in parts.items()}
        return Stripe(run, parts, lives, buffers, least, max(r.height for r in rows.values()))

    def line_bytes(self, key: Hashable) -> int:
        """Bytes of L2 that one row of all images and channels of a buffer takes."""
        if key not in self._lines:
            self._lines[key] = self.grids[key].n * self.layouts[key].row
        return self._lines[key]

    def _part(self, i: int, rows: Rows) -> Plan:
        """The task over some rows, as far as its price goes."""
        plan = self.plans[i]
        height = source_of(plan, rows).height if plan.unit == "NE" else rows.height
        at = i, height, rows.height
        if at not in self._parts:
            self._parts[at] = plan.but(h=height, hout=rows.height, tile=rows.height)
        return self._parts[at]

    def in_stripes(self, first: int, last: int, count: int) -> StripedPlans | None:
        """Tasks in stripes; None where they cannot be."""
        at = first, last, count
        if at not in self._cut:
            run = self.run(first, last)
            made = None if run is None else run.in_stripes(count, str(first))
            if made is not None and first not in self.opens:
                _hold(made, first)
            self._cut[at] = made
        return self._cut[at]

    def alone(self, i: int, off: int) -> Cost:
        """The cost of a whole task that finds or leaves some operands (bits of ``memo.OFF``) in L2."""
        return self.cost([self.memo.without(self.whole_plans[i], off)])

    def striped_cost(self, stripe: Stripe, off: tuple[int, ...]) -> Cost:
        """The cost of one stripe whose tasks find or leave some operands in L2."""
        if off not in stripe.costs:
            first = stripe.run.first
            plans = [self.memo.without(plan, off[i - first]) for i, plan in stripe.parts.items()]
            stripe.costs[off] = self.memo.cost_of(plans, self.price)
        return stripe.costs[off]

    def cost(self, plans: Sequence[Plan]) -> Cost:
        """The cost of some tasks, one after the other."""
        names = tuple(plans)
        if names not in self._costs:
            self._costs[names] = self.memo.cost_of(plans, self.price)
        return self._costs[names]


def _hold(parts: StripedPlans, first: int) -> None:
    """The group of the first task goes on until its last stripe has found what the group left in L2."""
    last = max(place for place, origin in enumerate(parts.origins) if origin == first)
    parts.plans[:last] = [plan.but(holds=True) for plan in parts.plans[:last]]
