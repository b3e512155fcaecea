"""Ops that keep the form in which they were given, whatever passes do around them.

``wrapped`` puts an op of type ``hexane.host``, which no pass and no recipe knows, in an op's place; ``written_out``
writes the op again, between casts where passes gave the values around it another type. Both are rules for a sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hexane.graph.rewrite import function_from
from hexane.graph.types import DTYPES, TensorType

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Op, Value

HOST_OP = "hexane.host"


def inner(op: Op) -> Op:
    """The op as it was given."""
    return op if op.inside is None else op.inside.ops[0]


def can_wrap(op: Op) -> bool:
    """True where an op makes tensors of tensors, without states and without control flow."""
    types = [value.type for value in (*op.operands(), *op.outputs) if not value.is_constant]
    tensors = all(isinstance(type_, TensorType) and type_.dtype in DTYPES for type_ in types)
    return tensors and bool(op.outputs) and not op.blocks and op.inside is None


def wrapped(op: Op, b: GraphBuilder, reason: str) -> Value | tuple[Value, ...]:
    """An op of type ``hexane.host`` with the op's computed operands; its constants are inside."""
    values = tuple(dict.fromkeys(value for value in op.operands() if not value.is_constant))
    types = tuple(value.type for value in op.outputs)
    results = b.op(HOST_OP, values=values, reason=reason, outputs=types)
    shell = results[0].op if isinstance(results, tuple) else results.op
    assert shell is not None
    shell.inside = function_from([op], values, op.outputs, "inside", op.opset or b.function.opset)
    return results


def written_out(op: Op, b: GraphBuilder) -> Value | tuple[Value, ...]:
    """The op that an op of type ``hexane.host`` stands for."""
    assert op.inside is not None
    values = {
        inside: outer if outer.type == inside.type else b.cast(x=outer, dtype=inside.dtype)
        for inside, outer in zip(op.inside.inputs, op.inputs["values"])
    }

    def outer(operand: Any) -> Any:
        return tuple(map(outer, operand)) if isinstance(operand, tuple) else values.get(operand, operand)

    source = inner(op)
    operands = {name: outer(operand) for name, operand in source.inputs.items()}
    types = tuple(value.type for value in source.outputs)
    again = b.op(source.type, opset=source.opset or op.inside.opset, outputs=types, **operands)
    results = again if isinstance(again, tuple) else (again,)
    cast = tuple(
        value if value.type == outside.type else b.cast(x=value, dtype=outside.dtype)
        for value, outside in zip(results, op.outputs)
    )
    return cast if len(cast) > 1 else cast[0]
