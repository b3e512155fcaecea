"""An ML program (protobuf MIL) as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hexane.errors import FormatError, GraphError, HexaneError, UnsupportedError
from hexane.formats.coreml.files import WeightFiles
from hexane.formats.coreml.values import read_tensor, read_type, read_typed
from hexane.formats.mil.literals import list_of
from hexane.formats.mil.names import decode
from hexane.formats.mutable import mutable_paths
from hexane.graph.constants import BlobReference, Constant
from hexane.graph.ir import Block, Function, Graph, Names, Op, Problem, Value
from hexane.graph.registry import lookup, opset_number, result_types
from hexane.graph.types import DictType, ListType, TensorType, Type

MAX_OPERATIONS = 2_000_000


def read_program(
    program: Any, files: WeightFiles, where: str, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Graph:
    """The functions of an ML program. ``shapes`` gives inputs a shape where the file leaves extents open.

    What a rule of the op set contradicts, and ops that hexane does not know, stand in ``graph.problems``.
    """
    graph = Graph(version="1.0")
    graph.attributes = {key: read_typed(value, where) for key, value in sorted(program.attributes.items())}
    files.mutable = mutable_paths(graph.attributes)
    for name in sorted(program.functions):
        graph.add_function(
            _FunctionReader(graph, program.functions[name], decode(name), files, where, shapes or {}).function
        )
    if not graph.functions:
        raise FormatError("the program has no function", where=where)
    newest = max(opset_number(function.opset) for function in graph.functions.values())
    graph.version = "1.3" if newest >= 18 else "1.0"
    return graph


def opset_name(key: str, where: str) -> str:
    """``ios16`` for ``CoreML6``."""
    try:
        return f"ios{opset_number(key)}"
    except GraphError as error:
        raise FormatError(error.message, where=where, hint=error.hint) from None


class _FunctionReader:
    """Reads one function. ``scope`` maps names to values; an inner block sees the scope around it."""

    def __init__(
        self, graph: Graph, proto: Any, name: str, files: WeightFiles, where: str, shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.graph = graph
        self.files = files
        self.where = f"{where}: function {name!r}"
        self.names = Names()
        self.count = 0
        if proto.opset not in proto.block_specializations:
            names = ", ".join(sorted(proto.block_specializations)) or "none"
            raise FormatError(f"has no block for its op set {proto.opset!r}", where=self.where, hint=f"it has {names}")
        self.function = Function(name, opset=opset_name(proto.opset, self.where))
        self.number = opset_number(self.function.opset)
        self.function.attributes = {
            key: read_typed(value, self.where) for key, value in sorted(proto.attributes.items())
        }
        scope: dict[str, Value] = {}
        for parameter in proto.inputs:
            type_ = read_type(parameter.type, self.where)
            shape = shapes.get(decode(parameter.name))
            if shape is not None and isinstance(type_, TensorType):
                fixed = type_.with_shape(shape)
                if not type_.accepts(fixed):
                    raise GraphError(f"input {parameter.name!r} is {type_}, not {shape}", where=self.where)
                type_ = fixed
            if isinstance(type_, TensorType) and not type_.is_static:
                raise UnsupportedError(
                    f"input {parameter.name!r} has open extents: {type_}",
                    where=self.where,
                    hint=f'the graph is static; give shapes={{"{parameter.name}": (...)}}',
                )
            self.function.add_input(self.define(parameter.name, type_, scope))
        self.body(self.function, proto.block_specializations[proto.opset], scope)

    def define(self, name: str, type_: Any, scope: dict[str, Value], op: Op | None = None) -> Value:
        if name in scope:
            raise FormatError(f"{name!r} is defined twice", where=self.where)
        if not hasattr(type_, "accepts"):
            raise FormatError(f"{name!r} cannot be a {type_}", where=self.where)
        value = Value(self.names.unique(decode(name)), type_, op=op)
        scope[name] = value
        return value

    def body(self, block: Block, proto: Any, scope: dict[str, Value]) -> None:
        for operation in proto.operations:
            self.count += 1
            if self.count > MAX_OPERATIONS:
                raise FormatError(f"more than {MAX_OPERATIONS} operations", where=self.where)
            if operation.type == "const":
                self.constant(operation, scope)
            else:
                self.operation(block, operation, scope)
        missing = [name for name in proto.outputs if name not in scope]
        if missing:
            raise FormatError(f"returns {missing[0]!r}, which nothing defines", where=self.where)
        outputs = [scope[name] for name in proto.outputs]
        if isinstance(block, Function) and len(set(map(id, outputs))) != len(outputs):
            raise FormatError("one value is returned twice", where=self.where)
        block.set_outputs(outputs)

    def constant(self, operation: Any, scope: dict[str, Value]) -> None:
        if len(operation.outputs) != 1 or "val" not in operation.attributes:
            raise FormatError("a const needs one result and the attribute val", where=self.where)
        output = operation.outputs[0]
        place = f"{self.where}: const {output.name!r}"
        constant = self.literal(operation.attributes["val"], place)
        declared = read_type(output.type, place)
        if isinstance(declared, TensorType) and constant.type != declared:
            raise FormatError(f"is declared {declared} and given as {constant.type}", where=place)
        value = self.define(output.name, constant.type, scope)
        value.constant = constant
        value.label = _label(operation)

    def literal(self, value: Any, place: str) -> Constant:
        """A constant; data in a weight file stay there until they are looked at."""
        type_ = read_type(value.type, place)
        if isinstance(type_, ListType):
            items = [read_typed(item, place).payload for item in value.immediateValue.list.values]
            array = list_of([item[0] if isinstance(item, list) else item for item in items], type_)
            return Constant(TensorType(type_.dtype, array.shape), array)
        if not isinstance(type_, TensorType) or not type_.is_static:
            raise UnsupportedError(f"a constant of type {type_}", where=place)
        if value.WhichOneof("value") == "blobFileValue":
            blob = value.blobFileValue
            return self.files.constant(BlobReference(blob.fileName, blob.offset), type_)
        if value.immediateValue.WhichOneof("value") not in ("tensor", None):
            raise FormatError(f"no tensor given for {type_}", where=place)
        return Constant(type_, read_tensor(value.immediateValue.tensor, type_, place))

    def operation(self, block: Block, operation: Any, scope: dict[str, Value]) -> None:
        place = f"{self.where}: {operation.type} {_label(operation) or ''}".rstrip()
        inputs: dict[str, Any] = {}
        for param in sorted(operation.inputs):
            values = [
                self.operand(binding, scope, f"{operation.type}_{param}", place)
                for binding in operation.inputs[param].arguments
            ]
            if not values:
                raise FormatError(f"{param} is bound to nothing", where=place)
            inputs[param] = tuple(values) if len(values) > 1 else values[0]
        attributes: dict[str, Any] = {}
        for key in sorted(operation.attributes):
            if key == "name":
                continue
            if operation.type.startswith("constexpr_"):
                constant = self.literal(operation.attributes[key], place)
                inputs[key] = Value(self.names.unique(f"{operation.type}_{key}"), constant.type, constant=constant)
            else:
                attributes[key] = read_typed(operation.attributes[key], place)
        try:
            spec = lookup(operation.type, self.number)
        except UnsupportedError as error:
            spec = None
            self.graph.problems.append(Problem(error.message))
        if spec is not None:
            for param in spec.params:
                if param.variadic and isinstance(inputs.get(param.name), Value):
                    inputs[param.name] = (inputs[param.name],)
        blocks = [self.nested(inner, scope) for inner in operation.blocks]
        op = Op(operation.type, inputs, name=_label(operation), blocks=blocks, attributes=attributes)
        types = [read_type(output.type, place) for output in operation.outputs]
        if operation.type == "classify" and len(types) == 2:
            types = self.classified(op, spec, types, place)
        types = self.checked(op, spec, types, place)
        op.outputs = tuple(self.define(o.name, type_, scope, op) for o, type_ in zip(operation.outputs, types))
        block.add(op)

    def classified(self, op: Op, spec: Any, types: list[Any], place: str) -> list[Any]:
        """Label and probabilities of a classifier: the graph keeps the tensor where Core ML declares a dictionary."""
        if not isinstance(types[1], DictType):
            return types
        classes = op.inputs.get("classes")
        if not isinstance(classes, Value) or not classes.is_constant:
            raise UnsupportedError("a classifier whose classes are computed", where=place)
        self.graph.metadata["classes"] = [label.item() for label in np.asarray(classes.data).reshape(-1)]
        return list(result_types(spec, op.inputs, self.number)) if spec is not None else types

    def operand(self, binding: Any, scope: dict[str, Value], hint: str, place: str) -> Value:
        if binding.WhichOneof("binding") == "value":
            constant = self.literal(binding.value, place)
            return Value(self.names.unique(hint), constant.type, constant=constant)
        if binding.name not in scope:
            raise FormatError(f"takes {binding.name!r}, which nothing before it defines", where=place)
        return scope[binding.name]

    def nested(self, proto: Any, scope: dict[str, Value]) -> Block:
        inner = dict(scope)
        block = Block(self.define(p.name, read_type(p.type, self.where), inner) for p in proto.inputs)
        self.body(block, proto, inner)
        return block

    def checked(self, op: Op, spec: Any, types: list[Any], place: str) -> list[Any]:
        """The declared types, or the inferred ones where the file leaves extents open; contradictions are noted."""
        if spec is None:
            return types
        try:
            if op.blocks:
                computed = tuple(value.type for value in op.blocks[-1].outputs)
            else:
                computed = result_types(spec, op.inputs, self.number)
            if len(computed) != len(types):
                raise GraphError(f"{op.type} has {len(computed)} results, {len(types)} are declared")
            for declared, inferred in zip(types, computed):
                if declared != inferred and not declared.accepts(inferred):
                    raise GraphError(f"a result is declared {declared} and computed as {inferred}")
            return [_closer(declared, inferred) for declared, inferred in zip(types, computed)]
        except HexaneError as error:
            if not all(isinstance(declared, Type) for declared in types):
                raise FormatError(f"{place}: {error.message}", where=self.where) from None
            self.graph.problems.append(Problem(f"{place}: {error.message}"))
            return types


def _closer(declared: Any, inferred: Any) -> Any:
    """Whichever type leaves fewer extents open."""
    if isinstance(declared, TensorType) and isinstance(inferred, TensorType) and not declared.is_static:
        return inferred
    return declared


def _label(operation: Any) -> str | None:
    if "name" not in operation.attributes:
        return None
    strings = operation.attributes["name"].immediateValue.tensor.strings.values
    return strings[0] if len(strings) == 1 else None
