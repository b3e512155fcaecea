"""Which layer gets which format: error and time of every choice, and the cheapest way to keep a budget."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from hexane.chips import Chip
from hexane.errors import UnsupportedError, UsageError
from hexane.graph import Graph
from hexane.numerics import evaluate
from hexane.studies.compress import compress, layers_of
from hexane.studies.formats import WeightFormat
from hexane.timing import estimate

BUDGETS = "50% (of the fp16 bytes), 2.5MB, 0.8ms, error:1%"
_BUDGET = re.compile(r"(error:)?(\d+(?:\.\d+)?)(%|kB|MB|us|ms)")


@dataclass(frozen=True)
class Choice:
    """One layer in one format: bytes in a file, predicted microseconds on the chip, error that it adds alone.

    ``error`` is the root of the squared difference of all outputs over that of the outputs themselves, with the chip's
    arithmetic on both sides.
    """

    layer: str
    form: WeightFormat
    bytes: int
    us: float
    error: float


@dataclass(frozen=True)
class Budget:
    """What may be spent: ``bytes`` of weights, ``us`` of predicted engine time, or ``error`` of the outputs."""

    kind: str
    limit: float

    @classmethod
    def of(cls, text: str, fp16_bytes: int) -> Budget:
        """A budget as people write it; UsageError for anything else."""
        found = _BUDGET.fullmatch(text.strip())
        if found is None or bool(found[1]) != (found[1] is not None and found[3] == "%"):
            raise UsageError(f"{text!r} is no budget", hint=f"for example {BUDGETS}")
        number, unit = float(found[2]), found[3]
        if found[1]:
            return cls("error", number / 100)
        if unit == "%":
            return cls("bytes", fp16_bytes * number / 100)
        scale = {"kB": 1e3, "MB": 1e6, "us": 1.0, "ms": 1e3}[unit]
        return cls("us" if unit in ("us", "ms") else "bytes", number * scale)


def relative_error(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> float:
    """Of all outputs together; infinite where an output is not finite and should be."""
    apart = size = 0.0
    for name, want in wanted.items():
        a, b = np.asarray(found[name], np.float64), np.asarray(want, np.float64)
        if not np.isfinite(a[np.isfinite(b)]).all():
            return float("inf")
        here = np.isfinite(a) & np.isfinite(b)
        apart, size = apart + float(((a - b)[here] ** 2).sum()), size + float((b[here] ** 2).sum())
    return sqrt(apart / size) if size else 0.0


def choices_of(
    graph: Graph, formats: Sequence[WeightFormat], inputs: Sequence[Mapping[str, np.ndarray]], chip: Chip
) -> list[Choice]:
    """Every layer in every format, measured alone: layers x formats evaluations of the network for each input.

    fp16 is always among them, with error 0. A format that a layer's shape does not allow is left out.
    """
    layers = layers_of(graph)
    wanted = [evaluate(graph, given, chip) for given in inputs]
    plain = {row.name: row.us for row in estimate(compress(graph, "fp16"), chip=chip).ops}
    found = []
    for layer in layers:
        fp16 = WeightFormat.of("fp16")
        found.append(Choice(layer.name, fp16, fp16.bytes_of(layer.shape), plain.get(layer.name, 0.0), 0.0))
    for form in formats:
        if form.kind == "fp16":
            continue
        for layer in layers:
            try:
                tried = compress(graph, {layer.name: form})
            except UnsupportedError:
                continue
            times = {row.name: row.us for row in estimate(tried, chip=chip).ops}
            errors = [relative_error(evaluate(tried, given, chip), want) for given, want in zip(inputs, wanted)]
            size = form.bytes_of(layer.shape)
            found.append(Choice(layer.name, form, size, times.get(layer.name, 0.0), max(errors)))
    return found


def choose(choices: Sequence[Choice], budget: Budget) -> dict[str, Choice]:
    """A format for each layer: from fp16 on, the step that costs least error for what it saves, until the budget holds.

    Errors of layers are taken to add up as squares. UsageError where even the smallest formats break the budget.
    """
    by_layer: dict[str, list[Choice]] = {}
    for choice in choices:
        by_layer.setdefault(choice.layer, []).append(choice)
    measure = "us" if budget.kind == "us" else "bytes"
    now = {layer: next(c for c in found if c.form.kind == "fp16") for layer, found in by_layer.items()}
    while True:
        if budget.kind != "error" and sum(getattr(c, measure) for c in now.values()) <= budget.limit:
            return now
        best: tuple[float, Choice] | None = None
        for layer, found in by_layer.items():
            for choice in found:
                saved = getattr(now[layer], measure) - getattr(choice, measure)
                if saved <= 0:
                    continue
                price = max(choice.error**2 - now[layer].error ** 2, 0.0) / saved
                if best is None or price < best[0]:
                    best = price, choice
        if best is None:
            if budget.kind == "error":
                return now
            least = sum(getattr(c, measure) for c in now.values())
            raise UsageError(
                f"the smallest formats still take {least:.0f} {measure}", hint="allow more, or more formats"
            )
        step = dict(now)
        step[best[1].layer] = best[1]
        if budget.kind == "error" and sum(c.error**2 for c in step.values()) > budget.limit**2:
            return now
        now = step
