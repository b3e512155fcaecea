"""Surfaces: the tensors that a program reads and writes in DRAM, and how their types are numbered and spelled."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from hexane.errors import UsageError
from hexane.rounding import align

ALIGNMENT = 64
"""Rows start at multiples of this many bytes (docs/reference/engine-h13.md 6)."""

OUTPUT_SUFFIX = "@output"
"""What the container appends to the names of outputs (docs/reference/engine-h13.md 2.5)."""

ROLES = ("input", "output")

_ELEMENTS = (
    "int8 uint8 int16 float16 float32 raw10 lut uint4 uint6 uint1 uint2 packed10 y10 uint16 e4m3 int32 uint32 int64 "
    "uint64 raw12 y12 int4"
)
ELEMENT_CODES = {name: code for code, name in enumerate(_ELEMENTS.split(), 2)}
"""Element types by the number that tensor threads and type stabs give them (docs/reference/engine-h13.md 2.7, 2.9)."""

ELEMENT_NAMES = {code: name for name, code in ELEMENT_CODES.items()}

ELEMENT_BYTES = {"int8": 1, "uint8": 1, "e4m3": 1, "int16": 2, "uint16": 2, "float16": 2, "float32": 4, "int32": 4}
"""Bytes of one element of the types that a surface can have, as far as they are known."""

_ALIASES = {"fp16": "float16", "fp32": "float32", "bool": "uint8", "half": "float16"}


def plain_strides(shape: tuple[int, int, int, int], dtype: str) -> tuple[int, int, int, int]:
    """Byte strides (n, c, h, w) of a plain surface: rows padded to 64 bytes, planes dense.

    Source: docs/reference/engine-h13.md 6.
    """
    _, c, h, w = shape
    size = element_bytes(dtype)
    row = align(w * size, ALIGNMENT)
    return (c * h * row, h * row, row, size)


def element_bytes(dtype: str) -> int:
    """Bytes of one element; `UsageError` for a type that no surface has."""
    try:
        return ELEMENT_BYTES[dtype]
    except KeyError:
        raise UsageError(
            f"no surface has elements of type {dtype!r}", hint=f"one of {', '.join(ELEMENT_BYTES)}"
        ) from None


def _name_of(dtype: Any, where: str) -> str:
    """The name of a NumPy type."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        raise UsageError(f"{dtype!r} is not an element type", where=where) from None
    return _ALIASES.get(name, name)


def _integers(values: Any, what: str, where: str) -> tuple[int, ...]:
    try:
        return tuple(operator.index(value) for value in values)
    except TypeError:
        raise UsageError(f"the {what} is {values!r}", where=where, hint="integers are needed") from None


@dataclass(frozen=True)
class Surface:
    """One tensor in DRAM.

    Parameters
    ----------
    name : its name, as the container gives it.
    role : ``"input"`` or ``"output"``.
    shape : (N, C, H, W).
    strides : bytes between neighbours along (n, c, h, w); None for a plain surface (docs/reference/engine-h13.md 6).
    dtype : element type: ``"float16"``, ``"uint8"``, ``"int8"``, ...
    address : virtual address in the container; it expresses identity and order only.
    channel : the DMA channel (slot, from H14 on) by which tasks name the surface; None where it has none.
    """

    name: str
    role: str
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int] | None = None
    dtype: str = "float16"
    address: int = 0
    channel: int | None = None

    def __post_init__(self) -> None:
        where = f"surface {self.name!r}"
        if self.role not in ROLES:
            raise UsageError(f"the role is {self.role!r}", where=where, hint="it is 'input' or 'output'")
        dtype = _ALIASES.get(self.dtype, self.dtype) if isinstance(self.dtype, str) else _name_of(self.dtype, where)
        if not isinstance(self.name, str):
            raise UsageError(f"the name is {self.name!r}", where=where, hint="a name is text")
        shape = _integers(self.shape, "shape", where)
        if len(shape) != 4 or min(shape) < 1:
            raise UsageError(f"the shape is {shape}", where=where, hint="four sizes N, C, H, W of 1 or more")
        strides = plain_strides(shape, dtype) if self.strides is None else _integers(self.strides, "strides", where)
        if len(strides) != 4 or min(strides) < 0:
            raise UsageError(f"the strides are {strides}", where=where, hint="four byte counts for n, c, h, w")
        if self.channel is not None:
            object.__setattr__(self, "channel", _integers((self.channel,), "channel", where)[0])
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "strides", strides)

    @property
    def label(self) -> str:
        """The name without ``@output``."""
        return self.name.removesuffix(OUTPUT_SUFFIX)

    @property
    def element_stride(self) -> int:
        return self.strides[3]  # type: ignore[index]

    @property
    def bytes_per_batch(self) -> int:
        """Bytes of one batch element: channels times plane."""
        return self.shape[1] * self.strides[1]  # type: ignore[index]

    @property
    def nbytes(self) -> int:
        """Bytes of all batch elements."""
        return self.shape[0] * self.bytes_per_batch

    @property
    def last_byte(self) -> int:
        """Bytes up to the end of the last element of one batch element."""
        _, c, h, w = self.shape
        _, plane, row, element = self.strides  # type: ignore[misc]
        return (c - 1) * plane + (h - 1) * row + w * element

    def reshaped(self, shape: tuple[int, int, int, int]) -> Surface:
        """The surface with another shape and the plain strides of it."""
        return replace(self, shape=shape, strides=None)

    def __str__(self) -> str:
        dims = "x".join(str(v) for v in self.shape)
        channel = "no channel" if self.channel is None else f"channel {self.channel}"
        return f"{self.role} {self.name}: {dims} {self.dtype}, strides {self.strides}, {channel}"


def as_surface(value: Surface | Mapping[str, Any] | Any) -> Surface:
    """A surface from itself, from a mapping with the same names, or from an object with such attributes."""
    if isinstance(value, Surface):
        return value
    names = [item.name for item in fields(Surface)]
    attributes = value if isinstance(value, Mapping) else {n: getattr(value, n) for n in names if hasattr(value, n)}
    missing = [name for name in ("name", "role", "shape") if name not in attributes]
    unknown = [str(name) for name in attributes if name not in names]
    if missing or unknown:
        problem = f"without {', '.join(missing)}" if missing else f"with {', '.join(unknown)}"
        raise UsageError(f"a surface {problem}", hint="give name, role, shape, dtype, strides, channel")
    return Surface(**attributes)


def in_place(surfaces: Iterable[Surface]) -> dict[str, str]:
    """Outputs that stand in the buffer of an input, by label: states, which have one channel for both."""
    each = list(surfaces)
    inputs = {s.channel: s.label for s in each if s.role == "input" and s.channel is not None}
    return {s.label: inputs[s.channel] for s in each if s.role == "output" and s.channel in inputs}
