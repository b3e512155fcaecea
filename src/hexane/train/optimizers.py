"""Optimisers over float32 weights on the host: every operation in float32, in one order, so that runs repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hexane.errors import UsageError

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Optimizer:
    """``lr``: the rate, which a schedule multiplies; ``weight_decay``: see each optimiser."""

    lr: float = 1e-2
    weight_decay: float = 0.0

    MOMENTS: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays that are remembered for each weight, zero at first."""

    def begin(self, weights: Mapping[str, np.ndarray]) -> Arrays:
        """Moments before the first step: ``MOMENT.WEIGHT`` to zeros."""
        return {f"{moment}.{name}": np.zeros_like(array) for moment in self.MOMENTS for name, array in weights.items()}

    def apply(
        self, weights: Arrays, gradients: Mapping[str, np.ndarray], moments: Arrays, rate: float, count: int
    ) -> None:
        """One step, weights and moments changed in place; ``rate`` by the schedule, ``count`` of this step from 1."""
        for name, gradient in gradients.items():
            mine = [moments[f"{moment}.{name}"] for moment in self.MOMENTS]
            self._apply(weights[name], gradient.astype(np.float32, copy=False), mine, np.float32(rate), count)

    def _apply(self, w: np.ndarray, g: np.ndarray, moments: list[np.ndarray], rate: np.float32, count: int) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class SGD(Optimizer):
    """w -= lr v, v = momentum v + g (+ weight_decay w in g); with ``nesterov`` w -= lr (g + momentum v)."""

    momentum: float = 0.0
    nesterov: bool = False

    MOMENTS: ClassVar[tuple[str, ...]] = ("velocity",)

    def _apply(self, w: np.ndarray, g: np.ndarray, moments: list[np.ndarray], rate: np.float32, count: int) -> None:
        if self.weight_decay:
            g = g + np.float32(self.weight_decay) * w
        (velocity,) = moments
        velocity *= np.float32(self.momentum)
        velocity += g
        w -= rate * (g + np.float32(self.momentum) * velocity if self.nesterov else velocity)


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015) with corrected moments; ``weight_decay`` is added to the gradient."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    MOMENTS: ClassVar[tuple[str, ...]] = ("first", "second")
    DECOUPLED: ClassVar[bool] = False

    def _apply(self, w: np.ndarray, g: np.ndarray, moments: list[np.ndarray], rate: np.float32, count: int) -> None:
        if self.weight_decay and self.DECOUPLED:
            w -= rate * np.float32(self.weight_decay) * w
        elif self.weight_decay:
            g = g + np.float32(self.weight_decay) * w
        for moment, beta, term in zip(moments, self.betas, (g, g * g)):
            moment *= np.float32(beta)
            moment += np.float32(1 - beta) * term
        first, second = moments
        size = np.sqrt(second / np.float32(1 - self.betas[1] ** count)) + np.float32(self.eps)
        w -= rate / np.float32(1 - self.betas[0] ** count) * first / size


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose ``weight_decay`` shrinks the weights beside the step (Loshchilov and Hutter, 2019)."""

    weight_decay: float = 1e-2

    DECOUPLED: ClassVar[bool] = True


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def optimizer_of(optimizer: str | Optimizer) -> Optimizer:
    """An optimiser by name with its defaults, or the object itself; UsageError for another name."""
    if isinstance(optimizer, Optimizer):
        return optimizer
    if not isinstance(optimizer, str) or optimizer not in OPTIMIZERS:
        names = ", ".join(kind.__name__ for kind in OPTIMIZERS.values())
        raise UsageError(f"there is no optimizer {optimizer!r}", hint=f"one of {', '.join(OPTIMIZERS)}, or {names}")
    return OPTIMIZERS[optimizer]()


def clipped(gradients: Arrays, norm: float | None) -> tuple[Arrays, float]:
    """Gradients scaled down so that the root of the sum of all squares is at most ``norm``; that root before."""
    size = float(np.sqrt(sum(float(np.square(g, dtype=np.float64).sum()) for g in gradients.values())))
    if norm is None or not np.isfinite(size) or size <= norm:
        return gradients, size
    return {name: g * np.float32(norm / size) for name, g in gradients.items()}, size
