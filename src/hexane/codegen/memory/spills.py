"""Spills: bytes that a program moves beyond the least, tensor by tensor, and why the tensor did not stay in L2.

The least is inputs and outputs once, constants and weights once (``hexane.timing.traffic``).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hexane.codegen.memory.selection import SPARE, ResidencyProgram, room_of
from hexane.codegen.memory.traffic import KERNELS, moved_bytes
from hexane.codegen.memory.values import ResidentValue
from hexane.codegen.operands import RESULT, elements, operands_of, stays_in_l2
from hexane.codegen.plan import Plan, Space, TaskKernel


class Cause(StrEnum):
    """Reason for bytes that move without need."""

    SIZE = "larger than L2"
    ROOM = "no room beside others"
    ADDRESS = "no address free"
    FORM = "form cannot stay"
    KERNELS = "kernels again"
    CONSTANTS = "constants again"


@dataclass(frozen=True)
class Spill:
    """Bytes of one tensor that cross to memory or back beyond the least.

    ``name`` is the value of the graph, or the op whose scratch it is. ``why`` says more where the form is the cause.
    """

    name: str
    written: int
    read: int
    cause: Cause
    why: str = ""

    @property
    def bytes(self) -> int:
        return self.written + self.read


@dataclass
class _Count:
    """Counts of one tensor."""

    name: str
    written: int = 0
    read: int = 0
    causes: list[tuple[Cause, str]] = field(default_factory=list)


def spills(program: ResidencyProgram, plans: Sequence[Plan], kept: Sequence[ResidentValue]) -> tuple[Spill, ...]:
    """The spills of linked plans, the largest first; ``kept`` is what stays of ``program``'s tensors."""
    found = [*_tensors(program, plans, kept), *_again(plans)]
    return tuple(sorted((spill for spill in found if spill.bytes > 0), key=lambda d: -d.bytes))


def _tensors(program: ResidencyProgram, plans: Sequence[Plan], residents: Sequence[ResidentValue]) -> list[Spill]:
    counts: dict[Hashable, _Count] = {}
    stay = {value.key for value in residents}
    for i, plan in enumerate(plans):
        ends = tuple(operands_of(plan, i))
        moves = moved_bytes(plan, ends)
        for end in ends:
            if end.dma is None or end.dma.buffer.space is Space.CONST:
                continue
            key = program.identity(end.dma.buffer, i)
            count = _count(counts, key, plan)
            if end.side == RESULT:
                count.written += moves[end.side]
            else:
                count.read += moves[end.side]
            count.causes.append(_cause(program, plans, key, key in stay))
        if plan.kernel_buffer is not None:
            key = program.identity(plan.kernel_buffer, i)
            count = _count(counts, key, plan)
            count.read += moves[KERNELS]
            count.causes.append((Cause.FORM, "a task reads it as its kernel"))
    tensors = []
    for key, count in counts.items():
        about = program.stored(key)
        writes, read = count.written, count.read
        if about.surface:
            writes, read = _beyond(program, key, writes, read)
        cause, why = max(set(count.causes), key=count.causes.count)
        tensors.append(Spill(count.name, writes, read, cause, why))
    return tensors


def _count(counts: dict[Hashable, _Count], key: Hashable, plan: Plan) -> _Count:
    """The count of a buffer; stripes of one tensor are counted together."""
    name = str(key[-1]) if isinstance(key, tuple) else str(key)
    base = name.partition("~")[0]
    place = (*key[:-1], base) if isinstance(key, tuple) else base
    if place not in counts:
        scratch = isinstance(key, tuple) and len(key) == 2 and key[0] >= 0
        counts[place] = _Count(f"scratch of {plan.op}" if scratch else base)
    return counts[place]


def _cause(program: ResidencyProgram, plans: Sequence[Plan], key: Hashable, stays: bool) -> tuple[Cause, str]:
    value = program.tensors.get(key)
    if isinstance(value, str) or value is None:
        return Cause.FORM, value or "its rows come band by band"
    if not _fits_alone(program, plans, value):
        return Cause.SIZE, ""
    choice = {other.key for other in program.choice[0]}
    return (Cause.ROOM, "") if stays or key not in choice else (Cause.ADDRESS, "")


def _fits_alone(program: ResidencyProgram, plans: Sequence[Plan], value: ResidentValue) -> bool:
    """True where the value has room beside the other operands of its own tasks, in their lowest tiles."""
    mine = {(end.index, end.side) for end in value.ends}
    for i in {end.index for end in value.ends}:
        ends = (end for end in program.held.ends[i] if (i, end.side) not in mine)
        passing = [end for end in ends if not stays_in_l2(plans[i], end)]
        if value.size + sum(program.least(i, end.side) for end in passing) + 2 * SPARE > room_of(program):
            return False
    return True


def _beyond(program: ResidencyProgram, key: Hashable, writes: int, read: int) -> tuple[int, int]:
    """Bytes beyond one writing of an output, or one reading of an input."""
    about = program.stored(key)
    if about.shape is None:
        return 0, read if writes else 0
    n, c, h, _, used = about.shape
    once = n * c * h * used
    return (max(0, writes - once), read) if writes else (0, max(0, read - once))


def _again(plans: Sequence[Plan]) -> list[Spill]:
    """Kernels and constants that are fetched more than once."""
    kernels, constants = 0, 0
    kernels_read: set[TaskKernel] = set()
    rows: set[tuple[str, int]] = set()
    for i, plan in enumerate(plans):
        kernel = plan.kernel
        if kernel is not None and kernel.source is None:
            kernels += sum(dict(zip(kernel.offsets, kernel.sizes)).values()) if kernel in kernels_read else 0
            kernels_read.add(kernel)
        for end in operands_of(plan, i):
            if end.dma is not None and end.dma.buffer.space is Space.CONST:
                row = (plan.op + end.dma.buffer.name, end.dma.offset)
                constants += elements(end) * end.element if row in rows else 0
                rows.add(row)
    return [Spill("kernels", 0, kernels, Cause.KERNELS), Spill("constants", 0, constants, Cause.CONSTANTS)]
