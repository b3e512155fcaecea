"""Choice of a format for each layer: error and time of every choice, and the cheapest way to keep a budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hexane.chips import Chip
from hexane.errors import UnsupportedError, UsageError
from hexane.graph import Graph
from hexane.lowering.formats import WeightFormat
from hexane.studies.trials import Trials
from hexane.timing import estimate

BUDGETS = "50% (of the fp16 bytes), 2.5MB, 0.8ms, error:1%"
_BUDGET = re.compile(r"(error:)?(\d+(?:\.\d+)?)(%|kB|MB|us|ms)")


@dataclass(frozen=True)
class FormatChoice:
    """One layer in one format: bytes in a file, predicted microseconds on the chip, error that it adds alone.

    ``error`` is the root of the squared difference of all outputs over that of the outputs themselves, with the chip's
    arithmetic on both sides. ``us`` is the time on the chip that measures, ``us_on`` that on every chip by its name.
    """

    layer: str
    form: WeightFormat
    bytes: int
    us: float
    error: float
    us_on: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Budget:
    """Budget: ``bytes`` of weights, ``us`` of predicted engine time, or ``error`` of the outputs."""

    kind: str
    limit: float

    @classmethod
    def of(cls, text: str, fp16_bytes: int) -> Budget:
        """A budget as people write it; UsageError for anything else."""
        match = _BUDGET.fullmatch(text.strip())
        if match is None or bool(match[1]) != (match[1] is not None and match[3] == "%"):
            raise UsageError(f"{text!r} is no budget", hint=f"for example {BUDGETS}")
        number, unit = float(match[2]), match[3]
        if match[1]:
            return cls("error", number / 100)
        if unit == "%":
            return cls("bytes", fp16_bytes * number / 100)
        scale = {"kB": 1e3, "MB": 1e6, "us": 1.0, "ms": 1e3}[unit]
        return cls("us" if unit in ("us", "ms") else "bytes", number * scale)


def choices_of(
    trials: Trials,
    formats: Sequence[WeightFormat],
    chips: Sequence[Chip],
    *,
    on_step: Callable[[int, int], None] | None = None,
) -> list[FormatChoice]:
    """Every layer in every format, measured alone on the first chip; times for all of them.

    fp16 is always among them, with error 0. A format that a layer's shape does not allow is left out. ``on_step``
    hears how many of how many measurements are done.
    """
    forms = [form for form in formats if form.kind != "fp16"]
    choices, count = [], 0
    for form in (WeightFormat.of("fp16"), *forms):
        times = {chip.name: _layer_times(trials.compressed(form.name), chip) for chip in chips}
        for layer in trials.layers.values():
            error: float | None = 0.0
            if form.kind != "fp16":
                try:
                    error = trials.alone(layer.name, form)
                except UnsupportedError:
                    error = None
                count += 1
                if on_step is not None:
                    on_step(count, len(trials.layers) * len(forms))
            if error is not None:
                us = {name: rows.get(layer.name, 0.0) for name, rows in times.items()}
                choices.append(FormatChoice(layer.name, form, form.bytes_of(layer.shape), us[chips[0].name], error, us))
    return choices


def _layer_times(compressed: Graph, chip: Chip) -> dict[str, float]:
    """Predicted microseconds of every layer of a compressed network."""
    results = {op.name or op.outputs[0].name: op.outputs[0].name for op in compressed.main.walk() if op.outputs}
    return {results.get(row.name, row.name): row.us for row in estimate(compressed, chip=chip).ops}


def steps(choices: Sequence[FormatChoice], measure: str) -> Iterator[dict[str, FormatChoice]]:
    """Formats of all layers, from fp16 on: each step is the one that costs least error for what it saves.

    ``measure``: "bytes", "us", or a chip's name for the time there. Errors of layers are taken to add up as squares.
    """

    def of(choice: FormatChoice) -> float:
        return float(getattr(choice, measure) if measure in ("bytes", "us") else choice.us_on[measure])

    by_layer: dict[str, list[FormatChoice]] = {}
    for choice in choices:
        by_layer.setdefault(choice.layer, []).append(choice)
    now = {layer: next(c for c in layer_choices if c.form.kind == "fp16") for layer, layer_choices in by_layer.items()}
    while True:
        yield dict(now)
        best: tuple[float, FormatChoice] | None = None
        for layer, layer_choices in by_layer.items():
            for choice in layer_choices:
                saved = of(now[layer]) - of(choice)
                if saved <= 0:
                    continue
                price = max(choice.error**2 - now[layer].error ** 2, 0.0) / saved
                if best is None or price < best[0]:
                    best = price, choice
        if best is None:
            return
        now[best[1].layer] = best[1]


def choose(choices: Sequence[FormatChoice], budget: Budget) -> dict[str, FormatChoice]:
    """A format for each layer: the first of the `steps` that keeps a budget, or the last that keeps an error.

    UsageError where even the smallest formats break the budget.
    """
    measure = "us" if budget.kind == "us" else "bytes"
    now: dict[str, FormatChoice] = {}
    for step in steps(choices, measure):
        within = sum(c.error**2 for c in step.values()) <= budget.limit**2  # NaN is not
        if budget.kind == "error" and now and not within:
            return now
        now = step
        if budget.kind != "error" and sum(getattr(c, measure) for c in now.values()) <= budget.limit:
            return now
    if budget.kind == "error":
        return now
    least = sum(getattr(c, measure) for c in now.values())
    raise UsageError(f"the smallest formats still take {least:.0f} {measure}", hint="allow more, or more formats")
