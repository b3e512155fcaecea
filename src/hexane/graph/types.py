"""Types of values: MIL's scalar types, tensors with a static shape, states and lists (docs/reference/mil.md 2.2, 5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from hexane.bits import in_bf16, in_dtype
from hexane.errors import GraphError
from hexane.frozen import slot_init

MAX_ELEMENTS = 1 << 29
"""Largest tensor that a graph may hold, in elements: above any real weight, below what a hostile file asks for."""
MAX_RANK = 16


@dataclass(frozen=True)
class DType:
    """A MIL scalar type: ``name``, ``bits`` per element and the NumPy dtype that carries its values.

    Sub-byte integers are carried one per byte; bf16 and the fp8 forms, which NumPy lacks, as float32 values.
    """

    name: str
    bits: int
    carrier: np.dtype
    kind: str  # "f" float, "i" signed, "u" unsigned, "b" bool, "s" string

    @cached_property
    def fills_carrier(self) -> bool:
        """True where every value of the carrier is one of the type."""
        return self.bits == 8 * self.carrier.itemsize


def _table(*rows: tuple[str, int, str, str]) -> dict[str, DType]:
    return {name: DType(name, bits, np.dtype(carrier), kind) for name, bits, carrier, kind in rows}


DTYPES: dict[str, DType] = _table(
    ("fp16", 16, "float16", "f"),
    ("fp32", 32, "float32", "f"),
    ("fp64", 64, "float64", "f"),
    ("bf16", 16, "float32", "f"),
    ("fp8e4m3fn", 8, "float32", "f"),
    ("fp8e5m2", 8, "float32", "f"),
    ("int4", 4, "int8", "i"),
    ("int8", 8, "int8", "i"),
    ("int16", 16, "int16", "i"),
    ("int32", 32, "int32", "i"),
    ("int64", 64, "int64", "i"),
    ("uint1", 1, "uint8", "u"),
    ("uint2", 2, "uint8", "u"),
    ("uint3", 3, "uint8", "u"),
    ("uint4", 4, "uint8", "u"),
    ("uint6", 6, "uint8", "u"),
    ("uint8", 8, "uint8", "u"),
    ("uint16", 16, "uint16", "u"),
    ("uint32", 32, "uint32", "u"),
    ("uint64", 64, "uint64", "u"),
    ("bool", 8, "bool", "b"),
    ("string", 0, "U", "s"),
)

FLOATS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind == "f")
INTS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind in "iu")
NUMBERS = FLOATS | INTS
BOOLS = frozenset({"bool"})
ANY = NUMBERS | BOOLS
STRINGS = frozenset({"string"})

_ALIASES = {
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "bfloat16": "bf16",
    "float": "fp32",
    "half": "fp16",
    "double": "fp64",
    "str": "string",
}


def kinds_of(dtype: str) -> str:
    """The kinds of NumPy's dtypes that an input of an element type takes: text, or numbers of any kind."""
    return "UO" if dtype in STRINGS else "biuf"


def misfit(array: np.ndarray, dtype: str) -> str:
    """Why numbers are none of an integer type: fractions, or a number outside it. Empty where they fit."""
    kind, carrier = DTYPES[dtype].kind, DTYPES[dtype].carrier
    if kind not in "iu" or not array.size or array.dtype.kind == "b":
        return ""
    if array.dtype.kind == "f" and not np.array_equal(array, np.trunc(array)):
        return "has fractions"
    limits = np.iinfo(carrier)
    return f"has numbers outside {dtype}" if array.min() < limits.min or array.max() > limits.max else ""


def dtype_name(dtype: Any) -> str:
    """MIL's name of a dtype given as MIL name, NumPy name or NumPy dtype; GraphError when there is none."""
    if isinstance(dtype, str):
        name = _ALIASES.get(dtype, dtype)
        if name in DTYPES:
            return name
    try:
        numpy_dtype = np.dtype(dtype)
    except TypeError:
        raise GraphError(f"{dtype!r} is no element type", hint=f"one of {', '.join(DTYPES)}") from None
    if numpy_dtype.kind in "US":
        return "string"
    name = _numpy_name(numpy_dtype)
    if name not in DTYPES:
        raise GraphError(f"{numpy_dtype} is no element type of a graph", hint=f"one of {', '.join(DTYPES)}")
    return name


@lru_cache(maxsize=64)
def _numpy_name(dtype: np.dtype) -> str:
    """NumPy composes the name of a dtype each time that it is asked."""
    return _ALIASES.get(dtype.name, dtype.name)


def eval_dtype(name: str) -> np.dtype:
    """The NumPy dtype that the float32 reference computes a dtype in: every float of 32 bits or less in float32."""
    dtype = DTYPES[name]
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.bits < 64 else dtype.carrier


def in_type(array: np.ndarray, type_: TensorType) -> np.ndarray:
    """Numbers as a type holds them, in its carrier: rounded once, to bfloat16 too."""
    if type_.dtype == "bf16":
        return in_bf16(in_dtype(array, type_.carrier))
    return in_dtype(array, type_.carrier)


