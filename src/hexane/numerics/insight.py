"""Loss of accuracy on the engine, layer by layer: what arrived, what was made here, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Any

import numpy as np

from hexane.arithmetic.convolution_results import ConvolutionResults
from hexane.bits import in_dtype
from hexane.chips import Chip
from hexane.errors import HexaneError
from hexane.graph import Graph, Op, Value
from hexane.graph.evaluate import Evaluation
from hexane.graph.types import TensorType, tensor_of
from hexane.lowering.fusion import SUMS
from hexane.numerics.evaluate import MOVES, evaluate
from hexane.numerics.losses import operands, sum_losses, table_end_share

WRONG = 0.05
"""Relative error (root mean square) from which a layer counts as gone wrong."""
MOST_ELEMENTS = 1 << 28
"""A network whose values have more elements in all is examined without the float32 values of every layer."""


@dataclass(frozen=True)
class LayerInsight:
    """One layer as the engine computes it (a fused run counts as one, under the name of its last value).

    ``error`` is the relative error against the float32 network, root mean square; ``made`` the part that this layer
    adds: against float32 on the engine's own inputs. ``largest`` is the largest absolute error, ``nonfinite`` counts
    values that are infinite here and finite in float32. The rest is None where it does not apply:
    see ``hexane.numerics.losses``.
    """

    name: str
    op: str
    part: int
    error: float | None
    made: float | None
    largest: float | None
    cosine: float | None
    nonfinite: int
    low: float
    high: float
    headroom_bits: float | None = None
    worst_bits: float | None = None
    dropped: float | None = None
    table_ends: float | None = None
    scale_bits: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data; infinities as None, since JSON has none."""
        return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in vars(self).items()}


@dataclass(frozen=True)
class Insight:
    """All layers in order, every value at a part's edge, and the first layer that goes wrong (None when none does)."""

    layers: tuple[LayerInsight, ...]
    values: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def first_wrong(self) -> LayerInsight | None:
        return next(
            (row for row in self.layers if row.nonfinite or (row.error is not None and row.error > WRONG)), None
        )

    @property
    def scaling(self) -> dict[str, int]:
        """Layer -> bits by which its weights are to be scaled; see ``hexane.numerics.autoscale``."""
        return {row.name: row.scale_bits for row in self.layers if row.scale_bits}


