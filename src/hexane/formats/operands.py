"""Operands of a translation: a graph's Value, or a constant that is still a NumPy array.

Translators call ops on either alike. An op whose operands are all constants is computed at once by the op's own
reference (``hexane.graph``), so that what a file merely computes for itself (shapes, masks, transposed weights) never
becomes part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hexane.errors import GraphError, HexaneError
from hexane.graph import GraphBuilder, Value
from hexane.graph.builder import wrap_operands
from hexane.graph.constants import Constant, constant_from
from hexane.graph.registry import is_known, lookup, plain, result_types
from hexane.graph.types import DTYPES, TensorType, dtype_name, eval_dtype

Operand = Any
"""A ``Value`` or a NumPy array. Spelled ``Any``: what narrows it are facts such as "all operands are constant"."""

FOLD_BYTES = 64 << 20
"""Constants are computed at once up to this size; beyond it the op stays in the graph, and weights stay on disk."""

SMALL_FOLD = 64 << 10
"""Results of this size are computed whatever was computed before: shapes and masks must fold."""

FOLD_BUDGET = 192 << 20
"""All larger results together may take so much; a file of half-precision weights and casts must not fill the memory."""


def type_of(operand: Operand) -> TensorType:
    """Type of an operand, constant or not."""
    if isinstance(operand, Value):
        type_ = operand.type
        if not isinstance(type_, TensorType):
            raise GraphError(f"{operand.name} is a {type_}, not a tensor")
        return type_
    return TensorType(dtype_name(operand.dtype), operand.shape)


def known(array: Any) -> np.ndarray:
    """An array as operands carry it: bfloat16 and float8 widened to float32, sub-byte integers one per byte."""
    array = np.asarray(array)
    if array.dtype.kind in "fiubU":
        return array
    name = array.dtype.name
    if name.startswith(("bfloat", "float")):
        return array.astype(np.float32)
    if name.startswith(("int", "uint")):
        return array.astype(np.int8 if name.startswith("int") else np.uint8)
    raise GraphError(f"{array.dtype} is no element type of a graph")


def transposed(ops: Folder, operand: Operand, perm: Sequence[int]) -> Operand:
    """Transposition; nothing where the order stays. Constants become views."""
    perm = [int(axis) for axis in perm]
    if perm == list(range(len(perm))):
        return operand
    if isinstance(operand, np.ndarray):
        return operand.transpose(perm)
    return ops.transpose(x=operand, perm=np.array(perm, np.int32))


class Folder:
    """A GraphBuilder whose ops compute at once when every tensor operand is a constant array."""

    def __init__(self, builder: GraphBuilder, fold_bytes: int = FOLD_BYTES) -> None:
        self.builder = builder
        self.fold_bytes = fold_bytes
        self.budget = FOLD_BUDGET
        self._names: dict[int, tuple[np.ndarray, str]] = {}
        self._constants: dict[int, Value] = {}

    def name_constant(self, array: np.ndarray, name: str) -> None:
        """Remember what the file calls an array; its constant gets that name."""
        self._names[id(array)] = (array, name)

    def value(self, operand: Operand, dtype: str | None = None) -> Value:
        """The operand as a Value; one constant per array, however often it is used."""
        if isinstance(operand, Value):
            return operand
        constant = self._constants.get(id(operand))
        if constant is None:
            _, name = self._names.setdefault(id(operand), (operand, "const"))
            type_ = TensorType(dtype or dtype_name(operand.dtype), operand.shape)
            constant = self._constants[id(operand)] = self.builder.const(Constant(type_, operand), name=name)
        return constant

    def __getattr__(self, type: str) -> Callable[..., Any]:
        if type.startswith("_") or not is_known(type):
            raise AttributeError(f"there is no op {type!r}")
        return lambda **operands: self.op(type, **operands)

    def op(self, type: str, /, **operands: Any) -> Any:
        """One op; its result, or the tuple of its results, as arrays where all tensor operands are arrays."""
        spec = lookup(type, self.builder.function.opset)
        live = False
        for param in spec.params:
            operand = operands.get(param.name)
            if isinstance(operand, Value) or (
                isinstance(operand, tuple | list) and any(isinstance(o, Value) for o in operand)
            ):
                live = True
        if not live:
            folded = self._fold(spec, operands)
            if folded is not None:
                return folded
        for param in spec.params:
            operand = operands.get(param.name)
            if param.is_tensor and isinstance(operand, np.ndarray):
                operands[param.name] = self.value(operand)
            elif param.is_tensor and isinstance(operand, tuple | list):
                operands[param.name] = tuple(self.value(o) if isinstance(o, np.ndarray) else o for o in operand)
        return self.builder.op(type, **operands)

    def _fold(self, spec: Any, operands: dict[str, Any]) -> Any:
        """Results as arrays, or None where they (or the operands) are too big to compute now."""
        inputs = wrap_operands(spec, operands, _loose)
        size = 0
        for operand in inputs.values():
            for value in operand if isinstance(operand, tuple) else (operand,):
                size += value.type.nbytes if value.dtype != "string" else 0
        types = result_types(spec, inputs, 18)
        if any(not isinstance(t, TensorType) for t in types):
            return None
        results_bytes = sum(
            t.nbytes for t in types if isinstance(t, TensorType) and t.is_static and t.dtype != "string"
        )
        if size > self.fold_bytes or results_bytes > self.fold_bytes:
            return None
        if results_bytes > SMALL_FOLD:
            if results_bytes > self.budget:
                return None
            self.budget -= results_bytes
        arguments: dict[str, Any] = {}
        for param in spec.params:
            operand = inputs.get(param.name)
            if operand is None:
                arguments[param.name] = param.default
            elif param.is_attribute:
                arguments[param.name] = plain(operand.data, param.kind, f"{param.name} of {spec.name}")
            elif isinstance(operand, tuple):
                arguments[param.name] = tuple(_wide(value) for value in operand)
            else:
                arguments[param.name] = _wide(operand)
        try:
            with np.errstate(all="ignore"):
                results = spec.evaluate(**arguments)
        except HexaneError:
            raise
        except (ValueError, IndexError, TypeError, FloatingPointError, ZeroDivisionError) as error:
            raise GraphError(f"{spec.name} cannot be computed ({error})") from error
        many = isinstance(results, tuple)
        arrays = []
        for result, type_ in zip(results if many else (results,), types):
            with np.errstate(over="ignore", invalid="ignore"):
                arrays.append(np.asarray(result).astype(DTYPES[type_.dtype].carrier, copy=False))
        return tuple(arrays) if many else arrays[0]


def _loose(data: Any, dtype: str | None = None, name: str | None = None) -> Value:
    """A constant that belongs to no graph."""
    constant = data if isinstance(data, Constant) else constant_from(data, dtype)
    return Value(name or "const", constant.type, constant=constant)


def _wide(value: Value) -> np.ndarray:
    return value.data if value.dtype == "string" else value.data.astype(eval_dtype(value.dtype), copy=False)
