"""Open and save engine programs of every container that hexane knows."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hexane.errors import FormatError, UsageError
from hexane.formats.anec import is_anec, read_anec
from hexane.formats.hwx import is_hwx, read_hwx
from hexane.image import Image


def open_image(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Image:
    """An engine program from a path or from bytes, ``.hwx`` or ``.anec``; the content decides which it is.

    Raises
    ------
    FormatError : with byte offset and reason, where the bytes are no such program.
    UsageError : where the file cannot be read.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _image(bytes(source))
    path = Path(source)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the file ({error.strerror})", where=str(path)) from None
    try:
        return _image(data)
    except FormatError as error:
        raise _in_file(error, path) from None


def read_text(path: Path) -> str:
    """A text file as UTF-8; `UsageError` where it cannot be read, `FormatError` where it is no text."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the file ({error.strerror})", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise FormatError("not UTF-8 text", offset=error.start, where=str(path)) from None


def save_image(image: Image, path: Path) -> None:
    """Write a program, ``.anec`` as a package and any other name as a container; whole or not at all."""
    from hexane.formats.anec import to_anec
    from hexane.formats.hwx import to_hwx

    write_whole(path, (to_anec if path.suffix.lower() == ".anec" else to_hwx)(image).rebuild())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file through a temporary one beside it, so that it is there whole or not at all."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise UsageError(f"cannot write the file ({error.strerror})", where=str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except OSError as error:
        os.unlink(name)
        raise UsageError(f"cannot write the file ({error.strerror})", where=str(path)) from None
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _image(data: bytes) -> Image:
    if is_hwx(data):
        image = Image(read_hwx(data), data)
    elif is_anec(data):
        image = Image(read_anec(data), data)
    else:
        raise FormatError(
            f"neither an .hwx nor an .anec file; it begins with {data[:8].hex() or 'nothing'}",
            offset=0,
            hint="hexane opens engine programs here; networks are for hexane.load",
        )
    image.contents  # noqa: B018 - what the parts say must make sense before anyone relies on it
    return image


def _in_file(error: FormatError, path: Path) -> FormatError:
    return FormatError(error.message, offset=error.offset, where=str(path), hint=error.hint)
