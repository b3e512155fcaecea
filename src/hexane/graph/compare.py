"""Comparison of two graphs, and their first difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hexane.counts import counted
from hexane.graph.parts import Block, Function, Value

if TYPE_CHECKING:
    from hexane.graph.ir import Graph


def difference(a: Graph, b: Graph) -> str | None:
    """First difference, in a sentence; None when the graphs are equal.

    Equal means: the same functions with the same op sets and attributes, the same ops in the same order with the same
    parameters, result names and types, and constants of equal type and bits. What a constant is called, and whether its
    data lie in a file, is no difference.
    """
    if list(a.functions) != list(b.functions):
        return f"functions {list(a.functions)} and {list(b.functions)}"
    for name, function in a.functions.items():
        text = _functions(function, b.functions[name])
        if text is not None:
            return f"in function {name!r}: {text}"
    return None


def _functions(a: Function, b: Function) -> str | None:
    if a.opset != b.opset:
        return f"op sets {a.opset} and {b.opset}"
    if _plain(a.attributes) != _plain(b.attributes):
        return "attributes differ"
    return _blocks(a, b, {})


def _plain(attributes: dict[str, Any]) -> dict[str, str]:
    return {key: repr(value) for key, value in attributes.items()}


def _values(x: Value, y: Value, same: dict[Value, Value]) -> str | None:
    if x.is_constant != y.is_constant:
        return f"{x!r} and {y!r}"
    if x.constant is not None and y.constant is not None:
        partner = same.get(x)
        if partner is y:
            return None
        if not x.constant.equals(y.constant):
            return f"constants {x!r} and {y!r} differ"
        same[x] = y
        return None
    return None if same.get(x) is y else f"{x!r} and {y!r} are different values"


def _bind(x: Value, y: Value, same: dict[Value, Value]) -> str | None:
    if x.name != y.name or x.type != y.type:
        return f"{x!r} and {y!r}"
    same[x] = y
    return None


def _blocks(a: Block, b: Block, same: dict[Value, Value]) -> str | None:
    if len(a.inputs) != len(b.inputs):
        return f"{len(a.inputs)} and {counted(len(b.inputs), 'input')}"
    for x, y in zip(a.inputs, b.inputs):
        text = _bind(x, y, same)
        if text:
            return text
    if len(a.ops) != len(b.ops):
        return f"{len(a.ops)} and {counted(len(b.ops), 'op')}"
    for p, q in zip(a.ops, b.ops):
        if (p.type, p.opset, len(p.outputs), len(p.blocks)) != (q.type, q.opset, len(q.outputs), len(q.blocks)):
            return f"{p!r} and {q!r}"
        if p.name != q.name or _plain(p.attributes) != _plain(q.attributes):
            return f"names or attributes of {p!r} and {q!r}"
        if set(p.inputs) != set(q.inputs):
            return f"parameters of {p!r} and {q!r}"
        for param, operand in p.inputs.items():
            other = q.inputs[param]
            if isinstance(operand, tuple) != isinstance(other, tuple):
                return f"{param} of {p!r} and {q!r}"
            own_blocks = operand if isinstance(operand, tuple) else (operand,)
            right = other if isinstance(other, tuple) else (other,)
            if len(own_blocks) != len(right):
                return f"{param} of {p!r} and {q!r}"
            for x, y in zip(own_blocks, right):
                text = _values(x, y, same)
                if text:
                    return f"{param} of {p.describe()}: {text}"
        for inner, other_inner in zip(p.blocks, q.blocks):
            text = _blocks(inner, other_inner, same)
            if text:
                return text
        for x, y in zip(p.outputs, q.outputs):
            text = _bind(x, y, same)
            if text:
                return text
    if len(a.outputs) != len(b.outputs):
        return f"{len(a.outputs)} and {counted(len(b.outputs), 'output')}"
    for x, y in zip(a.outputs, b.outputs):
        text = _values(x, y, same)
        if text:
            return f"output: {text}"
        if x.name != y.name:
            return f"outputs {x.name!r} and {y.name!r}"
    return None
