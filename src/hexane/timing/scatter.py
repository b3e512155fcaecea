"""Widths of ranges, fitted to series left out: what each part of a time scatters by that no constant explains.

Residuals left over scatter with longer tails than a normal distribution's, so widths are those of Student's t, named by
the width that holds 68 %; one factor for all then balances one, two and three of them against 68, 95 and 99.7 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hexane.errors import UnsupportedError
from hexane.timing.fit import Fitted, LeftOut, Sample
from hexane.timing.measured import case_parts
from hexane.timing.ranges import AVERAGE, DEFAULT_SCATTER, HOST, UNTIMED, Errors

FREEDOM = 5.0
"""Degrees of freedom of the tails."""
PRIOR, PRIOR_WIDTH = DEFAULT_SCATTER, 0.8
"""A width that few rows speak for stays near the first, within this log width."""
NORMAL = (0.6827, 0.9545, 0.9973)
FACTORS = np.linspace(0.9, 1.3, 41)
AVERAGES = np.linspace(0.0, 0.06, 31)
"""What a measurement of unknown trust may add: the one whose coverage comes nearest."""


@dataclass(frozen=True)
class _Rows:
    """Residuals with what explains them: shares of parts, the constants' variance, trust."""

    residual: np.ndarray
    constants: np.ndarray
    shares: np.ndarray
    trust: np.ndarray
    parts: tuple[str, ...]

    def only(self, rows: np.ndarray) -> _Rows:
        return _Rows(self.residual[rows], self.constants[rows], self.shares[rows], self.trust[rows], self.parts)


def _rows(samples: Sequence[Sample], left_out: Sequence[LeftOut], whole: Fitted) -> _Rows:
    tables = [case_parts(s.case, whole.of(s.case.chip)) for s in samples]
    parts = tuple(sorted({part for table in tables for part in table} - {UNTIMED, HOST}))
    shares = np.array([[table.get(part, 0.0) / sum(table.values()) for part in parts] for table in tables])
    trust = np.array([[s.trust == "B", s.trust == "C"] for s in samples], float)
    residual = np.array([item.log_ratio for item in left_out])
    return _Rows(residual, np.array([item.variance for item in left_out]), shares, trust, parts)


def _sigma(x: np.ndarray, rows: _Rows, *, trust: bool = True) -> np.ndarray:
    """``x``: logs of the base, of the constants' factor, of the two trusts, then of the parts' widths."""
    widths = np.exp(2 * x)
    variance = widths[0] + widths[1] * rows.constants + rows.shares**2 @ widths[4:]
    return np.sqrt(variance + rows.trust @ widths[2:4] if trust else variance)


def _fit(rows: _Rows) -> np.ndarray:
    try:
        from scipy.optimize import minimize
        from scipy.stats import t
    except ImportError:
        raise UnsupportedError("a fit needs scipy", hint="pip install 'hexane[fit]'") from None
    unit = t.ppf(0.5 + NORMAL[0] / 2, FREEDOM)
    start = np.log(np.concatenate([[0.03, 1.0, 0.03, 0.1], np.full(len(rows.parts), PRIOR)]))
    width = np.concatenate([[0.8, 0.3, 0.8, 0.8], np.full(len(rows.parts), PRIOR_WIDTH)])

    def loss(x: np.ndarray) -> float:
        scale = _sigma(x, rows) / unit
        likelihood = t.logpdf(rows.residual / scale, FREEDOM) - np.log(scale)
        return float(-likelihood.sum() + 0.5 * (((x - start) / width) ** 2).sum())

    return minimize(loss, start, method="L-BFGS-B", options={"ftol": 1e-10, "maxiter": 500}).x


def coverage(z: np.ndarray) -> tuple[float, float, float]:
    """The shares of residuals within one, two and three standard deviations."""
    one, two, three = (float((np.abs(z) < k).mean()) for k in (1, 2, 3))
    return one, two, three


def _off(z: np.ndarray) -> float:
    """Distance of a coverage from a normal distribution's, at its worst place."""
    return max(abs(a - b) for a, b in zip(coverage(z), NORMAL))


def _balance(z: np.ndarray) -> float:
    """The factor on all widths whose coverage comes nearest to a normal distribution's."""
    return float(FACTORS[int(np.argmin([_off(z / factor) for factor in FACTORS]))])


def fit_scatter(
    samples: Sequence[Sample], left_out: Sequence[LeftOut], whole: Fitted
) -> tuple[Errors, dict[str, list[float]]]:
    """The errors to ship, and their coverage of the rows left out: widths from all of them, and from other series.

    ``known_trust`` counts a row's own trust, ``unknown_trust`` takes every row for an average measurement.
    """
    rows = _rows(samples, left_out, whole)
    x = _fit(rows)
    factor = _balance(rows.residual / _sigma(x, rows))
    errors = _errors(x, factor, rows, whole)
    series = sorted({s.series for s in samples})
    fold = {name: i % 5 for i, name in enumerate(np.random.default_rng(0).permutation(series))}
    folds = np.array([fold[s.series] for s in samples])
    z = np.empty(len(samples))
    for k in range(5):
        rest = rows.only(folds != k)
        x_rest = _fit(rest)
        scale = _balance(rest.residual / _sigma(x_rest, rest))
        z[folds == k] = (rows.residual / _sigma(x_rest, rows) / scale)[folds == k]
    widths = {
        "known_trust": rows.residual / _sigma(x, rows) / factor,
        "unknown_trust": rows.residual / np.hypot(factor * _sigma(x, rows, trust=False), errors.trust[AVERAGE]),
        "widths_of_other_series": z,
    }
    return errors, {name: [round(value, 4) for value in coverage(values)] for name, values in widths.items()}


def _errors(x: np.ndarray, factor: float, rows: _Rows, whole: Fitted) -> Errors:
    widths = factor * np.exp(x)
    plain = factor * _sigma(x, rows, trust=False)
    average = float(AVERAGES[int(np.argmin([_off(rows.residual / np.hypot(plain, more)) for more in AVERAGES]))])
    trust: Mapping[str, float] = {"A": 0.0, "B": float(widths[2]), "C": float(widths[3]), AVERAGE: average}
    keys = {key: place for place, key in enumerate(whole.log)}
    scatter = dict(zip(rows.parts, widths[4:].tolist()))
    return Errors(keys, whole.covariance * widths[1] ** 2, scatter, float(widths[0]), trust)
