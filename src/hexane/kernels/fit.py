"""Fit a table of 33 nodes to a function: least largest error that the format allows, measured over every input.

Between nodes the engine interpolates, beyond them it follows a line up to a limit and then holds a constant
(docs/reference/numerics.md 8). For each spacing of the nodes the fit finds

* the nodes that make the largest error least (Lawson's reweighted least squares on the hat functions of the nodes),
* for each side the line and the limit at which the constant takes over, where both errors meet,

takes the best spacing, and then moves single nodes by units of fp16 as long as the error falls that the engine's own
arithmetic makes. The error that is stated is that of the engine's arithmetic over all fp16 inputs of the domain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hexane.errors import UsageError
from hexane.isa.numbers import LARGEST_HALF
from hexane.kernels.tables import NODES, LookupMode, LookupTable

Function = Callable[[np.ndarray], np.ndarray]

_MIDDLE = NODES // 2
_SPACINGS = range(11)
_SAMPLES = 24
"""Samples per interval of two nodes; a multiple of 2, so that the middle is among them."""


@dataclass(frozen=True)
class FittedTable:
    """A table and what it costs: ``max_error`` (in the fit's measure) occurs at input ``worst`` within ``domain``."""

    table: LookupTable
    max_error: float
    worst: float
    domain: tuple[float, float]
    measure: str


def fit_table(
    function: Function,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    measure: str = "absolute",
    floor: float = 2.0**-14,
    keep_zero: bool = True,
) -> FittedTable:
    """The table that follows ``function`` best on [low, high].

    Parameters
    ----------
    function : float64 array to float64 array, finite and within fp16 on the domain. Values beyond +-65504 are not
        asked for; an infinite end of the domain stands for the last finite fp16.
    measure : "absolute", or "relative" (error / max(abs(f), floor)).
    keep_zero : where f(0) = 0, let the table return 0 for 0.

    Returns
    -------
    A table in mode 0x01 (centred) or, for odd functions on a symmetric domain where it is better, 0x60. Beyond a finite
    end of the domain it holds the end's value; at an infinite end it follows its line, or holds its constant.

    Raises
    ------
    UsageError : an empty domain, or values that are not finite fp16.
    """
    target = _Target(function, low, high, measure, floor, keep_zero)
    candidates = [fit for m in _SPACINGS for fit in (_centred(target, m), _odd(target, m)) if fit is not None]
    candidates.sort(key=lambda pair: pair[0])
    polished = [_polish(target, parts) for _, parts in candidates[:2]]
    table, error, worst = min(polished, key=lambda row: row[1])
    return FittedTable(table, error, worst, (low, high), measure)


def measure_table(
    table: LookupTable,
    function: Function,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    measure: str = "absolute",
    floor: float = 2.0**-14,
) -> tuple[float, float]:
    """Largest error of any table against ``function`` over all fp16 inputs of [low, high], and where it occurs."""
    return _Target(function, low, high, measure, floor, False).error(table)


class _Target:
    """The function on its domain: every fp16 input, its value, and how much an error counts there."""

    def __init__(
        self, function: Function, low: float, high: float, measure: str, floor: float, keep_zero: bool
    ) -> None:
        if measure not in ("absolute", "relative"):
            raise UsageError(f"no measure is called {measure!r}", where="fit", hint="use 'absolute' or 'relative'")
        bits = np.arange(1 << 16, dtype=np.uint16)
        every = bits.view(np.float16)
        every = every[np.isfinite(every) & (bits != 0x8000)]
        inputs = np.sort(every[(every >= low) & (every <= high)])
        if not inputs.size:
            raise UsageError(f"no fp16 lies in [{low:g}, {high:g}]", where="fit")
        self.function, self.measure, self.floor = function, measure, floor
        self.open_low, self.open_high = low == -np.inf, high == np.inf
        self.inputs = inputs
        self.x = inputs.astype(float)
        self.y = self.values(self.x)
        self.scale = self.weight(self.y)
        self.low, self.high = self.x[0], self.x[-1]
        inside = self.low <= 0 <= self.high
        self.pinned = keep_zero and inside and self.values(np.zeros(1))[0] == 0
        mirrored = np.isclose(self.low, -self.high, rtol=1e-3) and self.high > 0
        self.odd = bool(mirrored and np.allclose(self.y, -self.y[::-1], rtol=1e-9, atol=1e-12))

    def values(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            y = np.asarray(self.function(x), float)
        if y.shape != x.shape or not np.all(np.abs(y) <= LARGEST_HALF):
            where = x[~(np.abs(y) <= LARGEST_HALF)][:1] if y.shape == x.shape else x[:0]
            raise UsageError(
                "the function is not a finite fp16 on its domain" + (f", at {where[0]:g}" if where.size else ""),
                where="fit",
                hint="give low and high, or a function that takes and gives arrays",
            )
        return y

    def weight(self, y: np.ndarray) -> np.ndarray:
        return np.ones_like(y) if self.measure == "absolute" else 1.0 / np.maximum(np.abs(y), self.floor)

    def error(self, table: LookupTable) -> tuple[float, float]:
        """Largest error over the domain and its input."""
        errors = np.abs(table(self.inputs).astype(float) - self.y) * self.scale
        at = int(np.argmax(np.where(np.isnan(errors), np.inf, errors)))
        return float(errors[at]), float(self.x[at])

    def grid(self, low: float, high: float, step: float) -> np.ndarray:
        """Even samples in [low, high], cut to the domain."""
        low, high = max(low, self.low), min(high, self.high)
        if low > high:
            return np.empty(0)
        count = int(np.ceil((high - low) / step * _SAMPLES)) + 1
        return np.linspace(low, high, max(count, 2))


Parts = dict
Candidate = tuple[float, Parts]


def _centred(target: _Target, m: int) -> Candidate | None:
    reach, step = _MIDDLE * 2.0**-m, 2.0**-m
    x = target.grid(-reach, reach, step)
    if not x.size:
        return None
    nodes, error = _fit_nodes(target, x, (x + reach) / step, _MIDDLE if target.pinned else None)
    parts: Parts = {"mode": LookupMode.CENTRED, "nodes": nodes, "spacing_log2": m}
    left, right = target.x < -reach, target.x > reach
    low = _fit_tail(target, target.x[left][::-1], target.y[left][::-1], target.open_low)
    high = _fit_tail(target, target.x[right], target.y[right], target.open_high)
    if low is None:
        parts |= {"lower": target.low, "below": target.y[0]}
    else:
        parts |= {"low_line": low.line, "lower": low.limit, "below": low.constant}
    if high is None:
        parts |= {"upper": target.high, "above": target.y[-1]}
    else:
        parts |= {"high_line": high.line, "upper": high.limit, "above": high.constant}
    return max([error, *(tail.error for tail in (low, high) if tail)]), parts


def _odd(target: _Target, m: int) -> Candidate | None:
    """Nodes on one side only; there are no lines, so a constant has to follow at once."""
    if not target.odd:
        return None
    reach, step = (NODES - 1) * 2.0**-m, 2.0**-m
    end = target.y[-1]
    side = target.x > 0
    x, y, scale = target.x[side], target.y[side], target.scale[side]
    constant_error = np.maximum.accumulate((np.abs(y - end) * scale)[::-1])[::-1]
    within = x <= reach
    best: Candidate | None = None
    first = int(np.count_nonzero(within))
    for limit in (min(first, x.size - 1), int(np.argmax(constant_error <= 2.0**-11 * abs(end)))):
        limit = min(limit, first, x.size - 1)
        samples = target.grid(0.0, min(reach, x[limit]), step)
        nodes, error = _fit_nodes(target, samples, samples / step, 0)
        total = max(error, float(constant_error[limit]))
        if best is None or total < best[0]:
            upper = min(x[limit], reach)
            parts = {"mode": LookupMode.ODD, "nodes": nodes, "spacing_log2": m}
            best = total, parts | {"lower": 0.0, "upper": upper, "below": 0.0, "above": end}
    return best


def _fit_nodes(target: _Target, x: np.ndarray, u: np.ndarray, pinned: int | None) -> tuple[np.ndarray, float]:
    """Node values with the least largest error at samples x, which lie u steps from the first node."""
    y = target.values(x)
    scale = target.weight(y)
    interval = np.clip(np.floor(u).astype(int), 0, NODES - 2)
    fraction = u - interval
    basis = np.zeros((x.size, NODES))
    rows = np.arange(x.size)
    basis[rows, interval] = 1 - fraction
    basis[rows, interval + 1] = fraction
    if pinned is not None:
        basis[:, pinned] = 0
    reached = np.flatnonzero(basis.any(axis=0))
    weights, error = _least_largest(basis[:, reached], y, scale)
    nodes = np.interp(np.arange(NODES), reached, weights)
    if pinned is not None:
        nodes[pinned] = 0
    return nodes, error


def _least_largest(basis: np.ndarray, y: np.ndarray, scale: np.ndarray, rounds: int = 40) -> tuple[np.ndarray, float]:
    """Coefficients with the least largest scaled residual: Lawson's algorithm, the best of its rounds."""
    weight = np.full(y.size, 1.0 / y.size)
    best, least = np.zeros(basis.shape[1]), np.inf
    for _ in range(rounds):
        weighted = basis * (weight * scale * scale)[:, None]
        normal = weighted.T @ basis
        try:
            solution = np.linalg.solve(normal, weighted.T @ y)
        except np.linalg.LinAlgError:
            solution = np.linalg.lstsq(normal, weighted.T @ y, rcond=None)[0]
        residual = np.abs(basis @ solution - y) * scale
        largest = float(residual.max())
        if largest < least:
            best, least = solution, largest
        if largest < 1e-12:
            break
        weight = weight * residual
        weight = np.maximum(weight, weight.max() * 1e-9)  # keeps flat stretches determined
        weight /= weight.sum()
    return best, least


@dataclass(frozen=True)
class _Tail:
    line: tuple[float, float]
    limit: float
    constant: float
    error: float


def _fit_tail(target: _Target, x: np.ndarray, y: np.ndarray, is_open: bool) -> _Tail | None:
    """Line, limit and constant for the inputs beyond the nodes, given outwards; None where there are none."""
    if not x.size:
        return None
    keep = np.unique(np.linspace(0, x.size - 1, 400).astype(int))
    x, y = x[keep], y[keep]
    scale = target.weight(y)
    constant = float(y[-1])
    beyond = np.maximum.accumulate((np.abs(y - constant) * scale)[::-1])[::-1]
    low, high = 0, x.size - 1
    while low < high:  # the line's error grows with its length, the constant's error falls with the limit
        middle = (low + high) // 2
        if _fit_line(x[: middle + 1], y[: middle + 1], scale[: middle + 1])[1] < beyond[middle]:
            low = middle + 1
        else:
            high = middle
    options = []
    if is_open:
        line, error = _fit_line(x, y, scale)
        end = line[0] * np.copysign(np.inf, x[-1]) if line[0] else line[1]
        options.append(_Tail(line, float(np.copysign(np.inf, x[-1])), float(end), error))
    for at in {max(low - 1, 0), low}:
        line, error = _fit_line(x[:at], y[:at], scale[:at]) if at else ((0.0, constant), 0.0)
        options.append(_Tail(line, float(x[at]), constant, max(error, float(beyond[at]))))
    return min(options, key=lambda tail: tail.error)


def _fit_line(x: np.ndarray, y: np.ndarray, scale: np.ndarray) -> tuple[tuple[float, float], float]:
    """Slope and intercept in fp16 with the least largest error, and that error."""
    if x.size == 1:
        return (0.0, float(np.float16(y[0]))), float(abs(np.float16(y[0]) - y[0]) * scale[0])
    basis = np.stack((x, np.ones_like(x)), axis=1)
    size = np.abs(x).max()
    (slope, _), _ = _least_largest(basis / [size, 1.0], y, scale, 25)
    centre = np.float16(slope / size)
    best, least = (0.0, 0.0), np.inf
    slopes = [centre, np.nextafter(centre, np.float16(np.inf)), np.nextafter(centre, np.float16(-np.inf))]
    for s in (*slopes, np.float16(0.0), np.float16(1.0), np.float16(-1.0)):
        rest = y - float(s) * x
        for middle in ((rest.max() + rest.min()) / 2, rest[-1], 0.0):
            if abs(middle) > LARGEST_HALF:
                continue
            intercept = float(np.float16(middle))
            error = float((np.abs(rest - intercept) * scale).max())
            if error < least:
                best, least = (float(s), intercept), error
    return best, least


def _polish(target: _Target, parts: Parts) -> tuple[LookupTable, float, float]:
    """Move nodes by units of fp16 while the engine's own error near them falls."""
    nodes = np.asarray(parts["nodes"]).astype(np.float16)
    table = LookupTable.build(**(parts | {"nodes": nodes}))
    centred = parts["mode"] is LookupMode.CENTRED
    step = 2.0 ** -parts["spacing_log2"]
    origin = _MIDDLE if centred else 0
    pinned = origin if target.pinned or not centred else -1
    samples = _thinned(target, step, (NODES - 1) * step if not centred else _MIDDLE * step, centred)
    x, y, scale = target.inputs[samples], target.y[samples], target.scale[samples]
    place = x.astype(float) / step + origin

    def errors(table: LookupTable, some: np.ndarray) -> float:
        return float((np.abs(table(x[some]).astype(float) - y[some]) * scale[some]).max())

    near = [np.flatnonzero(np.abs(place - node) <= 1) for node in range(NODES)]
    for units in (8, 3, 1, 1):
        for node in range(NODES):
            if node == pinned or not near[node].size:
                continue
            least = errors(table, near[node])
            for direction in (np.inf, -np.inf):
                trial = nodes.copy()
                for _ in range(units):
                    trial[node] = np.nextafter(trial[node], np.float16(direction))
                trial_table = LookupTable.build(**(parts | {"nodes": trial}))
                error = errors(trial_table, near[node])
                if error < least:
                    nodes, table, least = trial, trial_table, error
    error, worst = target.error(table)
    return table, error, worst


def _thinned(target: _Target, step: float, reach: float, centred: bool) -> np.ndarray:
    """Inputs near the nodes, at most some sixty per interval; fp16 is far denser near zero than a fit needs."""
    inside = np.flatnonzero((target.x >= (-reach if centred else 0.0)) & (target.x <= reach))
    cell = np.floor(target.x[inside] / step * 60)
    first = np.flatnonzero(np.diff(cell, prepend=-np.inf))
    return inside[first]
