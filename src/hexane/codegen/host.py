"""Host segments: a part of a graph as a graph of its own, for the float32 reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hexane.graph.ir import Block, Function, Graph, Op, Value

if TYPE_CHECKING:
    from collections.abc import Mapping


def subgraph(ops: Sequence[Op], inputs: Iterable[Value], outputs: Iterable[Value], opset: str) -> Graph:
    """The ops as function ``main`` with these inputs and outputs; constant data are shared."""
    function = Function("main", opset=opset)
    known: dict[Value, Value] = {}
    for value in inputs:
        function.add_input(_twin(value, known))
    for op in ops:
        function.add(_copy(op, known))
    function.set_outputs([_twin(value, known) for value in outputs])
    return Graph([function])


def _twin(value: Value, known: dict[Value, Value]) -> Value:
    if value not in known:
        known[value] = Value(value.name, value.type, constant=value.constant, label=value.label)
    return known[value]


def _copy(op: Op, known: dict[Value, Value]) -> Op:
    blocks = []
    for inner in op.blocks:
        block = Block(_twin(value, known) for value in inner.inputs)
        for part in inner.ops:
            block.add(_copy(part, known))
        block.set_outputs([_twin(value, known) for value in inner.outputs])
        blocks.append(block)
    inputs: Mapping[str, Any] = {
        param: tuple(_twin(v, known) for v in operand) if isinstance(operand, tuple) else _twin(operand, known)
        for param, operand in op.inputs.items()
    }
    twin = Op(op.type, inputs, name=op.name, opset=op.opset, blocks=blocks, attributes=dict(op.attributes))
    results = [_twin(value, known) for value in op.outputs]
    for result in results:
        result.op = twin
    twin.outputs = tuple(results)
    return twin