class TooLargeError(GraphError):
    """A tensor of more than ``MAX_ELEMENTS`` elements."""


_PLAIN = frozenset({int, type(None)})


@slot_init
@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor's element type and shape. A scalar is a tensor of rank 0.

    An extent is a non-negative int, or None where it depends on data (results of host ops such as ``non_zero``); ops
    that the engine can take have no such extents.
    """

    dtype: str
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            object.__setattr__(self, "dtype", dtype_name(self.dtype))
        shape = self.shape
        if type(shape) is not tuple or not _PLAIN.issuperset(map(type, shape)):
            shape = tuple(extent if extent is None else int(extent) for extent in shape)
            object.__setattr__(self, "shape", shape)
        if len(shape) > MAX_RANK:
            raise GraphError(f"a tensor of rank {len(shape)}", hint=f"the largest rank is {MAX_RANK}")
        extents = [extent for extent in shape if extent is not None]
        if extents and min(extents) < 0:
            raise GraphError(f"the shape {shape} has a negative extent")
        if prod(extents) > MAX_ELEMENTS:
            raise TooLargeError(
                f"a tensor of shape {shape} has {prod(extents)} elements", hint=f"the limit is {MAX_ELEMENTS}"
            )

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return None not in self.shape

    @property
    def count(self) -> int:
        """Number of elements; UnsupportedError's business of the caller when the shape is not static."""
        if not self.is_static:
            raise GraphError(f"the number of elements of {self} depends on data")
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, packed (four int4 take two bytes)."""
        return (self.count * DTYPES[self.dtype].bits + 7) // 8

    @property
    def carrier(self) -> np.dtype:
        """NumPy dtype of arrays that hold such values."""
        return DTYPES[self.dtype].carrier

    def with_shape(self, shape: Any) -> TensorType:
        return TensorType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: str) -> TensorType:
        return TensorType(dtype, self.shape)

    def accepts(self, other: Type) -> bool:
        """True where a value of type ``other`` may stand where this type is declared (unknown extents match any)."""
        return (
            isinstance(other, TensorType)
            and self.dtype == other.dtype
            and self.rank == other.rank
            and all(a == b or a is None or b is None for a, b in zip(self.shape, other.shape))
        )

    def __str__(self) -> str:
        extents = ", ".join("?" if extent is None else str(extent) for extent in self.shape)
        return f"tensor<{self.dtype}, [{extents}]>"


@dataclass(frozen=True)
class BufferType(TensorType):
    """``tensor_buffer``: a tensor with a memory layout, strides in elements (docs/reference/mil.md 5.9)."""

    strides: tuple[int, ...] = ()
    interleave_factors: tuple[int, ...] = ()

    @property
    def tensor(self) -> TensorType:
        return TensorType(self.dtype, self.shape)

    def __str__(self) -> str:
        def listed(numbers: tuple) -> str:
            return "[" + ", ".join("?" if n is None else str(n) for n in numbers) + "]"

        return (
            f"tensor_buffer<{self.dtype}, shape={listed(self.shape)}, strides={listed(self.strides)}, "
            f"interleave_factors={listed(self.interleave_factors)}>"
        )


@dataclass(frozen=True)
class StateType:
    """``state<tensor<...>>``: a tensor that lives on between calls (docs/reference/mil.md 5.8)."""

    tensor: TensorType

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def accepts(self, other: Type) -> bool:
        return isinstance(other, StateType) and self.tensor.accepts(other.tensor)

    def __str__(self) -> str:
        return f"state<{self.tensor}>"


@dataclass(frozen=True)
class ListType:
    """``list<T, n>``: ``length`` None where it depends on data."""

    element: Type
    length: int | None = None

    @property
    def dtype(self) -> str:
        return self.element.dtype

    @property
    def shape(self) -> tuple:
        return (self.length,)

    def accepts(self, other: Type) -> bool:
        return isinstance(other, ListType) and self.element.accepts(other.element)

    def __str__(self) -> str:
        return f"list<{self.element}, {'?' if self.length is None else self.length}>"


@dataclass(frozen=True)
class TupleType:
    """``tuple<...>``: appears in attributes only."""

    elements: tuple[Any, ...] = ()

    def accepts(self, other: Any) -> bool:
        return self == other

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True)
class DictType:
    """``dict<K, V>``: appears in attributes only (buildInfo)."""

    key: Any
    value: Any

    def accepts(self, other: Any) -> bool:
        return self == other

    def __str__(self) -> str:
        return f"dict<{self.key}, {self.value}>"


Type = TensorType | StateType | ListType


def tensor_of(type_: Type) -> TensorType:
    """The tensor type of a value that is a tensor or a state; GraphError for lists."""
    if isinstance(type_, TensorType):
        return type_
    if isinstance(type_, StateType):
        return type_.tensor
    raise GraphError(f"{type_} is no tensor")
