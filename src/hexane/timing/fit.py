"""Fitting the free constants to published times: robust, regularised, hierarchical over chips.

The unknowns are logarithms: one number per parameter that all chips share, for some a factor per family or chip.
Each has a normal prior around its round first guess (``hexane.timing.parameters``); residuals are log ratios under
Student's t, so that rows which contradict all others lose their pull; a pseudo-Huber fit leads there. Damped
Gauss-Newton steps with numeric derivatives, taken only along the constants that a prediction asks for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hexane.chips import Chip
from hexane.timing.measured import Case, predict_case
from hexane.timing.parameters import PARAMETERS, Parameter
from hexane.timing.units import Numbers

SCALE = 0.06
"""Log ratio at which a residual begins to count as an outlier: twice the scatter of repeated measurements (§11)."""
TAIL = 1.0
"""Degrees of freedom of the residuals' distribution: the heaviest tails, Cauchy's. Repetitions scatter by 1.03 on
average and by 1.10 at the 90th percentile (§11), and one machine's rows of equal work differ by up to 1.5."""
TRUST = {"A": 1.0, "B": 0.9, "C": 0.7}
SHARED = "shared"
LEAVE_ONE_OUT = 10_000
"""Folds: more than there are series, so that each fold leaves out one."""
NEAR, ENOUGH = 0.2, 0.01
"""A step that lowers the loss (a sum of squares in units of ``SCALE``) by less ends the way there, and the fit."""
_STEP = 1e-4


@dataclass(frozen=True)
class Shape:
    """How much a residual counts, in units of ``SCALE``: its loss, and the square root of its weight in a step."""

    loss: Callable[[np.ndarray], np.ndarray]
    pull: Callable[[np.ndarray], np.ndarray]


HUBER = Shape(lambda z: 2 * (np.sqrt(1 + z * z) - 1), lambda z: (1 + z * z) ** -0.25)
"""Pseudo-Huber: convex in the residuals, so a fit finds its way from the first guesses."""
STUDENT = Shape(lambda z: TAIL * np.log1p(z * z / TAIL), lambda z: (1 + z * z / TAIL) ** -0.5)
"""Student's t: rows that contradict all others lose their pull. Where a fit ends."""


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
    """Logarithms of shared numbers, of family and of chip factors, their standard errors and the rows behind each.

    Keys are (owner, parameter): the owner is ``shared``, a family or a chip.
    """

    parameters: Sequence[Parameter]
    log: dict[tuple[str, str], float]
    error: dict[tuple[str, str], float]
    rows: dict[tuple[str, str], int]

    def numbers(self, owners: Sequence[str]) -> dict[str, float]:
        """The constants under ``owners`` (a chip and its family, see ``owners_of``); unseen ones add nothing."""
        return {
            p.name: math.exp(sum(self.log.get((owner, p.name), 0.0) for owner in (SHARED, *owners)))
            for p in self.parameters
        }

    def of(self, chip: Chip) -> dict[str, float]:
        """The constants of one chip."""
        return self.numbers((chip.generation.family, chip.name))


Model = Callable[[Case, Numbers], float]


class _Watched(dict):
    """Constants that remember which of them were asked for."""

    def __init__(self, numbers: Mapping[str, float]) -> None:
        super().__init__(numbers)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.asked.add(name)
        return super().__getitem__(name)


def fit(
    samples: Sequence[Sample],
    *,
    parameters: Sequence[Parameter] = PARAMETERS,
    model: Model = predict_case,
    shape: Shape = STUDENT,
    rounds: int = 60,
) -> Fitted:
    """Fit the constants of ``model`` to ``samples``, from the round first guesses of ``parameters``.

    ``shape`` is what a residual counts at the end; the way there is pseudo-Huber, which has one lowest point.
    """
    problem = _Problem(samples, parameters, model)
    x, _, _ = _minimise(problem, problem.prior.copy(), HUBER, rounds, NEAR)
    x, jacobian, normal = _minimise(problem, x, shape, rounds, ENOUGH)
    error = np.sqrt(np.clip(np.diag(np.linalg.inv(normal)), 0, None))
    touched = (np.abs(jacobian) > 1e-3).sum(axis=0)
    keys = problem.keys
    return Fitted(
        parameters,
        {key: float(v) for key, v in zip(keys, x)},
        {key: float(v) for key, v in zip(keys, error)},
        {key: int(v) for key, v in zip(keys, touched)},
    )


