"""The float32 reference: what a graph computes, in plain NumPy.

* A value of a float type of 32 bits or less (fp16, bf16, fp32) is computed in float32; fp64 in float64; integers and
  bools in their own dtype, with wrap-around.
* Inputs are converted to their declared dtype first (an fp16 input is rounded to fp16), outputs last. In between,
  fp16 and bf16 values are **not** rounded: the reference says what the network means, not what one machine makes of
  it. An explicit ``cast`` to fp16 or bf16 and quantised ops do round, since that is what they mean. ``typed=True``
  rounds every value to its declared dtype instead. A sum of bf16 is so a sum in float32, rounded once where it leaves
  as bf16; readers that carry bfloat16 as fp32 (ONNX, PyTorch, JAX) hand it out as fp32.
* The reference calls no other framework.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.bits import in_bf16
from hexane.errors import GraphError, HexaneError, UnsupportedError, UsageError
from hexane.graph.constants import Constant
from hexane.graph.parts import Block, Function, Op, Value
from hexane.graph.registry import OpSpec, plain, result_types, spec_of, values_of
from hexane.graph.types import (
    STRINGS,
    StateType,
    TensorType,
    TooLargeError,
    eval_dtype,
    in_type,
    kinds_of,
    misfit,
    tensor_of,
)

if TYPE_CHECKING:
    from hexane.graph.ir import Graph


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Any],
    *,
    function: str | None = None,
    typed: bool = False,
    state: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Outputs of a function by name; see the module's docstring. ``inputs`` by name, array-likes of the declared shape.

    States are arrays in ``state`` (``program.make_state()``) or among the inputs, changed in place; one that is left
    out begins with zeros and is forgotten. UsageError for a wrong input, GraphError or UnsupportedError from an op with
    its name.
    """
    if state is not None:
        inputs = {**inputs, **state}
    selected = graph.main if function is None else graph.functions.get(function)
    if selected is None:
        raise UsageError(f"the graph has no function {function!r}", hint=f"it has {', '.join(graph.functions)}")
    return evaluate_function(selected, inputs, typed=typed, doubtful=bool(graph.problems))


def evaluate_function(
    function: Function, inputs: Mapping[str, Any], *, typed: bool = False, doubtful: bool = False
) -> dict[str, np.ndarray]:
    """The same for one function; ``doubtful`` where declared types may contradict the ops."""
    if not isinstance(inputs, Mapping):
        raise UsageError(f"inputs is a {type(inputs).__name__}", hint="give a dict: input name to array")
    return Evaluation(typed, doubtful).run(function, inputs)


def checked_input(value: Value, content: Any) -> np.ndarray:
    """An input as the reference computes with it; UsageError when it is missing or does not fit."""
    type_ = tensor_of(value.type)
    if content is None:
        if isinstance(value.type, StateType):
            return np.zeros(type_.shape, eval_dtype(type_.dtype))
        raise UsageError(f"input {value.name!r} is missing", hint=f"it is a {value.type}")
    try:
        array = np.asarray(content)
    except ValueError:
        raise UsageError(f"input {value.name!r} is no array", hint=f"it is a {value.type}") from None
    if array.dtype.kind not in kinds_of(type_.dtype):
        raise UsageError(f"input {value.name!r} is of dtype {array.dtype}", hint=f"it is a {value.type}")
    if array.ndim != type_.rank or any(n is not None and n != m for n, m in zip(type_.shape, array.shape)):
        raise UsageError(f"input {value.name!r} has shape {array.shape}", hint=f"it is a {value.type}")
    if type_.dtype in STRINGS:
        return array.astype(str)
    if reason := misfit(array, type_.dtype):
        raise UsageError(f"input {value.name!r} {reason}", hint=f"it is a {value.type}")
    with np.errstate(over="ignore"):
        fitted = array.astype(type_.carrier, copy=False).astype(eval_dtype(type_.dtype), copy=False)
    if type_.dtype == "bf16":
        return in_bf16(fitted)
    # What reads a state keeps what it read, while the caller's array changes.
    return np.array(fitted) if isinstance(value.type, StateType) else fitted


