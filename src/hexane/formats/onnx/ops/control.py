"""Control flow that folds away, and sequences, which exist only while a model is read.

A branch on a constant is the branch taken; a branch on data becomes both branches and a ``select``. Loops and scans
whose length is known are unrolled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.errors import GraphError, HexaneError
from hexane.formats.compositions import Refused, axis_in
from hexane.formats.onnx.context import Endless, NodeContext
from hexane.formats.onnx.importer import Scope, tensor_type
from hexane.formats.onnx.ops.shape import cut, static_shape
from hexane.formats.onnx.registry import onnx_op
from hexane.formats.operands import Operand, type_of
from hexane.graph.ir import Value

MAX_STEPS = 4096
"""Longest loop that is unrolled."""


def run_body(c: NodeContext, graph: Any, arguments: list[Any]) -> list[Any]:
    """Translate an inner graph once, with its inputs bound; its outputs."""
    if len(graph.input) != len(arguments):
        raise GraphError(f"{c.title}: its body takes {len(graph.input)} inputs, {len(arguments)} are given")
    scope = Scope(c.importer, c.scope, {value.name: argument for value, argument in zip(graph.input, arguments)})
    for tensor in graph.initializer:
        scope.values[tensor.name] = c.importer.tensor(tensor)
    c.importer.translate(graph.node, scope)
    return [scope.get(value.name, c) for value in graph.output]


def truth(c: NodeContext, value: Any) -> bool | None:
    """A constant condition; None for one that depends on data."""
    if isinstance(value, np.ndarray):
        return bool(value.reshape(-1)[0])
    return None


def _bindable(condition: Any) -> str:
    """Inputs of the network that a condition depends on: bound, they make it known."""
    names: dict[str, None] = {}
    waiting, visited = [condition], set()
    while waiting:
        value = waiting.pop()
        if not isinstance(value, Value) or value in visited:
            continue
        visited.add(value)
        if value.op is not None:
            waiting += value.op.operands()
        elif not value.is_constant:
            names[value.name] = None
    return "; bind " + " ".join(f"--bind {name}=VALUE" for name in names) if names else ""


@onnx_op("If")
def if_(c: NodeContext) -> object:
    condition = c.need(0)
    value = truth(c, condition)
    if value is not None:
        return tuple(run_body(c, c.attr("then_branch" if value else "else_branch"), []))
    results = []
    why = "its condition is computed at run time"
    try:
        both = [run_body(c, c.attr(branch), []) for branch in ("then_branch", "else_branch")]
    except HexaneError as error:
        raise Refused(f"{why}, and a branch does not fit ({error.message}){_bindable(condition)}") from error
    for a, b in zip(*both):
        if isinstance(a, list) or isinstance(b, list) or a is None or b is None:
            raise Refused(f"{why}, and a branch gives something else than a tensor{_bindable(condition)}")
        if type_of(a) != type_of(b):
            raise Refused(f"{why}, and its branches give {type_of(a)} and {type_of(b)}{_bindable(condition)}")
        results.append(c.ops.select(cond=c.reshape(condition, ()), a=a, b=b))
    return tuple(results)


@onnx_op("Loop")
def loop(c: NodeContext) -> object:
    """Unrolled: trip count and condition must be known, or turn out constant in every step."""
    body = c.attr("body")
    if not c.is_constant(0):
        raise Refused("its trip count is computed at run time")
    count = c.constant(0)
    trips = None if count is None else int(count.reshape(-1)[0])
    condition = True if c[1] is None else truth(c, c[1])
    if condition is None:
        raise Refused("its condition is computed at run time")
    carried = [c[index] for index in range(2, len(c))]
    scans: list[list[Operand]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    step = 0
    while condition and (trips is None or step < trips):
        if step >= MAX_STEPS:
            raise (Endless if trips is None else Refused)(f"it runs more than {MAX_STEPS} times")
        flag, *rest = run_body(c, body, [np.array(step, np.int64), np.array(True), *carried])
        condition = truth(c, flag)
        if condition is None:
            raise Refused("its condition is computed at run time")
        carried = rest[: len(carried)]
        for scan, value in zip(scans, rest[len(carried) :]):
            scan.append(value)
        step += 1
    if not step and scans:
        return (*carried, *(_nothing(c, body.output[1 + len(carried) + i]) for i in range(len(scans))))
    return (*carried, *(stacked(c, scan, 0) for scan in scans))


def _nothing(c: NodeContext, value: Any) -> Operand:
    """The scan output of a loop that never runs."""
    type_ = tensor_type(value.type.tensor_type)
    if type_ is None:
        raise Refused("it never runs, and its body declares no shape for its scan outputs")
    return np.zeros((0, *type_.shape), type_.carrier)


def stacked(c: NodeContext, parts: list[Operand], axis: int) -> Operand:
    """Parts along a new axis; Refused where there is none."""
    if not parts:
        raise Refused("it runs no step")
    return c.stack(parts, axis)


@onnx_op("Scan")
def scan(c: NodeContext) -> object:
    """Unrolled over the scan inputs' axis. Op set 8 has a batch axis and sequence lengths."""
    body, count = c.attr("body"), c.attr("num_scan_inputs")
    if c.version < 9:
        return _batched_scan(c, body, count)
    if not 0 < count <= len(c):
        raise GraphError(f"Scan has {len(c)} operands and num_scan_inputs {count}")
    states = [c[index] for index in range(len(c) - count)]
    inputs = [c.need(index) for index in range(len(c) - count, len(c))]
    axes, backward = (c.attr(f"scan_input_{name}", [0] * count) for name in ("axes", "directions"))
    outs = len(body.output) - len(states)
    out_axes = c.attr("scan_output_axes", [0] * outs)
    out_backward = c.attr("scan_output_directions", [0] * outs)
    sources = [ScanInput(*source) for source in zip(inputs, axes, backward)]
    states, scans = _steps(c, body, states, sources)
    ordered = [parts[::-1] if flipped else parts for parts, flipped in zip(scans, out_backward)]
    return (*states, *(stacked(c, parts, axis) for parts, axis in zip(ordered, out_axes)))


