"""Effect of a weight format on a network's outputs: measured for all layers together, and for one layer alone.

The network is prepared for the engine once for each format. A trial of one layer puts that layer's compressed constant
into the prepared plain network and computes again what depends on it, from the values that the plain network left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt

import numpy as np

from hexane import passes
from hexane.chips import Chip
from hexane.graph import Function, Graph, Op, Value
from hexane.graph.evaluate import checked_input, declared
from hexane.graph.types import TensorType, tensor_of
from hexane.lowering.compilation import Compilation
from hexane.lowering.formats import WeightFormat
from hexane.lowering.fusion import SUMS, sum_run
from hexane.lowering.transformations import carried
from hexane.lowering.weights import weight_of
from hexane.numerics import evaluate
from hexane.numerics.evaluate import EngineEvaluation
from hexane.studies.compress import compress, layers_of

Inputs = Mapping[str, np.ndarray]
KEPT_BYTES = 1 << 31
"""Most bytes of intermediate values that are kept; a larger network is computed from its inputs for every trial."""


def relative_error(outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """Of all outputs together; infinite where an output is not finite and should be, NaN where nothing is compared."""
    apart, size, count = 0.0, 0.0, 0
    for name, want in expected.items():
        if np.asarray(want).dtype.kind in "OUS":  # a label says nothing about how far off its scores are
            continue
        a, b = np.asarray(outputs[name], np.float64), np.asarray(want, np.float64)
        here = np.isfinite(b)
        a, b = a[here], b[here]
        if not np.isfinite(a).all():
            return inf
        apart, size, count = apart + float(((a - b) ** 2).sum()), size + float((b**2).sum()), count + b.size
    if not count:
        return nan
    return sqrt(apart / size) if size else inf if apart else 0.0


@dataclass(frozen=True)
class _Kept:
    """The plain network's values for one input, and its outputs."""

    values: dict[Value, np.ndarray]
    outputs: dict[str, np.ndarray]


class Trials:
    """A network on inputs, with the arithmetic of one chip's engine.

    Every error is the root of the squared difference of all outputs over that of the outputs themselves, the largest
    over the inputs. ``whole`` measures against the float32 network, the engine's own rounding included; ``alone``
    against the uncompressed network on the same engine, so that what remains is the format's.
    """

    def __init__(self, graph: Graph, inputs: Sequence[Inputs], chip: Chip) -> None:
        self.graph, self.inputs, self.chip = graph, list(inputs), chip
        self._wanted = [graph.evaluate(inputs_given) for inputs_given in self.inputs]
        self.layers = {layer.name: layer for layer in layers_of(graph)}
        self._compressed: dict[str, Graph] = {}
        self._ready: dict[str, Graph] = {}
        self._plain = self.prepared("fp16")
        self._own = {op.outputs[0].name: op for op in self._plain.main.walk() if op.outputs}
        self._runs = {
            inner: op
            for op in self._plain.main.walk()
            if op.type in SUMS
            for inner in sum_run(op, carried(self._plain))
        }
        self._kept: list[_Kept] | None = None

    def compressed(self, form: str) -> Graph:
        """The network with a format for every layer that can take it; worked out once."""
        if form not in self._compressed:
            self._compressed[form] = compress(self.graph, form)
        return self._compressed[form]

    def prepared(self, form: str) -> Graph:
        """The same after the passes."""
        if form not in self._ready:
            self._ready[form] = passes.run(self.compressed(form), Compilation(self.chip))
        return self._ready[form]

    def whole(self, ready: Graph) -> float:
        """The error of a form of the network, all of it, after the passes."""
        return max(
            relative_error(evaluate(ready, inputs_given, self.chip), want)
            for inputs_given, want in zip(self.inputs, self._wanted)
        )

    def alone(self, layer: str, form: WeightFormat) -> float:
        """The error that one layer in a format makes; UnsupportedError where its shape does not allow the format."""
        compressed = self._weight(layer, form)
        own = self._own.get(layer)
        weight = None if own is None else weight_of(own)
        values = self._values()
        if compressed is None or own is None or weight is None or weight.shape != compressed.shape or not values:
            ready = passes.run(compress(self.graph, {layer: form}), Compilation(self.chip))
            return max(
                relative_error(evaluate(ready, inputs_given, self.chip), want)
                for inputs_given, want in zip(self.inputs, self._plain_outputs())
            )
        name = next(param for param, value in own.inputs.items() if value is weight)
        own.set_input(name, compressed)
        try:
            again = self._behind(own)
            return max(relative_error(self._again(again, one), one.outputs) for one in values)
        finally:
            own.set_input(name, weight)

    def _weight(self, layer: str, form: WeightFormat) -> Value | None:
        """The layer's constant as the passes leave it; None where it is not the operand of the layer's own op."""
        self.layers[layer].check(form)
        ready = self.prepared(form.name)
        op = next((op for op in ready.main.walk() if op.outputs and op.outputs[0].name == layer), None)
        own = self._own.get(layer)
        return None if op is None or own is None or op.type != own.type else weight_of(op)

    def _values(self) -> list[_Kept]:
        """Outputs of the plain network for each input; empty where that is too much to keep."""
        if self._kept is None:
            types = [value.type for op in self._plain.main.ops for value in op.outputs]
            room = sum(type_.nbytes for type_ in types if isinstance(type_, TensorType))
            inner = any(op.blocks for op in self._plain.main.ops)
            whole = self._plain.main.states or inner or room * len(self.inputs) > KEPT_BYTES
            self._kept = [] if whole else [self._computed(inputs_given) for inputs_given in self.inputs]
        return self._kept

    def _plain_outputs(self) -> list[dict[str, np.ndarray]]:
        values = self._values()
        return [one.outputs for one in values] or [
            evaluate(self._plain, inputs_given, self.chip) for inputs_given in self.inputs
        ]

    def _computed(self, inputs_given: Inputs) -> _Kept:
        run = EngineEvaluation(self.chip, carried(self._plain))
        function = self._plain.main
        for value in function.inputs:
            run.environment[value] = checked_input(value, inputs_given.get(value.name)).astype(
                tensor_of(value.type).carrier
            )
        _compute(run, list(function.ops))
        return _Kept(run.environment, _outputs(run, function))

    def _behind(self, first: Op) -> list[Op]:
        """The ops to compute again when one op's weight changes; of a fused run all."""
        changed = {first}
        for op in self._plain.main.ops:
            head = self._runs.get(op)
            if any(value.op in changed for value in op.operands()) or head in changed:
                changed.add(op)
        heads = {self._runs[op] for op in changed if op in self._runs}
        return [op for op in self._plain.main.ops if op in changed or self._runs.get(op) in heads]

    def _again(self, ops: list[Op], record: _Kept) -> dict[str, np.ndarray]:
        run = EngineEvaluation(self.chip, carried(self._plain))
        run.environment = dict(record.values)
        _compute(run, ops)
        return _outputs(run, self._plain.main)


def _compute(run: EngineEvaluation, ops: Sequence[Op]) -> None:
    with np.errstate(all="ignore"):
        for op in ops:
            for value, array in zip(op.outputs, run.op(op)):
                run.environment[value] = run.settled(op, value, array)


def _outputs(run: EngineEvaluation, function: Function) -> dict[str, np.ndarray]:
    return {value.name: declared(run.array(value), value.type, f"output {value.name!r}") for value in function.outputs}
