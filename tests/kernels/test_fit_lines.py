"""Tails of look-up tables: the error that a line or a tail states is the one that it has, and no split is better."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.kernels.fit import _fit_line, _fit_tail, _Target

FUNCTIONS = {
    "tanh": np.tanh,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "square root": lambda x: np.sqrt(np.abs(x) + 1),
}


def target(function, measure="absolute", high=8.0) -> _Target:
    return _Target(function, -8.0, high, measure, 1e-3, False)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_line_states_its_largest_error_and_none_near_is_better(seed, weighted) -> None:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(1, 9, 30))
    y = rng.uniform(-2, 2) * x + rng.uniform(-3, 3) + rng.normal(0, 0.05, 30)
    scale = rng.uniform(0.5, 4, 30) if weighted else np.full(30, 2.0)
    (slope, intercept), error = _fit_line(x, y, scale)
    assert error == pytest.approx((np.abs(y - slope * x - intercept) * scale).max(), abs=1e-12)
    assert np.float16(slope) == slope and np.float16(intercept) == intercept
    halves = np.float16(slope).view(np.int16) + np.arange(-40, 41)
    for other in halves.astype(np.int16).view(np.float16).astype(float):
        rest = y - other * x
        for middle in np.linspace(rest.min(), rest.max(), 201):
            assert (np.abs(rest - middle) * scale).max() > (0.75 if weighted else 0.98) * error


def test_a_line_through_one_point_is_flat() -> None:
    line, error = _fit_line(np.array([3.0]), np.array([0.1]), np.array([2.0]))
    assert line == (0.0, float(np.float16(0.1))) and error == pytest.approx(2 * abs(float(np.float16(0.1)) - 0.1))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("measure", ["absolute", "relative"])
def test_a_tail_is_split_where_its_error_is_least(name, measure) -> None:
    whole = target(FUNCTIONS[name], measure)
    x = np.linspace(2, 8, 60)
    y = whole.values(x)
    tail = _fit_tail(whole, x, y, False)
    scale, inside = whole.weight(y), x < tail.limit
    line = np.abs(y - tail.line[0] * x - tail.line[1]) * scale
    constant = np.abs(y - tail.constant) * scale
    assert tail.constant == y[-1]
    assert tail.error == pytest.approx(max(line[inside].max(initial=0.0), constant[~inside].max()))
    errors = [max(_fit_line(x[:at], y[:at], scale[:at])[1] if at else 0.0, constant[at:].max()) for at in range(60)]
    assert tail.error == pytest.approx(min(errors), rel=1e-6)


def test_an_open_tail_may_be_a_line_for_ever_and_none_is_none() -> None:
    whole = _Target(lambda x: np.clip(2 * x, -60000, 60000), -np.inf, np.inf, "absolute", 1e-3, False)
    x = np.linspace(3, 9, 50)
    tail = _fit_tail(whole, x, 2 * x, True)
    assert (tail.line, tail.limit, tail.constant, tail.error) == ((2.0, 0.0), np.inf, np.inf, 0.0)
    assert _fit_tail(whole, x[:0], x[:0], True) is None
