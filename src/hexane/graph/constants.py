"""Constant data: an array, or a promise of one that is kept when somebody looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.bits import in_bf16
from hexane.errors import GraphError
from hexane.graph.coding import Coding
from hexane.graph.types import DTYPES, TensorType, dtype_name


@dataclass(frozen=True)
class BlobReference:
    """Place of a constant's bytes in a weight file: path as written (``@model_path/...``), record offset in bytes."""

    path: str
    offset: int


class Constant:
    """The value of a constant of type ``type``.

    Either an array, or ``load``, called at the first look; big weights stay where they are (a memory map) until then.
    ``source`` remembers the weight file, so that printing need not copy it; ``coding`` how the file packs the values.
    ``readings`` holds what compile-time parameters that take this constant see, by kind: passes ask for them often.
    """

    __slots__ = ("_array", "_load", "coding", "readings", "source", "type")

    def __init__(
        self,
        type: TensorType,
        array: np.ndarray | None = None,
        load: Callable[[], np.ndarray] | None = None,
        source: BlobReference | None = None,
        coding: Coding | None = None,
    ) -> None:
        if array is None and load is None:
            raise GraphError("a constant needs an array or a way to load one")
        self.type = type
        self.source = source
        self.coding = coding
        self.readings: dict[str, Any] = {}
        self._load = load
        self._array: np.ndarray | None = None if array is None else self._checked(array)

    @property
    def array(self) -> np.ndarray:
        """The values, in the type's carrier dtype and shape; read-only."""
        if self._array is None:
            assert self._load is not None
            self._array = self._checked(self._load())
            self._load = None
        return self._array

    @property
    def is_loaded(self) -> bool:
        return self._array is not None

    def _checked(self, array: np.ndarray) -> np.ndarray:
        if array.shape != self.type.shape:
            raise GraphError(f"constant data of shape {array.shape} for {self.type}")
        carrier = self.type.carrier
        if carrier.kind != "U" and array.dtype != carrier:
            array = array.astype(carrier)
        if self.type.dtype == "bf16":
            array = in_bf16(array)
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        return array

    def __reduce__(self) -> tuple[Any, ...]:
        """With its values: the file that they came from need not be there where they go."""
        return _constant, (self.type, np.asarray(self.array), self.source, self.coding)

    def equals(self, other: Constant) -> bool:
        """Same type and same bits; two references to the same place of the same file need no look."""
        if self is other:
            return True
        if self.type != other.type:
            return False
        if self.source is not None and self.source == other.source:
            return True
        a, b = self.array, other.array
        if a.dtype.kind == "f":
            return a.tobytes() == b.tobytes() or bool(np.array_equal(a, b, equal_nan=True))
        return bool(np.array_equal(a, b))


def constant_from(data: Any, dtype: str | None = None) -> Constant:
    """A Constant of anything array-like; ``dtype`` defaults to what the data say.

    Python ints become int32 (int64 when they do not fit), floats fp32, lists the same by element.
    """
    if isinstance(data, Constant):
        return data
    typed = isinstance(data, (np.ndarray, np.generic))
    array = np.asarray(data)
    if typed and dtype is not None and array.dtype == DTYPES[dtype].carrier and DTYPES[dtype].fills_carrier:
        return Constant(TensorType(dtype, array.shape), array)
    if array.dtype == object:
        raise GraphError(f"{type(data).__name__} is no rectangular array of numbers, booleans or strings")
    if dtype is None:
        if not typed and array.dtype == np.float64:
            dtype = "fp32"
        elif not typed and array.dtype == np.int64:
            info = np.iinfo(np.int32)
            fits = array.size == 0 or (array.min() >= info.min and array.max() <= info.max)
            dtype = "int32" if fits else "int64"
        else:
            dtype = dtype_name(array.dtype)
    elif DTYPES[dtype].kind in "iu" and array.dtype.kind == "f" and not np.array_equal(array, np.trunc(array)):
        raise GraphError(f"a fractional number given where {dtype} is asked")
    carrier = DTYPES[dtype].carrier
    if carrier.kind != "U" and (array.dtype != carrier or not DTYPES[dtype].fills_carrier):
        if DTYPES[dtype].kind in "iu" and array.size and array.dtype.kind in "iuf":
            low, high = integer_range(dtype)
            if array.min() < low or array.max() > high:
                raise GraphError(f"a number outside the range of {dtype}")
        with np.errstate(over="ignore"):
            array = array.astype(carrier, copy=False)
    return Constant(TensorType(dtype, array.shape), array)


def integer_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype, sub-byte ones included."""
    bits = DTYPES[dtype].bits
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if DTYPES[dtype].kind == "i" else (0, (1 << bits) - 1)


def _constant(type: TensorType, array: np.ndarray, source: BlobReference | None, coding: Coding | None) -> Constant:
    return Constant(type, array, source=source, coding=coding)
