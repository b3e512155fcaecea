"""The programs of a training step, and which way their weights are renewed: as inputs, or by patch of constants.

A weight that is an input is written into a surface before a call; products by it then read it as a computed kernel.
One that is a constant stands in the program's kernels, where a convolution needs it, and its elements are written there
(docs/weights-renewed.md). Predicted time of the compiled programs decides, where nobody says: inputs, constants, or
inputs but for weights of convolutions. Constants that are compiled again with every step are what projects do on macOS;
nobody gets them unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hexane.chips import Chip
from hexane.codegen import compile
from hexane.errors import UsageError
from hexane.graph.gradient import grad
from hexane.graph.ir import Graph, Value
from hexane.graph.types import TensorType
from hexane.program import Program
from hexane.timing import estimate
from hexane.train.layer_scales import scaled, sums_behind
from hexane.train.split import Split, split
from hexane.train.stage import FLOAT32, EnginePart, HostPart
from hexane.train.vanishing import FloatStep
from hexane.train.weights import bound, lifted

INPUTS, PATCH, MIXED, COMPILE = "inputs", "patch", "mixed", "compile"
WAYS = (INPUTS, PATCH, MIXED, COMPILE)
"""How weights may be renewed; the first three are compared where nobody names one."""

Arrays = dict[str, np.ndarray]


def ways_of(renew: str | None) -> Sequence[str]:
    """The ways that are compared; UsageError for an unknown one."""
    if renew is None:
        return WAYS[:3]
    if renew not in WAYS:
        raise UsageError(f"weights cannot be renewed by {renew!r}", hint=f"one of {', '.join(WAYS)}")
    return (renew,)


class Programs:
    """Forward and backward pass of a network.

    ``way``: how weights are renewed; ``predicted``: microseconds of a step's programs by each way.
    """

    def __init__(
        self,
        graph: Graph,
        of: str,
        weights: Mapping[str, np.ndarray],
        chip: Chip,
        level: str,
        engine_products: bool,
        ways: Sequence[str],
        checkpoint: Iterable[str] = (),
    ) -> None:
        inner = lifted(graph, weights)
        whole = grad(inner, of=of, wrt=list(weights), checkpoint=checkpoint)
        self.of, self.seed = of, whole.main.inputs[-1].name
        outputs = [value.name for value in inner.main.outputs]
        gradients = [value.name for value in whole.main.outputs[len(outputs) :]]
        self.gradients = dict(zip(weights, gradients))
        self.parts: Split = split(whole, outputs, gradients, host_products=not engine_products)
        self._plain = self.parts.backward
        self.layer_scales = dict.fromkeys(sums_behind(self._plain, self.seed), 0)
        self._weights = {name: array.astype(np.float16) for name, array in weights.items()}
        self.way, self.predicted = "", dict[str, float]()
        self._host = HostPart(self.parts.products) if self.parts.products is not None else None
        if level == FLOAT32:
            self._passes: list[HostPart | EnginePart] = [HostPart(part) for part in self._graphs]
        else:
            self._passes = list(self._chosen(weights, chip, level, ways))

    @property
    def _graphs(self) -> tuple[Graph, Graph]:
        return self.parts.forward, self.parts.backward

    @property
    def compiled(self) -> list[EnginePart]:
        """Forward and backward pass as programs; empty at level float32."""
        return [part for part in self._passes if isinstance(part, EnginePart)]

    def _chosen(
        self, weights: Mapping[str, np.ndarray], chip: Chip, level: str, ways: Sequence[str]
    ) -> list[EnginePart]:
        """The programs by the way that is predicted fastest, the first of equals."""
        best: list[EnginePart] = []
        microseconds: dict[frozenset[str], float] = {}
        for way in ways:
            constants = self._constants(way)
            if constants in microseconds:
                continue
            candidate = [EnginePart(g, chip, level, {n: weights[n] for n in constants}) for g in self._graphs]
            microseconds[constants] = self.predicted[way] = sum(estimate(c.program).latency_us for c in candidate)
            if not best or self.predicted[way] < self.predicted[self.way]:
                self.way, best = way, candidate
        return best

    def _constants(self, way: str) -> frozenset[str]:
        """The weights that are constants of the programs."""
        if way != MIXED:
            return frozenset(self.gradients if way in (PATCH, COMPILE) else ())
        ops = [op for graph in self._graphs for op in graph.main.ops if op.type != "matmul"]
        params = [op.inputs.get(param) for op in ops for param in ("weight", "bias")]
        return frozenset(value.name for value in params if isinstance(value, Value)) & frozenset(self.gradients)

    def bound_graphs(self) -> list[Graph]:
        """Forward and backward pass with the weights as they were at first, constants or inputs as ``way`` says."""
        constants = {name: self._weights[name] for name in self._constants(self.way)}
        return [bound(graph, constants) for graph in self._graphs if graph.main.outputs]

    def compiled_for(self, chip: Chip) -> list[Program]:
        """The same as programs for another chip."""
        return [compile(graph, chip=chip) for graph in self.bound_graphs()]

    def forward(self, values: Mapping[str, np.ndarray]) -> Arrays:
        """The values with what the forward pass adds: outputs, and taps for the backward pass."""
        return {**values, **self._passes[0].run(values)}

    def backward(self, values: Mapping[str, np.ndarray], seed: np.ndarray) -> Arrays:
        """Gradients by the weights' names, in float32."""
        values = {**values, self.seed: seed}
        if len(self.parts.backward.main.outputs):
            values.update(self._passes[1].run(values))
        if self._host is not None:
            values.update(self._host.run(values))
        return {name: np.asarray(values[gradient], np.float32) for name, gradient in self.gradients.items()}

    def renew(self, weights: Mapping[str, np.ndarray]) -> None:
        """Other weights, before the next pass."""
        for part in self.compiled:
            if self.way == COMPILE:
                part.compile_again(weights)
            else:
                part.renew(weights)

    @property
    def compilations(self) -> int:
        """Number of patches for a renewal of all weights."""
        return sum(bool(part.patched) for part in self.compiled) if self.way == COMPILE else 0

    @property
    def tap_bytes(self) -> int:
        """Bytes of what the forward pass hands to the backward pass."""
        taps = [value.type for value in self.parts.forward.main.outputs if value.name in self.parts.taps]
        return sum(tap.nbytes for tap in taps if isinstance(tap, TensorType))

    def rescale(self, bits: Mapping[str, int], weights: Mapping[str, np.ndarray]) -> None:
        """Other scales of sums of the backward pass, by exponents of two (`hexane.train.layer_scales`); it is compiled
        again where they are others."""
        new = {name: bits.get(name, 0) for name in self.layer_scales}
        if new == self.layer_scales:
            return
        self.layer_scales = new
        self.parts = replace(self.parts, backward=scaled(self._plain, self.seed, new))
        old = self._passes[1]
        if isinstance(old, EnginePart):
            constants = {name: weights[name] for name in old.patched}
            self._passes[1] = EnginePart(self.parts.backward, old.chip, old.level, constants)
        else:
            self._passes[1] = HostPart(self.parts.backward)

    def watched(
        self, values: Mapping[str, np.ndarray], seed: Callable[[np.ndarray], np.ndarray], *, plain: bool = False
    ) -> FloatStep:
        """The step in float32 with weights as programs have them, and its sums; ``seed`` of the output.

        Sums that the host computes lose nothing and are not among them. ``plain``: without scales of single sums.
        """
        watched = FloatStep(self.seed)
        with np.errstate(over="ignore"):
            halves = {name: values[name].astype(np.float16) for name in self.gradients}
        values = {**values, **halves}
        values.update(watched.run("forward", self.parts.forward, values))
        values[self.seed] = seed(np.asarray(values[self.of], np.float32))
        watched.run("backward", self._plain if plain else self.parts.backward, values)
        return watched
