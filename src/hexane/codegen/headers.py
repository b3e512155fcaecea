"""Header words of a linked program (spec/engine-h13 §4.2, §5, §12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hexane.codegen.cost import duration_us
from hexane.codegen.plan import Buffer, Plan, Space

PURE_COPY_MACS = (0x101C0C, 0x10000C)
SLOW_TABLES = ("log2", "sqrt", "rsqrt", "reciprocal")

Words = dict[str, int]


def header_words(
    plans: Sequence[Plan], index: int, channel: Callable[[Buffer], int], kernel_channel: int | None, early: bool
) -> Words:
    """Header words of one task; position, size and link of the next task are left to ``isa.link``."""
    plan, last = plans[index], len(plans) - 1
    words = {
        "Header[1]": 0 if early else duration_us(plan),
        "Header[2]": _events(index, last, early),
        "Header[4]": _debug_events(plan, index, last),
        "Header[6]": _group_flags(plans, index),
        "Header[8]": _channels(plan, channel),
        "Header[9]": 0 if kernel_channel is None else 0x20 | kernel_channel,
    }
    return words


def _events(index: int, last: int, early: bool) -> int:
    if early:
        return 0x422 if index == last else 0x400
    if last == 0:
        return 0x42A
    return 0x408 if index == 0 else 0x422 if index == last else 0x400


def _debug_events(plan: Plan, index: int, last: int) -> int:
    pure_copy = plan.unit == "NE" and plan.mac in PURE_COPY_MACS and plan.kernel is None
    slow = any(table in SLOW_TABLES for table in plan.tables)
    high = 0 if pure_copy else 0xFFD if slow else 0xFFF
    low = 0x06A if index == last else 0x068 if index == 0 else 0
    return high << 12 | low | (0x800 if high else 0)


def _group_flags(plans: Sequence[Plan], index: int) -> int:
    plan = plans[index]
    following = plans[index + 1] if index + 1 < len(plans) else None
    planar_run = plan.unit == "PE" and following is not None and (following.unit == "PE" or plan.streams)
    starts = index == 0 or not plans[index - 1].holds
    ends = not plan.holds
    by_dma = (plan.src is not None and not plan.src_staged) or plan.src2 is not None
    out = plan.dst is not None and not plan.dst_staged
    return (
        planar_run << 8
        | starts << 11
        | ends << 12
        | plan.src_staged << 13
        | plan.dst_staged << 14
        | ends << 15
        | (plan.dtid is not None) << 24
        | by_dma << 28
        | out << 29
    )


def _channels(plan: Plan, channel: Callable[[Buffer], int]) -> int:
    word = 0
    if plan.src is not None:
        word |= channel(plan.src.buffer) | 0x20
    if plan.src2 is not None:
        word |= (channel(plan.src2.buffer) | 0x20) << 6
    if plan.dst is not None:
        word |= (channel(plan.dst.buffer) | 0x20) << 12
    if plan.unit == "NE":
        word |= (plan.cores_log2 + 1) << 24
    return word


def kernel_flags(plans: Sequence[Plan], index: int) -> int:
    """KernelKeep and UsePrevKernel of a PE task between PE tasks (§4.8)."""
    plan = plans[index]
    keep = index + 1 < len(plans) and plans[index + 1].unit == "PE"
    previous = index > 0 and plans[index - 1].unit == "PE"
    return keep << 12 | previous << 14 if plan.unit == "PE" else 0


def kernel_channel(plan: Plan, channel: Callable[[Buffer], int]) -> int | None:
    """Channel that the kernel streams come from, None without a kernel."""
    if plan.kernel is None:
        return None
    return Space.CONST.value if plan.kernel.source is None else channel(plan.kernel.source)
