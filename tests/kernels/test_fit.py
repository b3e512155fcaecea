"""Fitted tables: the stated error is the engine's own over all inputs, and no hand-made table does better."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hexane.errors import UnsupportedError, UsageError
from hexane.kernels import (
    LookupMode,
    LookupTable,
    fit_table,
    fitted_table,
    known_table,
    measure_table,
)
from hexane.kernels.functions import RECIPES

erf = np.vectorize(math.erf, otypes=[float])


def sigmoid(x):
    return np.exp(-np.logaddexp(0.0, -x))


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_stated_errors_hold_for_every_input(name):
    fit, recipe = fitted_table(name), RECIPES[name]
    error, worst = measure_table(fit.table, recipe.function, recipe.low, recipe.high)
    assert error == pytest.approx(fit.max_error, rel=1e-9)
    assert error == pytest.approx(measure_table(fit.table, recipe.function, fit.worst, fit.worst)[0], rel=1e-9)
    assert recipe.low <= worst <= recipe.high
    assert fit.table.mode in (LookupMode.CENTRED, LookupMode.ODD)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("sigmoid", sigmoid),
        ("tanh", np.tanh),
        ("silu", lambda x: x * sigmoid(x)),
        ("gelu", lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))),
    ],
)
def test_a_fit_is_at_least_as_good_as_apples_table(name, function):
    theirs, _ = measure_table(known_table(name), function)
    assert fit_table(function).max_error <= theirs


def test_measured_extremes_of_apples_tables():
    """The largest errors that were measured on silicon come out of the same measuring.

    Source: docs/reference/numerics.md 8, M6.
    """
    error, worst = measure_table(known_table("tanh"), np.tanh)
    assert f"{error:.3e}" == "1.613e-03"
    error, worst = measure_table(known_table("silu"), lambda x: x * sigmoid(x))
    assert f"{error:.3e}" == "1.491e-02"
    assert abs(worst) < 1


def test_what_the_format_holds_is_fitted_without_error():
    for function in (lambda x: np.maximum(x, 0), lambda x: 0 * x + 0.5, lambda x: -x, np.abs):
        assert fit_table(function).max_error == 0
    nodes = np.random.default_rng(3).integers(-8, 8, 33) / 4
    inner = fit_table(lambda x: np.interp(x, np.arange(-16, 17) / 4, nodes), -4, 4)
    assert inner.max_error <= 2.0**-9
    assert inner.table.spacing_log2 == 2


def test_zero_is_kept():
    zero = np.zeros(1, np.float16)
    assert fit_table(lambda x: x * sigmoid(x)).table(zero)[0] == 0
    free = fit_table(lambda x: x * sigmoid(x), keep_zero=False)
    assert free.max_error <= fit_table(lambda x: x * sigmoid(x)).max_error


def test_relative_measure():
    absolute = fit_table(np.exp, -4, 4)
    relative = fit_table(np.exp, -4, 4, measure="relative")
    assert relative.max_error < measure_table(absolute.table, np.exp, -4, 4, measure="relative")[0]
    assert absolute.max_error < measure_table(relative.table, np.exp, -4, 4)[0]


def test_ends_of_the_domain():
    fit = fit_table(np.exp, -1, 2)
    x = np.array([-np.inf, -100, -1, 2, 100, np.inf], np.float16)
    result = fit.table(x).astype(float)
    assert np.abs(result[:3] - math.exp(-1)).max() < 1e-3
    assert np.abs(result[3:] - math.exp(2)).max() < 1e-2
    ends = fit_table(lambda x: np.logaddexp(0.0, x)).table(np.array([-np.inf, np.inf], np.float16))
    assert ends.tolist() == [0, np.inf]


def test_what_cannot_be_fitted():
    with pytest.raises(UsageError):
        fit_table(np.exp)
    with pytest.raises(UsageError):
        fit_table(np.exp, 3, 2)
    with pytest.raises(UsageError):
        fit_table(lambda x: 1.0)
    with pytest.raises(UsageError):
        fit_table(np.tanh, measure="ulp")
    with pytest.raises(UnsupportedError):
        fitted_table("gamma")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_fit_reproduces_the_stored_tables(name):
    recipe = RECIPES[name]
    assert fit_table(recipe.function, recipe.low, recipe.high).max_error <= 1.05 * fitted_table(name).max_error


def test_the_measure_is_the_table_itself():
    """A table with one node moved is as wrong as that move."""
    table = known_table("tanh")
    words = list(table.halfwords)
    words[4 + 8] += 64
    error, worst = measure_table(LookupTable(tuple(words)), np.tanh)
    assert abs(worst) == 1.0
    assert error == pytest.approx(64 * 2.0**-11, rel=0.1)