def declared(array: np.ndarray, type_: Any, where: str) -> Any:
    """A computed array in the declared dtype; GraphError when its shape is another than declared."""
    if not isinstance(type_, TensorType):
        return array
    if array.ndim != type_.rank or any(n is not None and n != m for n, m in zip(type_.shape, array.shape)):
        raise GraphError(f"{where} is declared {type_} and came out with shape {array.shape}")
    if type_.carrier.kind == "U":
        return array
    return np.ascontiguousarray(in_type(array, type_)).reshape(array.shape)


CHOOSES_FROM_X = frozenset({"gather", "gather_along_axis", "gather_nd"})
"""Ops that only choose elements of ``x``: those of a constant are widened behind the choice (an embedding is large)."""


class Evaluation:
    """One run: the environment of values, and how each op is computed.

    ``doubtful``: no declared type is trusted to bound what an op makes.
    """

    narrows = False
    """Whether results stay in their declared dtypes, for evaluations that widen what they read."""

    def __init__(self, typed: bool = False, doubtful: bool = False) -> None:
        self.typed = typed
        self.doubtful = doubtful
        self.environment: dict[Value, Any] = {}

    def run(self, function: Function, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """A function's outputs; what its states hold then goes into the arrays that are given for them."""
        unknown = set(inputs) - {value.name for value in function.inputs}
        if unknown:
            names = ", ".join(repr(value.name) for value in function.inputs)
            raise UsageError(f"there is no input {min(unknown, key=str)!r}", hint=f"the inputs are {names}")
        for value in function.inputs:
            self.environment[value] = self.as_kept(checked_input(value, inputs.get(value.name)), value.type)
        arrays = {
            value.name: declared(array, value.type, f"output {value.name!r}")
            for value, array in zip(function.outputs, self.block(function))
        }
        for value in function.inputs:
            if isinstance(value.type, StateType) and isinstance(inputs.get(value.name), np.ndarray):
                with np.errstate(over="ignore", invalid="ignore"):
                    inputs[value.name][...] = self.environment[value]
        return arrays

    def as_kept(self, array: Any, type_: Any) -> Any:
        """An array of a declared type as the environment has it."""
        return array

    def array(self, value: Value) -> Any:
        """A value's array; constants are widened to the reference's dtype on the way."""
        stored_array = self.environment.get(value)
        if stored_array is not None:
            return stored_array
        if value.constant is None:
            raise GraphError(f"{value.name!r} is used before it is computed")
        if not isinstance(value.type, TensorType):
            return value.data
        dtype_needed = eval_dtype(value.type.dtype)
        return value.data if dtype_needed.kind == "U" else value.data.astype(dtype_needed, copy=False)

    def narrow(self, value: Value) -> Any:
        """A value's array; constants as they are stored, for an op that computes nothing."""
        return value.data if value.constant is not None and value not in self.environment else self.array(value)

    def block(self, block: Block) -> list[Any]:
        """Evaluate a block whose inputs stand in the environment; its outputs."""
        dying = _last_uses(block)
        with np.errstate(all="ignore"):
            for op in block.ops:
                for value, array in zip(op.outputs, self.op(op)):
                    self.environment[value] = self.settled(op, value, array)
                for value in dying.get(op, ()):
                    self.environment.pop(value, None)
        return [self.array(value) for value in block.outputs]

    def settled(self, op: Op, value: Value, array: Any) -> Any:
        """A result as the environment holds it; GraphError where its shape is not the declared one."""
        if not isinstance(value.type, TensorType):
            return array
        type_ = value.type
        array = np.asarray(array)
        if array.ndim != type_.rank or any(n is not None and n != m for n, m in zip(type_.shape, array.shape)):
            raise GraphError(f"{op.describe()} is declared {type_} and came out with shape {array.shape}")
        if type_.carrier.kind == "U":
            return array
        if self.typed:
            array = in_type(array, type_)
        return array if self.narrows else array.astype(eval_dtype(type_.dtype), copy=False)

    def op(self, op: Op) -> tuple[Any, ...]:
        """Evaluate one op; its results. Errors carry the op's name."""
        try:
            spec = spec_of(op)
            if spec.evaluate is None:
                raise UnsupportedError(f"{op.type} has no reference evaluation")
            if self.doubtful or any(isinstance(v.type, TensorType) and not v.type.is_static for v in op.outputs):
                self._check_size(op, spec)
            results = spec.evaluate(self, op) if spec.special else spec.evaluate(**self.arguments(op, spec))
        except HexaneError as error:
            if error.where:
                raise
            raise type(error)(error.message, where=op.describe(), hint=error.hint) from None
        except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError) as error:
            raise GraphError(f"cannot be computed: {error}", where=op.describe()) from error
        except MemoryError:
            raise GraphError("does not fit into memory", where=op.describe()) from None
        return results if isinstance(results, tuple) else (results,)

    def _check_size(self, op: Op, spec: OpSpec) -> None:
        """TooLargeError, before anything is allocated, where an op's operands ask for too large a result."""
        if spec.special:
            return
        operands: dict[str, Any] = {}
        for param in spec.params:
            if (operand := op.inputs.get(param.name)) is not None:
                arrays = tuple(self._at_hand(value, param.is_attribute) for value in values_of(operand))
                operands[param.name] = arrays if isinstance(operand, tuple) else arrays[0]
        try:
            result_types(spec, operands)
        except TooLargeError:
            raise
        except HexaneError:
            return  # the op itself says what is wrong with its operands

    def _at_hand(self, value: Value, needed: bool) -> Value:
        """A value with the shape that it has now and, where needed, its numbers."""
        if value.constant is not None or not isinstance(value.type, TensorType):
            return value
        array = np.asarray(self.array(value))
        type_ = TensorType(value.type.dtype, array.shape)
        data = Constant(type_, array.astype(type_.carrier)) if needed else None
        return Value(value.name, type_, constant=data)

    def arguments(self, op: Op, spec: OpSpec) -> dict[str, Any]:
        """An op's parameters as its evaluation takes them: arrays, tuples of arrays, Python values."""
        values_by_name: dict[str, Any] = {}
        for param in spec.params:
            operand = op.inputs.get(param.name)
            if operand is None:
                if param.required:
                    raise GraphError(f"lacks {param.name}")
                values_by_name[param.name] = param.default
                continue
            narrow = spec.name in CHOOSES_FROM_X and param.name == "x"
            arrays = [self.narrow(value) if narrow else self.array(value) for value in values_of(operand)]
            if param.is_attribute:
                arrays = [plain(np.asarray(array), param.kind, param.name) for array in arrays]
            values_by_name[param.name] = tuple(arrays) if isinstance(operand, tuple) else arrays[0]
        return values_by_name


def _last_uses(block: Block) -> dict[Op, list[Value]]:
    """For each op of the block, the values of the block that nothing needs after it."""
    last: dict[Value, Op] = {}
    for op in block.ops:
        for value in op.outputs:
            last[value] = op
        for value in _all_operands(op):
            if value in last:
                last[value] = op
    for value in block.outputs:
        last.pop(value, None)
    dying: dict[Op, list[Value]] = {}
    for value, op in last.items():
        dying.setdefault(op, []).append(value)
    return dying


def _all_operands(op: Op) -> Iterable[Value]:
    yield from op.operands()
    for block in op.blocks:
        yield from block.outputs
        for inner in block.walk():
            yield from inner.operands()
            for nested in inner.blocks:
                yield from nested.outputs
