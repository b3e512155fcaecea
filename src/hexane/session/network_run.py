"""Result of the main job: everything that is known of one run of a network, as text, tables and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.chips import Chip
from hexane.graph import html
from hexane.lowering.accuracy import AccuracyCost, costs
from hexane.numerics.insight import Insight, every_value
from hexane.program import Program
from hexane.session.agreement import Agreement, nonfinite_counts
from hexane.session.check import CheckReport
from hexane.session.execute import Execution
from hexane.session.form import DEFAULT, Form
from hexane.session.references import Wanted
from hexane.session.verdict import Verdict

if TYPE_CHECKING:
    from hexane.graph import Graph
    from hexane.timing import Estimate

NAMES = {"apple": "Apple's compiler", "hexane": "hexane's program"}
DIFFERS = 1e-2
"""Relative difference (root mean square) of an output from which two programs give two answers."""


@dataclass(frozen=True)
class Other:
    """Result of the other compiler's program, where Apple's is known to take ops apart in another way.

    ``forms``: these ways; ``outputs`` by name; ``relative`` and ``largest``: the difference of the output that differs
    most, ``nonfinite`` how many of its values are finite in one answer only.
    """

    as_: str
    forms: tuple[str, ...]
    outputs: dict[str, np.ndarray]
    name: str
    relative: float
    largest: float
    nonfinite: int

    @property
    def differs(self) -> bool:
        return self.nonfinite > 0 or not self.relative <= DIFFERS

    @property
    def text(self) -> str:
        """The other answer in one line."""
        if not self.differs:
            return f"{NAMES[self.as_]}: the same answer ({'; '.join(self.forms)}: on these inputs without effect)"
        infinite = f", {self.nonfinite} values finite in one of the two" if self.nonfinite else ""
        return (
            f"{NAMES[self.as_]}: ANOTHER ANSWER: {self.name} differs by up to {self.largest:.4g} (relative "
            f"{self.relative:.2g}{infinite}); Apple's: {'; '.join(self.forms)}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data; the outputs as facts."""
        facts = {name: output_facts(array) for name, array in self.outputs.items()}
        return {
            "as": self.as_, "differs": self.differs, "output": self.name, "relative": _plain(self.relative),
            "largest": _plain(self.largest), "nonfinite": self.nonfinite, "forms": list(self.forms), "outputs": facts,
            "text": self.text,
        }  # fmt: skip


def _plain(number: float) -> float | None:
    return number if np.isfinite(number) else None


@dataclass(repr=False)
class NetworkRun:
    """Everything that is known of one run.

    ``seconds`` per stage (load, compile, run, compare, examine). ``prepared`` is the graph in canonical form where
    there is no program. ``program`` and ``run`` are None at level "graph" of a chip that hexane does not compile for.
    ``emulator_bits`` says whether another device's outputs are the emulator's, bit for bit; known where the
    emulator ran too (``insight``). ``exact``: by output, the relative error of the same network with accuracy "exact",
    where transformations that cost accuracy changed it. ``insight`` is None unless it was asked for, or the verdict was
    bad.
    """

    name: str
    chip: Chip
    level: str
    graph: Graph
    inputs: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()
    device: str = "emulator"
    form: Form = DEFAULT
    emulator_bits: bool | None = None
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    program: Program | None = None
    prepared: Graph | None = None
    run: Execution | None = None
    wanted: Wanted | None = None
    agreements: list[Agreement] = field(default_factory=list)
    verdict: Verdict | None = None
    placement: CheckReport | None = None
    insight: Insight | None = None
    estimate: Estimate | None = None
    other: Other | None = None
    autoscale: dict[str, Any] | None = None
    exact: dict[str, float | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """The tables of ``hexane run``, for notebooks."""
        from hexane.session.tables import AGREEMENT_HEAD, AGREEMENT_RIGHT, agreement_rows, run_facts, run_title

        against = f"Against {self.wanted.by} in float32" if self.agreements and self.wanted else ""
        return "".join((
            html.paragraph(run_title(self), bold=True), html.table(run_facts(self)), html.paragraph(against, bold=True),
            html.table(agreement_rows(self), AGREEMENT_HEAD, AGREEMENT_RIGHT),
        ))  # fmt: skip

    def __repr__(self) -> str:
        verdict = self.verdict.text if self.verdict is not None else "not compared"
        return f"<run of {self.name} on {self.chip.name}: {verdict}>"

    @cached_property
    def reference(self) -> dict[str, np.ndarray]:
        """Every value of the network in float32, by name (of huge networks the outputs only)."""
        return every_value(self.graph, self.inputs)

    def parts(self) -> list[tuple[str, Graph]]:
        """The network as it is computed: a program's segments, or the whole graph in canonical form."""
        if self.program is not None:
            parts = [(s.kind, s.source or s.graph) for s in self.program.segments]
            return [(kind, graph) for kind, graph in parts if graph is not None]
        if self.prepared is None:
            self.prepared = self.form.canonical(self.graph, self.chip)
        return [("engine", self.prepared)]

    @cached_property
    def timed(self) -> Estimate:
        """The estimate of the program that runs, or of a network without tasks; HexaneError where there is none."""
        from hexane.timing import estimate

        engine = self.program is not None and bool(self.program.images)
        return estimate(self.program if engine else self.graph, self.chip)

    @property
    def costs(self) -> tuple[AccuracyCost, ...]:
        """Effect of the transformations that changed the network on its numbers."""
        graph = self.program.graph if self.program is not None else self.prepared
        return () if graph is None else costs(graph)

    def summary(self) -> dict[str, Any]:
        """The run in numbers, schema ``hexane-run/1`` (docs/commands/run.md)."""
        stats = self.program.stats() if self.program is not None else None
        if stats is not None:
            stats.pop("host_reasons")
        return {
            "schema": "hexane-run/1",
            "model": self.name,
            "chip": self.chip.name,
            "dialect": self.form.dialect,
            "as": self.form.as_,
            "other": self.other.as_dict() if self.other else None,
            "without": list(self.form.without),
            "accuracy": self.form.accuracy,
            "transformations": [cost.as_dict() for cost in self.costs],
            "exact_relative": self.exact,
            "level": self.level,
            "device": self.device,
            "emulator_bits": self.emulator_bits,
            "inputs": {name: array_facts(array) for name, array in self.inputs.items()},
            "outputs": {name: output_facts(array) for name, array in self.outputs.items()},
            "verdict": self.verdict.word if self.verdict else None,
            "verdict_text": self.verdict.far if self.verdict else "not compared",
            "advice": self.verdict.advice if self.verdict else "",
            "notes": list(self.notes),
            "macs_on_engine": stats["macs_on_engine"] if stats is not None else None,
            "program": stats,
            "compared_with": self.wanted.by if self.wanted else None,
            "compared_instead": self.wanted.instead if self.wanted else "",
            "agreement": [row.as_dict() for row in self.agreements],
            "hypotheses": list(self.run.hypotheses) if self.run and self.run.hypotheses is not None else None,
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
            "autoscale": self.autoscale,
        }


def array_facts(array: np.ndarray) -> dict[str, Any]:
    """An input in JSON: shape and dtype."""
    return {"shape": list(array.shape), "dtype": str(array.dtype)}


def output_facts(array: np.ndarray) -> dict[str, Any]:
    """One output in JSON: shape, dtype, and how many values are infinite or NaN."""
    infinities, nans = nonfinite_counts(array)
    return {"shape": list(array.shape), "dtype": str(array.dtype), "infinities": infinities, "nans": nans}
