"""Safetensors: a length of 8 bytes, a JSON header, raw little-endian data; one file, or several with an index.

The format is published (github.com/huggingface/safetensors, "Format"). A file is mapped, not read: an array costs
memory when it is looked at. Every number of a header is checked against the file before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hexane.bits import bf16_values
from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.files import is_file, read_text, write_whole

MOST_HEADER_BYTES = 100_000_000
"""What the format allows."""
MOST_AXES = 16
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
          "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}  # fmt: skip
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class StoredTensor:
    """Place of a tensor: its file, dtype by the format's name, shape, first byte and size in bytes."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    def read(self) -> np.ndarray:
        """The values, mapped; bfloat16 as float32, which holds all of its numbers."""
        if not self.nbytes:
            return np.zeros(self.shape, np.float32 if self.dtype == "BF16" else DTYPES[self.dtype])
        try:
            raw: np.ndarray = np.memmap(self.path, DTYPES[self.dtype], "r", self.offset, self.shape or (1,))
        except (OSError, ValueError) as error:  # the file went away, or shrank
            raise UsageError(f"cannot read the file ({error})", where=str(self.path)) from None
        raw = raw.reshape(self.shape)
        return bf16_values(raw) if self.dtype == "BF16" else raw


class Tensors(Mapping[str, StoredTensor]):
    """Name -> tensor of one file or of all files of an index."""

    def __init__(self, tensors: Mapping[str, StoredTensor], where: str) -> None:
        self._tensors = dict(tensors)
        self.where = where

    def __getitem__(self, name: str) -> StoredTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """A tensor of floating point; FormatError where there is none of that name and shape."""
        tensor = self._tensors.get(name)
        if tensor is None:
            raise FormatError(f"there is no tensor {name!r}", where=self.where)
        if tensor.shape != shape:
            raise FormatError(f"{name!r} has shape {tensor.shape}, not {shape}", where=str(tensor.path))
        if tensor.dtype not in ("F64", "F32", "F16", "BF16"):
            raise UnsupportedError(
                f"{name!r} is stored as {tensor.dtype}", hint="give the weights in bf16, fp16 or fp32"
            )
        return tensor.read()


def read_safetensors(path: Path) -> Tensors:
    """The tensors of a file, of an index (``.json``), or of the folder that holds either.

    UsageError where there is no such file, FormatError for a damaged one.
    """
    if path.is_dir():
        path = next((path / name for name in (INDEX, SINGLE) if is_file(path / name)), path / SINGLE)
    if path.suffix == ".json":
        return Tensors(_indexed(path), str(path))
    return Tensors(_header(path), str(path))


def json_object(text: str, where: str) -> dict[str, Any]:
    """A JSON object without names that repeat; FormatError for anything else."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            raise ValueError("a name stands there twice")
        return value

    try:
        value = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON ({str(error)[:200] or 'nested too deeply'})", where=where) from None
    if not isinstance(value, dict):
        raise FormatError("not a JSON object", where=where)
    return value


def _indexed(path: Path) -> dict[str, StoredTensor]:
    files = json_object(read_text(path), str(path)).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise FormatError("no weight_map of names to files", where=str(path))
    headers: dict[str, dict[str, StoredTensor]] = {}
    for name in sorted(set(files.values())):
        if Path(name).name != name or name in ("", ".", ".."):
            raise FormatError(f"the index names a file outside its folder: {name!r}", where=str(path))
        headers[name] = _header(path.parent / name)
    for name, file in files.items():
        if name not in headers[file]:
            raise FormatError(f"{file} has no tensor {name!r}", where=str(path))
    return {name: headers[file][name] for name, file in files.items()}


def _header(path: Path) -> dict[str, StoredTensor]:
    where = str(path)
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
                raise FormatError(f"a header of {length} bytes in a file of {size}", where=where)
            text = file.read(length)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read the file ({reason})", where=where) from None
    try:
        entries = json_object(text.decode("utf-8"), where)
    except UnicodeDecodeError:
        raise FormatError("the header is not UTF-8 text", where=where) from None
    entries.pop("__metadata__", None)
    start = 8 + length
    return {name: _tensor(path, name, entry, start, size - start) for name, entry in entries.items()}


def _tensor(path: Path, name: str, entry: Any, start: int, room: int) -> StoredTensor:
    fields = entry if isinstance(entry, dict) else {}
    dtype, axes, bounds = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    shape, ends = _counts(axes, range(MOST_AXES + 1)), _counts(bounds, (2,))
    if shape is None or ends is None or not isinstance(dtype, str):
        raise FormatError(f"{name!r} has no dtype, shape and data_offsets", where=str(path))
    if dtype not in DTYPES:
        raise UnsupportedError(f"{name!r} is of dtype {dtype}", where=str(path), hint=f"known are {', '.join(DTYPES)}")
    begin, end = ends
    if not begin <= end <= room or prod(shape) * np.dtype(DTYPES[dtype]).itemsize != end - begin:
        where = f"bytes {begin} to {end} of {room}"
        raise FormatError(f"{name!r} of {dtype} {shape} does not fit {where}", where=str(path))
    return StoredTensor(path, dtype, tuple(shape), start + begin, end - begin)


def _counts(numbers: Any, lengths: Container[int]) -> list[int] | None:
    """A list of counts, as many as allowed; None for anything else."""
    whole = isinstance(numbers, list) and all(type(number) is int and 0 <= number < 2**63 for number in numbers)
    return numbers if whole and len(numbers) in lengths else None


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays, whole or not at all; the same arrays give the same bytes. UsageError for a dtype there is not."""
    names = {np.dtype(text): name for name, text in DTYPES.items() if name != "BF16"}
    header: dict[str, Any] = {}
    at, pieces = 0, []
    for name, array in sorted(arrays.items()):
        dtype = np.asarray(array).dtype.newbyteorder("<")
        if dtype not in names:
            raise UsageError(f"safetensors has no dtype {dtype}", where=name)
        pieces.append(np.asarray(array).astype(dtype, order="C").tobytes())
        end = at + len(pieces[-1])
        header[name] = {"dtype": names[dtype], "shape": list(np.shape(array)), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write_whole(path, [len(text).to_bytes(8, "little"), text, *pieces])
