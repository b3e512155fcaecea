"""Files of a Core ML model: ``.mlpackage`` folders and ``.mlmodel`` files (docs/reference/mil.md 4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hexane.errors import FormatError
from hexane.files import is_file
from hexane.formats.blob import BlobFile
from hexane.formats.mil.reader import TextWeights
from hexane.formats.weight_files import path_inside

MODEL_LIMIT = 1 << 31
"""Largest protobuf that is read: what protobuf itself can hold."""
MANIFEST_LIMIT = 1 << 20


def model_file(path: Path) -> Path:
    """The protobuf of a package (through its manifest), or the ``.mlmodel`` file itself."""
    if not path.exists():
        raise FormatError("there is no such file or folder", where=str(path))
    if path.is_file():
        return path
    manifest = _manifest(path)
    root = manifest.get("rootModelIdentifier")
    entries = manifest.get("itemInfoEntries")
    if not isinstance(entries, dict) or not isinstance(root, str) or not isinstance(entries.get(root), dict):
        raise FormatError("the manifest names no root model", where=str(path / "Manifest.json"))
    relative = entries[root].get("path")
    if not isinstance(relative, str) or not relative:
        raise FormatError("the manifest's root model has no path", where=str(path / "Manifest.json"))
    return inside(path / "Data", relative, str(path))


def _manifest(path: Path) -> dict[str, Any]:
    file = path / "Manifest.json"
    try:
        if file.stat().st_size > MANIFEST_LIMIT:
            raise FormatError(f"a manifest of {file.stat().st_size} bytes", where=str(file))
        manifest = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise FormatError(f"has no readable Manifest.json ({error.strerror})", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"is no JSON ({error})", where=str(file)) from error
    if not isinstance(manifest, dict):
        raise FormatError("is no JSON object", where=str(file))
    return manifest


def inside(folder: Path, relative: str, where: str) -> Path:
    """A file below ``folder``; FormatError for one that is missing or that ``..`` or a link leads elsewhere."""
    if "\0" in relative:
        raise FormatError(f"{relative!r} is no path", where=where)
    target = path_inside(folder, relative)
    if target is None:
        raise FormatError(f"the path {relative!r} leaves the package", where=where)
    if not is_file(target):
        raise FormatError(f"the package has no file {relative!r}", where=where)
    return target


class WeightFiles(TextWeights):
    """The weight files of a package: as those of a text, but one that is not there is an error.

    ``mutable``: files whose constants get their values when the program is loaded (``hexane.formats.mutable``).
    """

    mutable: tuple[str, ...] = ()
    hint = "weights={name: bytes or a path}"

    def file(self, path: str) -> BlobFile | None:
        """The weight file; None for a mutable one that nobody gave, FormatError for another."""
        file = super().file(path)
        if file is None and path not in self.mutable:
            raise FormatError("the package has no such weight file", where=path, hint=self.hint)
        return file


def read_bytes(path: Path) -> bytes:
    """A protobuf file whole, within the limit."""
    try:
        if path.stat().st_size > MODEL_LIMIT:
            raise FormatError(
                f"a protobuf of {path.stat().st_size} bytes", where=str(path), hint=f"the limit is {MODEL_LIMIT}"
            )
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"cannot be read ({error.strerror})", where=str(path)) from error
    if data[:4] == b"PK\x03\x04":
        raise FormatError("is a zip archive", where=str(path), hint="unpack it first")
    return data
