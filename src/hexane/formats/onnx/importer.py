"""From a prepared ONNX model to a graph: node by node, collecting everything that hexane lacks before it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import FormatError, GraphError, HexaneError, UnsupportedError
from hexane.formats.onnx.backward import extend_backward
from hexane.formats.onnx.context import Endless, NodeContext
from hexane.formats.onnx.file import OnnxFile, check_claim, import_onnx, read_file, tensor_array
from hexane.formats.onnx.foreign import keep_foreign
from hexane.formats.onnx.order import in_order
from hexane.formats.onnx.prepare import Shapes, opset_versions, prepare
from hexane.formats.onnx.registry import MAIN, domain_of, translators
from hexane.formats.operands import Folder, known, type_of
from hexane.graph import Graph, GraphBuilder, Op, Value
from hexane.graph.ir import Problem as Remark
from hexane.graph.types import TensorType, dtype_name

MAX_NODES = 200_000
"""Nodes after unrolling loops; a file that asks for more is refused."""


def load_onnx(
    source: str | Path | bytes | Any,
    shapes: Shapes | None = None,
    weights: Mapping[str, Any] | None = None,
    bind: Mapping[str, Any] | None = None,
) -> Graph:
    """Read an ONNX model into a graph.

    Parameters
    ----------
    source : path of an ``.onnx`` file (external data beside it are memory-mapped), its bytes, or a ``ModelProto``.
    shapes : shapes by input name, extents by symbolic dimension; every open dimension must be bound,
        but a batch, which is 1 then.
    weights : external data files by the location that the model names, as bytes or a path, in place of those beside it.
    bind : values of inputs that become constants of the network, by input name: a mode, a sampling rate, a length.

    Raises
    ------
    UnsupportedError : names every node that hexane cannot take, with the reason.
    FormatError, GraphError, UsageError : the file, its types or the given shapes are wrong.
    """
    where = str(source) if isinstance(source, str | Path) else "ONNX model"
    try:
        file = read_file(source, weights)
        return Importer(file, prepare(file, shapes, bind)).run()
    except _MALFORMED as error:
        # A file may break any assumption, down to strings that are no text; what no step above names is said here.
        raise FormatError(f"the model is not well-formed ({type(error).__name__}: {error})", where=where) from error


_MALFORMED = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError)


@dataclass
class ImportProblem:
    """A node that hexane cannot take."""

    op: str
    node: str
    reason: str


FOREIGN = "foreign-op"
"""Rule of the remark on a node that onnxruntime runs on the host."""


class Unknown:
    """Stands for the results of a node that was refused."""


UNKNOWN = Unknown()


@dataclass
class Scope:
    """Values by name; an inner graph sees those of the graphs around it."""

    importer: Importer
    outer: Scope | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def seen(self, name: str) -> Any:
        """The value of this name in this graph or in one around it; None where it has none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None

    def get(self, name: str, c: NodeContext) -> Any:
        value = self.seen(name)
        if isinstance(value, Unknown):
            raise _Skipped
        if value is not None:
            return value
        raise FormatError(
            f"it takes {name!r}, which nothing before it makes",
            where=self.importer.file.where,
            hint="the graph is cyclic or incomplete",
        )


class _Skipped(Exception):
    """A node stands behind one that was refused."""


