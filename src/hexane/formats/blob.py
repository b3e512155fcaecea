"""MIL weight files, storage version 2 (docs/reference/mil.md 3): read lazily, written whole.

A file begins with a 64-byte header (count, version 2). Each blob is a 64-byte metadata record, found by the offset that
the text gives, which says the element type, the size and where the payload lies; everything starts at multiples of 64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hexane.bits import bf16_values, in_bf16
from hexane.errors import FormatError, UnsupportedError
from hexane.formats.weight_files import bytes_of
from hexane.graph.types import DTYPES, TensorType
from hexane.rounding import align

VERSION = 2
SENTINEL = 0xDEADBEEF
ALIGNMENT = 64
HEADER = struct.Struct("<II56x")
RECORD = struct.Struct("<IIQQQ32x")

TYPE_CODES: dict[str, int] = {
    "fp16": 1,
    "fp32": 2,
    "uint8": 3,
    "int8": 4,
    "bf16": 5,
    "int16": 6,
    "uint16": 7,
    "int4": 8,
    "uint1": 9,
    "uint2": 10,
    "uint4": 11,
    "uint3": 12,
    "uint6": 13,
    "int32": 14,
    "uint32": 15,
    "fp8e4m3fn": 16,
    "fp8e5m2": 17,
}
"""Element type codes (docs/reference/mil.md 3.1)."""
_NAMES = {code: name for name, code in TYPE_CODES.items()}


class BlobFile:
    """A weight file: bytes, or a path that is memory-mapped. ``name`` is what errors call it."""

    def __init__(self, source: bytes | bytearray | memoryview | str | Path, name: str = "weights") -> None:
        self.name = name
        self._data = bytes_of(source, name).data
        if len(self._data) < HEADER.size:
            raise FormatError(f"{len(self._data)} bytes are no weight file", where=name, hint="the header alone has 64")
        _, version = HEADER.unpack_from(self._data, 0)
        if version != VERSION:
            raise FormatError(f"weight file version {version}", offset=4, where=name, hint="only version 2 is read")

    def __len__(self) -> int:
        return len(self._data)

    def record(self, offset: int) -> tuple[int, int, int, int]:
        """Type code, payload size in bytes, payload position and padding bits of the record at ``offset``."""
        if not 0 <= offset <= len(self._data) - RECORD.size:
            raise FormatError(
                f"no record fits there, the file has {len(self._data)} bytes", offset=offset, where=self.name
            )
        sentinel, code, size, position, padding = RECORD.unpack_from(self._data, offset)
        if sentinel != SENTINEL:
            raise FormatError(
                f"no metadata record there (0x{sentinel:08x} stands where 0xdeadbeef should)",
                offset=offset,
                where=self.name,
                hint="the offset of the first record is 64",
            )
        if position > len(self._data) or size > len(self._data) - position:
            raise FormatError(
                f"{size} bytes at {position:#x} lie outside the file of {len(self._data)} bytes",
                offset=offset,
                where=self.name,
            )
        return code, size, position, padding

    def check(self, offset: int, type_: TensorType) -> None:
        """FormatError when the record cannot hold a tensor of this type.

        A wrong type code with the right size is let pass: writers put code 1 (fp16) before int8 bytes
        (docs/reference/mil.md 3.3).
        """
        if type_.dtype not in TYPE_CODES:
            raise UnsupportedError(
                f"{type_.dtype} is no type of weight files", where=f"{self.name} at byte {offset:#x}"
            )
        code, size, _, _ = self.record(offset)
        if code not in _NAMES:
            raise FormatError(f"type code {code} is unknown", offset=offset, where=self.name)
        if size != type_.nbytes:
            raise FormatError(
                f"the record holds {size} bytes of {_NAMES[code]}, {type_} takes {type_.nbytes}",
                offset=offset,
                where=self.name,
            )

    def read(self, offset: int, type_: TensorType) -> np.ndarray:
        """The tensor whose record lies at ``offset``, in its carrier dtype; a view of the file where that can be."""
        self.check(offset, type_)
        _, size, position, _ = self.record(offset)
        raw = np.frombuffer(self._data, np.uint8, size, position)
        return decode(raw, type_)


def decode(raw: np.ndarray, type_: TensorType) -> np.ndarray:
    """Little-endian bytes as a tensor in its carrier dtype; sub-byte elements lie low bits first."""
    dtype = DTYPES[type_.dtype]
    if dtype.bits < 8:
        bits = np.unpackbits(raw, bitorder="little")[: type_.count * dtype.bits].reshape(type_.count, dtype.bits)
        values = (bits * (1 << np.arange(dtype.bits)).astype(np.uint8)).sum(axis=1, dtype=np.uint8)
        if dtype.kind == "i":
            values = (values ^ (1 << (dtype.bits - 1))).astype(np.int8) - np.int8(1 << (dtype.bits - 1))
        return values.astype(dtype.carrier).reshape(type_.shape)
    if type_.dtype == "bf16":
        return bf16_values(raw.view("<u2")).reshape(type_.shape)
    if type_.dtype in ("fp8e4m3fn", "fp8e5m2"):
        return _fp8_values(type_.dtype)[raw].reshape(type_.shape)
    return raw.view(dtype.carrier.newbyteorder("<")).astype(dtype.carrier, copy=False).reshape(type_.shape)


def encode(array: np.ndarray, dtype_name: str) -> bytes:
    """The inverse of ``decode``; values of types that NumPy lacks are rounded to nearest, ties to even."""
    dtype = DTYPES[dtype_name]
    array = np.ascontiguousarray(array)
    if dtype.bits < 8:
        unsigned = array.reshape(-1).astype(np.int64).astype(np.uint8) & np.uint8((1 << dtype.bits) - 1)
        bits = (unsigned[:, None] >> np.arange(dtype.bits, dtype=np.uint8)) & 1
        return np.packbits(bits.reshape(-1).astype(np.uint8), bitorder="little").tobytes()
    if dtype_name == "bf16":
        return (in_bf16(array).view(np.uint32) >> np.uint32(16)).astype("<u2").tobytes()
    if dtype_name in ("fp8e4m3fn", "fp8e5m2"):
        return _fp8_encode(array.astype(np.float32).reshape(-1), dtype_name).tobytes()
    return array.astype(dtype.carrier.newbyteorder("<"), copy=False).tobytes()


@lru_cache(maxsize=2)
def _fp8_values(name: str) -> np.ndarray:
    codes = np.arange(256, dtype=np.uint16)
    if name == "fp8e5m2":
        return (codes << 8).astype(np.uint16).view(np.float16).astype(np.float32)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    size = np.where(
        exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent.astype(np.float64) - 7)
    )
    size = np.where((codes & 0x7F) == 0x7F, np.nan, size)
    return np.where(codes & 0x80, -size, size).astype(np.float32)


def _fp8_encode(values: np.ndarray, name: str) -> np.ndarray:
    table = _fp8_values(name)[:128]
    finite = table[np.isfinite(table)]
    size = np.minimum(np.abs(np.nan_to_num(values)), finite[-1])
    high = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
    low = high - 1
    below, above = size - finite[low], finite[high] - size
    code = np.where((above < below) | ((above == below) & (high % 2 == 0)), high, low)
    code = np.where(np.isnan(values), 0x7F, code).astype(np.uint8)
    return code | (np.signbit(values).astype(np.uint8) << 7)


class BlobWriter:
    """Collects blobs for one file; ``add`` returns the record's offset, ``to_bytes`` or ``write`` makes the file.

    The same ``key`` (say, the identity of shared constant data) is stored once.
    """

    def __init__(self) -> None:
        self._blobs: list[tuple[Callable[[], np.ndarray], str, int, int]] = []
        self._known: dict[Any, int] = {}
        self._end = HEADER.size

    def __len__(self) -> int:
        return len(self._blobs)

    def add(
        self, data: np.ndarray | Callable[[], np.ndarray], type_: TensorType, key: Any = None, at: int | None = None
    ) -> int:
        """Reserve a place for a tensor (an array, or a function that gives it when the file is written).

        ``at``: the offset of its record, behind what is there; FormatError for one that is not free.
        """
        if type_.dtype not in TYPE_CODES:
            raise UnsupportedError(f"{type_.dtype} is no type of weight files")
        if key is not None and key in self._known:
            return self._known[key]
        offset = self._end if at is None else at
        if offset < self._end or offset % ALIGNMENT:
            raise FormatError(f"no record can stand there, the first free place is {self._end}", offset=offset)
        self._end = _aligned(offset + RECORD.size + type_.nbytes)
        load = data if callable(data) else lambda: data
        self._blobs.append((load, type_.dtype, type_.nbytes, offset))
        if key is not None:
            self._known[key] = offset
        return offset

    def parts(self) -> Any:
        """The file in pieces, one blob at a time."""
        yield HEADER.pack(len(self._blobs), VERSION)
        position = HEADER.size
        for load, dtype, size, offset in self._blobs:
            yield bytes(offset - position)
            bits = DTYPES[dtype].bits
            array = load()
            payload = encode(array, dtype)
            padding = len(payload) * 8 - array.size * bits if bits < 8 else 0
            if len(payload) != size:
                raise FormatError(f"a blob of {size} bytes came out with {len(payload)}")
            yield RECORD.pack(SENTINEL, TYPE_CODES[dtype], size, offset + RECORD.size, padding)
            yield payload
            end = offset + RECORD.size + size
            position = _aligned(end)
            yield bytes(position - end)

    def to_bytes(self) -> bytes:
        """The whole file."""
        return b"".join(self.parts())


def _aligned(position: int) -> int:
    return align(position, ALIGNMENT)
