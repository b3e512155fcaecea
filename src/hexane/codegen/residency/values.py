"""Which tensors may stay in L2 between tasks: every walk through them must be a region there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hexane.codegen import l2
from hexane.codegen.choices import Choices, choosing
from hexane.codegen.operations import PeKind, SourceType
from hexane.codegen.plan import Buffer, Dma, Plan, Region
from hexane.codegen.residency.blocks import Held
from hexane.codegen.residency.ends import RESULT, SOURCE, End, elements
from hexane.codegen.residency.layout import Layout, grid_of

Identity = Callable[[Buffer, int], Hashable]
"""What tells two buffers apart: a buffer and the index of the plan that names it; None for constants."""


@dataclass(frozen=True)
class Stored:
    """What is known of a buffer: ``shape`` as ``grid_of`` takes it, its bytes, and whether the caller sees it."""

    shape: tuple[int, int, int, int, int] | None
    size: int
    surface: bool


@dataclass(eq=False)
class Value:
    """A tensor that could stay in L2 while tasks ``first`` to ``last`` run.

    ``ends`` are those that would use L2, in task order, ``walks`` what each of them covers in DRAM. ``written``: the
    bytes go to DRAM too. ``loaded``: they come from there, with the first of the ends.
    """

    key: Hashable
    layout: Layout
    ends: list[End]
    walks: list[Dma]
    written: bool
    loaded: bool = False

    @property
    def first(self) -> int:
        return self.ends[0].index

    @property
    def last(self) -> int:
        return self.ends[-1].index

    @property
    def size(self) -> int:
        return self.layout.size

    @cached_property
    def regions(self) -> list[Region]:
        """Of each end, counted from the value's own base."""
        found = [self.layout.region(w, e.extents, e.element) for w, e in zip(self.walks, self.ends)]
        return [region for region in found if region is not None]

    @cached_property
    def saved(self) -> int:
        """Bytes that do not cross to DRAM and back."""
        ends = [end for end in self.ends[self.loaded :] if end.dma is not None]
        return sum(elements(end) * end.element for end in ends if not (self.written and end.side == RESULT))

    def is_whole(self, end: End) -> bool:
        """Whether an end covers the whole tensor."""
        n, d, c, h, w = end.extents
        grid = self.layout.grid
        return n * d * c * h == grid.n * grid.c * grid.h and w * end.element == grid.used

    @cached_property
    def in_parts(self) -> bool:
        """Whether some task writes or reads a part, or the result goes to DRAM too: no program of Apple's shows it."""
        return self.written or any(end.dma is not None and not self.is_whole(end) for end in self.ends)

    @cached_property
    def worth(self) -> float:
        """Bytes saved for each byte of L2 and task."""
        return self.saved / (max(self.size, 1) * (self.last - self.first + 1))

    def laid_out(self, layout: Layout) -> Value:
        """The same in another layout of the same grid."""
        return Value(self.key, layout, self.ends, self.walks, self.written, self.loaded)

    def parted(self, plans: Sequence[Plan], held: Held) -> list[Value]:
        """Two shorter stays instead: the first half of the readers, and the others from the first of them on."""
        readers = sorted({end.index for end in self.ends if end.side != RESULT and end.index > self.first})
        if len(readers) < 2:
            return []
        cut = readers[(len(readers) - 1) // 2]
        clusters = [held.cluster_of.get((end.index, end.side)) for end in self.ends]
        if any(cluster is not None and cluster.first <= cut < cluster.last for cluster in clusters):
            return []
        rows = list(zip(self.ends, self.walks))
        early = [row for row in rows if row[0].index <= cut]
        late = [row for row in rows if row[0].index > cut]
        found = []
        if self.loaded or all(_may_turn(plans[e.index], e, held, True) for e, _ in early):
            ends, walks = (list(column) for column in zip(*early))
            found.append(Value(self.key, self.layout, ends, walks, self.written or not self.loaded, self.loaded))
        ends, walks = (list(column) for column in zip(*late))
        if can_load(ends, plans, self):
            found.append(Value(self.key, self.layout, ends, walks, written=False, loaded=True))
        return found


def can_load(ends: Sequence[End], plans: Sequence[Plan], value: Value) -> bool:
    """Whether the first end brings the whole tensor from DRAM, so that those behind it find it in L2."""
    first, plan = ends[0], plans[ends[0].index]
    alone = all(end.index > first.index or end is first for end in ends)
    return (
        len({end.index for end in ends}) > 1
        and alone
        and first.side == SOURCE
        and first.dma is not None
        and value.is_whole(first)
        and plan.tile >= plan.hout
        and all(end.side != RESULT for end in ends)
    )


def shares_place(before: Value, after: Value, plans: Sequence[Plan]) -> bool:
    """Whether the task that reads ``before`` for the last time may write ``after`` over it, element by element."""
    index = after.first
    if before.last != index or before.first == index or before.layout.grid != after.layout.grid:
        return False
    if after.loaded or after.written or not in_place(plans[index]):
        return False
    result = after.ends[0]
    if result.side != RESULT or not after.is_whole(result) or sum(e.side == RESULT for e in after.ends) != 1:
        return False
    wanted = after.laid_out(before.layout).regions[0]
    met = [(e, r) for e, r in zip(before.ends, before.regions) if e.index == index]
    return all(e.extents == result.extents and _same_places(r, wanted, e) for e, r in met)


def _same_places(a: Region, b: Region, end: End) -> bool:
    pairs = zip((a.group, a.depth, a.channel, a.row), (b.group, b.depth, b.channel, b.row), end.extents)
    return a.base == b.base and all(x == y for x, y, count in pairs if count > 1)


def values_of(
    plans: Sequence[Plan],
    held: Held,
    identity: Identity,
    stored: Callable[[Hashable], Stored],
    choices: Choices,
) -> list[Value]:
    """Every tensor that could stay, and the shorter stays of the same, the longest first."""
    uses: dict[Hashable, list[End]] = {}
    pinned: set[Hashable] = set()
    for i, plan in enumerate(plans):
        if plan.kernel is not None and plan.kernel.source is not None:
            pinned.add(identity(plan.kernel.source, i))
        for dma, staged in ((plan.src, plan.src_staged), (plan.dst, plan.dst_staged)):
            if dma is not None and staged:
                pinned.add(identity(dma.buffer, i))
        for end in held.ends[i]:
            if end.dma is not None:
                uses.setdefault(identity(end.dma.buffer, i), []).append(end)
    found: list[Value] = []
    with choosing(choices):
        for key, ends in uses.items():
            if key is not None and key not in pinned and len(ends) > 1:
                value = _value(key, ends, plans, held, stored(key))
                if value is not None:
                    found.append(value)
    return found


def _value(key: Hashable, ends: list[End], plans: Sequence[Plan], held: Held, about: Stored) -> Value | None:
    produced = ends[0].side == RESULT
    written = about.surface and produced
    if (about.shape is None and about.surface and not produced and not about.size) or all(
        end.side == RESULT for end in ends
    ):
        return None
    grid = grid_of(ends, about.shape, about.size)
    if grid is None:
        return None
    plain = Layout(grid)
    if any(_region(plain, end) is None for end in ends):
        return None
    if any(not _may_turn(plans[end.index], end, held, written) for end in ends):
        return None
    layout = Layout(grid, _pad(plain, ends, plans))
    rows = [(other, end.dma) for end in ends for other in _followers(end, held) if end.dma is not None]
    if any(layout.region(walk, end.extents, end.element) is None for end, walk in rows):
        return None
    rows.sort(key=lambda row: (row[0].index, row[0].side == RESULT))
    kept, walks = (list(column) for column in zip(*rows))
    value = Value(key, layout, kept, walks, written, loaded=not produced)
    return value if produced or can_load(kept, plans, value) else None


def _followers(end: End, held: Held) -> list[End]:
    """The end, and those that read the region in which its task keeps the operand."""
    cluster = held.cluster_of.get((end.index, end.side))
    return [end] if cluster is None else cluster.ends


def _region(layout: Layout, end: End) -> Region | None:
    assert end.dma is not None
    return layout.region(end.dma, end.extents, end.element)


def _may_turn(plan: Plan, end: End, held: Held, written: bool) -> bool:
    """Whether the task can find or leave this operand in L2 instead."""
    cluster = held.cluster_of.get((end.index, end.side))
    if end.side == RESULT:
        alone = cluster is None or cluster.ends == [end]
        return alone and not (written and plan.tile < plan.hout)
    if end.side == SOURCE and plan.reads.type is SourceType.DMA_KEEP:
        return cluster is not None and cluster.kept_source is end
    return True


def _pad(layout: Layout, ends: Sequence[End], plans: Sequence[Plan]) -> int:
    """Row pad: what the first reader asks for whose rows are the buffer's rows (docs/reference/engine-h13.md 7.2)."""
    for end in ends:
        if end.side == RESULT:
            continue
        region, plan = _region(layout, end), plans[end.index]
        if region is None or end.extents.h == 1 or region.row != layout.row or region.channel != layout.channel:
            continue
        if plan.unit == "PE":
            return l2.pe_pad(layout.row, layout.channel, reduction=plan.kind.reduces, height=plan.h)
        alone = plan.unicast > 0 and plan.kw == plan.kh == 1
        return l2.ne_pad(
            layout.row,
            plan.h,
            plan.shape,
            plan.w * end.element // 2,
            small=plan.small_source,
            stride=plan.sy,
            alone=alone,
        )
    return 0


def in_place(plan: Plan) -> bool:
    """Whether every element of the result needs its own place of the source only."""
    if plan.transpose1 or plan.transpose2 or plan.transpose_out or plan.out_trans:
        return False
    if plan.unit == "PE":
        return plan.kind in (PeKind.UNARY, PeKind.BINARY, PeKind.SCALE_SHIFT)
    return plan.unicast == 1 and plan.kernel is None and plan.kw == plan.kh == plan.sx == plan.sy == 1
