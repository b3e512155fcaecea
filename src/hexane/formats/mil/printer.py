"""A graph as MIL text, in either dialect, and its weights as a weight file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hexane.errors import GraphError, UnsupportedError
from hexane.formats.blob import TYPE_CODES, BlobWriter
from hexane.formats.mil.literals import Blob, Braces, Parens, TypedValue, quoted
from hexane.formats.mil.names import encode
from hexane.graph.ir import Block, Function, Graph, Names, Op, Value
from hexane.graph.registry import is_known, opset_number, spec_of, values_of
from hexane.graph.types import DTYPES, BufferType, DictType, ListType, StateType, TensorType, TupleType

INLINE_LIMIT = 10
"""Constants of fewer elements stay in the program when weights go to a file, as coremlc and coremltools do it."""
WEIGHT_PATH = "@model_path/weights/weight.bin"

_BUILD_INFO = {
    "1.0": (("coremlc-version", "3505.4.1"),),
    "1.3": (
        ("coremlc-component-MIL", "3510.2.1"),
        ("coremlc-version", "3505.4.1"),
        ("coremltools-component-milinternal", ""),
        ("coremltools-version", "9.0"),
    ),
}
"""The header that every in-memory program needs (rule T2); the versions need not be the host's.

Source: docs/reference/mil.md 2.1.
"""


class WeightCollector:
    """Place for large constants of the printer: the file of the name ``path``, built by ``writer``.

    Constants of the files ``mutable`` stay there, at their offsets (``hexane.formats.mutable``).
    """

    def __init__(self, path: str = WEIGHT_PATH, mutable: tuple[str, ...] = ()) -> None:
        self.path, self.mutable = path, mutable
        self.writer = BlobWriter()

    def place(self, value: Value) -> Blob | None:
        """The blob of a constant; None when it stays in the text."""
        constant = value.constant
        assert constant is not None
        type_, source = constant.type, constant.source
        if source is not None and source.path in self.mutable:
            return Blob(source.path, source.offset)
        if type_.rank == 0 or type_.count < INLINE_LIMIT or type_.dtype not in TYPE_CODES:
            return None
        return Blob(self.path, self.writer.add(lambda: constant.array, type_, key=id(constant)))


def default_version(graph: Graph) -> str:
    """The header's version: the graph's own, or by the op set of what runs."""
    if graph.metadata.get("format") == "mil":
        return graph.version
    return "1.3" if opset_number(graph.main.opset) >= 18 else "1.0"


def to_text(graph: Graph, *, version: str | None = None, weights: WeightCollector | None = None) -> str:
    """MIL text of a graph.

    ``version`` "1.0" writes the older dialect (``tensor<int32, []>`` for scalars), others the newer one; default as the
    graph came, or by its op set. Constants that came from a weight file stay references to it; the others are written
    out, or with ``weights`` collected for a new file (then all large constants are, whatever file they came from).
    """
    target = version or default_version(graph)
    return _Printer(graph, target, weights).program()


class _Printer:
    def __init__(self, graph: Graph, version: str, weights: WeightCollector | None) -> None:
        self.graph = graph
        self.version = version
        self.old = version in ("1.0", "1", "1.1", "1.2")
        self.weights = weights
        self.lines: list[str] = []
        self.spelled: dict[Value, str] = {}
        self.names = Names()
        self._declared: set[Value] = set()

    # Types and literals

    def type(self, type_: Any) -> str:
        if isinstance(type_, BufferType):
            return str(type_)
        if isinstance(type_, TensorType):
            if type_.rank == 0 and not self.old:
                return type_.dtype
            extents = ", ".join("?" if extent is None else str(extent) for extent in type_.shape)
            return f"tensor<{type_.dtype}, [{extents}]>"
        if isinstance(type_, StateType):
            return f"state<{self.type(type_.tensor)}>"
        if isinstance(type_, ListType):
            return f"list<{self.type(type_.element)}, {'?' if type_.length is None else type_.length}>"
        if isinstance(type_, TupleType):
            return f"tuple<{', '.join(self.type(element) for element in type_.elements)}>"
        if isinstance(type_, DictType):
            return f"dict<{self.type(type_.key)}, {self.type(type_.value)}>"
        raise GraphError(f"{type_!r} is no type of MIL text")

    def typed(self, value: TypedValue) -> str:
        return f"{self.type(value.type)}({self.payload(value.payload)})"

    def payload(self, payload: Any) -> str:
        if payload is None:
            return ""
        if isinstance(payload, TypedValue):
            return self.typed(payload)
        if isinstance(payload, Blob):
            string, offset = TensorType("string"), TensorType("uint64")
            path = f"{self.type(string)}({quoted(payload.path)})"
            return f"BLOBFILE(path = {path}, offset = {self.type(offset)}({payload.offset}))"
        if isinstance(payload, Braces):
            return "{" + ", ".join(map(self.payload, payload)) + "}"
        if isinstance(payload, Parens):
            return "(" + ", ".join(map(self.payload, payload)) + ")"
        if isinstance(payload, (list, tuple)):
            return "[" + ", ".join(map(self.payload, payload)) + "]"
        if isinstance(payload, str):
            return quoted(payload)
        if isinstance(payload, bool):
            return "true" if payload else "false"
        return number_text(payload)

    def constant(self, value: Value) -> str:
        """A constant's typed value."""
        constant = value.constant
        assert constant is not None
        type_: Any = value.type
        blob: Blob | None = None
        if self.weights is not None:
            blob = self.weights.place(value)
        elif constant.source is not None:
            blob = Blob(constant.source.path, constant.source.offset)
        if blob is not None:
            return f"{self.type(type_)}({self.payload(blob)})"
        return f"{self.type(type_)}({array_text(constant.array, value.type.dtype)})"

    # Structure

    def program(self) -> str:
        attributes = self.graph.attributes
        if "buildInfo" not in attributes and self.graph.metadata.get("format") != "mil":
            string = TensorType("string")
            pairs = _BUILD_INFO["1.0" if self.old else "1.3"]
            info = TypedValue(DictType(string, string), Braces(Braces(pair) for pair in pairs))
            attributes = {"buildInfo": info, **attributes}
        self.lines.append(f"program({self.version})")
        if attributes:
            self.lines.append(f"[{self.attributes(attributes)}]")
        self.lines.append("{")
        for function in self.graph.functions.values():
            self.function(function)
        self.lines.append("}")
        return "\n".join(self.lines) + "\n"

    def attributes(self, attributes: dict[str, Any]) -> str:
        return ", ".join(f"{key} = {self.typed(value)}" for key, value in attributes.items())

    def function(self, function: Function) -> None:
        self.spelled, self.names, self._declared = {}, Names(), set()
        for value in function.values():
            if not value.is_constant:
                spelling = encode(value.name)
                if spelling in self.names:
                    raise GraphError(f"two values are called {value.name!r}", where=f"function {function.name!r}")
                self.names.take(spelling)
                self.spelled[value] = spelling
        for value in function.outputs:
            if value.is_constant:
                self.spell(value)
        inputs = ", ".join(self.parameter(value) for value in function.inputs)
        bracket = f" [{self.attributes(function.attributes)}]" if function.attributes else ""
        self.lines.append(f"    func {encode(function.name)}<{function.opset}>({inputs}){bracket} {{")
        self.body(function, 2)
        names = ", ".join(self.spell(value) for value in function.outputs)
        self.lines.append(f"    }} -> ({names});")

    def parameter(self, value: Value) -> str:
        bracket = f" [{self.attributes(value.attributes)}]" if value.attributes and not value.is_constant else ""
        return f"{self.type(value.type)} {self.spell(value)}{bracket}"

    def spell(self, value: Value) -> str:
        name = self.spelled.get(value)
        if name is None:
            name = self.spelled[value] = self.names.unique(encode(value.name))
        return name

    def body(self, block: Block, depth: int) -> None:
        for op in block.ops:
            self.op(op, depth)
        self.declare((value for value in block.outputs if value.is_constant), depth)

    def declare(self, values: Iterable[Value], depth: int) -> None:
        """Write constants that are not written yet."""
        for value in values:
            if value in self._declared:
                continue
            self._declared.add(value)
            name = self.spell(value)
            label = quoted(value.label if value.label is not None else name)
            extra = f", {self.attributes(value.attributes)}" if value.attributes else ""
            string = self.type(TensorType("string"))
            self.lines.append(
                f"{'    ' * depth}{self.type(value.type)} {name} = const()"
                f"[name = {string}({label}), val = {self.constant(value)}{extra}];"
            )

    def op(self, op: Op, depth: int) -> None:
        packed = self.takes_attributes(op)
        if not packed:
            self.declare((value for value in _needs(op) if value.is_constant), depth)
        arguments, bracket = [], []
        for param, operand in sorted(op.inputs.items()):
            if packed:
                if isinstance(operand, tuple) or not operand.is_constant:
                    raise UnsupportedError(f"{param} of {op.describe()} must be a constant in this dialect")
                bracket.append(f"{param} = {self.constant(operand)}")
            elif isinstance(operand, tuple):
                arguments.append(f"{param} = ({', '.join(self.spell(value) for value in operand)})")
            else:
                arguments.append(f"{param} = {self.spell(operand)}")
        if op.name is not None:
            bracket.append(f"name = {self.type(TensorType('string'))}({quoted(op.name)})")
        if op.attributes:
            bracket.append(self.attributes(op.attributes))
        indent = "    " * depth
        results = ", ".join(self.parameter(value) for value in op.outputs)
        opset = f"<{op.opset}>" if op.opset is not None else ""
        text = f"{indent}{results + ' = ' if results else ''}{op.type}{opset}({', '.join(arguments)})"
        if bracket:
            text += f"[{', '.join(bracket)}]"
        if not op.blocks:
            self.lines.append(text + ";")
            return
        self.lines.append(text + " {")
        for block in op.blocks:
            inputs = ", ".join(self.parameter(value) for value in block.inputs)
            self.lines.append(f"{indent}    block ({inputs}) {{")
            self.body(block, depth + 2)
            names = ", ".join(self.spell(value) for value in block.outputs)
            self.lines.append(f"{indent}    }} -> ({names});")
        self.lines.append(f"{indent}}};")

    def takes_attributes(self, op: Op) -> bool:
        """True where the op is a constexpr of op set 16, whose operands stand in the bracket (rule T11)."""
        return op.type.startswith("constexpr_") and is_known(op.type) and spec_of(op).since < 18


def _needs(op: Op) -> Iterable[Value]:
    """Operands of an op in the order of printing, and those of its inner blocks."""
    for _, operand in sorted(op.inputs.items()):
        yield from values_of(operand)
    for block in op.blocks:
        for inner in block.ops:
            yield from _needs(inner)
        yield from block.outputs


def number_text(number: Any) -> str:
    """A number that reads back to the same bits: integers and short decimals as such, other floats in hexadecimal."""
    if isinstance(number, int):
        return str(number)
    if number != number:
        return "nan"
    if number in (float("inf"), float("-inf")):
        return "inf" if number > 0 else "-inf"
    short = repr(number)
    return short if len(short) <= 8 else number.hex()


def array_text(array: np.ndarray, dtype: str) -> str:
    """The literal of an array: a scalar, or a flat list in row-major order."""
    kind = DTYPES[dtype].kind
    items: list[Any] = array.reshape(-1).tolist()
    if kind == "b":
        texts = ["true" if item else "false" for item in items]
    elif kind == "s":
        texts = [quoted(item) for item in items]
    elif kind == "f":
        texts = [number_text(float(item)) for item in items]
    else:
        texts = [str(item) for item in items]
    return texts[0] if array.ndim == 0 else "[" + ", ".join(texts) + "]"
