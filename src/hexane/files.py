"""Files: read with errors in one line, written under their name whole or not at all."""

from __future__ import annotations

import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from hexane.errors import FormatError, HexaneError, UsageError


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have (too long, a NUL in it) is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_bytes(path: Path) -> bytes:
    """A file's bytes; `UsageError` where it cannot be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read the file ({reason})", where=str(path)) from None


def read_text(path: Path) -> str:
    """A text file as UTF-8; `UsageError` where it cannot be read, `FormatError` where it is no text."""
    try:
        return read_bytes(path).decode("utf-8-sig")  # some editors put a mark in front
    except UnicodeDecodeError as error:
        raise FormatError("not UTF-8 text", offset=error.start, where=str(path)) from None


@contextmanager
def archive_errors(what: str, where: str) -> Iterator[None]:
    """Everything that the standard library raises of a damaged zip archive, as `FormatError`."""
    try:
        yield
    except HexaneError:
        raise
    except RecursionError:
        raise FormatError(f"{what}: it is nested too deeply", where=where) from None
    except (
        zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, struct.error, UnicodeError, LookupError,
        ValueError, TypeError, AttributeError, ArithmeticError, NotImplementedError, RuntimeError, MemoryError,
    ) as error:  # fmt: skip
        # NotImplementedError: a compression that zipfile lacks; RuntimeError: a password.
        raise FormatError(f"{what} ({error or type(error).__name__})", where=where) from None


@contextmanager
def archive(path: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """A zip archive to read.

    Raises `UsageError` where the file cannot be read, `FormatError` (``what``) where it is damaged.
    """
    with ExitStack() as open_files:
        try:
            file = open_files.enter_context(open(path, "rb"))
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"cannot read the file ({reason})", where=str(path)) from None
        with archive_errors(what, str(path)):
            try:
                yield open_files.enter_context(zipfile.ZipFile(file))
            except OSError as error:
                if isinstance(error, HexaneError):
                    raise
                raise FormatError(f"{what} ({error.strerror or error})", where=str(path)) from None


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write; its name shows it when the block ends without an error, and not before.

    A link is followed, an existing file keeps its permissions. What is no plain file (a device, a pipe) cannot be
    replaced and is written directly.

    Raises `UsageError` where the file cannot be written.
    """
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise UsageError(f"a file's name is text or a path, not {type(path).__name__}") from None
    if not name or "\0" in name:
        raise UsageError(f"{name!r} is no name for a file")
    target = Path(os.path.realpath(name))
    try:
        if target.exists() and not (target.is_file() or target.is_dir()):
            with open(target, "wb") as file:
                yield file
        else:
            yield from _replacing(target)
    except OSError as error:
        raise UsageError(f"cannot write the file ({error.strerror or error})", where=name) from None


def _replacing(target: Path) -> Iterator[BinaryIO]:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def write_whole(path: str | os.PathLike[str], data: bytes | Iterable[bytes]) -> None:
    """Write bytes, or pieces of them one behind the other, as `whole_file` does."""
    with whole_file(path) as file:
        for piece in (data,) if isinstance(data, bytes) else data:
            file.write(piece)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
