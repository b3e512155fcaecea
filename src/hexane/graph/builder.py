"""Build a graph op by op, with MIL's op and parameter names.

b = GraphBuilder()
x = b.input("x", (1, 3, 8, 8), "fp16")
y = b.relu(x=b.conv(x=x, weight=w, pad_type="same"))
b.output(y)
graph = b.graph
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from hexane.errors import GraphError
from hexane.graph.constants import Constant, constant_from
from hexane.graph.ir import Graph
from hexane.graph.parts import Block, Function, Op, Value
from hexane.graph.registry import OpSpec, Param, is_known, lookup, opset_number, result_types
from hexane.graph.rewrite import function_of
from hexane.graph.types import DTYPES, FLOATS, StateType, TensorType, Type

_ATTRIBUTE_DTYPE = {"int": "int32", "uint": "uint32", "bool": "bool", "str": "string"}
_EXACT: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("int", "ints", "uint", "uints", "bool", "bools"), (int, tuple, list)),
    "str": (str,),
}
"""Kinds of parameters of which equal values are equal bits, and what values of theirs may be keys."""


class GraphBuilder:
    """Builds one function of a graph (``main``), or goes on where an existing function stands.

    Every MIL op is a method with MIL's parameter names as keywords; an operand may be a Value, a NumPy array, a number,
    a list or a string (which become constants of the dtype that the op asks for). ``name=`` names the result. Ops with
    several results return a tuple. Types are inferred at once, so that a mistake shows where it is made.
    """

    def __init__(
        self,
        *,
        opset: str = "ios18",
        function: Function | None = None,
        graph: Graph | None = None,
        before: Op | None = None,
    ) -> None:
        opset_number(opset)
        if function is None:
            function = Function("main", opset=opset)
            graph = graph or Graph()
            graph.add_function(function)
        self.function = function
        self.block: Block = function if before is None or before.block is None else before.block
        self.before = before
        self._graph = graph
        self.names = function.names
        self._outputs: list[Value] = list(function.outputs)
        self._blocks: list[Block] = []
        self._written: dict[Hashable, list[_Step]] = {}

    @property
    def graph(self) -> Graph:
        """The graph built so far."""
        if self._graph is None:
            raise GraphError("this builder works on a function without a graph")
        return self._graph

    def input(self, name: str, shape: Any, dtype: str = "fp32") -> Value:
        """A function input; ``shape`` a sequence of ints."""
        return self.typed_input(name, TensorType(dtype, tuple(shape)))

    def typed_input(self, name: str, type: Type) -> Value:
        """A function input of any type (a state, a list, a tensor)."""
        if name in self.names:
            raise GraphError(f"the name {name!r} is taken")
        self.names.take(name)
        return self.function.add_input(Value(name, type))

    def state(self, name: str, shape: Any, dtype: str = "fp16") -> Value:
        """A state input (docs/reference/mil.md 5.8)."""
        return self.typed_input(name, StateType(TensorType(dtype, tuple(shape))))

    def const(self, data: Any, dtype: str | None = None, name: str | None = None) -> Value:
        """A constant; ``data`` an array, a number, a list, a string or a ``Constant`` (lazily loaded)."""
        constant = data if isinstance(data, Constant) else constant_from(data, dtype)
        return Value(self.names.unique(name or "const"), constant.type, constant=constant)

    def _operand(self, data: Any, dtype: str | None = None, *, name: str) -> Value:
        """A constant that is called after its parameter, as long as nobody else wants that name."""
        constant = data if isinstance(data, Constant) else constant_from(data, dtype)
        value = Value(name, constant.type, constant=constant)
        self.names.lend(value)
        return value

    def output(self, *values: Value, name: str | None = None) -> None:
        """Declare outputs, in order; ``name`` renames a single one."""
        if name is not None:
            (value,) = values
            values = (self.rename(value, name),)
        self._outputs.extend(values)
        self.function.set_outputs(self._outputs)

    def rename(self, value: Value, name: str) -> Value:
        """Give a value a name; an input or a value that is already an output is passed through ``identity`` instead."""
        if value.name == name:
            return value
        if value.op is None or value.is_output:
            return self.op("identity", name=name, x=value)
        if name in self.names:
            raise GraphError(f"the name {name!r} is taken")
        self.names.take(name)
        value.name = name
        return value

    def __getattr__(self, type: str) -> Callable[..., Any]:
        if type.startswith("_") or not is_known(type):
            raise AttributeError(f"there is no op {type!r}")
        return partial(self.op, type)

    def op(
        self,
        type: str,
        /,
        *,
        name: str | None = None,
        opset: str | None = None,
        blocks: tuple[Block, ...] = (),
        outputs: tuple[Type, ...] | None = None,
        **operands: Any,
    ) -> Any:
        """Add an op of any type, ``onnx.*`` included; its result, or the tuple of its results (None when it has none).

        ``name`` is the first result's name (made unique); ``outputs`` overrides the inferred types (control flow).
        """
        spec = lookup(type, opset or self.function.opset)
        inputs = wrap_operands(spec, operands, self._operand)
        operation = Op(type, inputs, opset=opset, blocks=blocks)
        try:
            if outputs is None:
                if blocks:
                    outputs = tuple(value.type for value in blocks[-1].outputs)
                else:
                    outputs = result_types(spec, inputs, opset_number(opset or self.function.opset))
        except GraphError as error:
            raise type_error(error, name or type) from None
        results = self._added(operation, outputs, name)
        if not results:
            return None
        return results[0] if len(results) == 1 else results

    def again(self, form: Hashable, x: Value, write: Callable[[Value], Value]) -> Value:
        """``write(x)``: ops of single operands and one result, the last of which is the value.

        Behind the first time, ops that were written for a form, of a value of the same type, are copied: they are given
        the types that they had then.
        """
        key = form, x.type
        steps = self._written.get(key)
        if steps is None:
            ops = self.block.ops
            count, result = len(ops), write(x)
            self._written[key] = _steps(x, list(islice(ops.before(self.before), len(ops) - count))[::-1])
            return result
        values = [x]
        for step in steps:
            inputs = {
                param: values[operand] if isinstance(operand, int) else self._operand(operand, name=param)
                for param, operand in step.operands.items()
            }
            values += self._added(Op(step.type, inputs, opset=step.opset), (step.result,), None)
        return values[-1]

    def _added(self, operation: Op, outputs: tuple[Type, ...], name: str | None) -> tuple[Value, ...]:
        """The results of an op that is now in its place."""
        base = name or operation.type.rsplit(".", 1)[-1]
        results = []
        for index, result in enumerate(outputs):
            results.append(Value(self.names.unique(base if index == 0 else f"{base}_{index}"), result, op=operation))
        operation.outputs = tuple(results)
        operation.name = results[0].name if results else name
        self.block.add(operation, self.before)
        return operation.outputs

    def subblock(self, inputs: Any = ()) -> _SubBlock:
        """A context in which ops go into a new inner block: ``with b.subblock({"i": type}) as block: ...``.

        ``block.inputs`` are its inputs; end with ``block.set_outputs([...])`` and hand it to an op as ``blocks=``.
        """
        pairs = inputs.items() if isinstance(inputs, dict) else inputs
        block = Block(Value(self.names.unique(name), type_) for name, type_ in pairs)
        return _SubBlock(self, block)


class _Step(NamedTuple):
    """An op that was written: its operands are constants, or the numbers of results before, 0 of what it began with."""

    type: str
    opset: str | None
    operands: dict[str, Constant | int]
    result: Type


def _steps(x: Value, ops: Sequence[Op]) -> list[_Step]:
    numbers = {x: 0} | {op.output: number for number, op in enumerate(ops, 1)}
    operands = [{param: value.constant or numbers[value] for param, value in op.inputs.items()} for op in ops]
    return [_Step(op.type, op.opset, own, op.output.type) for op, own in zip(ops, operands)]


class _SubBlock:
    def __init__(self, builder: GraphBuilder, block: Block) -> None:
        self._builder = builder
        self._inner = block

    def __enter__(self) -> Block:
        self._saved = (self._builder.block, self._builder.before)
        self._builder.block, self._builder.before = self._inner, None
        return self._inner

    def __exit__(self, *_: object) -> None:
        self._builder.block, self._builder.before = self._saved


def type_error(error: GraphError, name: str) -> GraphError:
    """The same error with the op's name as its place, unless it has one."""
    return error if error.where else type(error)(error.message, where=name, hint=error.hint)


