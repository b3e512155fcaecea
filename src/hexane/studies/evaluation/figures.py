"""Figures of an evaluation: a metric with its interval on either side, what changed, what was lost, layer by layer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hexane.studies.evaluation.data import Data
from hexane.studies.evaluation.intervals import LEVEL, METHODS, Interval, of_ratio, wilson
from hexane.studies.evaluation.metrics import Metric
from hexane.studies.pieces import Result

SCHEMA = "hexane-evaluate/1"
MOST_WORST = 32


@dataclass(frozen=True)
class Side:
    """A metric over the samples, and its interval of 95 %; None where one sample says nothing of the spread."""

    metric: float
    interval: Interval | None

    def as_dict(self) -> dict[str, Any]:
        return {"metric": self.metric, "interval": None if self.interval is None else list(self.interval)}


@dataclass(frozen=True)
class LayerSpread:
    """One layer over the examined samples: quantiles (0, 50, 95, 100 %) of its relative error, what is lost there."""

    name: str
    op: str
    error: tuple[float, float, float, float]
    made: float
    dropped: float | None
    headroom_bits: float | None
    nonfinite: int


@dataclass(frozen=True)
class FigureRow:
    """One chip with one weight format.

    difference : engine less float32, sample by sample (see ``difference``).
    changed : indices of samples whose answer is not float32's, worst first; ``apart`` how far each.
    worst : samples whose score is farthest below float32's, whether or not the answer changed.
    nonfinite : outputs that are infinite or NaN on the engine and not in float32: values, and samples with any.
    layers : of ``examined`` samples.
    """

    chip: str
    weights: str
    level: str
    samples: int
    stopped: bool
    float32: Side
    engine: Side
    difference: Side
    changed: tuple[int, ...]
    apart: tuple[float, ...]
    worst: tuple[dict[str, Any], ...]
    nonfinite: int
    nonfinite_samples: int
    seconds: float
    saved_seconds: float
    options: dict[str, Any] = field(default_factory=dict)
    layers: tuple[LayerSpread, ...] = ()
    examined: int = 0

    @property
    def dropped(self) -> float | None:
        """The largest mean share of products that a layer's multipliers drop."""
        shares = [layer.dropped for layer in self.layers if layer.dropped is not None]
        return max(shares, default=None)

    def as_dict(self) -> dict[str, Any]:
        sides = {name: getattr(self, name).as_dict() for name in ("float32", "engine", "difference")}
        plain = {name: getattr(self, name) for name in ("chip", "weights", "level", "options", "samples", "stopped")}
        return {
            **plain, **sides, "changed": list(self.changed), "apart": list(self.apart), "worst": list(self.worst),
            "overflow": {"values": self.nonfinite, "samples": self.nonfinite_samples}, "dropped": self.dropped,
            "layers": [asdict(layer) for layer in self.layers], "layers_of_samples": self.examined,
            "seconds": round(self.seconds, 3), "saved_seconds": round(self.saved_seconds, 1),
        }  # fmt: skip


@dataclass(frozen=True)
class Assessment:
    """A network over a data set. ``against``: labels, or float32's own answers where there are none."""

    model: str
    data: str
    metric: str
    better: str
    against: str
    by: str
    of: int
    rows: tuple[FigureRow, ...]
    method: str
    until: str | None = None
    samples: Data | None = field(default=None, repr=False, compare=False)
    """The data set, for pages that show samples."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, schema ``hexane-evaluate/1``; ``float32``, ``engine``, ``changed`` ... are the first row's."""
        first = self.rows[0].as_dict()
        names = ("samples", "stopped", "float32", "engine", "difference", "changed", "overflow", "dropped")
        return {
            "schema": SCHEMA, "model": self.model, "data": self.data,
            "metric": {"name": self.metric, "better": self.better, "against": self.against},
            "interval": {"level": LEVEL, "method": self.method, "difference": METHODS[False]},
            "float32_by": self.by, "of": self.of, "until": self.until,
            **{name: first[name] for name in names}, "rows": [row.as_dict() for row in self.rows],
        }  # fmt: skip


