"""Weight files of a network: handed over by name, or inside the network's folder; mapped, not copied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import FormatError


def file_name(path: str) -> str:
    """The last part of a path that a network names, whichever system wrote it."""
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def source_under(files: Mapping[str, Any], *names: str) -> Any:
    """Bytes or path that the caller gave under the first of these names that it knows; None where it knows none."""
    return next((files[name] for name in names if name in files), None)


def path_inside(folder: Path, path: str) -> Path | None:
    """The path within the folder; None for one that leaves it."""
    root = folder.resolve()
    target = (root / path).resolve()
    return target if target.is_relative_to(root) else None


def bytes_of(source: bytes | bytearray | memoryview | str | Path, where: str) -> np.ndarray:
    """The bytes as they are, or a file's; `FormatError` for a file that cannot be read."""
    if not isinstance(source, (str, Path)):
        view = memoryview(source)
        return np.frombuffer(view if view.c_contiguous else view.tobytes(), np.uint8)
    try:
        empty = Path(source).stat().st_size == 0  # which no map can be of
        return np.zeros(0, np.uint8) if empty else np.memmap(source, np.uint8, "r").view(np.ndarray)
    except (OSError, ValueError) as error:
        raise FormatError(f"the weight file {Path(source).name!r} cannot be read: {error}", where=where) from None
