"""Open engine programs of every container that hexane knows."""

from __future__ import annotations

import os
from pathlib import Path

from hexane.errors import FormatError, UsageError
from hexane.files import read_bytes
from hexane.image.anec import is_anec, read_anec
from hexane.image.hwx import is_hwx, read_hwx
from hexane.image.image import Image

CHECKED_GENERATIONS = ("h13", "h14")
"""Generations whose streams are known so well that one that does not decode is broken."""


OF_NETWORKS = "hexane opens engine programs here; networks are for hexane run, hexane check and hexane.load"


def open_image(source: str | os.PathLike[str] | bytes | bytearray | memoryview, *, lenient: bool = False) -> Image:
    """An engine program from a path or from bytes, ``.hwx`` or ``.anec``; the content decides which it is.

    Parameters
    ----------
    lenient : open a program even if its task list does not hold together; asking for its tasks then raises the error.

    Raises
    ------
    FormatError : with byte offset and reason, where the bytes are no such program.
    UsageError : where the file cannot be read.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _image(bytes(source), lenient)
    if not isinstance(source, str | os.PathLike):
        raise UsageError(f"an engine program is opened from a path or from bytes, not from {type(source).__name__}")
    path = Path(source)
    if os.path.isdir(path):  # False where no file can have such a name
        raise FormatError("is a folder, no engine program", where=str(path), hint=OF_NETWORKS)
    data = read_bytes(path)
    try:
        return _image(data, lenient, str(path))
    except FormatError as error:
        raise _in_file(error, path) from None


def _image(data: bytes, lenient: bool, origin: str | None = None) -> Image:
    if is_hwx(data):
        image = Image(read_hwx(data), data, origin)
    elif is_anec(data):
        image = Image(read_anec(data), data, origin)
    else:
        raise FormatError(
            f"neither an .hwx nor an .anec file; it begins with {data[:8].hex() or 'nothing'}",
            offset=0,
            hint=OF_NETWORKS,
        )
    contents = image.contents  # what the parts say must make sense before anyone relies on it
    if not lenient and contents.text and contents.generation in CHECKED_GENERATIONS:
        _ = image.tasks
    return image


def _in_file(error: FormatError, path: Path) -> FormatError:
    return FormatError(error.message, offset=error.offset, where=str(path), hint=error.hint)
