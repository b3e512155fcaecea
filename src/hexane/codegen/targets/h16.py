"""H16 (A17 Pro; h16g: M4 family): a register for every extent, weights and tables in a section of their own."""

from __future__ import annotations

from hexane.codegen.encode import Fields
from hexane.codegen.operations import Element, NeOp
from hexane.codegen.plan import Plan
from hexane.codegen.targets.later import Later
from hexane.frozen import replace

ROOT_PATCH_NS = 9.33
"""M4: a patch of a table of shifted values, per output of a core (rsqrt of 256x256 to 1024x1024: 9.28 to 9.40)."""
BYTES = (Element.INT8, Element.UINT8)


class H16(Later):
    name = generation = "h16"
    kernel_section = True
    examples = frozenset(
        """
        convolution elementwise leaky_relu planar_function power product real_div relu table_function
        """.split()
    )
    marks_slow_tables = False
    choices = replace(
        Later.choices, fat_tiles=True, stacks_units=True, plain_columns=True, rows_as_channels=True, ring_of_sums=True,
        whole_powers=True,
    )  # fmt: skip

    def common(self, plan: Plan, values: Fields) -> None:
        super().common(plan, values)
        if plan.unit == "NE":
            values["Common.Cfg.FatTile"] = plan.fat_tile
            values["Common.Cfg.WUStackLog2"] = plan.stack_log2
            if plan.source.element in BYTES and plan.kernel_format.element is Element.INT8:
                values["NE.MACCfg.DoubleInt8"] = True


class H16G(H16):
    """M4: the same words, twice H13's rate of memory."""

    name = "h16g"
    examples = H16.examples | {"byte_chain", "convolution_to_pixels", "to_channels", "to_pixels"}
    choices = replace(H16.choices, lone_elements=True)
    bytes_per_us = 68300.0
    macs_per_us = 4096 * 2364.0

    def duration(self, plan: Plan) -> int:
        time = super().duration(plan)
        if not (plan.table and plan.unicast and plan.ne.op is NeOp.SUM):
            return time
        return max(time, int(plan.lanes * plan.patches * ROOT_PATCH_NS / 1000))
