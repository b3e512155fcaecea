"""MIL text to a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import FormatError, GraphError, HexaneError, SyntaxProblem, UnsupportedError, UsageError
from hexane.files import is_file
from hexane.formats.arguments import given_files
from hexane.formats.blob import TYPE_CODES, BlobFile
from hexane.formats.mil.literals import Blob, TypedValue, array_of, list_of
from hexane.formats.mil.names import decode
from hexane.formats.mil.syntax import parse_text, problem_at
from hexane.formats.mil.tree import BlockText, Body, Call, FunctionText, MilOperand, Parameter, TextPlace
from hexane.formats.mutable import mutable_paths
from hexane.formats.weight_files import file_name, path_inside, source_under
from hexane.graph.constants import BlobReference, Constant
from hexane.graph.ir import Block, Function, Graph, Names, Op, Problem, Value
from hexane.graph.registry import OpSpec, is_known, lookup, opset_number, result_types
from hexane.graph.types import DTYPES, DictType, ListType, TensorType

DEFAULT_OPSETS = {"1.0": "ios15", "1": "ios15"}


class TextWeights:
    """The weight files of a text: ``files`` maps a path as written to bytes or a file, ``folder`` is ``@model_path``.

    A file is opened at its first use; a path that leaves the folder is refused.
    """

    def __init__(self, files: Mapping[str, Any] | None = None, folder: Path | None = None) -> None:
        self._given = given_files(files)
        self._folder = folder
        self._open: dict[str, BlobFile | None] = {}
        self._constants: dict[tuple[BlobReference, TensorType], Constant] = {}

    def constant(self, source: BlobReference, type_: TensorType) -> Constant:
        """The constant of a record: one for all that name it. Without its file it has a shape and no values."""
        if (source, type_) not in self._constants:
            file = self.file(source.path)
            if file is None:
                constant = Constant(type_, load=lambda: _missing(source.path), source=source)
            else:
                weights = file
                weights.check(source.offset, type_)
                constant = Constant(type_, load=lambda: weights.read(source.offset, type_), source=source)
            self._constants[source, type_] = constant
        return self._constants[source, type_]

    def file(self, path: str) -> BlobFile | None:
        """The weight file of that name; None when nobody gave it."""
        if path not in self._open:
            self._open[path] = self._find(path)
        return self._open[path]

    def _find(self, path: str) -> BlobFile | None:
        source = source_under(self._given, path, path.removeprefix("@model_path/"), file_name(path))
        if source is not None:
            return BlobFile(source, path)
        if self._folder is None or "\0" in path:
            return None
        target = path_inside(self._folder, path.removeprefix("@model_path").lstrip("/\\"))
        if target is None:
            raise FormatError("the path leaves the model's folder", where=path)
        return BlobFile(target, path) if is_file(target) else None


def parse_mil(
    text: str, weights: Mapping[str, Any] | None = None, *, name: str = "line", folder: Path | None = None
) -> Graph:
    """A graph from MIL text, either dialect (docs/reference/mil.md 2).

    ``weights`` maps the path of each BLOBFILE, as written, to the file's bytes or its path; without it the graph has
    its shapes and cannot be evaluated. SyntaxProblem (line, column, caret) for text that is not well-formed, names that
    are not defined, values that do not fit their type; FormatError for records that the weight file does not hold.

    What can be read past stands in ``graph.problems``: a name defined twice (rule T7; the last definition before a use
    counts), operands and declared types that contradict an op's rules (the declared types stand, and ``graph.verify``
    raises), ops that hexane does not know.
    """
    if isinstance(text, (bytes, bytearray)):
        text = bytes(text).decode("utf-8", errors="replace")
    if not isinstance(text, str):
        raise UsageError(f"MIL text is a string, not {type(text).__name__}")
    tree = parse_text(text, name)
    return _Reader(text, name, TextWeights(weights, folder)).program(tree)


class _Reader:
    def __init__(self, text: str, name: str, weights: TextWeights) -> None:
        self.text = text
        self.name = name
        self.weights = weights
        self.problems: list[Problem] = []

    def wrong(self, message: str, place: TextPlace, hint: str | None = None) -> SyntaxProblem:
        return problem_at(self.text, self.name, message, place.line, place.column, hint)

    def program(self, tree: Any) -> Graph:
        graph = Graph(version=tree.version)
        graph.attributes = dict(tree.attributes)
        mutable_paths(graph.attributes)
        graph.metadata["format"] = "mil"
        for function in tree.functions:
            if decode(function.name) in graph.functions:
                raise self.wrong(f"function {function.name!r} is defined twice", function.place)
            graph.add_function(_FunctionReader(self, function, tree.version).function)
        graph.problems = self.problems
        return graph


class _FunctionReader:
    """Reads one function; ``scope`` maps a name to its last definition."""

    def __init__(self, reader: _Reader, tree: FunctionText, version: str) -> None:
        self.reader = reader
        self.names = Names()
        opset = tree.opset or DEFAULT_OPSETS.get(version, "ios18")
        try:
            opset_number(opset)
        except GraphError as error:
            raise reader.wrong(error.message, tree.place, error.hint) from None
        self.opset = opset
        self.function = Function(decode(tree.name), opset=opset)
        self.function.attributes = dict(tree.attributes)
        scope: dict[str, Value] = {}
        for parameter in tree.inputs:
            self.function.add_input(self.define(parameter, scope))
        self.body(self.function, tree.body, scope)

    def define(self, parameter: Parameter, scope: dict[str, Value], op: Op | None = None) -> Value:
        """A new value for a typed name."""
        name = decode(parameter.name)
        if name in self.names:
            self.reader.problems.append(
                Problem(
                    f"{name!r} is defined twice", rule="T7", line=parameter.place.line, column=parameter.place.column
                )
            )
        type_ = parameter.type
        if not hasattr(type_, "accepts"):
            raise self.reader.wrong(f"{parameter.name!r} cannot be a {type_}", parameter.place)
        value = Value(self.names.unique(name), type_, op=op)
        if parameter.attributes:
            value.attributes = dict(parameter.attributes)
        scope[parameter.name] = value
        return value

    def body(self, block: Block, tree: Body, scope: dict[str, Value]) -> None:
        for call in tree.statements:
            if call.type == "const":
                self.constant(call, scope)
            else:
                self.operation(block, call, scope)
        outputs = []
        for name, place in tree.outputs:
            if name not in scope:
                raise self.reader.wrong(f"{name!r} is returned and never defined", place, "rule T6")
            outputs.append(scope[name])
        if isinstance(block, Function) and len(set(outputs)) != len(outputs):
            raise self.reader.wrong("one value is returned twice", tree.outputs[-1][1])
        block.set_outputs(outputs)
        if block is self.function:
            self.keep_output_names([(decode(name), value) for (name, _), value in zip(tree.outputs, outputs)])

    def keep_output_names(self, outputs: list[tuple[str, Value]]) -> None:
        """A returned name that was defined twice stays the output's; the earlier value takes the other name."""
        for name, value in outputs:
            if value.name == name or any(
                other.name == name for other in (*self.function.inputs, *self.function.outputs)
            ):
                continue
            for other in self.function.values():
                if other.name == name:
                    other.name = value.name
                    break
            value.name = name

    def constant(self, call: Call, scope: dict[str, Value]) -> None:
        if len(call.results) != 1 or "val" not in call.attributes or call.arguments:
            raise self.reader.wrong("const has one result, no arguments and the attribute val", call.place)
        value = self.define(call.results[0], scope)
        literal = call.attributes["val"]
        if str(literal.type) != str(value.type):
            raise self.reader.wrong(f"{value.name!r} is declared {value.type} and given as {literal.type}", call.place)
        value.constant = self.literal(literal, call.place)
        value.label = self.label(call)
        extra = {key: item for key, item in call.attributes.items() if key not in ("val", "name")}
        if extra:
            value.attributes = (value.attributes or {}) | extra

    def label(self, call: Call) -> str | None:
        name = call.attributes.get("name")
        if name is None:
            return None
        if not isinstance(name.payload, str):
            raise self.reader.wrong("name is a string", call.place)
        return name.payload

    def literal(self, typed: TypedValue, place: TextPlace) -> Constant:
        """The constant of a typed value in the text."""
        type_ = typed.type
        try:
            if isinstance(type_, ListType) and not isinstance(typed.payload, Blob):
                items = list_of(typed.payload, type_)
                return Constant(TensorType(type_.dtype, items.shape), items)
            if not isinstance(type_, TensorType) or not type_.is_static:
                raise GraphError(f"a constant cannot be a {type_}")
            if isinstance(typed.payload, Blob):
                return self.blob(typed.payload, type_)
            return Constant(type_, array_of(typed.payload, type_))
        except (GraphError, UnsupportedError) as error:
            raise self.reader.wrong(error.message, place, error.hint) from None

    def blob(self, blob: Blob, type_: TensorType) -> Constant:
        if type_.dtype not in TYPE_CODES:
            raise GraphError(f"a weight file holds no {type_.dtype}")
        return self.reader.weights.constant(BlobReference(blob.path, blob.offset), type_)

    def operand(self, operand: MilOperand, scope: dict[str, Value], hint: str, dtype: str | None) -> Any:
        """An argument as a Value or a tuple of Values; ``hint`` names an inline constant."""
        if operand.kind == "name":
            if operand.content not in scope:
                raise self.reader.wrong(f"{operand.content!r} is not defined", operand.place)
            return scope[operand.content]
        if operand.kind == "tuple":
            items: list[Value] = []
            for item in operand.content:
                if item.place.line == 0:
                    item.place = operand.place
                entry = self.operand(item, scope, hint, dtype)
                items.extend(entry if isinstance(entry, tuple) else (entry,))
            return tuple(items)
        if operand.kind == "value":
            constant = self.literal(operand.content, operand.place)
        else:
            constant = self.untyped(operand, dtype)
        return Value(self.names.unique(hint), constant.type, constant=constant)

    def untyped(self, operand: MilOperand, dtype: str | None) -> Constant:
        """A bare literal, whose dtype the op's parameter says (disputed, T5)."""
        self.reader.problems.append(
            Problem("a constant without a type", rule="T5", line=operand.place.line, column=operand.place.column)
        )
        array = np.asarray(operand.content)
        if array.dtype == object:
            raise self.reader.wrong("the rows of the list differ in length", operand.place)
        if dtype is None:
            kinds = {"b": "bool", "i": "int32", "f": "fp32", "U": "string"}
            dtype = kinds.get(array.dtype.kind, "fp32")
        try:
            type_ = TensorType(dtype, array.shape)
            return Constant(type_, array_of(operand.content, type_))
        except GraphError as error:
            raise self.reader.wrong(error.message, operand.place, error.hint) from None

    def operation(self, block: Block, call: Call, scope: dict[str, Value]) -> None:
        spec = self.spec(call)
        inputs: dict[str, Any] = {}
        first_dtype: str | None = None
        for param, operand in call.arguments.items():
            dtype = _parameter_dtype(spec, param, first_dtype)
            value_in = self.operand(operand, scope, f"{call.type.replace('.', '_')}_{param}", dtype)
            inputs[param] = value_in
            for value in value_in if isinstance(value_in, tuple) else (value_in,):
                if first_dtype is None and DTYPES[value.type.dtype].kind == "f":
                    first_dtype = value.type.dtype
        attributes: dict[str, Any] = {}
        for key, literal in call.attributes.items():
            if key == "name":
                continue
            if call.type.startswith("constexpr_"):
                constant = self.literal(literal, call.place)
                inputs[key] = Value(self.names.unique(f"{call.type}_{key}"), constant.type, constant=constant)
            else:
                attributes[key] = literal
        inputs = _wrapped_variadics(spec, inputs)
        blocks = [self.nested(tree, scope) for tree in call.blocks]
        op = Op(call.type, inputs, name=self.label(call), opset=call.opset, blocks=blocks, attributes=attributes)
        if call.type == "classify" and spec is not None and len(call.results) == 2:
            self.classified(op, spec, call)
        op.outputs = tuple(self.define(result, scope, op) for result in call.results)
        block.add(op)
        if spec is not None:
            self.check(op, spec, call)

    def classified(self, op: Op, spec: OpSpec, call: Call) -> None:
        """A classifier's probabilities: the graph keeps the tensor where the text declares a dictionary."""
        if isinstance(call.results[1].type, DictType):
            types = result_types(spec, op.inputs, opset_number(call.opset or self.opset))
            call.results[:] = [replace(result, type=type_) for result, type_ in zip(call.results, types)]

    def spec(self, call: Call) -> OpSpec | None:
        opset = call.opset or self.opset
        try:
            number = opset_number(opset)
        except GraphError as error:
            raise self.reader.wrong(error.message, call.place, error.hint) from None
        try:
            return lookup(call.type, number)
        except UnsupportedError as error:
            problem = Problem(error.message, line=call.place.line, column=call.place.column)
            self.reader.problems.append(problem)
            return lookup(call.type, 99) if is_known(call.type) else None

    def nested(self, tree: BlockText, scope: dict[str, Value]) -> Block:
        inner = dict(scope)
        block = Block(self.define(parameter, inner) for parameter in tree.inputs)
        self.body(block, tree.body, inner)
        return block

    def check(self, op: Op, spec: OpSpec, call: Call) -> None:
        """Note a contradiction between what is declared and what the op's rules give."""
        try:
            if op.blocks:
                types = tuple(value.type for value in op.blocks[-1].outputs)
            else:
                types = result_types(spec, op.inputs, opset_number(call.opset or self.opset))
            if len(types) != len(op.outputs):
                raise GraphError(f"{call.type} has {len(types)} results, {len(op.outputs)} are declared")
            for value, type_ in zip(op.outputs, types):
                if value.type != type_ and not value.type.accepts(type_):
                    raise GraphError(f"{value.name!r} is declared {value.type} and computed as {type_}")
        except HexaneError as error:
            rule = "T12" if "share a dtype" in (error.hint or "") else ""
            message = f"{error.message}; {error.hint}" if error.hint else error.message
            self.reader.problems.append(
                Problem(f"{op.describe()}: {message}", rule=rule, line=call.place.line, column=call.place.column)
            )


def _missing(path: str) -> np.ndarray:
    raise UsageError(f"the weight file {path!r} is not given", hint="hand it over as weights={path: bytes or a file}")


def _parameter_dtype(spec: OpSpec | None, name: str, first: str | None) -> str | None:
    """The dtype of a bare literal for a parameter."""
    if spec is None:
        return None
    for param in spec.params:
        if param.name == name:
            kind = param.kind.removesuffix("s") if param.kind not in ("str", "strs") else "str"
            return {"int": "int32", "bool": "bool", "str": "string", "float": first, "tensor": first}.get(kind)
    return None


def _wrapped_variadics(spec: OpSpec | None, inputs: dict[str, Any]) -> dict[str, Any]:
    """A variadic parameter given as one value is a tuple of one."""
    if spec is None:
        return inputs
    variadic = {param.name for param in spec.params if param.variadic}
    return {
        name: (operand,) if name in variadic and not isinstance(operand, tuple) else operand
        for name, operand in inputs.items()
    }
