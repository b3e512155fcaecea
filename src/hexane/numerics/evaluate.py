"""A graph with the engine's arithmetic: the bits that tasks would give, without tasks, for any chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hexane import chips
from hexane.arithmetic import tier
from hexane.arithmetic.convolution_results import ConvolutionResults
from hexane.arithmetic.formats import canonical, to_bytes
from hexane.chips import Chip
from hexane.errors import UnsupportedError
from hexane.graph import Graph, Op, Value
from hexane.graph.evaluate import Evaluation
from hexane.graph.registry import spec_of, values_of
from hexane.graph.types import TensorType, eval_dtype, in_type
from hexane.isa.roles import SPELLED, roles_of
from hexane.lowering.eight_bit import byte_product
from hexane.lowering.fusion import CUT_RUNS, SUMS, Epilogue, sum_run
from hexane.lowering.transformations import Transformations, carried
from hexane.lowering.weights import stream_of
from hexane.numerics import reductions  # noqa: F401  declares its rules
from hexane.numerics.rules import RULES, Arrays
from hexane.numerics.sums import convolution, product, scaled_convolution, scaled_product

MOVES = frozenset(
    (
        "reshape squeeze expand_dims flatten2d transpose slice_by_size slice_by_index split concat stack "
        "pad upsample_nearest_neighbor sliding_windows "
        "pixel_shuffle pixel_unshuffle depth_to_space space_to_depth reverse space_to_batch batch_to_space"
    ).split()
)
"""Ops that only move values: the same bits, wherever they run."""

Observer = Callable[[Op, np.ndarray], None]


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Any],
    chip: str | Chip = "M1",
    *,
    observe: Observer | None = None,
    results: ConvolutionResults | None = None,
) -> dict[str, np.ndarray]:
    """Outputs by name, in their declared dtypes, with the arithmetic of ``chip``'s engine.

    fp16 ops that the engine has are computed bit by bit (docs/reference/numerics.md); chips from M5 on take dense 3x3
    and 1x3
    convolutions in Winograd form. Every other op is computed in float32 and its result rounded to its declared dtype.
    ``observe`` is called with every op whose result is known and the result (of a fused run, the last op's).
    ``results``: of convolutions that are not to be computed again. Needs no code generator and no emulator; costs about
    what ``hexane.arithmetic`` costs for the same shapes.

    Raises UsageError for a missing input or one of another shape.
    """
    run = EngineEvaluation(chips.get(chip), carried(graph), observe, results)
    run.cut = frozenset(graph.metadata.get(CUT_RUNS, ()))
    with tier.while_cold():
        return run.run(graph.main, inputs)


def _typed(array: Any, type_: Any) -> Any:
    if not isinstance(type_, TensorType) or type_.carrier.kind == "U":
        return array
    return in_type(np.asarray(array), type_)


def _factor_on(generation: str) -> Callable[[float], float]:
    """A number as the register of the planar engine's last factor holds it."""
    if generation not in SPELLED:
        return float
    roles = roles_of(generation)
    return lambda value: roles.nearest("PE.FinalScale.FinalScale", value)


class EngineEvaluation(Evaluation):
    """The reference's walk over a graph, with values kept in their declared dtypes and the engine's rules for ops.

    ``on_engine`` collects the ops that a rule took, ``on_host`` the others with the reason. ``cut`` names results that
    end the run of ops behind a sum early, as the compiler wrote it.
    """

    narrows = True

    def __init__(
        self,
        chip: Chip,
        on: Transformations,
        observe: Observer | None = None,
        results: ConvolutionResults | None = None,
    ) -> None:
        super().__init__(typed=True)
        self.form = "winograd" if chip.winograd else "direct"
        self.generation = chip.generation
        self.on = on
        self.factor = _factor_on(chip.generation_name)
        self.cut: frozenset[str] = frozenset()
        self.on_engine: list[Op] = []
        self.on_host: dict[Op, str] = {}
        self._observe = observe
        self._results = results or ConvolutionResults()
        self._fused: dict[Op, np.ndarray | None] = {}
        self._bytes: dict[Value, np.ndarray] = {}  # of dequantised maps whose convolution sums integers

    def as_kept(self, array: Any, type_: Any) -> Any:
        return _typed(array, type_)

    def op(self, op: Op) -> tuple[Any, ...]:
        if op in self._fused:
            result = self._fused.pop(op)
            # inside a fused run nothing but the last result exists; the others are placeholders of the right shape
            computed = np.broadcast_to(np.float16(0), op.output.shape) if result is None else result
            return (self._seen(op, computed) if result is not None else computed,)
        try:
            results = self._on_engine(op)
        except UnsupportedError as error:
            self.on_host[op] = error.message
            results = None
        return self._reference(op) if results is None else results

    def _on_engine(self, op: Op) -> tuple[Any, ...] | None:
        if op.type in MOVES:
            self.on_engine.append(op)
            return Evaluation.op(_Plain(self), op)
        if op.type == "max_pool" and self._is_fp16(op):
            (largest,) = Evaluation.op(_Plain(self), op)
            self.on_engine.append(op)
            return (self._seen(op, canonical(np.asarray(largest, np.float16))),)
        if op.type == "dequantize":
            user = op.output.only_user
            if user is not None and byte_product(user, self.generation) is not None:
                self._bytes[op.output] = self._stored(op.inputs["input"])
        if len(op.outputs) != 1 or not self._is_fp16(op):
            self.on_host.setdefault(op, f"{op.type} on values that are not fp16")
            return None
        if op.type in SUMS:
            return self._sums(op)
        engine_rule = RULES.get(op.type)
        if engine_rule is None:
            self.on_host[op] = f"no rule of the engine for {op.type}"
            return None
        arrays = Arrays(lambda name: self._stored(op.arg(name)), self.on, self.factor, self.generation.l2_bytes)
        result = engine_rule(op, arrays)
        self.on_engine.append(op)
        return (self._seen(op, result),)

    def _is_fp16(self, op: Op) -> bool:
        """True where its tensors are; numbers among the parameters may be of any float type."""
        names = [param.name for param in spec_of(op).params if param.is_tensor]
        operands = [v for name in names if name in op.inputs for v in values_of(op.inputs[name])]
        values = [v for v in (*operands, *op.outputs) if isinstance(v.type, TensorType)]
        floats = [v.dtype for v in values if v.dtype.startswith(("fp", "bf"))]
        return bool(floats) and all(dtype == "fp16" for dtype in floats)

    def _sums(self, op: Op) -> tuple[Any, ...]:
        run = sum_run(op, self.on)
        end = next((i for i, inner in enumerate(run, 1) if inner.output.name in self.cut), len(run))
        run = run[:end]
        epilogue = Epilogue.of(run)
        own = op.inputs.get("bias")
        if own is not None and not own.is_constant:
            raise UnsupportedError("a bias that is computed")
        eight = byte_product(op, self.generation)
        if eight is not None:
            x, kernel = self._bytes.pop(op.arg("x")).astype(np.float16), self._stored(op.arg("weight"))
            return self._finished(run, scaled_convolution(op, x, kernel, eight.stream, epilogue), epilogue.store)
        stream = stream_of(op, self.generation)
        scaled = stream is not None and stream.rounds_twice
        if op.type == "conv":
            weight = op.arg("weight")
            if not weight.is_constant:
                raise UnsupportedError("a convolution whose weights are computed")
            x, kernel = self._stored(op.arg("x")), self._stored(weight)
            if stream is not None and scaled:
                result = scaled_convolution(op, x, kernel, stream, epilogue)
            else:
                masked = stream is not None and stream.form == "sparse"
                form = "direct" if masked else self.form
                result = convolution(op, x, kernel, epilogue, form, self.generation, self._results)
        else:
            second = op.arg("weight") if op.type == "linear" else op.arg("y")
            x, kernel = self._stored(op.arg("x")), self._stored(second)
            if stream is not None and scaled:
                result = scaled_product(op, x, kernel, stream, epilogue)
            else:
                result = product(op, x, kernel, epilogue)
        return self._finished(run, result, epilogue.store)

    def _finished(self, run: Sequence[Op], result: np.ndarray, store: str) -> tuple[Any, ...]:
        """The results of a run's first op: of a fused run the last op has the values. ``store``: as which bytes."""
        result = to_bytes(result, store) if store else result
        op = run[0]
        self.on_engine.extend(run)
        last = run[-1]
        result = result.reshape(last.output.shape)
        if last is op:
            return (self._seen(op, result),)
        for inner in run[1:-1]:
            self._fused[inner] = None
        self._fused[last] = result
        return (np.broadcast_to(np.float16(0), op.output.shape),)

    def _stored(self, value: Value) -> np.ndarray:
        """A value in its declared dtype, as memory holds it."""
        value_stored = self.environment.get(value)
        if value_stored is None:
            value_stored = np.asarray(value.data)
        return np.asarray(_typed(value_stored, value.type))

    def _seen(self, op: Op, result: np.ndarray) -> np.ndarray:
        if self._observe is not None:
            self._observe(op, result)
        return result

    def _reference(self, op: Op) -> tuple[Any, ...]:
        """The op in float32 (or its own integer dtype), its results in their declared dtypes."""
        results = Evaluation.op(_Widened(self), op)
        typed = tuple(_typed(array, value.type) for array, value in zip(results, op.outputs))
        for array in typed[:1]:
            self._seen(op, array)
        return typed


class _Plain(Evaluation):
    """The reference over another evaluation's values as they are stored."""

    def __init__(self, outer: EngineEvaluation) -> None:
        super().__init__(typed=True)
        self._outer = outer
        self.environment = outer.environment

    def array(self, value: Value) -> Any:
        if isinstance(value.type, TensorType) and value.type.carrier.kind != "U":
            return self._outer._stored(value)
        return super().array(value)


class _Widened(Evaluation):
    """The reference over another evaluation's values, widened to what it computes in."""

    def __init__(self, outer: EngineEvaluation) -> None:
        super().__init__(typed=False)
        self._outer = outer
        self.environment = outer.environment

    def array(self, value: Value) -> Any:
        host_array = super().array(value)
        if isinstance(value.type, TensorType) and value.type.carrier.kind != "U":
            return np.asarray(host_array).astype(eval_dtype(value.type.dtype), copy=False)
        return host_array
