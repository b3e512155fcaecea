"""Unshare sources: tasks that reuse a source which the first of them keeps in L2, as tasks that each load it.

Recipes place such groups (docs/reference/engine-h13.md 7.6). Cut by rows each task has a walk of its own again, and the
source that they share is one more value that may stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from hexane.codegen.memory.clusters import ResidentOperands
from hexane.codegen.operands import SOURCE
from hexane.codegen.plan import Plan
from hexane.codegen.tasks import STARTS, by_dma


def unshared(plans: Sequence[Plan], held: ResidentOperands) -> tuple[list[Plan], list[tuple[int, int]]]:
    """The plans with such groups undone; the first and last index of every group and of every other task."""
    made = list(plans)
    for first, last in held.runs:
        if last > first and _shares_sources_only(plans, held, first, last):
            for cluster in held.by_group[first]:
                kept = cluster.kept_source
                assert kept is not None
                for end in cluster.ends:
                    made[end.index] = _alone(made[end.index], plans[kept.index])
    return made, list(held.runs)


def _shares_sources_only(plans: Sequence[Plan], residents: ResidentOperands, first: int, last: int) -> bool:
    group = plans[first : last + 1]
    if any(plan.source.staged or plan.result.staged or plan.streams or plan.streams_in for plan in group):
        return False
    clusters = residents.by_group[first]
    keepers = [cluster.kept_source for cluster in clusters]
    if not clusters or any(end is None for end in keepers):
        return False
    return all(
        end.side == SOURCE and whole is not None and end.extents == whole.extents and not plans[end.index].small_source
        for cluster, whole in zip(clusters, keepers)
        for end in cluster.ends
    )


def _alone(plan: Plan, keeper: Plan) -> Plan:
    plan = by_dma(plan, plan.source.region).reading(dma=keeper.source.dma, hint=keeper.source.hint)
    return plan.waiting(result=STARTS).but(holds=False)