def _minimise(
    problem: _Problem, x: np.ndarray, shape: Shape, rounds: int, enough: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Damped Gauss-Newton steps from ``x``: the best point, the derivatives and the normal matrix there."""
    r = problem.residuals(x)
    best, damping = problem.loss(r, x, shape), 1e-2
    jacobian, normal = np.zeros((len(r), len(x))), np.eye(len(x))
    for _ in range(rounds):
        jacobian = problem.derivatives(x, r)
        w = problem.weight / SCALE * shape.pull(r / SCALE * problem.weight)
        rows = np.vstack([jacobian * w[:, None], np.diag(1 / problem.spread)])
        rhs = np.concatenate([r * w, (x - problem.prior) / problem.spread])
        normal = rows.T @ rows
        gain = 0.0
        for _ in range(6):
            step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), rows.T @ rhs)
            trial = x + np.clip(step, -0.5, 0.5)
            r_trial = problem.residuals(trial)
            value = problem.loss(r_trial, trial, shape)
            if value < best:
                gain, best, x, r, damping = best - value, value, trial, r_trial, damping / 4
                break
            damping *= 5
        if gain < enough:
            break
    return x, jacobian, normal


class _Problem:
    """The least-squares problem: unknowns with their priors, residuals and their derivatives."""

    def __init__(self, samples: Sequence[Sample], parameters: Sequence[Parameter], model: Model) -> None:
        self.samples, self.parameters, self.model = samples, parameters, model
        self.weight = _weights(samples)
        chips = {sample.chip: sample.case.chip for sample in samples}
        families = sorted({chip.generation.family for chip in chips.values()})
        self.keys = [(SHARED, p.name) for p in parameters]
        self.keys += [(family, p.name) for family in families for p in parameters if p.family_spread]
        self.keys += [(name, p.name) for name in sorted(chips) for p in parameters if p.chip_spread]
        table = {p.name: p for p in parameters}
        self.prior = np.array([math.log(table[n].start) if owner == SHARED else 0.0 for owner, n in self.keys])
        self.spread = np.array(
            [
                table[n].spread
                if owner == SHARED
                else table[n].family_spread
                if owner in families
                else table[n].chip_spread
                for owner, n in self.keys
            ]
        )
        index = {key: i for i, key in enumerate(self.keys)}
        self.columns: dict[str, dict[str, list[int]]] = {}
        for name, chip in chips.items():
            owners = (SHARED, chip.generation.family, name)
            self.columns[name] = {
                p.name: [index[(owner, p.name)] for owner in owners if (owner, p.name) in index] for p in parameters
            }

    def _constants(self, x: np.ndarray) -> dict[str, dict[str, float]]:
        return {
            chip: {name: math.exp(sum(x[j] for j in columns)) for name, columns in table.items()}
            for chip, table in self.columns.items()
        }

    def _residual(self, sample: Sample, c: Numbers) -> float:
        return math.log(self.model(sample.case, c) / sample.us)

    def residuals(self, x: np.ndarray) -> np.ndarray:
        constants = self._constants(x)
        return np.array([self._residual(sample, constants[sample.chip]) for sample in self.samples])

    def loss(self, r: np.ndarray, x: np.ndarray, shape: Shape) -> float:
        z = r / SCALE * self.weight
        return float(shape.loss(z).sum() + (((x - self.prior) / self.spread) ** 2).sum())

    def derivatives(self, x: np.ndarray, r: np.ndarray) -> np.ndarray:
        """Only constants that a sample's prediction asks for are moved: some dozen of the sixty."""
        constants = self._constants(x)
        jacobian = np.zeros((len(self.samples), len(x)))
        for i, sample in enumerate(self.samples):
            watched = _Watched(constants[sample.chip])
            self.model(sample.case, watched)
            moved = dict(watched)
            for name in watched.asked:
                kept = moved[name]
                moved[name] = kept * math.exp(_STEP)
                slope = (self._residual(sample, moved) - r[i]) / _STEP
                moved[name] = kept
                for j in self.columns[sample.chip][name]:
                    jacobian[i, j] = slope
        return jacobian


def _weights(samples: Sequence[Sample]) -> np.ndarray:
    """Trust, and a gentle evening-out of (chip, kind) cells, so that the M6's many chains do not drown the rest."""
    size: dict[tuple[str, str], int] = defaultdict(int)
    for sample in samples:
        size[(sample.chip, sample.kind)] += 1
    return np.array([TRUST[s.trust] * size[(s.chip, s.kind)] ** -0.25 for s in samples])


def folds(samples: Sequence[Sample], count: int, seed: int = 0) -> list[list[int]]:
    """Indices of ``count`` test sets (at most one per series); all rows of a series fall into the same one."""
    series = sorted({sample.series for sample in samples})
    count = min(count, len(series))
    np.random.default_rng(seed).shuffle(series)
    place = {name: i % count for i, name in enumerate(series)}
    return [[i for i, s in enumerate(samples) if place[s.series] == k] for k in range(count)]


def cross_validate(samples: Sequence[Sample], count: int = LEAVE_ONE_OUT, *, seed: int = 0) -> np.ndarray:
    """Log ratio of prediction over measurement for every sample, each from a fit that never saw its series.

    Every constant is fitted anew in each fold, from the round first guesses.
    """
    out = np.empty(len(samples))
    for test in folds(samples, count, seed):
        held = set(test)
        fitted = fit([s for i, s in enumerate(samples) if i not in held])
        for i in test:
            out[i] = math.log(predict_case(samples[i].case, fitted.of(samples[i].case.chip)) / samples[i].us)
    return out


def factor(log_ratios: Sequence[float] | np.ndarray) -> float:
    """Mean factor error: exp of the mean absolute log ratio."""
    return float(np.exp(np.mean(np.abs(log_ratios)))) if len(log_ratios) else 1.0
