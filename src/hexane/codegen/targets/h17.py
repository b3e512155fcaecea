"""H17 (A18; h17g, h17s: M5 family) and H18 (A19).

Source: docs/reference/generations.md 10.1.
"""

from __future__ import annotations

from hexane.codegen.encode import Fields
from hexane.codegen.geometry import largest_shape
from hexane.codegen.operations import Element
from hexane.codegen.plan import Plan
from hexane.codegen.targets.h16 import H16, H16G
from hexane.frozen import replace


class H17(H16):
    """A18."""

    name = generation = "h17"
    marks_slow_tables = True
    writer = 2
    choices = replace(H16.choices, whole_powers=False)
    examples = frozenset("elementwise leaky_relu planar_function power product real_div relu table_function".split())

    def common(self, plan: Plan, values: Fields) -> None:
        super().common(plan, values)
        weighted = plan.kernel is not None and plan.kernel.source is None and not self.only_table(plan)
        if weighted and plan.kernel_format.element is Element.FP16:
            values["NE.KernelCfg.DetectZeros"] = 1


class H17G(H17):
    """M5: M4's rates; small-source tasks with kernels of any length, with the tallest patch beyond 64 KiB per core."""

    name = "h17g"
    choices = replace(H17.choices, small_kernel_bytes=1 << 31, small_patch_bytes=0x10000)
    bytes_per_us = H16G.bytes_per_us
    macs_per_us = H16G.macs_per_us
    examples = frozenset()


class H17S(H17G):
    """M5 Pro, M5 Max: no program is recorded."""

    name = "h17s"


class H18(H17):
    """A19. H17 takes Winograd's form by itself, H18 has a bit that asks for it (docs/reference/numerics.md 6).

    Products of few rows have a form of their own; between 8 and 64 rows nothing is seen.
    """

    name = generation = "h18"
    choices = replace(H17.choices, small_kernel_bytes=1 << 31, planar_powers=True)
    bytes_per_us = 60000.0
    macs_per_us = H16G.macs_per_us
    pace = 3.464 / 4.44

    def common(self, plan: Plan, values: Fields) -> None:
        super().common(plan, values)
        if plan.unit == "NE":
            values["Common.Cfg.Winograd1D"] = takes_winograd(plan)
        if has_few_rows(plan):
            values["NE.MACCfg.SmallSource"], values["NE.KernelCfg.DetectZeros"] = 1, 0

    def adapt(self, plan: Plan) -> Plan:
        if plan.small_source and plan.kernel is not None and plan.window.taps == 1:
            few = 4 if max(plan.kernel.sizes) > LONG_KERNEL else 1
            side = few if has_few_rows(plan) else largest_shape(plan.wout, plan.hout)
            plan = plan.but(shape=(side, side, side))
        return super().adapt(plan)

    def destination(self, plan: Plan, values: Fields) -> None:
        super().destination(plan, values)
        padded = values.pop("TileDMADst.Fmt.ZeroPadFirst", 0), values.pop("TileDMADst.Fmt.ZeroPadLast", 0)
        if all(padded):
            values["TileDMADst.Fmt.ZeroPad"] = 15


FEW_ROWS = 8
LONG_KERNEL = 0x10000  # bytes per core


def has_few_rows(plan: Plan) -> bool:
    """True where a task is a dense fp16 product of at most eight rows."""
    dense = plan.kernel is not None and plan.kernel_format.element is Element.FP16 and not plan.kernel_format.sparse
    return plan.small_source and dense and plan.window.taps == 1 and plan.wout * plan.hout <= FEW_ROWS


def takes_winograd(plan: Plan) -> bool:
    """True where a task is one for Winograd's form: a dense fp16 kernel of three columns at stride 1."""
    if plan.kernel is None or plan.unicast or plan.ne.ones:
        return False
    dense = plan.kernel_format.element is Element.FP16 and not plan.kernel_format.sparse
    return dense and plan.window.kw == 3 and plan.window.kh in (1, 3) and not plan.window.strided
