"""Files that are there whole or not at all, and errors of the file system in one line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import UsageError
from hexane.files import whole_file, write_whole


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


def write_bytes(path: Path, data: bytes) -> None:
    """A file, whole or not at all."""
    write_whole(path, data)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays as .npz, whole or not at all; names that a zip cannot hold are written with underscores."""
    arrays_by_key: dict[str, Any] = {key.replace("/", "_"): value for key, value in arrays.items()}
    with whole_file(path) as file:
        np.savez(file, **arrays_by_key)
