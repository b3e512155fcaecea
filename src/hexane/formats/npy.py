"""Arrays of ``.npy`` and ``.npz`` files: the header first, its size against what is wanted, and only then the data."""

from __future__ import annotations

import struct
import tokenize
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hexane.errors import FormatError
from hexane.files import archive, plain_errors
from hexane.formats.quiet import first_line

READ = "read are .npy, .npz, .txt, .csv, .wav and pictures"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    # The third differs only in field names that are no ASCII; such arrays are no inputs.
    (3, 0): np.lib.format.read_array_header_2_0,
}
_DAMAGE = (
    ValueError, EOFError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError, TypeError, OverflowError,
    LookupError, AttributeError, UnicodeError, struct.error,
)  # fmt: skip

Fit = Callable[[tuple[int, ...], np.dtype], None]
"""Raises a HexaneError for a shape and a dtype that are not wanted."""


def most_bytes(limit: int, where: str) -> Fit:
    """Any plain numbers of at most so many bytes."""

    def fit(shape: tuple[int, ...], dtype: np.dtype) -> None:
        if dtype.kind not in "biuf" or prod(shape) * dtype.itemsize > limit:
            raise FormatError(f"states {dtype} {shape}, which it does not hold", where=where)

    return fit


def read_array(path: Path) -> np.ndarray:
    """The array of an .npy file, of any shape that its bytes fill."""
    with plain_errors(path, "cannot be read"), path.open("rb") as file:
        return array_of(file, most_bytes(path.stat().st_size, f"{path}"), f"{path}", "no .npy file")


def read_arrays(path: Path, fit: Callable[[str], Fit]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name; ``fit`` gives for a name what the array has to be."""
    arrays = {}
    with archive(path, "is no .npz file") as file:
        for member in file.namelist():
            name = member.removesuffix(".npy")
            with file.open(member) as part:
                arrays[name] = array_of(part, fit(name), f"{path}: {member}", "no array")  # type: ignore[arg-type]
    return arrays


def stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of an .npz file's arrays by name, or that of an .npy file under ""; only headers are read."""
    if path.suffix.lower() == ".npy":
        with plain_errors(path, "cannot be read"), path.open("rb") as file:
            return {"": _header(file, f"{path}", "no .npy file")[0]}
    shapes = {}
    with archive(path, "is no .npz file") as packed:
        for member in packed.namelist():
            with packed.open(member) as part:
                where = f"{path}: {member}"
                shapes[member.removesuffix(".npy")] = _header(part, where, "no array")[0]  # type: ignore[arg-type]
    return shapes


def array_of(file: BinaryIO, fit: Fit, where: str, what: str) -> np.ndarray:
    """The array at the place of an open file, in this machine's byte order; FormatError for damage."""
    shape, fortran, dtype = _header(file, where, what)
    fit(shape, dtype)
    size = prod(shape) * dtype.itemsize
    data = file.read(size)
    if len(data) < size:
        raise FormatError(f"has {len(data)} bytes of data where its header says {size}", where=where)
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _header(file: BinaryIO, where: str, what: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether columns come first, and dtype, of an array of plain numbers or text."""
    try:
        start = file.read(6)
        if start[:4] == b"PK\x03\x04":
            raise FormatError(f"is {what} but an archive", where=where, hint="name it .npz")
        if start != b"\x93NUMPY":
            raise FormatError(f"is {what}: it does not begin as one", where=where, hint=READ)
        version = file.read(2)
        read = _HEADERS[tuple(version)]  # type: ignore[index]
        shape, fortran, dtype = read(file)
    except _DAMAGE as error:
        raise FormatError(f"is {what}: {first_line(error)}", where=where) from None
    if dtype.hasobject or any(not isinstance(n, int) or n < 0 for n in shape):
        raise FormatError(f"holds {dtype} {shape}, no plain numbers", where=where)
    return shape, fortran, dtype
