"""States as surfaces of engine programs: one buffer that stays, read and written in place by tasks, in order.

A state's contents between two writes are a value of the graph. All these values have one buffer, so that what a write
leaves as it is costs no task, and what is new is written to its place. An update waits for every reader of the contents
before it. A state that changes at a place of run time, or inside a block, stays with the host.

That a program has one buffer as input and output is INFERRED: no program of an engine that keeps a state is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hexane.codegen.context import Context, Homes
from hexane.codegen.fragment import ELEMENT_BYTES
from hexane.codegen.recipes.shape import slice_bounds
from hexane.errors import UnsupportedError
from hexane.frozen import replace
from hexane.graph.builder import GraphBuilder
from hexane.graph.effects import touched, written
from hexane.graph.ir import Function, Graph, Op, Value
from hexane.graph.rewrite import clone_function, remove_dead, replace_op, replace_uses
from hexane.graph.types import tensor_of

Box = tuple[tuple[int, int], ...]
"""A part of a state: where it begins and ends on each axis."""
SLICES = ("slice_by_size", "slice_by_index")


def order(homes: Mapping[str, str], groups: Sequence[Sequence[Op]]) -> Iterator[tuple[int, int]]:
    """Pairs (reader, update) of groups of ops: contents are read before others take their place."""
    updates: dict[Value, int] = {}
    readers: dict[Value, list[int]] = {}
    for number, group in enumerate(groups if homes else ()):
        for op in group:
            for value in op.operands():
                if value.name in homes:
                    readers.setdefault(value, []).append(number)
                    if op.outputs and op.outputs[0].name in homes:
                        updates[value] = number
    for value, update in updates.items():
        yield from ((reader, update) for reader in readers[value] if reader != update)


def in_place(graph: Graph, context: Context) -> tuple[Function, Context, Mapping[str, str]]:
    """The graph's function with states as surfaces, the context that knows their buffers, and the state's results."""
    function = graph.main
    if not (function.states and context.on.states_in_place):
        return function, context, {}
    function = clone_function(function)
    homes, results = as_values(function)
    buffers = {(name,) for name in homes.values()}
    policy = replace(context.policy, wanted=lambda key: key not in buffers)
    return function, replace(context, homes=homes, policy=policy), results


def as_values(function: Function) -> tuple[Homes, dict[str, str]]:
    """Make the states of a function values with a buffer each, in place; those that stay with the host stay states.

    The state in whose buffer a value stands, and the value that each state holds behind a call, by name.
    """
    homes = Homes()
    results: dict[str, str] = {}
    for state in function.states:
        steps = [op for op in function.ops if state in touched(op)]
        if _stays(state, steps):
            continue
        last = _Contents(function, state).follow(steps)
        homes |= dict.fromkeys((value.name for value in last), state.name)
        if len(last) > 1:
            results[state.name] = last[-1].name
            function.set_outputs((*function.outputs, last[-1]))
    remove_dead(function)
    return homes, results


def _stays(state: Value, steps: Sequence[Op]) -> bool:
    """True where a state is the host's: of a type that surfaces lack, used in blocks, or at places of run time."""
    tensor = tensor_of(state.type)
    if tensor.dtype not in ELEMENT_BYTES or not 1 <= tensor.rank <= 4 or not steps:
        return True
    if any(op.blocks for op in steps):
        return True
    return any(not _is_static(written(op)) for op in steps if op.type != "read_state")


def _is_static(data: Value) -> bool:
    """True where a value's chain of ``slice_update`` has all its places from constants."""
    while data.op is not None and data.op.type == "slice_update":
        if _box(data.op, data.shape) is None:
            return False
        data = data.op.inputs["x"]
    return True


def _box(op: Op, shape: tuple[int, ...]) -> Box | None:
    """Elements that a slice or an update covers; None where that is computed, or has steps."""
    try:
        bounds, steps = slice_bounds(op, shape)
    except UnsupportedError:
        return None
    return tuple(bounds) if all(step == 1 for step in steps) else None


