"""Waits through DRAM: for the earlier writer of a place, and for the readers of a place that is written anew.

Source: docs/reference/hazards.md 1 and 2. Places count by their first and last byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hexane.codegen.operands import RESULT, TaskOperand, operands_of
from hexane.codegen.plan import Dma, EarlierReader, Plan, Space
from hexane.codegen.targets import Places
from hexane.frozen import replace
from hexane.isa.granules import GRANULE
from hexane.rounding import ceil_div

NOBODY = -1

Stretch = tuple[int, slice]
"""A channel and the granules behind it."""


def settle(plans: list[Plan], places: Sequence[Places], *, for_readers: bool) -> None:
    """Give the tasks every wait through DRAM that they need; ``for_readers``: destinations wait as well."""
    ends = [_stretches(plan, i, place) for i, (plan, place) in enumerate(zip(plans, places))]
    kernels = [list(_kernel(plan, place)) for plan, place in zip(plans, places)]
    writes = {at[0] for touched in ends for side, at in touched if side == RESULT}
    read = {at[0] for touched in ends for side, at in touched if side != RESULT}
    read |= {channel for touched in kernels for channel, _ in touched}
    both = dict.fromkeys(writes & read, 0)
    for touched in (*([at for _, at in one] for one in ends), *kernels):
        for channel, granules in touched:
            if channel in both:
                both[channel] = max(both[channel], granules.stop)
    order = _Order({channel: [np.full(size, NOBODY, np.int32) for _ in range(3)] for channel, size in both.items()})
    for i, plan in enumerate(plans):
        plans[i] = order.next(i, plan, ends[i], kernels[i], for_readers)


class _Order:
    """Per channel and granule, who wrote last, who read a source last, and who a kernel."""

    def __init__(self, tasks: dict[int, list[np.ndarray]]) -> None:
        self.tasks = tasks
        self.settled = NOBODY  # the last task that somebody has waited for

    def next(
        self, i: int, plan: Plan, ends: list[tuple[str, Stretch]], kernels: list[Stretch], for_readers: bool
    ) -> Plan:
        """The task with its waits."""
        ends = [(side, at) for side, at in ends if at[0] in self.tasks]
        kernels = [at for at in kernels if at[0] in self.tasks]
        sources = [(side, at) for side, at in ends if side != RESULT]
        if plan.kernel_buffer is not None and plan.dtid is not None:
            self.settled = max(self.settled, plan.dtid)
        if plan.source.hint.after_task or plan.second.hint.after_task:
            self.settled = i - 1
        for side, at in sources:
            if self._last(0, at) > self.settled:
                plan = plan.on(side, hint=replace(plan.hint(side), after_task=True))
                self.settled = i - 1
        results = [at for side, at in ends if side == RESULT]
        for at in results:
            if for_readers:
                readers = self._last(1, at), self._last(2, at)
                if max(readers) > NOBODY:
                    plan = plan.writing(reader=EarlierReader(i - 1 - max(readers), readers[1] > readers[0]))
        for which, touched in ((0, results), (1, [at for _, at in sources]), (2, kernels)):
            for channel, granules in touched:
                self.tasks[channel][which][granules] = i
        return plan

    def _last(self, which: int, at: Stretch) -> int:
        channel, granules = at
        return int(self.tasks[channel][which][granules].max(initial=NOBODY))


def _stretches(plan: Plan, index: int, places: Places) -> list[tuple[str, Stretch]]:
    if plan.source.dma is plan.second.dma is plan.result.dma is None:
        return []
    return [
        (end.side, (places.channel(end.dma.buffer), _granules(end, end.dma, places.offset(end.dma.buffer))))
        for end in operands_of(plan, index)
        if end.dma is not None and end.dma.buffer.space is not Space.CONST
    ]


def _granules(end: TaskOperand, dma: Dma, base: int) -> slice:
    g, d, c, h, w = end.extents
    blocks = ceil_div(c, dma.interleave)
    start = base + dma.offset
    last = (g - 1) * dma.group + (d - 1) * dma.depth + (blocks - 1) * dma.plane + (h - 1) * dma.row
    return slice(start // GRANULE, ceil_div(start + last + w * dma.element * dma.interleave, GRANULE))


def _kernel(plan: Plan, places: Places) -> Iterator[Stretch]:
    kernel = plan.kernel
    if kernel is None or kernel.source is None or kernel.source.space is Space.CONST:
        return
    channel = places.channel(kernel.source)
    for offset, size in zip(kernel.offsets, kernel.sizes):
        start = places.kernel_offset + offset
        yield channel, slice(start // GRANULE, ceil_div(start + size, GRANULE))
