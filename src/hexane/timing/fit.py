"""Fitting the free constants to published times: robust, regularised, hierarchical over chips.

The unknowns are logarithms: one number per parameter that all chips share, and for some parameters a factor per chip.
Each has a normal prior around its round first guess (``hexane.timing.parameters``); residuals are log ratios under a
pseudo-Huber loss, so that an outlier pulls with bounded force. Damped Gauss-Newton steps with numeric derivatives; a
chip's factor touches only that chip's rows, so a fit costs about (parameters + chips x chip parameters / chips) passes
over the rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hexane.timing.measured import Case, predict_case
from hexane.timing.parameters import PARAMETERS, Parameter
from hexane.timing.units import Numbers

SCALE = 0.06
"""Log ratio at which a residual begins to count as an outlier: twice the scatter of repeated measurements (§11)."""
TRUST = {"A": 1.0, "B": 0.9, "C": 0.7}
SHARED = "shared"
_STEP = 1e-4


@dataclass(frozen=True)
class Sample:
    """One measured point: its case, the number (``us`` for a time), who it belongs to and how far to trust it."""

    case: Case
    us: float
    kind: str
    series: str
    trust: str = "A"

    @property
    def chip(self) -> str:
        return self.case.chip.name


@dataclass
class Fitted:
    """Logarithms of shared numbers and of chip factors, their standard errors, and the rows that speak for each."""

    parameters: Sequence[Parameter]
    log: dict[tuple[str, str], float]
    error: dict[tuple[str, str], float]
    rows: dict[tuple[str, str], int]

    def numbers(self, chip: str) -> dict[str, float]:
        """The constants of one chip; one that the fit never saw gets what all chips share."""
        return {
            p.name: math.exp(self.log[(SHARED, p.name)] + self.log.get((chip, p.name), 0.0)) for p in self.parameters
        }


Model = Callable[[Case, Numbers], float]


def fit(
    samples: Sequence[Sample],
    *,
    parameters: Sequence[Parameter] = PARAMETERS,
    model: Model = predict_case,
    rounds: int = 25,
) -> Fitted:
    """Fit the constants of ``model`` to ``samples``, from the round first guesses of ``parameters``."""
    chips = sorted({sample.chip for sample in samples})
    names = [(SHARED, p.name) for p in parameters]
    names += [(chip, p.name) for chip in chips for p in parameters if p.chip_spread]
    table = {p.name: p for p in parameters}
    prior = np.array([math.log(table[name].start) if owner == SHARED else 0.0 for owner, name in names])
    spread = np.array([_spread(table[name], owner) for owner, name in names])
    x = prior.copy()
    index = {key: i for i, key in enumerate(names)}
    members: dict[str, list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        members[sample.chip].append(i)
    weight = _weights(samples)

    def residuals(x: np.ndarray, chip: str) -> np.ndarray:
        c = {
            p.name: math.exp(x[index[(SHARED, p.name)]] + (x[index[(chip, p.name)]] if p.chip_spread else 0.0))
            for p in parameters
        }
        return np.array([math.log(model(samples[i].case, c) / samples[i].us) for i in members[chip]])

    def all_residuals(x: np.ndarray) -> np.ndarray:
        r = np.empty(len(samples))
        for chip in chips:
            r[members[chip]] = residuals(x, chip)
        return r

    def loss(r: np.ndarray, x: np.ndarray) -> float:
        z = r / SCALE * weight
        return float((2 * (np.sqrt(1 + z * z) - 1)).sum() + (((x - prior) / spread) ** 2).sum())

    def derivatives(x: np.ndarray, r: np.ndarray) -> np.ndarray:
        jacobian = np.zeros((len(samples), len(names)))
        for j, (owner, _) in enumerate(names):
            moved = x.copy()
            moved[j] += _STEP
            for chip in chips if owner == SHARED else [owner]:
                jacobian[members[chip], j] = (residuals(moved, chip) - r[members[chip]]) / _STEP
        return jacobian

    r = all_residuals(x)
    best, damping = loss(r, x), 1e-2
    normal = np.eye(len(names))
    jacobian = np.zeros((len(samples), len(names)))
    for _ in range(rounds):
        jacobian = derivatives(x, r)
        z = r / SCALE * weight
        w = weight / SCALE / (1 + z * z) ** 0.25
        rows = np.vstack([jacobian * w[:, None], np.diag(1 / spread)])
        rhs = np.concatenate([r * w, (x - prior) / spread])
        normal = rows.T @ rows
        gain = 0.0
        for _ in range(6):
            step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), rows.T @ rhs)
            trial = x + np.clip(step, -0.5, 0.5)
            r_trial = all_residuals(trial)
            value = loss(r_trial, trial)
            if value < best:
                gain, best, x, r, damping = best - value, value, trial, r_trial, damping / 4
                break
            damping *= 5
        if gain < 0.05:
            break
    error = np.sqrt(np.clip(np.diag(np.linalg.inv(normal)), 0, None))
    touched = (np.abs(jacobian) > 1e-3).sum(axis=0)
    return Fitted(
        parameters,
        {key: float(v) for key, v in zip(names, x)},
        {key: float(v) for key, v in zip(names, error)},
        {key: int(v) for key, v in zip(names, touched)},
    )


def _spread(parameter: Parameter, owner: str) -> float:
    return parameter.spread if owner == SHARED else parameter.chip_spread


def _weights(samples: Sequence[Sample]) -> np.ndarray:
    """Trust, and a gentle evening-out of (chip, kind) cells, so that the M6's many chains do not drown the rest."""
    size: dict[tuple[str, str], int] = defaultdict(int)
    for sample in samples:
        size[(sample.chip, sample.kind)] += 1
    return np.array([TRUST[s.trust] * size[(s.chip, s.kind)] ** -0.25 for s in samples])


def folds(samples: Sequence[Sample], count: int, seed: int = 0) -> list[list[int]]:
    """Indices of ``count`` test sets; all rows of a series fall into the same one."""
    series = sorted({sample.series for sample in samples})
    np.random.default_rng(seed).shuffle(series)
    place = {name: i % count for i, name in enumerate(series)}
    return [[i for i, s in enumerate(samples) if place[s.series] == k] for k in range(count)]


def cross_validate(samples: Sequence[Sample], count: int = 40, *, seed: int = 0) -> np.ndarray:
    """Log ratio of prediction over measurement for every sample, each from a fit that never saw its series.

    Every constant is fitted anew in each fold, from the round first guesses.
    """
    out = np.empty(len(samples))
    for test in folds(samples, count, seed):
        held = set(test)
        fitted = fit([s for i, s in enumerate(samples) if i not in held])
        for i in test:
            out[i] = math.log(predict_case(samples[i].case, fitted.numbers(samples[i].chip)) / samples[i].us)
    return out


def factor(log_ratios: Sequence[float] | np.ndarray) -> float:
    """Mean factor error: exp of the mean absolute log ratio."""
    return float(np.exp(np.mean(np.abs(log_ratios)))) if len(log_ratios) else 1.0