def wrap_operands(spec: OpSpec, operands: dict[str, Any], const: Callable[..., Value]) -> dict[str, Any]:
    """Operands as Values: arrays and Python values become constants of the dtype that the signature asks for."""
    for name in operands.keys() - spec.by_name.keys():
        if operands[name] is not None:
            spec.param(name)
    letters: dict[str, str] | None = None
    wrapped: dict[str, Any] = {}
    for param in spec.params:  # signature order, whatever the caller's
        operand = operands.get(param.name)
        if operand is None:
            continue
        if isinstance(operand, Value) and not param.variadic:
            wrapped[param.name] = operand
            continue
        letters = _letters(spec, operands) if letters is None else letters
        if param.variadic:
            if not isinstance(operand, (tuple, list)):
                raise GraphError(f"{param.name} of {spec.name} takes a tuple of values")
            wrapped[param.name] = tuple([_wrap(param, item, letters, const) for item in operand])
        else:
            wrapped[param.name] = _wrap(param, operand, letters, const)
    return wrapped


def _letters(spec: OpSpec, operands: dict[str, Any]) -> dict[str, str]:
    """The dtype of each letter of the signature of which an operand is a value."""
    letters: dict[str, str] = {}
    for name, operand in operands.items():
        param = spec.by_name.get(name)
        if operand is not None and param is not None and param.is_tensor and param.group not in letters:
            for item in operand if param.variadic and isinstance(operand, (tuple, list)) else (operand,):
                if isinstance(item, Value):
                    letters.setdefault(param.group, item.dtype)
    return letters


