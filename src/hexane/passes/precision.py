"""Half precision: the engine's own floating point."""

from __future__ import annotations

import numpy as np

from hexane.errors import HexaneError
from hexane.graph.constants import Constant, constant_from
from hexane.graph.effects import touched
from hexane.graph.ir import Block, Function, Op, Value
from hexane.graph.registry import opset_number, opset_of, result_types, spec_of
from hexane.graph.types import TensorType
from hexane.isa.numbers import LARGEST_HALF
from hexane.passes.halves import halves
from hexane.passes.small import integer_sum_ops, vanishing_ops

SMALLEST = 2.0**-24


def to_half(function: Function) -> int:
    """Compute fp32 values in fp16, inputs and outputs included: the engine's data are fp16.

    Constants beyond the range become its ends (a mask of -1e9 is as good at -65504), and one that is not zero does not
    become zero. A logarithm of values that fp16 cannot hold stays in fp32, which is the host's.
    """
    return _Halving(vanishing_ops(function) | integer_sum_ops(function)).function(function)


class _Halving:
    """The change of one function: ``kept`` ops stay in fp32 between casts."""

    def __init__(self, keeps: set[Op]) -> None:
        self.kept = keeps
        self.constants: dict[Value, Value] = {}
        self.widened: dict[Value, Value] = {}
        self.changed = 0

    def function(self, function: Function) -> int:
        for value in function.inputs:
            self.retype(value)
        self.block(function)
        return self.changed

    def retype(self, value: Value) -> None:
        if isinstance(value.type, TensorType) and value.type.dtype == "fp32" and not value.is_constant:
            value.type = TensorType("fp16", value.type.shape)
            self.changed += 1

    def block(self, block: Block) -> None:
        for op in block.ops:
            for inner in op.blocks:
                for value in inner.inputs:
                    self.retype(value)
                self.block(inner)
            if op in self.kept or any(state.dtype == "fp32" for state in touched(op)):
                self.keep(op)
                continue
            self.operands(op)
            if op.type == "cast" and op.arg("dtype") == "fp32":
                op.set_input("dtype", _text("fp16", op))
            before = [value.type for value in op.outputs]
            for value in op.outputs:
                self.retype(value)
            changed = any(a != v.type for a, v in zip(before, op.outputs))
            if changed and not op.blocks and not self.follows_operands(op):
                _check(op, before)
        outputs = [self.half(value) for value in block.outputs]
        if any(a is not b for a, b in zip(outputs, block.outputs)):
            block.set_outputs(outputs)

    def follows_operands(self, op: Op) -> bool:
        """True where the result's dtype is that of fp16 operands, not of a parameter."""
        by_name = (
            "dtype" in op.inputs or "output_dtype" in op.inputs or "." in op.type or op.type.startswith("constexpr")
        )
        return not by_name and any(v.dtype == "fp16" for v in op.operands() if isinstance(v.type, TensorType))

    def keep(self, op: Op) -> None:
        """Casts around an op that stays in fp32; between two such ops there is none."""
        for operand in dict.fromkeys(op.operands()):
            if operand.dtype == "fp16" and not operand.is_constant:
                op.replace_operand(operand, self.wide(operand, op))
        for value in op.outputs:
            if value.dtype != "fp32":
                continue
            outside = [user for user in value.users if user not in self.kept]
            if not outside and not value.is_output:
                continue
            narrow = _cast(value, "fp16", op._next, op)
            for user in outside:
                user.replace_operand(value, narrow)
            assert op.block is not None
            if value.is_output:
                value.name, narrow.name = narrow.name, value.name
                op.block.set_outputs(narrow if v is value else v for v in op.block.outputs)

    def wide(self, value: Value, before: Op) -> Value:
        if value not in self.widened:
            self.widened[value] = _cast(value, "fp32", before, before)
        return self.widened[value]

    def operands(self, op: Op) -> None:
        """Constant tensor operands in fp16, other floats too where no result is one; numbers among parameters stay."""
        dtypes = ("fp32",) if any(value.dtype in OTHERS for value in op.outputs) else ("fp32", *OTHERS)
        if not any(value.is_constant and value.dtype in dtypes for value in op.operands()):
            return
        tensors = {param.name for param in spec_of(op).params if param.is_tensor or param.kind == "number"}
        for name, operand in list(op.inputs.items()):
            if name not in tensors:
                continue
            values = operand if isinstance(operand, tuple) else (operand,)
            new = tuple(self.half(value, dtypes) for value in values)
            if any(a is not b for a, b in zip(new, values)):
                op.set_input(name, new if isinstance(operand, tuple) else new[0])
                self.changed += 1

    def half(self, value: Value, dtypes: tuple[str, ...] = ("fp32",)) -> Value:
        """A constant of these dtypes in fp16, rounded once; other values as they are."""
        if not value.is_constant or not isinstance(value.type, TensorType) or value.type.dtype not in dtypes:
            return value
        if value not in self.constants:
            type_ = TensorType("fp16", value.type.shape)
            constant = Constant(type_, half_of(value.data), coding=value.constant.coding if value.constant else None)
            self.constants[value] = Value(value.name, type_, constant=constant, label=value.label)
        return self.constants[value]


OTHERS = ("fp64", "bf16")
"""Floats besides fp16 and fp32 that constants of a file may have."""


def half_of(data: np.ndarray) -> np.ndarray:
    """fp32 or fp64 as fp16, finite numbers kept finite; a lone number that is not zero is kept from becoming zero."""
    if data.size and data.min() >= -LARGEST_HALF and data.max() <= LARGEST_HALF:  # False for NaN, too
        clipped = halves(data)
    else:
        clipped = np.where(np.isfinite(data), np.clip(data, -LARGEST_HALF, LARGEST_HALF), data).astype(np.float16)
    if data.size == 1:
        lost = (clipped == 0) & (data != 0)
        clipped = np.where(lost, np.sign(data) * np.float32(SMALLEST), clipped).astype(np.float16)
    return clipped


def _text(text: str, op: Op) -> Value:
    constant = constant_from(text, None)
    name = op.outputs[0].name if op.outputs else f"{op.name or op.type}_{text}"
    return Value(f"{name}_dtype", constant.type, constant=constant)


def _cast(value: Value, dtype: str, before: Op | None, near: Op) -> Value:
    """A cast of the value in front of an op (None: at the end of the block)."""
    cast = Op("cast", {"x": value, "dtype": _text(dtype, near)}, name=f"{value.name}__{dtype}")
    result = Value(f"{value.name}__{dtype}", TensorType(dtype, value.shape), op=cast)
    cast.outputs = (result,)
    assert near.block is not None
    near.block.add(cast, before)
    return result


def _check(op: Op, before: list) -> None:
    """Cast to fp16 behind an op whose own rule still says fp32 (a result dtype that is a parameter)."""
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
