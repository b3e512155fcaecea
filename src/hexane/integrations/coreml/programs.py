"""One network at one size of its inputs, ready to predict: compiled for the engine, or evaluated on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import hexane
from hexane.counts import counted
from hexane.graph import Graph

if TYPE_CHECKING:
    from hexane.program import Program
    from hexane.program.run import Device


class Size(Protocol):
    """A network at one size."""

    graph: Graph

    def run(self, values: Mapping[str, Any], state: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        """Outputs by name; the arrays of ``state`` are changed in place."""

    def make_state(self) -> dict[str, np.ndarray]:
        """New states, all zero."""

    def row(self) -> SizeReport:
        """Placement of the ops."""


class HostSize:
    """The float32 reference, for the compute units without an engine."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, values: Mapping[str, Any], state: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        return self.graph.evaluate(values, state=state)

    def make_state(self) -> dict[str, np.ndarray]:
        return self.graph.make_state()

    def row(self) -> SizeReport:
        ops = len(self.graph.ops)
        return SizeReport(_shapes(self.graph), 0, ops, 0, 0.0, {"every op": "the compute units leave the engine out"})


class EngineSize:
    """A compiled program, kept loaded on a device."""

    def __init__(self, graph: Graph, chip: str, device: str | Device, level: str) -> None:
        self.graph = graph
        self.program: Program = hexane.compile(graph, chip=chip)
        self.session = self.program.on(device, level=level)

    def run(self, values: Mapping[str, Any], state: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        return self.session.run(values, state)

    def make_state(self) -> dict[str, np.ndarray]:
        return self.program.make_state()

    def row(self) -> SizeReport:
        stats = self.program.stats()
        host = sum(stats["host_ops"].values())
        return SizeReport(
            _shapes(self.graph),
            stats["ops"] - host,
            host,
            stats["tasks"],
            stats["macs_on_engine"],
            dict(stats["host_reasons"]),
        )


def _shapes(graph: Graph) -> dict[str, tuple[int, ...]]:
    return {name: tuple(getattr(type_, "shape", ())) for name, type_ in graph.inputs.items()}


@dataclass(frozen=True)
class SizeReport:
    """One size: the shapes of its inputs, ops on either side, tasks, the share of multiply-accumulates on the engine.

    ``reasons`` says for each op on the host why it is there.
    """

    shapes: dict[str, tuple[int, ...]]
    engine_ops: int
    host_ops: int
    tasks: int
    macs_on_engine: float
    reasons: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self.shapes.items())
        engine = f"{counted(self.engine_ops, 'op')} on the engine in {counted(self.tasks, 'task')}"
        lines = [f"{shapes}: {engine}, {self.host_ops} on the host"]
        return "\n".join([*lines, *(f"  {op}: {why}" for op, why in self.reasons.items())])


@dataclass(frozen=True)
class Report:
    """Behaviour of a model: its compute units, the chip and the device, and a row for each size compiled so far."""

    compute_units: str
    chip: str
    device: str
    sizes: tuple[SizeReport, ...]

    def __str__(self) -> str:
        head = f"{self.compute_units}, {self.chip} on {self.device}"
        return "\n".join([head, *map(str, self.sizes)])
