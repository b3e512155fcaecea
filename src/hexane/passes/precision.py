"""Half precision: the engine's own floating point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hexane.errors import HexaneError
from hexane.graph.constants import Constant
from hexane.graph.ir import Op, Value
from hexane.graph.registry import opset_number, opset_of, result_types, spec_of
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.ir import Block, Function

LARGEST = 65504.0


def to_half(function: Function) -> int:
    """Compute fp32 values in fp16, inputs and outputs included: the engine's data are fp16.

    Finite constants beyond the range become its ends (a mask of -1e9 is as good at -65504).
    """
    seen: dict[Value, Value] = {}
    changed = 0
    for value in function.inputs:
        changed += _retype(value)
    changed += _block(function, seen)
    return changed


def _retype(value: Value) -> bool:
    if isinstance(value.type, TensorType) and value.type.dtype == "fp32" and not value.is_constant:
        value.type = TensorType("fp16", value.type.shape)
        return True
    return False


def _block(block: Block, seen: dict[Value, Value]) -> int:
    changed = 0
    for op in block.ops:
        for inner in op.blocks:
            for value in inner.inputs:
                changed += _retype(value)
            changed += _block(inner, seen)
        changed += _operands(op, seen)
        if op.type == "cast" and op.arg("dtype") == "fp32":
            op.set_input("dtype", _text("fp16", op))
        before = [value.type for value in op.outputs]
        for value in op.outputs:
            _retype(value)
        if not op.blocks and any(a != v.type for a, v in zip(before, op.outputs)):
            _check(op, before)
    outputs = [_half(value, seen) if value.is_constant else value for value in block.outputs]
    if any(a is not b for a, b in zip(outputs, block.outputs)):
        block.set_outputs(outputs)
    return changed


def _text(text: str, op: Op) -> Value:
    from hexane.graph.constants import constant_from

    constant = constant_from(text, None)
    return Value(f"{op.outputs[0].name}_dtype", constant.type, constant=constant)


def _operands(op: Op, seen: dict[Value, Value]) -> int:
    """Constant tensor operands in fp16; numbers among the parameters stay as they are."""
    changed = 0
    tensors = {param.name for param in spec_of(op).params if param.is_tensor or param.kind == "number"}
    for name, operand in list(op.inputs.items()):
        if name not in tensors:
            continue
        if isinstance(operand, tuple):
            new = tuple(_half(value, seen) for value in operand)
            if any(a is not b for a, b in zip(new, operand)):
                op.set_input(name, new)
                changed += 1
        else:
            value = _half(operand, seen)
            if value is not operand:
                op.set_input(name, value)
                changed += 1
    return changed


def _half(value: Value, seen: dict[Value, Value]) -> Value:
    if not value.is_constant or not isinstance(value.type, TensorType) or value.type.dtype != "fp32":
        return value
    if value not in seen:
        data = value.data
        finite = np.where(np.isfinite(data), np.clip(data, -LARGEST, LARGEST), data).astype(np.float16)
        type_ = TensorType("fp16", value.type.shape)
        seen[value] = Value(value.name, type_, constant=Constant(type_, finite), label=value.label)
    return seen[value]


def _check(op: Op, before: list) -> None:  # type: ignore[type-arg]
    """Where the op's own rule still says fp32 (a result dtype that is a parameter), a cast to fp16 follows it."""
    try:
        ruled = result_types(spec_of(op), dict(op.inputs), opset_number(opset_of(op)))
    except HexaneError:
        return
    for value, type_, old in zip(op.outputs, ruled, before):
        if value.type == type_ or type_ != old:
            continue
        assert op.block is not None
        full = Value(f"{value.name}__full", old, op=op)
        narrow = Op("cast", {"x": full, "dtype": _text("fp16", op)}, name=value.name)
        op.outputs = tuple(full if v is value else v for v in op.outputs)
        narrow.outputs = (value,)
        value.op = narrow
        op.block.add(narrow, op._next)
