"""Results of a program that a later task takes as its kernel: written to scratch, and sent to their surface from there.

A kernel waits by the number of the task that left it in scratch; a kernel that an earlier task left elsewhere has no
wait (docs/reference/hazards.md 1, ``Task.DTID``).
"""

from __future__ import annotations

from collections.abc import Iterable

from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.plan import SIDES, Buffer, Plan, Space
from hexane.codegen.recipes.unary import copy_of, ne_stream
from hexane.frozen import replace


def through_scratch(
    fragments: list[Fragment], values: dict[str, Tensor], outputs: Iterable[str], context: Context
) -> None:
    """Give each output that is a kernel too a place in scratch, for all tasks, and a copy of its own at the end."""
    kernels = {plan.kernel.source for each in fragments for plan in each.plans if plan.kernel is not None}
    for name in outputs:
        surface = Buffer(name, Space.SURFACE)
        plans = [plan for fragment in fragments for plan in fragment.plans]
        writers = [plan for plan in plans if plan.result.dma is not None and plan.result.dma.buffer == surface]
        if surface not in kernels or not writers:
            continue
        inside = replace(values[name], buffer=Buffer(f"{name} in scratch", Space.SURFACE))
        for fragment in fragments:
            fragment.plans = [_rename(plan, surface, inside.buffer) for plan in fragment.plans]
        copy = ne_stream(context.target, copy_of(context.target, inside), inside, values[name])
        copy = copy.but(op=writers[-1].op, note="a copy of a result that is a kernel")
        values[inside.buffer.name] = inside
        fragments.append(Fragment(context, [copy]))


def _rename(plan: Plan, old: Buffer, new: Buffer) -> Plan:
    for side in SIDES:
        dma = plan.operand(side).dma
        if dma is not None and dma.buffer == old:
            plan = plan.on(side, dma=replace(dma, buffer=new))
    if plan.kernel is not None and plan.kernel.source == old:
        plan = plan.but(kernel=replace(plan.kernel, source=new))
    return plan
