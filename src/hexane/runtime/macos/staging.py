"""The staging folder ``$TMPDIR/<identifier>/``: the compiler reads these files, not the objects that it was given."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hexane.errors import HexaneError
from hexane.runtime.macos.border import BorderError

try:
    import fcntl
except ImportError:  # Windows: processes share no folder there
    fcntl = None  # type: ignore[assignment]

TEXT = "model.mil"
PREFIX = "@model_path/"
_IDENTIFIER = re.compile(r"[0-9A-Za-z_-]{8,256}\Z")
_TRIES = 1000
"""How often a folder may vanish while it is opened."""


@dataclass
class _Use:
    """State of a folder in this process: models that use it, and the open lock file (-1: no locks here)."""

    models: int
    lock: int


_USES: dict[Path, _Use] = {}
_LOCK = threading.Lock()


def _forget() -> None:
    """A child of a fork uses no folder; its parent's locks stay the parent's."""
    global _LOCK
    for use in _USES.values():
        if use.lock >= 0:
            os.close(use.lock)
    _USES.clear()
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def staging_root() -> Path:
    """Folder in which the class looks: the temporary folder of this user."""
    return Path(tempfile.gettempdir())


def stage(root: Path, identifier: str, text: bytes, weights: Mapping[str, bytes]) -> Path:
    """Write the program into its folder, in place of what an ended process left there; the folder.

    The files are whole when this returns, whoever else stages the same program: threads wait for one another, and
    processes hold a lock on a file beside the folder while they use it, alone while they write.

    Raises BorderError for an identifier that is no name of a folder, HexaneError for weight paths that lead outside and
    for a disk that takes no files.
    """
    if not _IDENTIFIER.match(identifier):
        raise BorderError(f"the model has the identifier {identifier[:80]!r}, which names no folder")
    folder = root / identifier
    files = {TEXT: text} | {inside(path): data for path, data in weights.items()}
    with _LOCK:
        if folder in _USES:
            _USES[folder].models += 1
            return folder
        try:
            root.mkdir(parents=True, exist_ok=True)
            lock = _shared(folder, files)
        except OSError as error:
            raise HexaneError(
                f"the program cannot be staged: {error.strerror or error}",
                where=str(folder),
                hint="the compiler reads it from there: free room in the temporary folder ($TMPDIR)",
            ) from None
        _USES[folder] = _Use(1, lock)
    return folder


def _shared(folder: Path, files: Mapping[str, bytes]) -> int:
    """The folder with its files, and the open lock file with a shared lock (-1 where there are no locks)."""
    if fcntl is None:
        _write(folder, files)
        return -1
    for _ in range(_TRIES):
        lock = os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _alone(lock):
                if _is_current(folder, lock):
                    _write(folder, files)
                    # A lock changes its kind in two steps. Who comes between them writes the same files.
                    fcntl.flock(lock, fcntl.LOCK_SH)
            else:
                fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_current(folder, lock) and not folder.is_symlink() and (folder / TEXT).exists():
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # its last user took it away meanwhile
    raise FileNotFoundError(errno.ENOENT, "another process uses it, and somebody has removed its files")


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()  # a link in its place is refused
    try:
        for path, data in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _alone(lock: int) -> bool:
    """True where no other process has the lock; then this one has it alone."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(folder: Path, lock: int) -> bool:
    """True where the open lock file still has its name."""
    try:
        return os.path.samestat(os.stat(_lock_file(folder)), os.fstat(lock))
    except FileNotFoundError:
        return False


def inside(path: str) -> str:
    """The path of a weight file below the folder."""
    relative = path.removeprefix(PREFIX)
    parts = relative.split("/")
    if not path.startswith(PREFIX) or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise HexaneError(f"the weight path {path!r} leads outside of the program", hint=f"write {PREFIX}weights/w.bin")
    return relative


def unstage(folder: Path) -> None:
    """Remove the folder and what the compiler added to it, when no other model of any process uses it."""
    with _LOCK:
        use = _USES.get(folder)
        if use is None:  # staged before a fork, by the parent
            return
        use.models -= 1
        if use.models:
            return
        del _USES[folder]
        if use.lock < 0:
            shutil.rmtree(folder, ignore_errors=True)
            return
        try:
            if _alone(use.lock) and _is_current(folder, use.lock):
                shutil.rmtree(folder, ignore_errors=True)
                _lock_file(folder).unlink(missing_ok=True)
        finally:
            os.close(use.lock)
