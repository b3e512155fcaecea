"""Figures of a network in several weight formats: bytes, error, predicted time by chip, what becomes of the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

from hexane import passes
from hexane.chips import Chip
from hexane.graph import Graph
from hexane.lowering.compilation import Compilation
from hexane.lowering.formats import WeightFormat
from hexane.lowering.weights import decision_of
from hexane.studies.choose import FormatChoice, choices_of, steps
from hexane.studies.compress import compress, fitting
from hexane.studies.trials import Trials
from hexane.timing import estimate

FP16 = WeightFormat.of("fp16")
Form = str | Mapping[str, WeightFormat]


@dataclass(frozen=True)
class Figures:
    """One network with its weights in one format, or in one for each layer.

    bytes : of the weights in a file.
    error : of all outputs against the float32 network, with the measuring chip's arithmetic.
    us : predicted microseconds by chip, of the network as Apple's compiler would place it.
    becomes : by chip, what hexane's compiler does with the weights, and with how many layers'.
    layers : the format of each layer, where they differ.
    """

    name: str
    bytes: int
    error: float
    us: Mapping[str, float]
    becomes: Mapping[str, Mapping[str, int]]
    layers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """A mixture of formats on the way from fp16 to the smallest: ``cost`` in bytes or microseconds, error expected."""

    cost: float
    error: float


@dataclass(frozen=True)
class Study:
    """Everything that was measured of a network: rows for all layers together, choices for each layer alone."""

    name: str
    chips: tuple[Chip, ...]
    layers: int
    rows: tuple[Figures, ...]
    choices: tuple[FormatChoice, ...] = ()

    def mixtures(self, measure: str) -> list[Point]:
        """The steps from fp16 to the smallest formats by "bytes" or by the time on a chip; errors add up as squares."""
        mixes = []
        for step in steps(self.choices, measure):
            cost = sum(c.bytes if measure == "bytes" else c.us_on[measure] for c in step.values())
            mixes.append(Point(cost, sqrt(sum(c.error**2 for c in step.values()))))
        return mixes


def figures_of(trials: Trials, form: Form, chips: Sequence[Chip], name: str = "") -> tuple[Figures, Graph]:
    """The figures of one form, and the network in it."""
    layers = trials.layers.values()
    if isinstance(form, str):
        forms: Mapping[str, WeightFormat] = fitting(layers, WeightFormat.of(form))
        compressed, ready = trials.compressed(form), trials.prepared(form)
    else:
        forms, compressed = form, compress(trials.graph, form)
        ready = passes.run(compressed, Compilation(trials.chip))
    size = sum(forms.get(layer.name, FP16).bytes_of(layer.shape) for layer in layers)
    mixed = {forms.get(layer.name, FP16).name for layer in layers} != {str(form)}
    row = Figures(
        name or str(form),
        size,
        trials.whole(ready),
        {chip.name: estimate(compressed, chip=chip).latency_us for chip in chips},
        {chip.name: becomes_on(ready, chip) for chip in chips},
        {layer.name: forms.get(layer.name, FP16).name for layer in layers} if mixed else {},
    )
    return row, compressed


def study(
    trials: Trials,
    formats: Sequence[str],
    chips: Sequence[Chip],
    *,
    name: str = "",
    by_layer: Sequence[str] = (),
    on_step: Callable[[str, int, int], None] | None = None,
) -> Study:
    """Measure a network in ``formats`` and, for the formats in ``by_layer``, every layer alone.

    fp16 is always the first row. Layers take layers x formats evaluations of what lies behind each. ``chips`` begin
    with the one that measures. ``on_step`` hears what is measured ("formats" or "layers"), and how many of how many are
    done.
    """
    names = list(dict.fromkeys(("fp16", *formats)))
    rows = []
    for number, form in enumerate(names):
        rows.append(figures_of(trials, form, chips)[0])
        if on_step is not None:
            on_step("formats", number + 1, len(names))
    choices: list[FormatChoice] = []
    if by_layer:
        forms = [WeightFormat.of(form) for form in by_layer]
        hear = None if on_step is None else lambda count, of: on_step("layers", count, of)
        choices = choices_of(trials, forms, chips, on_step=hear)
    return Study(name, tuple(chips), len(trials.layers), tuple(rows), tuple(choices))


def becomes_on(ready: Graph, chip: Chip) -> dict[str, int]:
    """Fate of the weights of a network after its passes, and the number of layers for each."""
    counts: dict[str, int] = {}
    for op in ready.main.walk():
        decision = decision_of(op, chip.generation)
        if decision is not None:
            counts[decision.reason] = counts.get(decision.reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
