"""Clusters: regions of L2 that a program already uses; tasks of one group hand them over, and they move together.

A *group* is a run of tasks that hand results over in L2 (docs/reference/engine-h13.md 4.2). Within it regions that
touch are one cluster: it may stand elsewhere, as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hexane.codegen.memory.facts import PlanFacts
from hexane.codegen.operands import RESULT, TaskOperand, held
from hexane.codegen.plan import Plan


@dataclass(eq=False)
class Cluster:
    """Ends whose regions touch, and the bytes from the lowest base to the highest end."""

    ends: list[TaskOperand]
    start: int
    stop: int

    @property
    def first(self) -> int:
        return min(end.index for end in self.ends)

    @property
    def last(self) -> int:
        return max(end.index for end in self.ends)

    @property
    def kept_source(self) -> TaskOperand | None:
        """The one end that brings all its data from DRAM, if every other end reads just that region."""
        by_dma = [end for end in self.ends if end.dma is not None]
        if len(by_dma) != 1 or any(end.side == RESULT for end in self.ends):
            return None
        (source,) = by_dma
        same = all(
            end.region.base == source.region.base
            and end.element == source.element
            and all(
                ours == theirs for ours, theirs, count in zip(end.strides, source.strides, end.extents) if count > 1
            )
            for end in self.ends
        )
        covers = all(ours <= theirs for end in self.ends for ours, theirs in zip(end.extents, source.extents))
        return source if same and covers and source.index == self.first else None


@dataclass
class ResidentOperands:
    """The ends of a program's tasks, those that stay in L2 as clusters, those that only pass through it by task."""

    ends: list[list[TaskOperand]]
    clusters: list[Cluster] = field(default_factory=list)
    cluster_of: dict[tuple[int, str], Cluster] = field(default_factory=dict)
    clustered: set[int] = field(default_factory=set)
    """The tasks that have ends in clusters."""
    by_group: dict[int, list[Cluster]] = field(default_factory=dict)
    runs: list[tuple[int, int]] = field(default_factory=list)


def groups(plans: Sequence[Plan]) -> Iterator[tuple[int, int]]:
    """First and last index of every run of tasks that meet in L2: groups, with staging pairs and strips between."""
    first = 0
    for i, plan in enumerate(plans):
        if i == len(plans) - 1 or not (plan.holds or plan.result.staged or plan.streams):
            yield first, i
            first = i + 1


def resident_operands(plans: Sequence[Plan], facts: Sequence[PlanFacts]) -> ResidentOperands:
    """L2 regions of the plans, as recipes placed them."""
    ends = ResidentOperands([fact.ends_at(i) for i, fact in enumerate(facts)])
    for first, last in groups(plans):
        clusters: list[Cluster] = []
        for i in range(first, last + 1):
            for place, size in facts[i].staying:
                clusters = _joined(clusters, ends.ends[i][place], size)
        for cluster in clusters:
            _check_written(cluster, plans)
        ends.clusters += clusters
        ends.by_group[first] = clusters
        ends.runs.append((first, last))
    ends.cluster_of = {(end.index, end.side): cluster for cluster in ends.clusters for end in cluster.ends}
    ends.clustered = {index for index, _ in ends.cluster_of}
    return ends


def is_torn(plans: Sequence[Plan], residents: ResidentOperands, first: int) -> bool:
    """True where tasks that came between those of a group pass over what it holds: stripes of its last task do."""
    for cluster in residents.by_group.get(first, ()):
        own = {end.index for end in cluster.ends}
        for i in range(cluster.first, cluster.last + 1):
            for end in () if i in own else residents.ends[i]:
                start = end.region.base
                if start < cluster.stop and cluster.start < start + held(plans[i], end):
                    return True
    return False


def _check_written(cluster: Cluster, plans: Sequence[Plan]) -> None:
    """A region that a group reads before anything is there would be lost when regions move: a recipe's mistake."""
    if not any(end.index == cluster.first and (end.side == RESULT or end.dma is not None) for end in cluster.ends):
        plan = plans[cluster.first]
        raise AssertionError(
            f"task {cluster.first} of {plan.op} reads L2 at {cluster.start} that its group does not write"
        )


def _joined(clusters: list[Cluster], end: TaskOperand, size: int) -> list[Cluster]:
    """The clusters with one more end, and those that it touches as one."""
    start, stop = end.region.base, end.region.base + size
    touched = [c for c in clusters if c.start < stop and start < c.stop]
    apart = [c for c in clusters if c not in touched] if touched else clusters
    cluster = Cluster(
        [e for c in touched for e in c.ends] + [end],
        min([start, *(c.start for c in touched)]),
        max([stop, *(c.stop for c in touched)]),
    )
    return [*apart, cluster]
