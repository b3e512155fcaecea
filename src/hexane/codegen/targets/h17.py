"""H17 (A18, M5 family) and H18 (A19): H16's words by name; no program of Apple's compiler is recorded word for word."""

from __future__ import annotations

from hexane.codegen.encode import Fields
from hexane.codegen.operations import Element
from hexane.codegen.plan import Plan
from hexane.codegen.targets.h16 import H16G


class H17(H16G):
    """M5."""

    name = generation = "h17"
    shown = frozenset()


class H18(H17):
    """A19. H17 takes Winograd's form by itself, H18 has a bit that asks for it (docs/reference/numerics.md 6)."""

    name = generation = "h18"

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
