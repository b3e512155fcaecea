"""Fitting the free constants to published times: robust, regularised, hierarchical over chips.

The unknowns are logarithms: one number per parameter that all chips share, for some a factor per family or chip.
Each has a normal prior around its round first guess (``hexane.timing.parameters``), which counts as a residual of its
own; the rows' residuals are log ratios under Cauchy's loss, so that rows which contradict all others lose their pull.
``scipy.optimize.least_squares`` does the work (extra ``hexane[fit]``); estimates never load it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hexane.chips import Chip
from hexane.cost.units import Numbers
from hexane.errors import UnsupportedError
from hexane.timing.measured import Case, predict_case
from hexane.timing.parameters import PARAMETERS, SHARED, TimingParameter
from hexane.timing.ranges import Errors
from hexane.timing.sensitivity import STEP, asked, logs, slopes

SCALE = 0.06
"""Log ratio at which a residual begins to count as an outlier: twice the scatter of repeated measurements (1.03 on
average, 1.10 at the 90th percentile; one machine's rows of equal work differ by up to 1.5)."""
TRUST = {"A": 1.0, "B": 0.9, "C": 0.7}
FOLD_ENOUGH = 1e-4
"""When a fold is fitted well enough: what is left to gain then moves no constant by a quarter of its standard error."""
LEAVE_ONE_OUT = 10_000
"""Folds: more than there are series, so that each fold leaves out one."""


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

    Keys are (owner, parameter): the owner is ``shared``, a family or a chip. ``covariance`` is in the keys' order.
    """

    parameters: Sequence[TimingParameter]
    log: dict[tuple[str, str], float]
    error: dict[tuple[str, str], float]
    rows: dict[tuple[str, str], int]
    covariance: np.ndarray

    def numbers(self, owners: Sequence[str]) -> dict[str, float]:
        """The constants under ``owners`` (a chip and its family, see ``owners_of``); unseen ones add nothing."""
        return {
            p.name: math.exp(sum(self.log.get((owner, p.name), 0.0) for owner in (SHARED, *owners)))
            for p in self.parameters
        }

    def of(self, chip: Chip) -> dict[str, float]:
        """The constants of one chip."""
        return self.numbers((chip.generation.family, chip.name))


Model = Callable[[Case, Numbers], Any]


def fit(
    samples: Sequence[Sample],
    *,
    parameters: Sequence[TimingParameter] = PARAMETERS,
    model: Model = predict_case,
    robust: bool = True,
    start: Fitted | None = None,
    enough: float = 1e-8,
) -> Fitted:
    """Fit the constants of ``model`` to ``samples``, from the round first guesses of ``parameters``.

    ``robust``: end at Cauchy's loss, where rows that contradict all others lose their pull (else at soft L1, which
    leads there and has one lowest point). ``start``: an earlier fit to go on from. A step that changes the loss or the
    constants by less than the share ``enough`` is the last. UnsupportedError without scipy.
    """
    problem = _Problem(samples, parameters, model)
    if start is None:
        x = _minimise(problem, problem.prior.copy(), _soft_l1, 1e-3 if robust else enough)
    else:
        x = np.array([start.log.get(key, prior) for key, prior in zip(problem.keys, problem.prior)])
    if robust:
        x = _minimise(problem, x, _cauchy, enough)
    return problem.fitted(x, _cauchy if robust else _soft_l1)


Loss = Callable[[np.ndarray], np.ndarray]


def _cauchy(z: np.ndarray) -> np.ndarray:
    """Cauchy's loss of squared residuals and its two derivatives, as scipy asks for them."""
    return np.array([np.log1p(z), 1 / (1 + z), -1 / (1 + z) ** 2])


def _soft_l1(z: np.ndarray) -> np.ndarray:
    return np.array([2 * (np.sqrt(1 + z) - 1), (1 + z) ** -0.5, -0.5 * (1 + z) ** -1.5])


def _minimise(problem: _Problem, x: np.ndarray, loss: Loss, enough: float) -> np.ndarray:
    """The constants of least loss: robust on the rows, plain squares on the priors."""
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise UnsupportedError("a fit needs scipy", hint="pip install 'hexane[fit]'") from None
    rows = len(problem.samples)

    def shaped(z: np.ndarray) -> np.ndarray:
        plain = np.array([z[rows:], np.ones(len(z) - rows), np.zeros(len(z) - rows)])
        return np.concatenate([loss(z[:rows]), plain], axis=1)

    solution = least_squares(
        problem.residuals, x, jac=problem.jacobian, loss=shaped, x_scale=problem.spread, ftol=enough, xtol=enough,
        gtol=None, max_nfev=80,
    )  # fmt: skip
    return solution.x


