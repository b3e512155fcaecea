"""A task without names of buffers, bytes of kernels and its op: its place in L2, price and words do not depend on them.

Layers that are alike get tasks that differ in these alone, also where their values stand in L2.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from operator import attrgetter
from struct import pack
from typing import Any

from hexane.codegen.operations import Mac, Planar
from hexane.codegen.plan import SIDES, Buffer, Dma, Plan, Space, TaskKernel
from hexane.frozen import replace

NOWHERE = Buffer("", Space.SCRATCH)
_walk = attrgetter(*[field.name for field in fields(Dma) if field.name != "buffer"])
_numbers = attrgetter(*[f"{part}.{field.name}" for part, kind in (("ne", Mac), ("pe", Planar))
                        for field in fields(kind) if field.type == "float"])  # fmt: skip
_streams = attrgetter(*[field.name for field in fields(TaskKernel) if field.name not in ("data", "source")])


def form_of(plan: Plan) -> Hashable:
    """Equal for tasks that are equal as ``bare`` gives them."""
    kernel = plan.kernel
    streams = None if kernel is None else (bool(kernel.data), kernel.source is None, _streams(kernel))
    ends = [(None if end.dma is None else _walk(end.dma), end[1:]) for end in (plan.source, plan.second, plan.result)]
    source, second, result = ends
    own = vars(plan) | {"op": "", "kernel": streams, "source": source, "second": second, "result": result}
    numbers = _numbers(plan)
    return *own.values(), pack(f"{len(numbers)}d", *numbers)  # a zero has a sign


def bare(plan: Plan) -> Plan:
    """The task; of a kernel's bytes only that there are some is left."""
    kernel = plan.kernel
    if kernel is not None:
        kernel = replace(kernel, data=bytes(bool(kernel.data)), source=None if kernel.source is None else NOWHERE)
    return through(plan, lambda _: NOWHERE, op="", kernel=kernel)


def through(plan: Plan, other: Callable[[Buffer], Buffer], **changes: Any) -> Plan:
    """The task whose walks through DRAM go through other buffers, with more changes."""
    for side in SIDES:
        dma = plan.operand(side).dma
        if dma is not None:
            plan = plan.on(side, dma=replace(dma, buffer=other(dma.buffer)))
    return plan.but(**changes)