@dataclass(frozen=True)
class ScanInput:
    """An operand of which each step of a scan takes a slice."""

    operand: Operand
    axis: int = 0
    backward: bool = False


def _steps(
    c: NodeContext, body: Any, states: list[Any], inputs: list[ScanInput]
) -> tuple[list[Any], list[list[Operand]]]:
    """The states after the last step, and the parts of each scan output."""
    axes = [axis_in(source.axis, type_of(source.operand).rank) for source in inputs]
    lengths = {static_shape(c, source.operand)[axis] for source, axis in zip(inputs, axes)}
    if len(lengths) != 1:
        raise GraphError(f"scan inputs of lengths {sorted(lengths)}")
    (length,) = lengths
    if length > MAX_STEPS:
        raise Refused(f"it runs {length} steps, more than {MAX_STEPS}")
    scans: list[list[Operand]] = [[] for _ in body.output[len(states) :]]
    for step in range(length):
        slices = [
            c.pick(source.operand, axis, length - 1 - step if source.backward else step)
            for source, axis in zip(inputs, axes)
        ]
        results = run_body(c, body, [*states, *slices])
        states = results[: len(states)]
        for parts, value in zip(scans, results[len(states) :]):
            parts.append(value)
    return states, scans


def _batched_scan(c: NodeContext, body: Any, count: int) -> object:
    if c[0] is not None:
        raise Refused("it has sequence lengths")
    if any(c.attr("directions", [0] * count)):
        raise Refused("it scans backwards in op set 8")
    operands = [c.need(index) for index in range(1, len(c))]
    states, inputs = operands[: len(operands) - count], operands[len(operands) - count :]
    batch = static_shape(c, inputs[0])[0]
    rows = []
    for row in range(batch):
        sources = [ScanInput(c.pick(x, 0, row)) for x in inputs]
        state, scans = _steps(c, body, [c.pick(s, 0, row) for s in states], sources)
        rows.append([*state, *(stacked(c, parts, 0) for parts in scans)])
    return tuple(stacked(c, list(column), 0) for column in zip(*rows))


# ------------------------------------------------------------------------------------------ sequences and optionals


def _sequence(c: NodeContext, index: int) -> list[Any]:
    value = c[index]
    if not isinstance(value, list):
        raise GraphError(f"{c.title} takes a sequence as input {index}")
    return value


def _position(c: NodeContext, index: int, length: int) -> int:
    at = c.constant(index)
    number = int(at.reshape(-1)[0]) if at is not None else length
    if not -length <= number <= length:
        raise GraphError(f"position {number} of a sequence of {length}")
    return number + length if number < 0 else number


@onnx_op("SequenceConstruct")
def sequence_construct(c: NodeContext) -> object:
    return (list(c.inputs()),)


@onnx_op("SequenceEmpty")
def sequence_empty(c: NodeContext) -> object:
    return ([],)


@onnx_op("SequenceInsert")
def sequence_insert(c: NodeContext) -> object:
    items = _sequence(c, 0)
    at = _position(c, 2, len(items))
    return ([*items[:at], c.need(1), *items[at:]],)


@onnx_op("SequenceErase")
def sequence_erase(c: NodeContext) -> object:
    items = _sequence(c, 0)
    at = _position(c, 1, len(items)) if c.has(1) else len(items) - 1
    return ([*items[:at], *items[at + 1 :]],)


@onnx_op("SequenceAt")
def sequence_at(c: NodeContext) -> object:
    items = _sequence(c, 0)
    at = _position(c, 1, len(items))
    if at >= len(items):
        raise GraphError(f"position {at} of a sequence of {len(items)}")
    return items[at]


@onnx_op("SequenceLength")
def sequence_length(c: NodeContext) -> object:
    return np.array(len(_sequence(c, 0)), np.int64)


@onnx_op("ConcatFromSequence")
def concat_from_sequence(c: NodeContext) -> object:
    items, axis = _sequence(c, 0), c.attr("axis")
    if c.attr("new_axis", 0):
        return stacked(c, items, axis)
    return c.join(items, axis_in(axis, type_of(items[0]).rank))


@onnx_op("SplitToSequence")
def split_to_sequence(c: NodeContext) -> object:
    x = c.need(0)
    axis = axis_in(c.attr("axis", 0), type_of(x).rank)
    extent = static_shape(c, x)[axis]
    lengths = c.constant(1)
    if lengths is None or lengths.ndim == 0:
        each = 1 if lengths is None else int(lengths)
        if each < 1:
            raise GraphError(f"pieces of {each}")
        sizes = [min(each, extent - at) for at in range(0, extent, each)]
    else:
        sizes = [int(size) for size in lengths]
    parts = list(cut(c, x, axis, sizes))
    if lengths is None and not c.attr("keepdims", 1):
        shape = type_of(x).shape
        parts = [c.reshape(part, (*shape[:axis], *shape[axis + 1 :])) for part in parts]
    return (parts,)


@onnx_op("Optional", "OptionalGetElement")
def optional(c: NodeContext) -> object:
    value = c[0]
    if value is None:
        raise Refused("it makes or opens an empty optional")
    return (value,)


@onnx_op("OptionalHasElement")
def optional_has_element(c: NodeContext) -> object:
    return np.array(len(c) > 0 and c[0] is not None)