class _Problem:
    """The least-squares problem: unknowns with their priors, residuals and their derivatives.

    One pass over the rows gives both: the model takes arrays of constants, each place with another constant moved.
    """

    def __init__(self, samples: Sequence[Sample], parameters: Sequence[TimingParameter], model: Model) -> None:
        self.samples, self.parameters, self.model = samples, parameters, model
        self.weight = _weights(samples) / SCALE
        table = {p.name: p for p in parameters}
        first = {p.name: p.start for p in parameters}
        self._places: dict[Any, list[int]] = defaultdict(list)  # equal cases are evaluated once
        for i, sample in enumerate(samples):
            self._places[sample.case].append(i)
        self._asked = {case: asked(partial(model, case), first) for case in self._places}
        names_needed = {
            (owner, name)
            for case, names in self._asked.items()
            for name in names
            for owner in owners_of(case.chip, table[name])
        }
        order = {p.name: i for i, p in enumerate(parameters)}
        shared = [(SHARED, p.name) for p in parameters]
        self.keys = shared + sorted((k for k in names_needed if k[0] != SHARED), key=lambda k: (k[0], order[k[1]]))
        families = {sample.case.chip.generation.family for sample in samples}
        self.prior = np.array([math.log(table[n].start) if owner == SHARED else 0.0 for owner, n in self.keys])
        self.spread = np.array([_spread(table[n], owner, families) for owner, n in self.keys])
        index = {key: i for i, key in enumerate(self.keys)}
        self._columns = {
            (chip.name, name): [index[(owner, name)] for owner in owners_of(chip, table[name])]
            for case, names in self._asked.items()
            for chip in (case.chip,)
            for name in names
        }
        self._at: np.ndarray | None = None
        self._residuals = np.empty(0)
        self._jacobian = np.empty((0, 0))

    def residuals(self, x: np.ndarray) -> np.ndarray:
        self._evaluate(x)
        return self._residuals

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        self._evaluate(x)
        return self._jacobian

    def _evaluate(self, x: np.ndarray) -> None:
        if self._at is not None and np.array_equal(self._at, x):
            return
        count = len(self.samples)
        residuals = np.empty(count + len(x))
        jacobian = np.zeros((count + len(x), len(x)))
        value = {key: math.exp(sum(x[k] for k in owners)) for key, owners in self._columns.items()}
        for case, names in self._asked.items():
            chip = case.chip.name
            gradients = logs(partial(self.model, case), names, [value[(chip, name)] for name in names])
            follow = (gradients[1:] - gradients[0]) / STEP
            for i in self._places[case]:
                residuals[i] = self.weight[i] * (gradients[0] - math.log(self.samples[i].us))
                for slope, name in zip(self.weight[i] * follow, names):
                    jacobian[i, self._columns[(chip, name)]] = slope
        residuals[count:] = (x - self.prior) / self.spread
        jacobian[count:] = np.diag(1 / self.spread)
        self._at, self._residuals, self._jacobian = x.copy(), residuals, jacobian

    def fitted(self, x: np.ndarray, loss: Loss) -> Fitted:
        """The constants with their standard errors (those of the weighted rows and the priors) and rows behind each."""
        self._evaluate(x)
        count = len(self.samples)
        pull = np.concatenate([loss(self._residuals[:count] ** 2)[1], np.ones(len(x))])
        normal = (self._jacobian * pull[:, None]).T @ self._jacobian
        covariance = np.linalg.inv(normal)
        error = np.sqrt(np.clip(np.diag(covariance), 0, None))
        touched = (np.abs(self._jacobian[:count] / self.weight[:, None]) > 1e-3).sum(axis=0)
        return Fitted(
            self.parameters,
            {key: float(v) for key, v in zip(self.keys, x)},
            {key: float(v) for key, v in zip(self.keys, error)},
            {key: int(v) for key, v in zip(self.keys, touched)},
            covariance,
        )


def owners_of(chip: Chip, parameter: TimingParameter) -> tuple[str, ...]:
    """Whose factors make up a constant of ``chip``: all chips', its family's, its own."""
    family = (chip.generation.family,) if parameter.family_spread else ()
    return (SHARED, *family, *((chip.name,) if parameter.chip_spread else ()))


def _spread(parameter: TimingParameter, owner: str, families: set[str]) -> float:
    if owner == SHARED:
        return parameter.spread
    return parameter.family_spread if owner in families else parameter.chip_spread


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


@dataclass(frozen=True)
class LeftOut:
    """One row as fits see it that never saw its series.

    ``log_ratio`` of prediction over measurement, ``variance`` of it that the constants' errors explain.
    """

    log_ratio: float
    variance: float


def cross_validate(
    samples: Sequence[Sample], whole: Fitted, count: int = LEAVE_ONE_OUT, *, seed: int = 0, workers: int = 1
) -> list[LeftOut]:
    """Every sample predicted by a fit that never saw its series.

    Every constant is fitted anew in each fold, going on from ``whole``, the fit to all rows.
    """
    parts = folds(samples, count, seed)
    out: list[LeftOut] = [LeftOut(0.0, 0.0)] * len(samples)
    with ProcessPoolExecutor(workers, initializer=_share, initargs=(samples, whole)) as pool:
        for test, predictions in zip(parts, pool.map(_left_out, parts)):
            for i, item in zip(test, predictions):
                out[i] = item
    return out


_shared: dict[str, Any] = {}


def _share(samples: Sequence[Sample], whole: Fitted) -> None:
    _shared.update(samples=samples, whole=whole)


def _left_out(test: list[int]) -> list[LeftOut]:
    """The rows ``test``, from a fit to all others."""
    samples, test_indices = _shared["samples"], set(test)
    fitted = fit(
        [s for i, s in enumerate(samples) if i not in test_indices], start=_shared["whole"], enough=FOLD_ENOUGH
    )
    errors = Errors({key: i for i, key in enumerate(fitted.log)}, fitted.covariance, {}, 0.0, {})
    out = []
    for s in (samples[i] for i in test):
        numbers, predict = fitted.of(s.case.chip), partial(predict_case, s.case)
        variance = errors.constants_variance(s.case.chip, slopes(predict, numbers))
        out.append(LeftOut(math.log(predict(numbers) / s.us), variance))
    return out


def factor(log_ratios: Sequence[float] | np.ndarray) -> float:
    """Mean factor error: exp of the mean absolute log ratio."""
    return float(np.exp(np.mean(np.abs(log_ratios)))) if len(log_ratios) else 1.0
