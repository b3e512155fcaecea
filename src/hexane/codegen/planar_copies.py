"""Copies by the planar engine where that is predicted faster than by the cores.

A planar task gives +0 for -0 and infinity for NaN, a copy by the cores keeps every bit (docs/reference/engine-h13.md
8.2, 11). So the planar engine copies only what has neither: results of planar tasks and of sums, and copies of those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen import tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.moves import BufferUses, Key
from hexane.codegen.operations import COPY, Element, NeOp
from hexane.codegen.plan import Plan, Space
from hexane.codegen.price import Prices
from hexane.errors import UnsupportedError

if TYPE_CHECKING:
    from hexane.codegen.targets import Target

NOTE = "a copy by the planar engine"
MINUS_ZERO = 0x8000
INFINITY = 0x7C00


def replace(fragments: Sequence[Fragment], values: dict[str, Tensor], context: Context) -> int:
    """Put planar copies in place of copies by the cores where their price is smaller; how many."""
    if not context.on.planar_copies:
        return 0
    program, prices = BufferUses(fragments, values, {}, context.on), Prices(context.chip)
    clean: set[Key] = set()  # buffers that only such tasks have written
    dirty: set[Key] = set()
    count = 0
    for index, plan in enumerate(program.plans):
        writes_clean = _is_clean(program, index, clean)
        if writes_clean and program.is_copy(index):
            copy_plan = _planar(context.target, plan)
            if copy_plan is not None and _is_cheaper(copy_plan, plan, prices):
                _put(program, index, copy_plan)
                count += 1
        if plan.result.dma is not None:
            key = program.key(index, plan.result.dma.buffer)
            if not writes_clean:
                dirty.add(key)
                clean.discard(key)
            elif key not in dirty:
                clean.add(key)
    return count


def _is_cheaper(replacement: Plan, plan: Plan, prices: Prices) -> bool:
    """True where a copy has the smaller price from DRAM to DRAM, or where memory alone takes the time there, in L2."""
    first, second = prices([replacement])[0], prices([plan])[0]
    if first != second:
        return first < second
    return prices([_inside(replacement)])[0] < prices([_inside(plan)])[0]


def _inside(plan: Plan) -> Plan:
    """The copy from L2 to L2."""
    return plan.reading(dma=None).writing(dma=None)


def _is_clean(program: BufferUses, index: int, clean: set[Key]) -> bool:
    """True where a task's result has neither -0 nor NaN, whatever the network's inputs are."""
    plan = program.plans[index]
    if plan.result.element is not Element.FP16 or plan.source.element is not Element.FP16:
        return False
    if plan.unit == "PE":
        return True
    if plan.table or plan.ne.post_scale != 1.0:
        return False
    if plan.ne.op is NeOp.SUM:
        return True
    if plan.ne.op is not NeOp.BYPASS or plan.ne.acc_bias or plan.source.dma is None:
        return False
    if plan.source.dma.buffer.space is Space.CONST:
        return _is_plain(program.fragments[program.fragment_of[index]].constants, plan.source.dma.buffer.name)
    return program.key(index, plan.source.dma.buffer) in clean


def _is_plain(constants: Mapping[str, bytes], name: str) -> bool:
    bits = np.frombuffer(constants[name], "<u2")
    return not np.any((bits == MINUS_ZERO) | (bits & 0x7FFF > INFINITY))


def _planar(target: Target, plan: Plan) -> Plan | None:
    """The same copy by the planar engine; None where no task of it fits."""
    planar = Plan(pe=COPY, w=plan.w, h=plan.h, c=plan.c, groups=plan.groups)
    try:
        planar, end = tasks.pe_source(
            planar.reading(dma=plan.source.dma).writing(dma=plan.result.dma).but(op=plan.op), 0
        )
        return tasks.fit_pe(target, tasks.streams_out(target, planar, end)).inferred(NOTE)
    except UnsupportedError:
        return None


def _put(program: BufferUses, index: int, plan: Plan) -> None:
    number = program.fragment_of[index]
    first = program.fragment_of.index(number)
    program.fragments[number].plans[index - first] = plan
    program.plans[index] = plan
