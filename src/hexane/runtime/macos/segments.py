"""Engine segments as MIL text: what macOS takes in the place of engine programs.

Apple's compiler makes the program, so that its tasks, and where arithmetic is open its bits, need not be ours. Ports
are renamed so that declared order, listed order and byte order are one (restrictions S2, S7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hexane import chips
from hexane.errors import GraphError, HexaneError, SyntaxProblem, UnsupportedError
from hexane.formats.mil import parse_mil
from hexane.formats.mil.literals import Blob
from hexane.formats.mil.names import encode
from hexane.formats.mil.printer import WeightCollector, to_text
from hexane.graph.ir import Graph, Value
from hexane.graph.registry import opset_number
from hexane.graph.rewrite import replace_op
from hexane.graph.types import TensorType
from hexane.program.segment import Segment
from hexane.restrictions import Finding, check_mil
from hexane.restrictions.fixes import fixed
from hexane.restrictions.reports import Severity
from hexane.restrictions.shapes import UNIFORM
from hexane.runtime.macos.model import ModelSource
from hexane.runtime.macos.plain_ops import with_plain_ops

OLD, NEW = "1.0", "1.3"
OLD_GENERATIONS = ("h13", "h14")
"""M1 and M2: one report has their compiler refuse the newer dialect (restriction T3); the older one is taken by all."""
OLD_OPSET = "ios17"
FILE_EACH = ("h13",)
MOST_FILES = 15
"""Weight files that every report lets through (restrictions W5, W6)."""
WORST = (Severity.REJECTED, Severity.FAILS, Severity.WRONG)


@dataclass(frozen=True)
class SegmentText:
    """A segment's program, the symbol of each of its ports, and restrictions that it still breaks."""

    source: ModelSource
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    findings: tuple[Finding, ...]


def as_text(segment: Segment, chip: str) -> SegmentText:
    """UnsupportedError for a segment that was read from a file: it holds tasks and no network."""
    if segment.source is None:
        raise UnsupportedError(
            "macOS loads engine programs of its own compiler only, and a program from a file holds no network",
            hint="compile the network again and run that: the device gets its MIL text",
        )
    graph = segment.source.clone()
    _widen_inputs(graph)
    with_plain_ops(graph, chips.get(chip))
    ports = [value for value in (*graph.main.inputs, *graph.main.outputs) if isinstance(value.type, TensorType)]
    names = {value.name for value in ports}
    prefix = _free_prefix(graph)
    inputs = {value.name: f"{prefix}i{number:04}" for number, value in enumerate(graph.main.inputs)}
    outputs = {value.name: f"{prefix}o{number:04}" for number, value in enumerate(graph.main.outputs)}
    if len(names) != len(inputs) + len(outputs):
        raise UnsupportedError("a segment hands an input on, or lists an output twice")
    for value in ports:
        value.name = inputs.get(value.name) or outputs[value.name]
    text, weights = written(graph, chips.get(chip).generation_name)
    text, _ = fixed(text, lambda t: [f for f in _findings(t, weights, chip) if f.severity in WORST])
    source = source_of(text, weights)
    return SegmentText(source, inputs, outputs, tuple(_findings(text, weights, chip)))


def _widen_inputs(graph: Graph) -> None:
    """Bytes that the program only casts to fp16 come in as fp16: the compiler is reported to refuse the cast (O12).

    The host converts them, which is exact.
    """
    for value in graph.main.inputs:
        casts = value.users
        if value.dtype not in ("uint8", "int8") or value.is_output or not casts:
            continue
        if any(op.type != "cast" or op.output.dtype != "fp16" or op.output.is_output for op in casts):
            continue
        assert isinstance(value.type, TensorType)
        value.type = value.type.with_dtype("fp16")
        for op in casts:
            replace_op(op, value)


def _free_prefix(graph: Graph) -> str:
    """Prefix that no name of the graph has."""
    names = {value.name for op in graph.main.walk() for value in op.outputs}
    names |= {value.name for value in graph.main.inputs}
    prefix = "port_"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def written(graph: Graph, generation: str) -> tuple[str, dict[str, bytes]]:
    """Text in the dialect that a generation's compiler takes, and its weight file."""
    if generation in OLD_GENERATIONS and opset_number(graph.main.opset) > opset_number(OLD_OPSET):
        old = graph.clone()
        old.main.opset = OLD_OPSET
        try:
            text, weights = _printed(old, OLD, file_each=generation in FILE_EACH)
            parse_mil(text, weights)
        except (GraphError, SyntaxProblem, UnsupportedError):  # an op of the newer set
            return _printed(graph, NEW)
        return text, weights
    version = OLD if generation in OLD_GENERATIONS else NEW
    return _printed(graph, version, file_each=generation in FILE_EACH)


class FilePerConstant(WeightCollector):
    """A weight file for every constant: M1 is reported to take one record per file (restriction W7)."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self._known: dict[int, Blob | None] = {}

    def place(self, value: Value) -> Blob | None:
        """The only record of a file of its own; None when the constant stays in the text."""
        key = id(value.constant)
        if key not in self._known:
            alone = WeightCollector(f"@model_path/weights/weight_{len(self.files):03}.bin")
            self._known[key] = blob = alone.place(value)
            if blob is not None:
                self.files[alone.path] = b"".join(alone.writer.parts())
        return self._known[key]


def _printed(graph: Graph, version: str, *, file_each: bool = False) -> tuple[str, dict[str, bytes]]:
    if file_each:
        each = FilePerConstant()
        text = to_text(graph, version=version, weights=each)
        if len(each.files) <= MOST_FILES:
            return text, each.files
    collector = WeightCollector()
    text = to_text(graph, version=version, weights=collector)
    return text, {collector.path: b"".join(collector.writer.parts())} if len(collector.writer) else {}


def _findings(text: str, weights: Mapping[str, bytes], chip: str) -> list[Finding]:
    return check_mil(text, weights, chip, surfaces=UNIFORM)


def source_of(text: str, weights: Mapping[str, bytes]) -> ModelSource:
    """A text with its ports; HexaneError where it does not parse."""
    main = parse_mil(text, weights).main
    sides = []
    for values in (main.inputs, main.outputs):
        tensors = {encode(value.name): value.type for value in values if isinstance(value.type, TensorType)}
        if len(tensors) != len(values):
            raise HexaneError("the in-memory class takes tensors only", hint="states need Core ML")
        sides.append(tensors)
    return ModelSource(text.encode(), weights, *sides)


def as_given(array: np.ndarray, type_: TensorType) -> np.ndarray:
    """An array as a port takes it; values beyond fp16 become infinite, as the host's conversion makes them."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(array).astype(type_.carrier, copy=False)
