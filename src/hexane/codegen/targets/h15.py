"""H15 (A16, M3 family): dimensions as H14 has them, everything else as H16 (docs/parity.md)."""

from __future__ import annotations

from hexane.codegen.encode import Fields
from hexane.codegen.plan import Plan
from hexane.codegen.targets.later import Later
from hexane.frozen import replace

FIVE_BITS = 0x1F  # a binary point of five bits in a field of six


class H15(Later):
    name = generation = "h15"
    idle_unicast = 1
    choices = replace(Later.choices, weighs_pairs=True)
    examples = frozenset({"elementwise", "power", "product", "real_div", "relu", "table_function"})

    def common(self, plan: Plan, values: Fields) -> None:
        super().common(plan, values)
        values["Common.Cfg.One"] = 0
        if plan.unit == "NE":
            values["NE.MACCfg.BinaryPoint"] = plan.ne.binary_point & FIVE_BITS
