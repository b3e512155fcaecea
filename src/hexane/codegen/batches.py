"""Tasks over more images than a generation counts: several tasks, each over a part of them (docs/limits.md, groups)."""

from __future__ import annotations

from collections.abc import Iterator

from hexane.codegen.fragment import Fragment
from hexane.codegen.operations import SourceType
from hexane.codegen.plan import SIDES, Plan
from hexane.rounding import ceil_div

BY_DMA = (SourceType.DMA_KEEP, SourceType.DMA_STREAM)


def in_parts(fragment: Fragment, most: int) -> None:
    """Put parts of at most ``most`` images in place of tasks over more, where each image is by itself."""
    plans = fragment.plans
    if all(plan.groups <= most for plan in plans) or any(plan.dtid is not None for plan in plans):
        return
    fragment.plans = [part for plan in plans for part in (_parts(plan, most) if _is_apart(plan) else (plan,))]


def _is_apart(plan: Plan) -> bool:
    """True where a task goes from DRAM to DRAM and has the same kernel for every image."""
    tied = plan.holds or plan.source.staged or plan.result.staged or plan.streams or plan.streams_in
    if tied or plan.source.dma is None or plan.result.dma is None or plan.source.type not in BY_DMA:
        return False
    return plan.kernel is None or (plan.kernel.source is None and not plan.kernel.group_stride)


def _parts(plan: Plan, most: int) -> Iterator[Plan]:
    images = ceil_div(plan.groups, ceil_div(plan.groups, most))
    for first in range(0, plan.groups, images):
        count = min(images, plan.groups - first)
        part = plan.but(groups=count, macs=plan.macs * count // plan.groups, time_ns=plan.time_ns * count / plan.groups)
        for side in SIDES:
            dma = plan.operand(side).dma
            if dma is not None:
                part = part.on(side, dma=dma.moved(first * dma.group))
        yield part
