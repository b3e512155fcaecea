"""Finished pieces, each in a file of its own under its key: written whole or not at all."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from hexane.files import make_folder, write_whole
from hexane.studies.pieces.piece import Result


class Store:
    """A folder of finished pieces; None keeps them in memory.

    Several runs may share a folder: what two of them write under one key is the same.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._memory: dict[str, Result] = {}
        if folder is not None:
            make_folder(folder)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key}.npz"

    def get(self, key: str) -> Result | None:
        """The result of a finished piece. A damaged file is one that is not there."""
        if self.folder is None:
            return self._memory.get(key)
        try:
            with np.load(self._path(key), allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError):
            return None

    def put(self, key: str, result: Result) -> None:
        """Keep a result."""
        if self.folder is None:
            self._memory[key] = result
            return
        path, out = self._path(key), io.BytesIO()
        np.savez(out, **result)  # type: ignore[arg-type]
        make_folder(path.parent)
        write_whole(path, out.getvalue())