def _wrap(param: Param, operand: Any, letters: dict[str, str], const: Callable) -> Value:
    if isinstance(operand, Value):
        return operand
    if isinstance(operand, Constant):
        return const(operand, name=param.name)
    kind = param.kind
    if kind in _EXACT and isinstance(operand, _EXACT[kind]):
        try:
            return const(_exact(kind, tuple(operand) if isinstance(operand, list) else operand), name=param.name)
        except TypeError:  # a list of lists is no key
            pass
    dtype: str | None = None
    first_float = next((dtype for dtype in letters.values() if dtype in FLOATS), None)
    if param.is_attribute:
        operand, dtype = _attribute(kind, operand, first_float)
    elif not isinstance(operand, (np.ndarray, np.generic)):
        dtype = letters.get(param.group)
        if dtype is None and np.asarray(operand).dtype.kind == "f":
            dtype = first_float
    if dtype is not None and DTYPES[dtype].kind == "f" and isinstance(operand, (int, float)):
        operand = float(operand)
    return const(operand, dtype, name=param.name)


@lru_cache(1024)
def _exact(kind: str, operand: Any) -> Constant:
    """The constant of a compile-time parameter that holds no real number: one for all ops that have it."""
    return constant_from(*_attribute(kind, operand, None))


def _attribute(kind: str, operand: Any, first_float: str | None) -> tuple[Any, str | None]:
    """A compile-time parameter as data of its shape, and their dtype."""
    dtype = _ATTRIBUTE_DTYPE.get(kind.removesuffix("s"))
    if kind in ("float", "floats"):
        dtype = first_float or "fp32"
    elif dtype == "string":
        operand = np.asarray(operand, dtype=str)
    elif dtype == "int32":
        operand, dtype = _integers(operand)
    if type(operand) is float and kind == "float":
        return operand, dtype
    if kind.endswith("s"):
        return np.reshape(operand, (1,)) if np.ndim(operand) == 0 else operand, dtype
    return np.reshape(operand, ()) if np.ndim(operand) == 1 and np.size(operand) == 1 else operand, dtype


def _integers(operand: Any) -> tuple[np.ndarray, str]:
    """An integer parameter and its dtype: int32, int64 where one of the numbers does not fit."""
    numbers = operand if isinstance(operand, (list, tuple)) else (operand,)
    if all(type(number) is int and -(2**31) <= number < 2**31 for number in numbers):
        return np.array(operand, np.int32), "int32"
    array = np.asarray(operand)
    if array.size == 0:
        return array.astype(np.int32), "int32"
    if array.dtype.kind not in "iu" or array.dtype == np.int32:
        return array, "int32"
    if array.max() > 2**31 - 1 or array.min() < -(2**31):
        return array, "int64"
    return array.astype(np.int32), "int32"


def builder_before(op: Op) -> GraphBuilder:
    """A builder whose ops go right before ``op``, with names that are new in its function."""
    return GraphBuilder(function=function_of(op), before=op, opset=function_of(op).opset)
