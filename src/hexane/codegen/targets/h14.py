"""H14 (A15, M2 family)."""

from __future__ import annotations

from hexane.codegen import encode
from hexane.codegen.cost import DMA_BYTES_PER_US, NE_TABLE_PATCH_NS, PE_VALUE_NS, dma_bytes
from hexane.codegen.encode import Fields
from hexane.codegen.operations import After
from hexane.codegen.plan import Plan
from hexane.codegen.targets.packed import CHOICES, Packed, Turn
from hexane.frozen import replace

ONE_CORE_PATCH_NS = 10.5
"""Of a copy: 256 x 64 takes 1 us, 256 x 256 takes 5."""

TURNED_PATCH_NS = 0.4
"""Of a turned copy in L2, for each channel, patch and input that a core sees: 256 x 512 takes 3 us, 64 x 1024 none."""

LONGEST_SLOW_ROW = 256
"""Columns of a reduction that go one by one; longer rows go as fast as sums of two operands."""


class H14(Packed):
    name = generation = "h14"
    first_surface = 4
    waits_for_readers = True
    examples = frozenset(
        """
        attention attention_in_chain batched_product convolution elementwise function_and_residual layer_norm
        matrix_chain norm_projection planar_function product real_div reduction runtime_product select softmax
        table_function two_products
        """.split()
    )
    choices = replace(CHOICES, copy_weight=36, alone_side_by_side=False)

    def common(self, plan: Plan, values: Fields) -> None:
        super().common(plan, values)
        if plan.goes_beside:
            values["Common.Cfg.Unk23"] = 1
        values["Common.Cfg.One"] = not (plan.source.dma is None and plan.second.dma is not None)
        values["Common.Cfg.Src2Dma"] = plan.unit == "PE" and plan.second.dma is not None

    def duration(self, plan: Plan) -> int:
        """A map of one channel goes through one core patch by patch."""
        if plan.pe.reduces and plan.w > LONGEST_SLOW_ROW:
            engine = plan.c * plan.groups * plan.w * PE_VALUE_NS / 1000
            return int(max(dma_bytes(plan) / DMA_BYTES_PER_US, engine))
        if plan.out_trans and plan.unicast and plan.source.dma is None:
            return max(super().duration(plan), int(plan.c * plan.patches * plan.unicast * TURNED_PATCH_NS / 1000))
        single = plan.unit == "NE" and plan.unicast == plan.c == plan.cout == plan.groups == 1 and plan.ne.ones
        if not single or plan.streams_in:
            return super().duration(plan)
        rate = NE_TABLE_PATCH_NS if plan.table else ONE_CORE_PATCH_NS
        return max(super().duration(plan), int(plan.patches * rate / 1000))

    def destination(self, plan: Plan, values: Fields) -> None:
        super().destination(plan, values)
        encode.wait_for_reader(plan, values)

    def l2(self, plan: Plan, turn: Turn, values: Fields) -> None:
        super().l2(plan, turn, values)
        if After.FOLLOWS_NE in plan.second.besides:
            values["L2.SourceCfg.Src2Dependent"] = "follows_ne"
