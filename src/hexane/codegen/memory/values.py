"""Tensors that may stay in L2 between tasks: every walk through them must be a region there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from hexane.cached import cached_property
from hexane.codegen import l2
from hexane.codegen.choices import Choices
from hexane.codegen.memory.clusters import ResidentOperands
from hexane.codegen.memory.disjoint import Places, are_disjoint, covers, places_of
from hexane.codegen.memory.facts import BOTH, OFF, FactCache
from hexane.codegen.memory.layout import RowLayout, grid_of
from hexane.codegen.operands import RESULT, SOURCE, TaskOperand, elements
from hexane.codegen.operations import NeOp, SourceType
from hexane.codegen.plan import Buffer, Dma, Plan, Region

Identity = Callable[[Buffer, int], Hashable]
"""What tells two buffers apart: a buffer and the index of the plan that names it; None for constants."""


@dataclass(frozen=True)
class Stored:
    """Facts of a buffer: ``shape`` as ``grid_of`` takes it, its bytes, and whether the caller sees it."""

    shape: tuple[int, int, int, int, int] | None
    size: int
    surface: bool


IN_ANY_LAYOUT = ("places", "saved", "loaders", "in_parts", "grows")
"""What of a value does not change with its layout, nor with the numbers of its tasks."""
ANYWHERE = ("regions", *IN_ANY_LAYOUT)
"""What of a value does not change with the numbers of its tasks."""


@dataclass(eq=False)
class ResidentValue:
    """A tensor that could stay in L2 while tasks ``first`` to ``last`` run.

    ``ends`` are those that would use L2, in task order, ``walks`` what each of them covers in DRAM. ``written``: the
    bytes go to DRAM too. ``loaded``: so many of its readers, the first ones, bring it from there.
    """

    key: Hashable
    layout: RowLayout
    ends: list[TaskOperand]
    walks: list[Dma]
    written: bool
    loaded: int = 0

    first: int = field(init=False)
    last: int = field(init=False)
    size: int = field(init=False)
    """Bytes of L2."""

    def __post_init__(self) -> None:
        self.first, self.last, self.size = self.ends[0].index, self.ends[-1].index, self.layout.size

    @cached_property
    def regions(self) -> list[Region]:
        """Of each end, counted from the value's own base."""
        candidates = [self.layout.region(w, e.extents, e.element) for w, e in zip(self.walks, self.ends)]
        return [region for region in candidates if region is not None]

    @cached_property
    def places(self) -> list[Places | None]:
        """Part of the tensor that each end covers."""
        grid = self.layout.grid
        return [places_of(walk, end.extents, end.element, grid) for walk, end in zip(self.walks, self.ends)]

    @cached_property
    def saved(self) -> int:
        """Bytes that do not cross to DRAM and back."""
        ends = [end for place, end in enumerate(self.ends) if end.dma is not None and place not in self.loaders]
        return sum(elements(end) * end.element for end in ends if not (self.written and end.side == RESULT))

    @cached_property
    def loaders(self) -> frozenset[int]:
        """Ends that bring it from DRAM."""
        return frozenset([place for place, end in enumerate(self.ends) if end.side != RESULT][: self.loaded])

    def is_whole(self, end: TaskOperand) -> bool:
        """True where an end covers the whole tensor."""
        n, d, c, h, w = end.extents
        grid = self.layout.grid
        return n * d * c * h == grid.n * grid.c * grid.h and w * end.element == grid.used

    @cached_property
    def in_parts(self) -> bool:
        """True where a task writes or reads a part, or the result goes to DRAM too: no program of Apple's shows it."""
        return self.written or any(end.dma is not None and not self.is_whole(end) for end in self.ends)

    @property
    def worth(self) -> float:
        """Bytes saved for each byte of L2 and task."""
        return self.saved / (max(self.size, 1) * (self.last - self.first + 1))

    @property
    def form(self) -> tuple[Hashable, ...]:
        """Key that tells it from other stays of tensors of a program."""
        return self.key, self.first, self.last, self.size, self.written, self.loaded

    def at(self, indices: Sequence[int]) -> ResidentValue:
        """The same where its ends are those of other tasks, in the same order."""
        if all(end.index == i for end, i in zip(self.ends, indices)):
            return self
        ends = [end.at(i) for end, i in zip(self.ends, indices)]
        value = ResidentValue(self.key, self.layout, ends, self.walks, self.written, self.loaded)
        value._take(ANYWHERE, self)
        return value

    def _take(self, names: tuple[str, ...], other: ResidentValue) -> None:
        """Facts of another value that hold for this one."""
        values = vars(other)
        vars(self).update({name: values[name] for name in names if name in values})

    def laid_out(self, layout: RowLayout) -> ResidentValue:
        """The same in another layout of the same grid."""
        value = ResidentValue(self.key, layout, self.ends, self.walks, self.written, self.loaded)
        value._take(IN_ANY_LAYOUT, self)
        return value

    def parted(
        self, plans: Sequence[Plan], residents: ResidentOperands, full: tuple[int, int] | None = None
    ) -> list[ResidentValue]:
        """Shorter stays instead: up to tasks that have no room for it, and from the first reader behind them on.

        ``full`` are the first and the last of these tasks; the middle of the readers where nothing is known of them.
        """
        if full is None:
            readers = sorted({end.index for end in self.ends if end.side != RESULT and end.index > self.first})
            if len(readers) < 2:
                return []
            cut = readers[(len(readers) - 1) // 2]
            full = cut + 1, cut
        return [
            part for part in (self._until(full[0], plans, residents), self._from(full[1], plans, residents)) if part
        ]

    @cached_property
    def grows(self) -> bool:
        """True where tasks still write to it when others have read of it."""
        sides = [end.side == RESULT for end in self.ends]
        return False in sides and True in sides[sides.index(False) :]

    def begun(self, plans: Sequence[Plan], residents: ResidentOperands) -> ResidentValue | None:
        """The stay from its first readers on, of a tensor that grows."""
        return self._from(self.first, plans, residents) if self.grows else None

    def _until(self, index: int, plans: Sequence[Plan], residents: ResidentOperands) -> ResidentValue | None:
        """The stay up to the last end before a task; what is written goes to DRAM too."""
        rows = [(end, walk) for end, walk in zip(self.ends, self.walks) if end.index < index]
        if sum(end.side != RESULT for end, _ in rows) <= self.loaded or self._cuts_cluster(
            rows[-1][0].index, residents
        ):
            return None
        produced = any(end.side == RESULT for end, _ in rows)
        if produced and not all(_may_turn(plans[end.index], end, residents, True) for end, _ in rows):
            return None
        ends, walks = (list(column) for column in zip(*rows))
        return ResidentValue(self.key, self.layout, ends, walks, produced, self.loaded)

    def _from(self, index: int, plans: Sequence[Plan], residents: ResidentOperands) -> ResidentValue | None:
        """The stay from the first reader behind a task on that brings what is there by then, or its first rows."""
        readers = (place for place, end in enumerate(self.ends) if end.index > index and end.side == SOURCE)
        for place in islice(readers, MOST_BEGINS):
            count = loads(place, plans, self)
            if count:
                if self._cuts_cluster(self.ends[max(place - 1, 0)].index, residents):
                    return None
                return ResidentValue(
                    self.key, self.layout, self.ends[place:], self.walks[place:], written=False, loaded=count
                )
        return None

    def _cuts_cluster(self, last: int, residents: ResidentOperands) -> bool:
        """True where tasks on both sides of the end of ``last`` share a place that a recipe gave."""
        clusters = [residents.cluster_of.get((end.index, end.side)) for end in self.ends]
        return any(cluster is not None and cluster.first <= last < cluster.last for cluster in clusters)


def found_in_l2(values: Iterable[ResidentValue], count: int) -> list[int]:
    """Ends of each task that are part of a value in L2: bits of ``OFF``, or of ``BOTH`` if it moves as well."""
    bits = [0] * count
    for value in values:
        moving = value.written or value.loaded
        for place, end in enumerate(value.ends):
            moves = moving and (value.written if end.side == RESULT else place in value.loaders)
            bits[end.index] |= BOTH[end.side] if moves else OFF[end.side]
    return bits


MOST_BEGINS = 3
"""Readers that are asked whether a stay can begin with them."""
MOST_LOADERS = 64
"""Readers that bring a tensor together: as many as a run has stripes."""


def loads(place: int, plans: Sequence[Plan], value: ResidentValue) -> int:
    """Number of readers from an end on that bring all of the tensor that is in DRAM by then; 0 if they do not.

    What is written meanwhile stays in L2 alone: no reader may bring it, or bring older data over it.
    """
    before = [value.places[i] for i, e in enumerate(value.ends[:place]) if e.side == RESULT or i in value.loaders]
    if not before or value.written:
        return int(_loads_alone(place, plans, value))
    times = Counter(end.index for end in value.ends)
    places: list[Places | None] = []
    sources: list[Places | None] = []
    for i in range(place, len(value.ends)):
        end, mine = value.ends[i], value.places[i]
        if end.side == RESULT:
            if not all(are_disjoint(mine, other) for other in before):
                return 0
            sources.append(mine)
            continue
        if (
            len(places) == MOST_LOADERS
            or times[end.index] > 1
            or not _can_bring(end, plans)
            or not all(are_disjoint(mine, other) for other in sources)
        ):
            return 0
        places.append(mine)
        if all(covers(places, other) for other in before):
            return len(places) if any(later.side != RESULT for later in value.ends[i + 1 :]) else 0
    return 0


def _loads_alone(place: int, plans: Sequence[Plan], value: ResidentValue) -> bool:
    """True where a reader brings the whole tensor, which nobody writes then."""
    first, later = value.ends[place], value.ends[place + 1 :]
    if not later or any(end.side == RESULT or end.index == first.index for end in later):
        return False
    return _can_bring(first, plans) and value.is_whole(first)


def _can_bring(end: TaskOperand, plans: Sequence[Plan]) -> bool:
    plan = plans[end.index]
    return end.side == SOURCE and end.dma is not None and plan.tile >= plan.hout


def shares_place(before: ResidentValue, after: ResidentValue, plans: Sequence[Plan]) -> bool:
    """True where the tasks that write ``after`` may write it over ``before``: row by row, or element by element.

    What ``before`` has at a place is not read any more when the place is written, or by just the task that writes it.
    """
    if before.layout.grid != after.layout.grid or after.loaded or after.written or before.first >= after.first:
        return False
    for i, result in enumerate(after.ends):
        if result.side != RESULT:
            continue
        for j, end in enumerate(before.ends):
            if end.index < result.index:
                continue
            if end.index == result.index and end.extents == result.extents and in_place(plans[result.index]):
                over = before.layout.region(after.walks[i], result.extents, result.element)
                if over is None or not _same_places(before.regions[j], over, end):
                    return False
            elif not are_disjoint(before.places[j], after.places[i]):
                return False
    return True


def _same_places(a: Region, b: Region, end: TaskOperand) -> bool:
    pairs = zip((a.group, a.depth, a.channel, a.row), (b.group, b.depth, b.channel, b.row), end.extents)
    return a.base == b.base and all(x == y for x, y, count in pairs if count > 1)


KERNEL = "a task reads it as its kernel"
STAGED = "a pair of tasks stages it"
ONCE = "only one task uses it"
ROWS = "its tasks do not see it as rows of one length"
STEPS = "a task walks through it in steps that are no region of L2"
PLACED = "a recipe has its own place for it, or sends it to DRAM tile by tile"
BACK = "no task brings all of it from DRAM"


def values_of(
    plans: Sequence[Plan],
    residents: ResidentOperands,
    identity: Identity,
    stored: Callable[[Hashable], Stored],
    choices: Choices,
    memo: FactCache,
) -> dict[Hashable, ResidentValue | str]:
    """Every tensor that tasks move: as a value that could stay, or why it could not."""
    uses: dict[Hashable, list[TaskOperand]] = {}
    pinned: dict[Hashable, str] = {}
    for i, plan in enumerate(plans):
        if plan.kernel_buffer is not None:
            pinned[identity(plan.kernel_buffer, i)] = KERNEL
        if plan.source.staged or plan.result.staged:
            for dma, staged in ((plan.source.dma, plan.source.staged), (plan.result.dma, plan.result.staged)):
                if staged and dma is not None:
                    pinned.setdefault(identity(dma.buffer, i), STAGED)
        facts = memo.of(plan)
        if facts.names is None:
            facts.names = [None if end.dma is None else identity(end.dma.buffer, i) for end in facts.ends]
        for end, name in zip(residents.ends[i], facts.names):
            if end.dma is not None:
                uses.setdefault(name, []).append(end)
    index_of = {plan: i for i, plan in enumerate(plans)}
    values: dict[Hashable, ResidentValue | str] = {}
    for key, ends in uses.items():
        if key is None or key in pinned:
            continue
        name = key, _users(ends, plans, residents)
        if name not in memo.tensors:
            value = _value(key, ends, plans, residents, stored(key), choices)
            users = [] if isinstance(value, str) else [plans[end.index] for end in value.ends]
            memo.tensors[name] = value, users
        value, users = memo.tensors[name]
        if not isinstance(value, str):
            value = value.at([index_of[user] for user in users])
            memo.tensors[name] = value, users  # the next form has most tasks where this one has them
        values[key] = value
    return {key: pinned.get(key) or values[key] for key in uses if key is not None}


def _users(ends: Sequence[TaskOperand], plans: Sequence[Plan], residents: ResidentOperands) -> Hashable:
    """The plans that use a tensor, and those that meet them in L2: all that its form depends on."""
    users: list[Hashable] = []
    for end in ends:
        users += plans[end.index], end.side
        if (
            end.index in residents.clustered
            and (cluster := residents.cluster_of.get((end.index, end.side))) is not None
        ):
            users.append(tuple((plans[other.index], other.side) for other in cluster.ends))
    return tuple(users)


def _value(
    key: Hashable,
    ends: list[TaskOperand],
    plans: Sequence[Plan],
    residents: ResidentOperands,
    about: Stored,
    choices: Choices,
) -> ResidentValue | str:
    produced = ends[0].side == RESULT
    from_task = about.surface and produced
    if len(ends) < 2 or all(end.side == RESULT for end in ends):
        return ONCE
    grid = None
    if about.shape is not None or produced or not about.surface or about.size:
        grid = grid_of(ends, about.shape, about.size)
    if grid is None:
        return ROWS
    plain = RowLayout(grid)
    regions = list(_regions(plain, ends))
    if None in regions and all(end.extents.h == 1 for end in ends):
        plain = RowLayout(grid.flat)
        regions = list(_regions(plain, ends))
    if None in regions:
        return STEPS
    if any(not _may_turn(plans[end.index], end, residents, from_task) for end in ends):
        return PLACED
    layout = RowLayout(plain.grid, _pad(plain, ends, regions, plans, choices))
    rows = [(other, end.dma) for end in ends for other in _followers(end, residents) if end.dma is not None]
    rows.sort(key=lambda row: (row[0].index, row[0].side == RESULT))
    parts, walks = (list(column) for column in zip(*rows))
    value = ResidentValue(key, layout, parts, walks, from_task, loaded=int(not produced))
    if not layout.pad and parts == ends:
        value.regions = [region for region in regions if region is not None]
    elif len(value.regions) < len(parts):
        return STEPS
    return value if produced or _loads_alone(0, plans, value) else BACK


def _followers(end: TaskOperand, residents: ResidentOperands) -> list[TaskOperand]:
    """The end, and those that read the region in which its task keeps the operand."""
    cluster = residents.cluster_of.get((end.index, end.side))
    return [end] if cluster is None else cluster.ends


def _regions(layout: RowLayout, ends: Sequence[TaskOperand]) -> Iterator[Region | None]:
    """Of each end, up to the first that has none."""
    for end in ends:
        assert end.dma is not None
        region = layout.region(end.dma, end.extents, end.element)
        yield region
        if region is None:
            return


def _may_turn(plan: Plan, end: TaskOperand, residents: ResidentOperands, produced: bool) -> bool:
    """True where the task can find or leave this operand in L2 instead."""
    cluster = residents.cluster_of.get((end.index, end.side))
    if end.side == RESULT:
        alone = cluster is None or cluster.ends == [end]
        return alone and not (produced and plan.tile < plan.hout)
    if end.side == SOURCE and plan.source.type is SourceType.DMA_KEEP:
        return cluster is not None and cluster.kept_source is end
    return True


def _pad(
    layout: RowLayout,
    ends: Sequence[TaskOperand],
    regions: Sequence[Region | None],
    plans: Sequence[Plan],
    choices: Choices,
) -> int:
    """Row pad: what the first reader asks for whose rows are the buffer's rows (docs/reference/engine-h13.md 7.2)."""
    for end, region in zip(ends, regions):
        if end.side == RESULT:
            continue
        plan = plans[end.index]
        if region is None or end.extents.h == 1 or region.row != layout.row or region.channel != layout.channel:
            continue
        if plan.unit == "PE":
            return l2.pe_pad(layout.row, layout.channel, reduction=plan.pe.reduces, height=plan.h)
        return l2.ne_pad(
            layout.row,
            plan.h,
            plan.shape,
            plan.w * end.element // 2,
            small=plan.small_source,
            stride=plan.window.sy,
            narrow=plan.unicast_pixel and choices.narrow_copies,
        )
    return 0


def in_place(plan: Plan) -> bool:
    """True where every element of the result needs its own place of the source only."""
    if plan.source.transposed or plan.second.transposed or plan.result.transposed or plan.out_trans:
        return False
    if plan.unit == "PE":
        return plan.pe.elementwise
    table = plan.kernel is None or plan.ne.op is NeOp.BYPASS
    return plan.unicast == 1 and table and plan.window.taps == 1 and not plan.window.strided