class Importer:
    """One run over one model."""

    def __init__(self, file: OnnxFile, model: Any) -> None:
        self.file = file
        self.model = model
        self.versions = opset_versions(model, file.where)
        self.builder = GraphBuilder()
        self.folder = Folder(self.builder)
        self._nodes: dict[Op, tuple[str, str]] = {}  # the op of a node's result -> the node's name and type
        self.problems: list[ImportProblem] = []
        self.foreign: list[ImportProblem] = []
        self.four_bits: dict[str, str] = {}
        self.declared = declared_types(model)
        self.count = 0
        self._labelled: set[int] = set()

    def run(self) -> Graph:
        """The whole graph, verified."""
        graph = self.model.graph
        scope = Scope(self)
        outputs = [value.name for value in graph.output]
        if len(set(outputs)) != len(outputs):
            raise FormatError("two outputs have one name", where=self.file.where)
        initial = {tensor.name for tensor in graph.initializer} | set(self.file.weights)
        inputs = [value for value in graph.input if value.name not in initial]
        if len({value.name for value in inputs}) != len(inputs):
            raise FormatError("two inputs have one name", where=self.file.where)
        for name in [*outputs, *self.declared]:
            if name:
                self.builder.names.take(name)
        for value in inputs:
            scope.values[value.name] = self._input(value)
        for name, array in self.file.weights.items():
            if str(array.dtype) in ("int4", "uint4"):
                self.four_bits[name] = str(array.dtype)
            self._initial(scope, name, array)
        for tensor in graph.initializer:
            if tensor.data_type in (tensor.INT4, tensor.UINT4):
                self.four_bits[tensor.name] = tensor.DataType.Name(tensor.data_type).lower()
            self._initial(scope, tensor.name, self.tensor(tensor))
        if graph.sparse_initializer:
            raise UnsupportedError("sparse initializers", where=self.file.where, hint="store them dense")
        self.translate(graph.node, scope)
        self._report()
        for name in outputs:
            self._output(scope, name)
        result = self.builder.graph
        self._describe(result)
        return result

    # --------------------------------------------------------------------------------------------------- borders

    def _input(self, value: Any) -> Value:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            raise UnsupportedError(
                f"input {value.name!r} is {'without a type' if kind is None else 'a ' + kind.removesuffix('_type')}; "
                "hexane takes tensors only",
                where=self.file.where,
            )
        type_ = tensor_type(value.type.tensor_type)
        if type_ is None:
            onnx = import_onnx()
            code = value.type.tensor_type.elem_type
            name = onnx.TensorProto.DataType.Name(code) if code in onnx.TensorProto.DataType.values() else str(code)
            raise UnsupportedError(f"input {value.name!r} has element type {name}", where=self.file.where)
        if value.name in self.builder.names:
            # It is an output as well, or declared twice: inputs come first and own the name.
            parameter = Value(value.name, type_)
            return self.builder.function.add_input(parameter)
        return self.builder.typed_input(value.name, type_)

    def _initial(self, scope: Scope, name: str, array: np.ndarray) -> None:
        scope.values[name] = array
        if array.dtype.kind in "fiub":
            self.folder.name_constant(array, name)

    def tensor(self, proto: Any) -> np.ndarray:
        """A small inline tensor's values."""
        check_claim(proto, self.file.where)
        onnx = import_onnx()
        if proto.data_type == onnx.TensorProto.STRING:
            return np.array([s.decode("utf-8", "replace") for s in proto.string_data], dtype=str).reshape(
                tuple(proto.dims)
            )
        return known(tensor_array(proto, None, self.file.where))

    def _output(self, scope: Scope, name: str) -> None:
        value = scope.values.get(name)
        if value is None or isinstance(value, list):
            what = "is a sequence" if isinstance(value, list) else "is made by no node"
            raise (UnsupportedError if isinstance(value, list) else FormatError)(
                f"output {name!r} {what}", where=self.file.where
            )
        if isinstance(value, np.ndarray):
            value = self.folder.value(value)
        if value.is_output or (value.op is None and value.name != name):
            value = self.builder.op("identity", x=value)
        self._label(value, name)
        self.builder.output(value)

    def _label(self, value: Value, name: str) -> None:
        """Give a fresh result the file's own name (all of which are reserved, so that no other value has it)."""
        if value.op is not None:
            if value.op.name == value.name:
                value.op.name = name
            value.name = name
            self._labelled.add(id(value))

    def _describe(self, graph: Graph) -> None:
        model = self.model
        graph.metadata["format"] = "onnx"
        graph.metadata["nodes"] = self._sources(graph)
        graph.metadata["opset"] = {domain or "ai.onnx": version for domain, version in self.versions.items()}
        for key in ("producer_name", "producer_version", "domain", "doc_string"):
            if getattr(model, key):
                graph.metadata[key] = getattr(model, key)
        if self.file.assumed:
            graph.metadata["assumed"] = list(self.file.assumed)
        if self.file.bound:
            graph.metadata["bound"] = dict(self.file.bound)
        for entry in model.metadata_props:
            graph.metadata.setdefault("user", {})[entry.key] = entry.value

    def _sources(self, graph: Graph) -> dict[str, tuple[str, str]]:
        """First result's name of each op -> name and type of the node that it comes from.

        The ops of a node stand one behind another, the one of its result last.
        """
        names: dict[str, tuple[str, str]] = {}
        node = ("", "")
        for op in reversed([op for op in graph.main.ops if op.outputs]):
            node = self._nodes.get(op, node)
            names[op.outputs[0].name] = node
        return names

    # ----------------------------------------------------------------------------------------------------- nodes

    def translate(self, nodes: Any, scope: Scope) -> None:
        """Translate nodes, each behind what it takes; what cannot be taken is noted, and what needs it left out."""
        table = translators()
        for node in in_order(nodes):
            self.count += 1
            if self.count > MAX_NODES:
                raise UnsupportedError(f"more than {MAX_NODES} nodes after unrolling loops", where=self.file.where)
            domain = domain_of(node.domain)
            c = NodeContext(self, scope, node, self.versions.get(domain, 1))
            translator = table.get((domain, node.op_type))
            if translator is None:
                self._foreign(c, "hexane has no such op", scope, must_run=False)
                continue
            try:
                results = translator(c)
            except _Skipped:
                for name in node.output:
                    scope.values[name] = UNKNOWN
                continue
            except Endless as error:
                self._refuse(c, error.message, scope)
                continue
            except UnsupportedError as error:
                self._foreign(c, error.message, scope, must_run=True)
                continue
            except HexaneError as error:
                if not c.takes_text:
                    raise type_error(error, c, self.file.where) from error
                self._foreign(c, f"hexane computes no {node.op_type} of text", scope, must_run=True)
                continue
            except (ValueError, IndexError, TypeError, KeyError, OverflowError, MemoryError, AttributeError) as error:
                raise FormatError(f"{c.title} is not well-formed ({error})", where=self.file.where) from error
            self._bind(c, results, scope)

    def _bind(self, c: NodeContext, results: Any, scope: Scope) -> None:
        results = results if isinstance(results, tuple) else (results,)
        for index, name in enumerate(c.node.output):
            if not name:
                continue
            if index >= len(results) or results[index] is None:
                self._refuse(c, f"its result {index} ({name}) has no translation", scope)
                return
            result = results[index]
            if isinstance(result, np.generic):
                result = np.asarray(result)
            if name in scope.values:
                raise FormatError(f"{c.title} makes {name!r} a second time", where=self.file.where)
            scope.values[name] = result
            if isinstance(result, Value):
                if scope.outer is None and result.op is not None:
                    self._nodes.setdefault(result.op, (c.node.name, c.node.op_type))
                if scope.outer is None and result.op is not None and id(result) not in self._labelled:
                    self._label(result, name)
                self._check_declared(c, result, name)
            elif isinstance(result, np.ndarray) and result.dtype.kind in "fiub" and scope.outer is None:
                self.folder.name_constant(result, name)

    def _check_declared(self, c: NodeContext, value: Value, name: str) -> None:
        """The result must have the dtype that ONNX's rules give it; a shape that the file declares otherwise is noted.

        Exported files often carry stale shapes, which no runtime minds.
        """
        declared = self.declared.get(name)
        if declared is None or c.scope.outer is not None:
            return
        actual = type_of(value)
        if actual.dtype != declared.dtype:
            raise GraphError(f"{c.title} gives {actual} where the file declares {declared}", where=self.file.where)
        if actual.is_static and actual.shape != declared.shape:
            self.builder.graph.problems.append(Remark(f"{c.title} gives {actual}, the file declares {declared}"))

    def _foreign(self, c: NodeContext, reason: str, scope: Scope, *, must_run: bool) -> None:
        """Keep a node that hexane cannot translate for the host; refuse it where nobody could run it.

        An op of the standard set that hexane knows in other forms (``must_run``) is kept where onnxruntime takes it.
        """
        try:
            results = keep_foreign(c, self.declared, must_run=must_run)
        except (_Skipped, HexaneError, *_MALFORMED):
            self._refuse(c, reason, scope)
            return
        self.foreign.append(_problem(c, reason))
        self.builder.graph.problems.append(
            Remark(f"{c.title} is a host op, run by onnxruntime: {reason}", rule=FOREIGN)
        )
        self._bind(c, results, scope)

    def _refuse(self, c: NodeContext, reason: str, scope: Scope) -> None:
        self.problems.append(_problem(c, reason))
        for name in c.node.output:
            scope.values[name] = UNKNOWN

    def _report(self) -> None:
        if not self.problems:
            return
        self.problems += self.foreign
        lines = [f"{problem.op} (node {problem.node!r}): {problem.reason}" for problem in self.problems[:50]]
        if len(self.problems) > 50:
            lines.append(f"and {len(self.problems) - 50} more")
        ops = sorted({problem.op for problem in self.problems})
        what = f"{len(self.problems)} node(s) that hexane cannot take ({', '.join(ops)}):\n    " + "\n    ".join(lines)
        error = UnsupportedError(what, where=self.file.where)
        error.problems = list(self.problems)  # type: ignore[attr-defined]
        raise error


