"""A MIL program as the rules see it: its syntax tree with places, and the graph with shapes beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hexane.errors import HexaneError
from hexane.formats.mil.literals import Blob, TypedValue
from hexane.formats.mil.names import decode, encode
from hexane.formats.mil.tree import Body, Call, FunctionText, MilOperand, Parameter, ProgramText, TextPlace
from hexane.graph.types import BufferType, TensorType
from hexane.restrictions.reports import PublishedReport, Severity, System

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from hexane.formats.blob import BlobFile
    from hexane.formats.mil.reader import TextWeights
    from hexane.graph.ir import Graph, Op, Value
    from hexane.restrictions.rule import Hit, Rule


CONVERTED = frozenset(("onnx", "torch", "stablehlo", "jax", "tinygrad"))
"""Formats of networks that become Core ML packages by coremltools."""


def unconverted(graph: Graph) -> Mapping[str, tuple[str, str]] | None:
    """Of a network that coremltools has still to convert, the nodes of its file by result; None of other networks."""
    return graph.metadata.get("nodes", {}) if graph.metadata.get("format") in CONVERTED else None


def numbers_of(value: Value) -> np.ndarray | None:
    """A constant's data; None for what is computed, and where its weight file is not there."""
    if not value.is_constant:
        return None
    try:
        return value.data
    except HexaneError:
        return None


@dataclass(frozen=True)
class TextPort:
    """An input or output of the function that runs. ``nbytes`` counts its packed elements."""

    name: str
    type: Any
    place: TextPlace

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.type.shape)

    @property
    def nbytes(self) -> int:
        return int(self.type.nbytes)

    @property
    def is_buffer(self) -> bool:
        """True where it is a ``tensor_buffer``, which carries its own strides."""
        return isinstance(self.type, BufferType)

    @property
    def width(self) -> int:
        """The innermost extent; 1 for a scalar."""
        return self.shape[-1] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        return self.nbytes * self.width // max(1, self.type.count)


@dataclass(frozen=True)
class BlobUse:
    """A BLOBFILE reference: path and offset as written, the type it is to hold, where it stands."""

    path: str
    offset: int
    type: Any
    place: TextPlace


@dataclass(frozen=True)
class Statement:
    """A call in the text, and the op that it became."""

    call: Call
    op: Op

    @property
    def type(self) -> str:
        return self.call.type

    @property
    def place(self) -> TextPlace:
        return self.call.place

    @property
    def name(self) -> str:
        """The name of its first result."""
        return self.call.results[0].name if self.call.results else self.call.type

    def place_of(self, param: str) -> TextPlace:
        """Place of an argument; the call itself where it is left out."""
        operand = self.call.arguments.get(param)
        return operand.place if operand is not None and operand.place.line else self.place

    def value(self, param: str) -> Value | None:
        """The operand as a value of the graph; None where it is left out or is a tuple."""
        operand = self.op.inputs.get(param)
        return None if operand is None or isinstance(operand, tuple) else operand

    def shape(self, param: str) -> tuple[int, ...]:
        """The operand's shape; empty where there is none."""
        value = self.value(param)
        return tuple(value.shape) if value is not None and isinstance(value.type, TensorType) else ()

    def constant(self, param: str) -> Any:
        """A constant parameter as a Python value, its default where it is left out; None where it is computed."""
        try:
            operand = self.op.arg(param)
        except HexaneError:
            return None
        return None if hasattr(operand, "is_constant") else operand

    def is_computed(self, param: str) -> bool:
        """True where the operand is there and no constant."""
        value = self.value(param)
        return value is not None and not value.is_constant


