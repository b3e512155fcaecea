"""The loss scale: gradients are computed this much larger, since the engine drops small products and keeps few bits."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from hexane.errors import UsageError

AUTO, DYNAMIC, FIXED = "auto", "dynamic", "fixed"
FIRST = 2.0**15
"""Where a dynamic scale begins that nothing is computed for."""
LARGEST, SMALLEST = 2.0**24, 2.0**-14
PATIENCE = 200
"""Steps without an infinity after which the scale doubles; an "auto" one is computed again instead."""


@dataclass
class LossScale:
    """``value`` multiplies the gradient of the loss, and gradients of weights are divided by it on the host.

    ``rule``: "fixed"; "dynamic" (halved when a gradient is infinite, doubled after 200 steps without); "auto" (computed
    from headroom and vanishing products, `hexane.train.vanishing`, at the first step and every 200 steps; halved in
    between when a gradient is infinite). A step whose gradients are not finite changes no weight, by every rule.
    """

    value: float
    rule: str
    good: int = 0
    skipped: int = 0

    @property
    def is_due(self) -> bool:
        """True where the scale is to be computed before the next step."""
        return self.rule == AUTO and self.good == 0

    def compute(self, value: float) -> None:
        """Record of what was computed; the next 200 steps go by it."""
        self.value, self.good = value, 1

    def after(self, finite: bool) -> None:
        """A step was computed: with finite gradients, or skipped."""
        if not finite:
            self.skipped += 1
        if self.rule == FIXED:
            return
        if not finite:
            self.value, self.good = max(self.value / 2, SMALLEST), 1
        elif self.good > PATIENCE:
            self.good = 0
            if self.rule == DYNAMIC:
                self.value = min(self.value * 2, LARGEST)
        else:
            self.good += 1


def loss_scale_of(scale: str | float | None) -> LossScale:
    """None is no scale, a number a fixed one, else "auto" or "dynamic"; UsageError for anything else."""
    if scale is None:
        return LossScale(1.0, FIXED)
    if isinstance(scale, str):
        if scale not in (AUTO, DYNAMIC):
            raise UsageError(f"there is no loss scale {scale!r}", hint="None, auto, dynamic or a number")
        return LossScale(FIRST, scale)
    if isinstance(scale, bool) or not isfinite(scale) or scale <= 0:
        raise UsageError(f"a loss scale of {scale!r}", hint="a number above 0, best a power of two")
    return LossScale(float(scale), FIXED)