def _meet(a: Box, b: Box) -> bool:
    return all(first < other_end and other < end for (first, end), (other, other_end) in zip(a, b))


class _Contents:
    """A state's contents one after another: the input first, then what each update gives."""

    def __init__(self, function: Function, state: Value) -> None:
        self.function, self.state = function, state
        self.whole: Box = tuple((0, extent) for extent in tensor_of(state.type).shape)
        self.values: list[Value] = []
        self.boxes: list[Box] = []
        self.read: Value = state
        """What a read gives: the latest contents, or the value that was written whole, which no later write touches."""

    def follow(self, steps: Sequence[Op]) -> list[Value]:
        """Replace reads and writes by values; these, in order."""
        b = GraphBuilder(function=self.function, opset=self.function.opset)
        self.values.append(self.state)
        reads = [op for op in steps if op.type == "read_state"]
        self.state.type = tensor_of(self.state.type)  # one value from here on: nobody else has it
        for op in steps:
            if op in reads:
                replace_op(op, self.read)
                continue
            self._write(written(op), op, b)
            replace_op(op, () if op.type == "write_state" else self.read)
        self._read_latest()
        return self.values

    def _write(self, data: Value, op: Op, b: GraphBuilder) -> None:
        parts = self._parts(data)
        for box, part in parts:
            b.block, b.before = self.function, self._behind(part, op)
            begin, end = zip(*box)
            value = b.slice_update(x=self.values[-1], update=part, begin=list(begin), end=list(end))
            self.values.append(value)
            self.boxes.append(box)
        self.read = data
        if parts and parts != [(self.whole, data)]:
            replace_uses(data, self.values[-1])
            self.read = self.values[-1]

    def _behind(self, part: Value, op: Op) -> Op:
        """The op before which an update stands: right behind what it needs, at the latest where the write was."""
        needed = [value.op for value in (part, self.values[-1]) if value.op is not None]
        last = self.function.ops.sort(needed)[-1] if needed else None
        following = None if last is None else last._next
        return op if following is None or last is None or last.block is not op.block else following

    def _parts(self, data: Value) -> list[tuple[Box, Value]]:
        """Part of the contents that a write changes."""
        if data in (self.values[-1], self.read):
            return []
        source = data.op
        if source is not None and source.type == "slice_update":
            box = _box(source, data.shape)
            before = self._parts(source.inputs["x"])
            if box is not None and before != [(self.whole, source.inputs["x"])]:
                return [*before, (box, source.inputs["update"])]
        if source is not None and source.type == "concat" and not source.arg("interleave"):
            return self._joined(source)
        return [(self.whole, data)]

    def _joined(self, op: Op) -> list[tuple[Box, Value]]:
        axis, at, parts = op.arg("axis") % op.output.rank, 0, []
        for value in op.inputs["values"]:
            box = list(self.whole)
            box[axis] = (at, at + value.shape[axis])
            at = box[axis][1]
            if not self._is_left(value, tuple(box)):
                parts.append((tuple(box), value))
        return parts

    def _is_left(self, value: Value, box: Box) -> bool:
        """True where a value is what the contents already are at a place."""
        op = value.op
        if op is None or op.type not in SLICES or op.inputs["x"] not in (self.values[-1], self.read):
            return False
        return _box(op, self.values[-1].shape) == box

    def _read_latest(self) -> None:
        """Slices of contents whose place no update changed since read those of later updates before them."""
        number = {value: i for i, value in enumerate(self.values)}
        latest = 0
        for op in self.function.ops:
            if op.outputs and op.outputs[0] in number:
                latest = number[op.outputs[0]]
            elif op.type in SLICES and op.inputs["x"] in number:
                first, box = number[op.inputs["x"]], _box(op, op.inputs["x"].shape)
                if box is not None and not any(_meet(box, other) for other in self.boxes[first:latest]):
                    op.set_input("x", self.values[latest])
