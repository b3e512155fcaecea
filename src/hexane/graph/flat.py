"""A graph as nested tuples and lists that hold no reference twice, so that it pickles however long its chains are."""

from __future__ import annotations

from typing import Any

from hexane.graph.parts import Block, Function, Op, Value


def flat(function: Function) -> dict[str, Any]:
    """Everything of a function, its values by number."""
    numbers: dict[Value, int] = {}

    def number(value: Value) -> int:
        return numbers.setdefault(value, len(numbers))

    def block(part: Block) -> tuple[Any, ...]:
        inputs = [number(value) for value in part.inputs]
        ops = [operation(op) for op in part.ops]
        return inputs, ops, [number(value) for value in part.outputs]

    def operation(op: Op) -> tuple[Any, ...]:
        operands = {
            param: tuple(map(number, operand)) if isinstance(operand, tuple) else number(operand)
            for param, operand in op.inputs.items()
        }
        blocks = [block(part) for part in op.blocks]
        return op.type, operands, op.name, op.opset, op.attributes, blocks, [number(value) for value in op.outputs]

    body = block(function)
    return {
        "name": function.name,
        "opset": function.opset,
        "attributes": function.attributes,
        "body": body,
        "values": [(v.name, v.type, v.constant, v.label, v.attributes) for v in numbers],
    }


def restored(parts: dict[str, Any]) -> Function:
    """The function of its parts."""
    values = []
    for name, type_, constant, label, attributes in parts["values"]:
        value = Value(name, type_, constant=constant, label=label)
        value.attributes = attributes
        values.append(value)

    def fill(part: Block, ops: list[Any], outputs: list[int]) -> None:
        for kind, operands, name, opset, attributes, blocks, results in ops:
            inner = []
            for inputs, inside, ends in blocks:
                block = Block(values[i] for i in inputs)
                fill(block, inside, ends)
                inner.append(block)
            arguments = {
                param: tuple(values[i] for i in operand) if isinstance(operand, tuple) else values[operand]
                for param, operand in operands.items()
            }
            op = Op(kind, arguments, name=name, opset=opset, blocks=inner, attributes=attributes)
            op.outputs = tuple(values[i] for i in results)
            for value in op.outputs:
                value.op = op
            part.add(op)
        part.set_outputs(values[i] for i in outputs)

    inputs, ops, outputs = parts["body"]
    function = Function(parts["name"], opset=parts["opset"])
    function.attributes = parts["attributes"]
    for i in inputs:
        function.add_input(values[i])
    fill(function, ops, outputs)
    return function
