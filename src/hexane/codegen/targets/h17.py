"""H17 (A18; h17g, h17s: M5 family) and H18 (A19).

Source: docs/reference/generations.md 10.1.
"""

from __future__ import annotations

from dataclasses import replace

from hexane.codegen.encode import Fields
from hexane.codegen.operations import Element
from hexane.codegen.plan import Plan
from hexane.codegen.targets.h16 import H16, H16G


class H17(H16):
    """A18."""

    name = generation = "h17"
    marks_slow_tables = True
    writer = 2
    shown = frozenset(
        {"elementwise", "leaky_relu", "planar_function", "power", "product", "real_div", "relu", "table_function"}
    )

    def common(self, plan: Plan, values: Fields) -> None:
        super().common(plan, values)
        weighted = plan.kernel is not None and plan.kernel.source is None and not self.only_table(plan)
        if weighted and plan.kernel_format.element is Element.FP16:
            values["NE.KernelCfg.DetectZeros"] = 1


class H17G(H17):
    """M5: M4's rates; small-source tasks with kernels of any length, with the tallest patch beyond 64 KiB per core."""

    name = "h17g"
    choices = replace(H16.choices, small_kernel_bytes=1 << 31, small_patch_bytes=0x10000)
    bytes_per_us = H16G.bytes_per_us
    macs_per_us = H16G.macs_per_us
    shown = frozenset()


class H17S(H17G):
    """M5 Pro, M5 Max: no program is recorded."""

    name = "h17s"


class H18(H17):
    """A19. H17 takes Winograd's form by itself, H18 has a bit that asks for it (docs/reference/numerics.md 6)."""

    name = generation = "h18"
    bytes_per_us = 60000.0
    macs_per_us = H16G.macs_per_us
    shown = frozenset()

    def common(self, plan: Plan, values: Fields) -> None:
        super().common(plan, values)
        if plan.unit == "NE":
            values["Common.Cfg.Winograd1D"] = takes_winograd(plan)


def takes_winograd(plan: Plan) -> bool:
    """Whether a task is one for Winograd's form: a dense fp16 kernel of three columns at stride 1."""
    if plan.kernel is None or plan.unicast or plan.mac.ones:
        return False
    dense = plan.kernel_format.element is Element.FP16 and not plan.kernel_format.sparse
    return dense and plan.kw == 3 and plan.kh in (1, 3) and (plan.sx, plan.sy) == (1, 1)
