"""Which tensors may stay in L2 between tasks: every walk through them must be a region there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from hexane.codegen import l2
from hexane.codegen.choices import Choices, choosing
from hexane.codegen.operations import PeKind, SourceType
from hexane.codegen.plan import Buffer, Plan, Region
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

    ``ends`` are those that would use L2, in task order, with their regions from the value's own base; ``written``:
    its bytes go to DRAM too.
    """

    key: Hashable
    layout: Layout
    ends: list[End]
    regions: list[Region]
    written: bool
    first: int = field(init=False)
    last: int = field(init=False)

    def __post_init__(self) -> None:
        self.first, self.last = self.ends[0].index, self.ends[-1].index

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def saved(self) -> int:
        """Bytes that do not cross to DRAM and back."""
        ends = [end for end in self.ends if end.dma is not None]
        if self.ends[0].side != RESULT:
            ends = ends[1:]  # a source that the first task brings in
        kept = [end for end in ends if not (self.written and end.side == RESULT)]
        return sum(elements(end) * end.element for end in kept)

    def is_whole(self, end: End) -> bool:
        """Whether an end covers the whole tensor."""
        n, d, c, h, w = end.extents
        grid = self.layout.grid
        return n * d * c * h == grid.n * grid.c * grid.h and w * end.element == grid.used

    @property
    def in_parts(self) -> bool:
        """Whether some task writes or reads a part, or the result goes to DRAM too: no program of Apple's shows it."""
        return self.written or any(end.dma is not None and not self.is_whole(end) for end in self.ends)

    @property
    def worth(self) -> float:
        """Bytes saved for each byte of L2 and task."""
        return self.saved / (max(self.size, 1) * (self.last - self.first + 1))


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
    written = about.surface
    if ends[0].side != RESULT or (written and all(end.side == RESULT for end in ends)):
        return None
    grid = grid_of(ends, about.shape, about.size)
    if grid is None:
        return None
    plain = Layout(grid)
    if any(_region(plain, end, held) is None for end in ends):
        return None
    if any(not _may_turn(plans[end.index], end, held, written) for end in ends):
        return None
    layout = Layout(grid, _pad(plain, ends, plans, held))
    kept: list[End] = []
    regions: list[Region] = []
    for end in ends:
        for other in _followers(end, held):
            region = layout.region(end.dma, other.extents, other.element) if end.dma is not None else None
            if region is None:
                return None
            kept.append(other)
            regions.append(region)
    order = sorted(range(len(kept)), key=lambda i: (kept[i].index, kept[i].side == RESULT))
    return Value(key, layout, [kept[i] for i in order], [regions[i] for i in order], written)


def _followers(end: End, held: Held) -> list[End]:
    """The end, and those that read the region in which its task keeps the operand."""
    cluster = held.cluster_of.get((end.index, end.side))
    return [end] if cluster is None else cluster.ends


def _region(layout: Layout, end: End, held: Held) -> Region | None:
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


def _pad(layout: Layout, ends: Sequence[End], plans: Sequence[Plan], held: Held) -> int:
    """Row pad: what the first reader asks for whose rows are the buffer's rows (docs/reference/engine-h13.md 7.2)."""
    for end in ends:
        if end.side == RESULT:
            continue
        region, plan = _region(layout, end, held), plans[end.index]
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