def _problem(c: NodeContext, reason: str) -> ImportProblem:
    domain = domain_of(c.node.domain)
    op = c.node.op_type if domain == MAIN else f"{domain}.{c.node.op_type}"
    return ImportProblem(op, c.node.name or next(iter(c.node.output), ""), reason)


def type_error(error: HexaneError, c: NodeContext, where: str) -> HexaneError:
    """The same kind of error, with the node as its place."""
    kind = type(error) if type(error) in (GraphError, FormatError) else GraphError
    return kind(f"{c.title}: {error.message}", where=error.where or where, hint=error.hint)


def tensor_type(tensor: Any) -> TensorType | None:
    """A static tensor type of a ``TypeProto.Tensor``; None where type or shape are not known."""
    onnx = import_onnx()
    if not tensor.HasField("shape"):
        return None
    shape = []
    for dim in tensor.shape.dim:
        if not dim.HasField("dim_value") or dim.dim_value < 0:
            return None
        shape.append(dim.dim_value)
    if tensor.elem_type == onnx.TensorProto.STRING:
        return TensorType("string", tuple(shape))
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    except (KeyError, TypeError, ValueError):
        return None
    if dtype.name.startswith("bfloat") or (dtype.kind not in "fiub" and dtype.name.startswith("float")):
        return TensorType("fp32", tuple(shape))
    if dtype.kind == "O" or dtype.kind not in "fiub":
        name = dtype.name
        return TensorType("int8" if name.startswith("int") else "uint8", tuple(shape)) if "int" in name else None
    return TensorType(dtype_name(dtype), tuple(shape))


def declared_types(model: Any) -> dict[str, TensorType]:
    """Static types of the main graph's values, as the file declares them, ONNX infers them, or results ask for them."""
    types: dict[str, TensorType] = {}
    for value in [*model.graph.value_info, *model.graph.output]:
        if value.type.WhichOneof("value") == "tensor_type":
            type_ = tensor_type(value.type.tensor_type)
            if type_ is not None:
                types[value.name] = type_
    extend_backward(model, types)
    return types
