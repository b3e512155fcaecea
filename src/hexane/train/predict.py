"""Predicted time and energy of a training step, on every chip."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from hexane import chips
from hexane.chips import Chip
from hexane.errors import HexaneError, UnsupportedError
from hexane.timing import Estimate, estimate
from hexane.train.programs import Programs


@dataclass(frozen=True)
class StepCost:
    """Forward and backward pass on a chip: microseconds, millijoules of the engine's rail, engine programs, the share
    of multiply-accumulates on the engine. ``basis``: "program" (hexane's own, task by task) or "network" (layer by
    layer, as one program of Apple's compiler, where hexane writes none for the chip).

    Not counted: loss, optimiser and gradients of weights that the host computes; copies of weights into surfaces.
    """

    chip: str
    forward_us: float
    backward_us: float
    energy_mj: float
    launches: int
    on_engine: float
    basis: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def step_costs(programs: Programs, targets: Iterable[str | Chip] | None = None) -> list[StepCost]:
    """A row for each chip, by default every one."""
    rows, compiled = [], dict[str, Any]()
    for target in map(chips.get, targets or chips.CHIPS):
        name = target.generation_name
        if name not in compiled:
            try:
                compiled[name] = programs.compiled_for(target)
            except HexaneError:  # no code for the chip, or more surfaces than its programs have slots for
                compiled[name] = None
        parts = compiled[name] or programs.bound_graphs()
        try:
            first, *rest = estimates = [estimate(part, target) for part in parts]
        except UnsupportedError:  # nobody knows what becomes of a network there
            if targets is not None:
                raise
            continue
        share = min((part.stats()["macs_on_engine"] for part in compiled[name] or ()), default=1.0)
        rows.append(_row(target, first, rest, estimates, share))
    return rows


def _row(target: Chip, first: Estimate, rest: list[Estimate], all_of: list[Estimate], share: float) -> StepCost:
    return StepCost(
        target.name,
        first.latency_us,
        sum(part.latency_us for part in rest),
        sum(part.energy_mj for part in all_of),
        sum(part.parts.launches for part in all_of),
        share,
        first.basis,
    )