@dataclass(frozen=True)
class Subject:
    """A program, the machine it is for, how it is handed over, and what is known of its surfaces and weights.

    ``handed_over``: ``weights`` are all that the compiler would get; else a file that is not there is merely not known.
    ``values``: what every value was on the user's inputs, by name, where somebody computed it.
    """

    text: str
    tree: ProgramText
    graph: Graph
    system: System
    interface: str
    surfaces: str
    weights: TextWeights | None = None
    handed_over: bool = False
    values: Mapping[str, np.ndarray] | None = None

    @classmethod
    def of_graph(
        cls, graph: Graph, system: System, interface: str, values: Mapping[str, np.ndarray] | None = None
    ) -> Subject:
        """Any network as the rules see it: an op's place is its number in the function that runs, from 1.

        There is no text, so that rules on texts and on weight files have nothing to look at.
        """
        main = graph.main
        calls = [
            Call(
                op.type,
                None,
                {},
                {},
                [],
                TextPlace(line, 1),
                [Parameter(v.type, v.name, TextPlace(line, 1), {}) for v in op.outputs],
            )
            for line, op in enumerate(main.ops, 1)
        ]
        body = Body(calls, [(value.name, TextPlace(len(calls), 1)) for value in main.outputs])
        inputs = [Parameter(value.type, value.name, TextPlace(1, 1), {}) for value in main.inputs]
        tree = ProgramText("", {}, [FunctionText(encode(main.name), None, inputs, {}, body, TextPlace(1, 1))])
        return cls("", tree, graph, system, interface, "unknown", values=values)

    def judged(self, rule: Rule, hit: Hit) -> tuple[tuple[PublishedReport, ...], Severity]:
        """The reports that speak of a hit, and what they make of it on this machine."""
        reports = rule.reports if hit.reports is None else hit.reports
        return reports, self.system.verdict(reports, contested=rule.contested)

    def seen(self, value: Value | None) -> np.ndarray | None:
        """A value on the user's inputs, in float32; a constant's numbers; None where it is not known."""
        if value is None or not isinstance(value.type, TensorType):
            return None
        if value.is_constant:
            return numbers_of(value) if value.dtype.startswith("fp") else None
        array = None if self.values is None else self.values.get(value.name)
        return array if array is not None and array.dtype.kind == "f" else None

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Every call of every function, constants left out, in the order of the text."""
        statements_read = []
        for function in self.tree.functions:
            ops = self.graph.functions[decode(function.name)].ops
            calls = [call for call in function.body.statements if call.type != "const"]
            statements_read += [Statement(call, op) for call, op in zip(calls, ops)]
        return tuple(statements_read)

    def calls(self, *types: str) -> Iterator[Statement]:
        """The statements of these op types."""
        return (statement for statement in self.statements if statement.type in types)

    @cached_property
    def constants(self) -> tuple[Call, ...]:
        """The ``const`` statements."""
        return tuple(c for f in self.tree.functions for c in f.body.statements if c.type == "const")

    @cached_property
    def main(self) -> FunctionText:
        """The function that runs."""
        name = self.graph.main.name
        return next(f for f in self.tree.functions if decode(f.name) == name)

    @cached_property
    def inputs(self) -> tuple[TextPort, ...]:
        """The inputs of the function that runs, as declared."""
        return tuple(TextPort(p.name, p.type, p.place) for p in self.main.inputs if isinstance(p.type, TensorType))

    @cached_property
    def outputs(self) -> tuple[TextPort, ...]:
        """Its results, as listed."""
        values = zip(self.main.body.outputs, self.graph.main.outputs)
        return tuple(TextPort(n, v.type, place) for (n, place), v in values if isinstance(v.type, TensorType))

    def is_input(self, value: Value | None) -> bool:
        """True where a value is an input of the function that runs."""
        return value is not None and value in self.graph.main.inputs

    @cached_property
    def blobs(self) -> tuple[BlobUse, ...]:
        """Every BLOBFILE reference, in the order of the text."""
        uses: list[BlobUse] = []

        def look(attribute: TypedValue, place: TextPlace) -> None:
            if isinstance(attribute.payload, Blob):
                uses.append(BlobUse(attribute.payload.path, attribute.payload.offset, attribute.type, place))

        def operand(item: MilOperand, place: TextPlace) -> None:
            if item.kind == "value":
                look(item.content, item.place if item.place.line else place)
            elif item.kind == "tuple":
                for inner in item.content:
                    operand(inner, place)

        for function in self.tree.functions:
            for call in function.body.statements:
                place = call.results[0].place if call.results else call.place
                for attribute in call.attributes.values():
                    look(attribute, place)
                for item in call.arguments.values():
                    operand(item, place)
        return tuple(uses)

    def weight_file(self, path: str) -> BlobFile | None:
        """A weight file that can be read; None when it is not there or is none."""
        if self.weights is None:
            return None
        try:
            return self.weights.file(path)
        except HexaneError:
            return None

    @cached_property
    def header(self) -> TextPlace:
        """Start of the program."""
        before = self.text[: max(0, self.text.find("program"))]
        return TextPlace(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)

    def parameter(self, name: str) -> Parameter:
        """An input of the function that runs, by its name in the text."""
        return next(p for p in self.main.inputs if p.name == name)
