"""The staging folder ``$TMPDIR/<identifier>/``: the compiler reads these files, not the objects that it was given."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from hexane.errors import HexaneError
from hexane.runtime.macos.border import BorderError

TEXT = "model.mil"
PREFIX = "@model_path/"
_USERS: Counter[Path] = Counter()
_LOCK = threading.Lock()
_IDENTIFIER = re.compile(r"[0-9A-Za-z_-]{8,256}\Z")


def staging_root() -> Path:
    """Where the class looks: the temporary folder of this user."""
    return Path(tempfile.gettempdir())


def stage(root: Path, identifier: str, text: bytes, weights: Mapping[str, bytes]) -> Path:
    """Write the program into its folder, in place of what an earlier process left there; the folder.

    Raises BorderError for an identifier that is no name of a folder, HexaneError for weight paths that lead outside and
    for a disk that takes no files.
    """
    if not _IDENTIFIER.match(identifier):
        raise BorderError(f"the model has the identifier {identifier[:80]!r}, which names no folder")
    folder = root / identifier
    files = {inside(path): data for path, data in weights.items()}
    with _LOCK:
        _USERS[folder] += 1
        if _USERS[folder] > 1:  # another model of this process has the same program there
            return folder
        shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        (folder / TEXT).write_bytes(text)
        for path, data in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    except OSError as error:
        unstage(folder)
        raise HexaneError(
            f"the program cannot be staged: {error.strerror or error}",
            where=str(folder),
            hint="the compiler reads it from there: free room in the temporary folder ($TMPDIR)",
        ) from None
    return folder


def inside(path: str) -> str:
    """The path of a weight file below the folder."""
    relative = path.removeprefix(PREFIX)
    parts = relative.split("/")
    if not path.startswith(PREFIX) or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise HexaneError(f"the weight path {path!r} leads outside of the program", hint=f"write {PREFIX}weights/w.bin")
    return relative


def unstage(folder: Path) -> None:
    """Remove the folder and what the compiler added to it, when no other model of this process uses it."""
    with _LOCK:
        _USERS[folder] -= 1
        if _USERS[folder] <= 0:
            del _USERS[folder]
            shutil.rmtree(folder, ignore_errors=True)