def every_value(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The float32 reference of every tensor of the function that runs, by name; of huge networks the outputs only."""
    whole = graph.clone()
    values = [v for op in whole.main.ops for v in op.outputs if isinstance(v.type, TensorType)]
    values = [v for v in values if None not in v.shape and v.dtype != "string"]
    if sum(prod(v.shape) for v in values) <= MOST_ELEMENTS:
        names = {v.name for v in whole.main.outputs}
        extra = [v for v in values if v.name not in names]
        whole.main.set_outputs([*whole.main.outputs, *extra])
    return {name: np.asarray(array) for name, array in whole.evaluate(inputs).items()}


def examine(
    parts: Sequence[tuple[str, Graph]],
    inputs: Mapping[str, Any],
    reference: Mapping[str, np.ndarray],
    chip: str | Chip = "M1",
    results: ConvolutionResults | None = None,
) -> Insight:
    """Run the parts of a compiled network with the engine's arithmetic and compare every layer.

    Parameters
    ----------
    parts : ("engine" or "host", graph) in order, as a program's segments hold them.
    inputs : name -> array, of the whole network.
    reference : name -> array in float32, of ``every_value``.
    results : of convolutions that are known already, as from a run on the emulator.
    """
    values = {**states_of(parts), **inputs}
    rows: list[LayerInsight] = []
    for number, (kind, graph) in enumerate(parts):
        arrays = {name: values[name] for name in graph.inputs}
        if kind != "engine":
            values.update(graph.evaluate(arrays))
            continue
        with np.errstate(over="ignore"):  # an infinity there is what the layers are looked through for
            reference_values: dict[Value, np.ndarray] = {
                v: np.array(arrays[v.name]).astype(tensor_of(v.type).carrier) for v in graph.main.inputs
            }
        order: list[Op] = []

        def observe(op: Op, result: np.ndarray, layer_values: dict = reference_values, order: list = order) -> None:
            layer_values[op.output] = np.array(result)
            order.append(op)

        values.update(evaluate(graph, arrays, chip, observe=observe, results=results))
        with np.errstate(all="ignore"):
            rows += [_layer(op, number, reference_values, reference) for op in order]
    return Insight(tuple(rows), values)


def states_of(parts: Sequence[tuple[str, Graph]]) -> dict[str, np.ndarray]:
    """The states of all parts, zero, as a first call finds them; the parts change them in place, one after another.

    Contents of a state that tasks write in place are a tensor of the first part that reads them; zeros for tensors that
    the network is given are among these, too.
    """
    states: dict[str, np.ndarray] = {}
    results: set[str] = set()
    for _, graph in parts:
        types = {value.name: tensor_of(value.type) for value in graph.main.inputs if value.name not in results}
        for name, tensor in types.items():
            states.setdefault(name, np.zeros(tensor.shape, tensor.carrier))
        results |= {value.name for value in graph.main.outputs}
    return states


def _layer(
    op: Op, part: int, reference_values: Mapping[Value, np.ndarray], reference: Mapping[str, np.ndarray]
) -> LayerInsight:
    got = reference_values[op.output].astype(np.float32)
    numbers = _Numbers(got)
    finite = got if np.isfinite(np.add.reduce(got, None, np.float64)) else got[np.isfinite(got)]
    local = _Local(reference_values)
    run, extracted = [op], None
    try:
        extracted = numbers.error(local.float32(op.output))[0]
        run = local.run
    except HexaneError:
        pass  # an op that the reference cannot compute alone has no local error
    expected = reference.get(op.output.name)
    error = largest = cosine = None
    nonfinite = 0
    if expected is not None and expected.shape == got.shape and expected.dtype.kind in "fiub":
        expected = expected.astype(np.float32)
        error, largest, cosine = numbers.error(expected)
        if finite is not got:
            nonfinite = int(np.count_nonzero(~np.isfinite(got) & np.isfinite(expected)))
    extra = _losses(run, local)
    return LayerInsight(
        op.output.name, _kinds(run), part, error, extracted, largest, cosine, nonfinite,
        float(finite.min(initial=np.inf)) if finite.size else 0.0,
        float(finite.max(initial=-np.inf)) if finite.size else 0.0,
        **extra,
    )  # fmt: skip


def _kinds(run: list[Op]) -> str:
    """Name of a layer's work, first op first; ops that only move values are named when there is nothing else."""
    kinds = [op.type for op in reversed(run)]
    return "+".join(kind for kind in kinds if kind not in MOVES) or kinds[-1]


def _losses(run: Iterable[Op], local: _Local) -> dict[str, Any]:
    losses_by_op: dict[str, Any] = {}
    for op in run:
        try:
            if op.type in SUMS:
                x, w = (local.stored(value) for value in operands(op))
                losses = sum_losses(op, x, w, local.evaluation.environment.get(op.output))
                losses_by_op.update(
                    headroom_bits=losses.headroom_bits,
                    worst_bits=losses.worst_bits,
                    dropped=losses.dropped,
                    scale_bits=losses.scale_bits if operands(op)[1].is_constant else 0,
                )
            elif not losses_by_op.get("table_ends"):
                share = table_end_share(op, local.stored(op.arg("x"))) if "x" in op.inputs else None
                if share is not None:
                    losses_by_op["table_ends"] = share
        except HexaneError:
            continue
    return losses_by_op


class _Local:
    """Float32 values of one layer, computed from the engine's values around it; ``run`` lists the ops it took."""

    def __init__(self, values: Mapping[Value, np.ndarray]) -> None:
        self.seen = values
        self.run: list[Op] = []
        self.evaluation = Evaluation()

    def float32(self, value: Value, top: bool = True) -> np.ndarray:
        """A value from the nearest engine values behind it; the layer's own result is computed, not taken."""
        if value.is_constant:
            return np.asarray(value.data, np.float32)
        if not top and value in self.seen:
            return self.seen[value].astype(np.float32)
        environment = self.evaluation.environment
        if value in environment:
            return environment[value]
        op = value.op
        if op is None:
            raise HexaneError(f"{value.name} is not known")
        for operand in op.operands():
            if not operand.is_constant:
                environment[operand] = self.float32(operand, False)
        with np.errstate(all="ignore"):
            results = self.evaluation.op(op)
        self.run.insert(0, op)
        for output, result in zip(op.outputs, results):
            environment[output] = np.asarray(result)
        return environment[value]

    def stored(self, value: Value) -> np.ndarray:
        """A value as the engine's memory holds it (fp16)."""
        if value.is_constant:
            return np.asarray(value.data, np.float16)
        if value in self.seen and self.seen[value].dtype == np.float16:
            return self.seen[value]
        return in_dtype(self.float32(value, False), np.dtype(np.float16))


class _Numbers:
    """A layer's values in float64, held against others."""

    def __init__(self, got: np.ndarray) -> None:
        self.values = got.ravel().astype(np.float64)
        self.squares = _dot(self.values, self.values)

    def error(self, expected: np.ndarray) -> tuple[float, float, float]:
        """(relative root-mean-square error, largest absolute error, cosine) over the values that are finite in both."""
        a, b, own = self.values, expected.ravel().astype(np.float64), self.squares
        difference = a - b
        if not np.isfinite(squares := _dot(difference, difference)):
            both = np.flatnonzero(np.isfinite(difference))
            a, b, difference = a[both], b[both], difference[both]
            squares, own = _dot(difference, difference), _dot(a, a)
        if not a.size:
            return 0.0, 0.0, 1.0
        size, off = sqrt(_dot(b, b)), sqrt(squares)
        norm = size * sqrt(own)
        relative = off / size if size else (0.0 if off == 0 else float("inf"))
        largest = max(abs(float(difference.max())), abs(float(difference.min())))
        return relative, largest, _dot(a, b) / norm if norm else float(not off)


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """Without the threads of a matrix library, which cost more than they save here."""
    return float(np.einsum("i,i->", a, b))