FEW = 20
"""Differing samples from which their spread is believed: of simulated data sets with rare and skewed differences 91 to
95 % are within the interval of the moment that stops (tests/studies/test_evaluate.py), of fewer samples 60 to 70 %."""


def joined(results: list[Result]) -> Result:
    """Samples of several pieces, one behind the other."""
    names = [name for name in results[0] if name != "seconds"]
    columns = {name: np.concatenate([result[name] for result in results]) for name in names}
    return {**columns, "seconds": np.asarray(sum(float(result["seconds"]) for result in results))}


def side(metric: Metric, result: Result) -> Side:
    """The metric over samples."""
    above, below = result["above"], result["below"]
    value = float(above.sum() / below.sum())
    if metric.proportion:
        return Side(value, wilson(float(above.sum()), above.size))
    return Side(value, of_ratio(above, below))


def difference(plain: Result, engine: Result) -> Side:
    """Engine less float32. Of ratios both have the same denominators: labels decide these.

    Where fewer than 20 scores differ their spread proves little: the limits then hold Wilson's of the share of samples
    that may differ, each by 1, or by the largest difference that was seen where that is more.
    """
    gap, below = engine["above"] - plain["above"], plain["below"]
    differing, interval = int(np.count_nonzero(gap)), of_ratio(gap, below)
    if differing < FEW and np.isfinite(gap).all():
        largest = max(1.0, float(np.abs(gap).max() / below.mean()))
        most = wilson(differing, gap.size)[1] * largest
        low, high = interval or (0.0, 0.0)
        interval = min(low, -most), max(high, most)
    return Side(float(gap.sum() / below.sum()), interval)


def worst_of(metric: Metric, indices: np.ndarray, plain: Result, engine: Result) -> list[dict[str, Any]]:
    """Samples that lose most, with both scores."""
    sign = 1.0 if metric.better == "higher" else -1.0
    with np.errstate(invalid="ignore"):
        loss = sign * (plain["above"] / plain["below"] - engine["above"] / engine["below"])
    order = np.lexsort((indices, -engine["apart"], -np.nan_to_num(loss)))
    return [
        {
            "index": int(indices[i]),
            "float32": float(plain["above"][i] / plain["below"][i]),
            "engine": float(engine["above"][i] / engine["below"][i]),
            "answers": [_answer(plain["answers"][i]), _answer(engine["answers"][i])],
        }
        for i in order[:MOST_WORST]
        if loss[i] > 0 or engine["apart"][i] > 0
    ]


def _answer(answer: np.ndarray) -> list[float] | None:
    return [float(value) for value in answer.ravel()] if 0 < answer.size <= 64 else None


def spreads(results: list[Result]) -> tuple[LayerSpread, ...]:
    """Layers over the calls of all pieces."""
    if not results:
        return ()
    column = lambda name: np.concatenate([result[name] for result in results])  # noqa: E731
    error, made_columns, dropped, room, lost = map(column, ("error", "made", "dropped", "headroom_bits", "nonfinite"))

    def mean(values: np.ndarray) -> float | None:
        numbers = values[~np.isnan(values)]
        return float(numbers.mean()) if numbers.size else None

    rows = []
    for i, (name, op) in enumerate(zip(results[0]["names"], results[0]["ops"])):
        numbers = error[:, i][~np.isnan(error[:, i])]
        quantiles = np.quantile(numbers, (0, 0.5, 0.95, 1)) if numbers.size else np.full(4, np.nan)
        least = room[:, i][~np.isnan(room[:, i])]
        least_room = float(least.min()) if least.size else None
        rows.append(
            LayerSpread(
                str(name),
                str(op),
                tuple(float(q) for q in quantiles),  # type: ignore[arg-type]
                mean(made_columns[:, i]) or 0.0,
                mean(dropped[:, i]),
                least_room,
                int(np.nansum(lost[:, i])),
            )
        )
    return tuple(rows)
