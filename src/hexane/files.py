"""Files: read with errors in one line, written under their name whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hexane.errors import FormatError, HexaneError, SyntaxProblem, UsageError

if TYPE_CHECKING:
    import numpy as np


LARGEST_JSON = 1 << 30


def is_file(path: Path) -> bool:
    """True where there is such a file; a name that no file can have (too long, a NUL in it) is none."""
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


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; `SyntaxProblem` with line and column for what is no TOML."""
    import tomllib

    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        raise SyntaxProblem(str(error), line=line, column=column, name=str(path)) from None


def read_json(path: Path, what: str = "an answer", form: str = "JSON", hint: str | None = None) -> Any:
    """The value in a JSON file; `FormatError` for one that is too large for ``what``, or that is no ``form``."""
    import json

    with plain_errors(path, "cannot be read"):
        if path.stat().st_size > LARGEST_JSON:
            raise FormatError(f"is too large for {what}", where=str(path))
        try:
            return json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise FormatError(f"is no {form}: {error}", where=str(path), hint=hint) from None


@contextmanager
def plain_errors(path: Path | str, what: str = "cannot be written") -> Iterator[None]:
    """OSError as UsageError with the path and, for a full disk, what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, HexaneError):
            raise
        raise UsageError(f"{what}: {error.strerror or error}", where=str(path), hint=_way_out(error)) from None


def _way_out(error: OSError) -> str | None:
    hints = {
        28: "free some space or choose another folder", 122: "free some space or choose another folder",
        27: "choose a folder without such a limit", 13: "choose a folder that you may write to",
    }  # fmt: skip
    return hints.get(error.errno or 0)


@contextmanager
def as_of(path: Path, place: Path) -> Iterator[None]:
    """Errors about what lies in ``place``, a folder that is to become ``path``, as errors about that."""
    try:
        yield
    except UsageError as error:
        if error.where is None or not Path(error.where).is_relative_to(place):
            raise
        where = path / Path(error.where).relative_to(place)
        raise UsageError(error.message, where=str(where), hint=error.hint) from None


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
    with plain_errors(name):
        if target.exists() and not (target.is_file() or target.is_dir()):
            with open(target, "wb") as file:
                yield file
        else:
            yield from _replacing(target)


def _replacing(target: Path) -> Iterator[BinaryIO]:
    _sweep(target.parent)
    handle, temporary = tempfile.mkstemp(prefix=_prefix(target, "new", os.getpid()), dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def write_whole(path: str | os.PathLike[str], data: bytes | Iterable[bytes]) -> None:
    """Write bytes, or pieces of them one behind the other, as `whole_file` does."""
    with whole_file(path) as file:
        for piece in (data,) if isinstance(data, bytes) else data:
            file.write(piece)


def write_with_weights(
    path: Path, text: bytes, weight_file: Path, weights: bytes | Iterable[bytes] | None, before: set[Path]
) -> None:
    """A text and the weight file that it names (None: no weights), so that the text never stands beside weights of
    another one: weights go first, under a name that no other weights have, the text follows, files that it named
    ``before`` go last. A weight file that is new goes again where the text cannot be written.
    """
    is_new_folder, is_new = not weight_file.parent.exists(), not weight_file.exists()
    try:
        if weights is not None:
            make_folder(weight_file.parent)
            write_whole(weight_file, weights)
        write_whole(path, text)
    except BaseException:
        if weights is not None and is_new:
            with suppress(OSError):
                weight_file.unlink(missing_ok=True)
                if is_new_folder:
                    weight_file.parent.rmdir()
        raise
    for old in before - {weight_file}:
        with suppress(OSError):
            old.unlink()


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays as .npz, whole or not at all; names that a zip cannot hold are written with underscores."""
    import numpy as np

    arrays_by_key: dict[str, Any] = {key.replace("/", "_"): value for key, value in arrays.items()}
    with whole_file(path) as file:
        np.savez(file, **arrays_by_key)


def make_folder(folder: Path) -> None:
    """Make a folder, and those that it stands in; UsageError where that cannot be."""
    with plain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def require_writable(path: Path) -> None:
    """Refuse, before the work begins, a path whose folder does not exist or may not be written."""
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", where=str(path), hint="make it first")
    if path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        reason = "is a folder" if path.is_dir() else f"the folder {folder} may not be written"
        raise UsageError(reason, where=str(path), hint="choose another path")


def require_makeable(target: Path) -> None:
    """Refuse, before the work begins, a folder that cannot be made: its nearest existing parent may not be written."""
    parent = target.absolute()
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if parent != target.absolute() and (not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK)):
        reason = f"{parent} is no folder" if not parent.is_dir() else f"the folder {parent} may not be written"
        raise UsageError(reason, where=str(target), hint="choose another path")


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def folder_beside(target: Path, role: str) -> Path:
    """A new folder, from which `take_back` knows after a crash whose it was."""
    return Path(tempfile.mkdtemp(prefix=_prefix(target, role, os.getpid()), dir=target.parent))


def replace_folder(target: Path, new_folder: Path) -> Path:
    """Put ``new_folder`` in place of the folder ``target``; where the old one is now.

    Exchanged in one step where the system can do that, else the old one goes aside first: killed between the two
    renamings, a process leaves it there, and `take_back` puts it back.
    """
    if _exchange(target, new_folder):
        return new_folder
    aside = folder_beside(target, "old")
    os.replace(target, aside)
    try:
        os.replace(new_folder, target)
    except BaseException:
        os.replace(aside, target)
        raise
    return aside


_AT_CWD, _RENAME_EXCHANGE, _RENAME_SWAP = -100, 2, 2


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step (renameat2 of Linux, renamex_np of macOS); False where that cannot be done."""
    import ctypes

    names = os.fsencode(one), os.fsencode(other)
    with suppress(AttributeError, OSError, TypeError, ValueError):
        library = ctypes.CDLL(None, use_errno=True)
        if hasattr(library, "renameat2"):
            return library.renameat2(_AT_CWD, names[0], _AT_CWD, names[1], _RENAME_EXCHANGE) == 0
        return library.renamex_np(*names, _RENAME_SWAP) == 0
    return False


def _prefix(target: Path, role: str, process: int | str) -> str:
    return f".{target.name[:64]}.{role}-{process}-"


def take_back(target: Path) -> None:
    """Remove what killed processes left beside a folder; an old one whose place is empty gets it back."""
    for role in ("old", "new"):
        start = _prefix(target, role, "")[:-1]
        for entry in sorted(target.parent.iterdir()):
            if not entry.name.startswith(start) or entry.is_symlink() or not entry.is_dir():
                continue
            process = entry.name[len(start) :].partition("-")[0]
            if not process.isdigit() or _lives(int(process)):
                continue
            if role == "old" and not target.exists():
                os.replace(entry, target)
            else:
                shutil.rmtree(entry, ignore_errors=True)


def _lives(process: int) -> bool:
    if os.name == "nt":
        return True  # asking would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


_LEFT = re.compile(r"\..+\.new-(\d+)-[^-]+")
LONG_AGO = 3600.0
"""Seconds after which a half-written file of a process that is gone is nobody's: not even another machine's."""


@cache
def _sweep(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder; once in a process."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _LEFT.fullmatch(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False) or _lives(int(match[1])):
                continue
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > LONG_AGO:
                os.unlink(entry.path)
