"""A part of a training step on one level of arithmetic: compiled once, its weights given with every run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.chips import Chip
from hexane.codegen import compile
from hexane.graph.evaluate import Evaluation
from hexane.graph.ir import Graph, Op
from hexane.graph.types import TensorType
from hexane.mil.update import checked_weights, renewed
from hexane.train.weights import bound, with_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from hexane.program import Program
    from hexane.program.run import Session

FLOAT32, GRAPH, ENGINE = "float32", "graph", "engine"
LEVELS = (ENGINE, GRAPH, FLOAT32)

Arrays = dict[str, np.ndarray]


class HostPart:
    """A part that the host computes: every value in float32, nothing rounded at the edges."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, values: Mapping[str, np.ndarray]) -> Arrays:
        """Outputs by name in float32."""
        return evaluated(self.graph, values)


def evaluated(
    graph: Graph, values: Mapping[str, np.ndarray], observe: Callable[[Evaluation, Op, Any], None] | None = None
) -> Arrays:
    """Outputs by name; floats are float32 all the way, whatever dtypes the graph declares."""
    run = Evaluation() if observe is None else _Observed(observe)
    for value in graph.main.inputs:
        array = np.asarray(values[value.name])
        run.environment[value] = array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
    return {value.name: np.asarray(array) for value, array in zip(graph.main.outputs, run.block(graph.main))}


class _Observed(Evaluation):
    """An evaluation that tells of every op and its results, while its operands are still there."""

    def __init__(self, observe: Callable[[Evaluation, Op, Any], None]) -> None:
        super().__init__()
        self.observe = observe

    def op(self, op: Op) -> tuple[Any, ...]:
        results = super().op(op)
        self.observe(self, op, results)
        return results


class EnginePart:
    """A part as a program for a chip, at level "engine" (tasks on the emulator) or "graph" (the same arithmetic).

    ``constants``: weights that are constants of the program, renewed by patch; other weights are its inputs.
    """

    def __init__(self, graph: Graph, chip: Chip, level: str, constants: Mapping[str, np.ndarray]) -> None:
        names = set(graph.inputs) & set(constants)
        self.graph = bound(graph, {name: constants[name] for name in names})
        self.chip, self.level = chip, level
        self.patched = tuple(sorted(names))
        self.program: Program | None = compile(self.graph, chip=chip)
        self.places: dict[tuple[str, ...], Any] = {}
        self.renewal = ""
        self._session: Session | None = None

    @property
    def is_loaded(self) -> bool:
        """True where it is on its device."""
        return self._session is not None

    def load(self) -> None:
        """Put it on its device."""
        if self._session is None:
            assert self.program is not None
            self._session = self.program.on("emulator", level=self.level)

    def close(self) -> None:
        """Take it off."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def renew(self, weights: Mapping[str, np.ndarray]) -> None:
        """Other values for the weights that are constants; ``renewal`` says how that was done, and why so."""
        if self.patched:
            update = renewed(self, checked_weights(self.graph, {name: weights[name] for name in self.patched}))
            self.renewal = f"{update.how}: {update.reason}" if update.reason else update.how

    def compile_again(self, weights: Mapping[str, np.ndarray]) -> None:
        """The same with other constants, as where programs cannot be patched."""
        if self.patched:
            self.close()
            self.graph = with_weights(self.graph, {name: weights[name] for name in self.patched})
            self.program = compile(self.graph, chip=self.chip)

    def run(self, values: Mapping[str, np.ndarray]) -> Arrays:
        """Outputs by name in their declared dtypes."""
        self.load()
        assert self._session is not None
        inputs = {}
        for value in self.graph.main.inputs:
            assert isinstance(value.type, TensorType)
            with np.errstate(over="ignore"):
                inputs[value.name] = np.asarray(values[value.name]).astype(value.type.carrier, copy=False)
        return self._session.run(inputs)
