"""Tasks whose operands turn out to stay in L2, in the form that they have there (chains on M4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.codegen.geometry import PATCH_PIXELS, largest_shape, pe_patch
from hexane.codegen.operations import After, Element, NeOp, SourceType
from hexane.codegen.plan import Plan
from hexane.codegen.recipes.reduce import fold_row, folds
from hexane.frozen import replace

if TYPE_CHECKING:
    from hexane.codegen.targets import Target


def refit(target: Target, recipe: Plan, plan: Plan) -> Plan:
    """A recipe's task whose source or result stays now, as the target's compiler writes it."""
    if recipe.source.type is not plan.source.type and _is_long_row(plan):
        return _folded(plan)
    stays = recipe.result.type is not plan.result.type and target.choices.stacks_units
    return _on_pairs(plan) if stays and _is_lone_core(plan) else plan


def _is_long_row(plan: Plan) -> bool:
    """True for rows that the planar engine reduces whole, of a map that the cores left in L2."""
    by_cores = plan.source.type is SourceType.RESIDENT and After.NE_RESULT in plan.source.after
    return plan.pe.reduces and by_cores and plan.h == 1 and folds(plan.w)


def _folded(plan: Plan) -> Plan:
    row = plan.w // 2
    plan = fold_row(plan, plan.w)
    return plan.reading(region=replace(plan.source.region, row=row)).but(patch=pe_patch(plan.w, plan.h, operands=1))


def _is_lone_core(plan: Plan) -> bool:
    """True for a copy or table on one core that brings a map of several patches and leaves it in L2."""
    if not plan.unicast_pixel or plan.out_trans or plan.ne.op is not NeOp.BYPASS or plan.cores_log2:
        return False
    brings = plan.source.transfer is not None and plan.source.element is Element.FP16 and plan.groups == 1
    return brings and plan.result.dma is None and plan.wout * plan.hout > PATCH_PIXELS


def _on_pairs(plan: Plan) -> Plan:
    """Patches of twice the pixels, each a tile of its own, no work units above each other."""
    s = largest_shape(plan.wout, plan.hout, 2 * PATCH_PIXELS)
    return plan.but(fat_tile=True, stack_log2=0, shape=(s, s, s), tile=min(plan.hout, 1 << s))
