"""Common subexpressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hexane.graph.registry import is_known, spec_of
from hexane.graph.rewrite import replace_op

if TYPE_CHECKING:
    from hexane.graph.ir import Block, Function, Op, Value


def share_common(function: Function) -> int:
    """Compute equal ops on equal operands once: a task and a surface less for every copy."""
    return _share(function)


def _share(block: Block) -> int:
    first_of: dict[Any, Op] = {}
    count = 0
    for op in block.ops:
        for inner in op.blocks:
            count += _share(inner)
        if op.blocks or not is_known(op.type) or not _pure(op) or any(v.is_output for v in op.outputs):
            continue
        key = _key(op)
        first = first_of.setdefault(key, op)
        if first is not op and len(first.outputs) == len(op.outputs):
            replace_op(op, first.outputs)
            count += 1
    return count


def _pure(op: Op) -> bool:
    spec = spec_of(op)
    return not spec.special and spec.family not in ("random", "onnx_runtime") and not op.type.startswith("random")


def _key(op: Op) -> Any:
    operands = tuple(
        (name, tuple(map(_identity, value)) if isinstance(value, tuple) else _identity(value))
        for name, value in sorted(op.inputs.items())
    )
    return (op.type, op.opset, operands, tuple(v.type for v in op.outputs))


SMALL = 4096
"""Constants up to this many bytes are compared by value, larger ones by identity."""


def _identity(value: Value) -> Any:
    constant = value.constant
    if constant is None:
        return value
    if constant.type.carrier.kind == "U":
        return (constant.type, str(constant.array.tolist()))
    count = constant.type.count
    if count * constant.type.carrier.itemsize <= SMALL:
        return (constant.type, constant.array.tobytes())
    return constant
