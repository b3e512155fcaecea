"""Dictionaries of a plist with checked look-ups, and raw weight files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.files import is_file
from hexane.formats.weight_files import bytes_of, file_name, source_under
from hexane.graph.constants import Constant
from hexane.graph.types import TensorType

MAX_EXTENT = 1 << 24

DTYPES = {"Float16": "fp16", "Float32": "fp32", "UInt8": "uint8", "Int8": "int8"}
_FILE_DTYPES = {"Float16": "<f2", "Float32": "<f4", "UInt8": "u1", "Int8": "i1"}


class Fields:
    """One dictionary; every look-up names the place, and ``done`` refuses what nobody looked up."""

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, Mapping):
            raise FormatError(f"a dictionary is needed, not {type(content).__name__}", where=where)
        self.content = content
        self.where = where
        self._seen: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.content

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """A value of a type; ``default`` when absent, FormatError when absent without a default or of another type."""
        self._seen.add(key)
        if key not in self.content:
            if default is None:
                raise FormatError(f"{key} is missing", where=self.where)
            return default
        value = self.content[key]
        if isinstance(value, bool) != (kind is bool) or not isinstance(value, kind):
            raise FormatError(f"{key} is {value!r:.40}, not of type {kind.__name__}", where=self.where)
        return value

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number from ``least`` on, of a size that an extent can have."""
        value = self.get(key, int, default)
        if not least <= value <= MAX_EXTENT:
            raise FormatError(f"{key} is {value}", where=self.where, hint=f"{least} to {MAX_EXTENT} are possible")
        return value

    def names(self, key: str) -> list[str]:
        """A list of names, or a single one."""
        self._seen.add(key)
        value = self.content.get(key)
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise FormatError(f"{key} is no name and no list of names", where=self.where)
        return items

    def inner(self, key: str) -> Fields:
        """A dictionary inside; an empty one when absent."""
        self._seen.add(key)
        return Fields(self.content.get(key, {}), f"{self.where}, {key}")

    def half(self, key: str, default: float) -> float:
        """A float16 whose bits are written as a whole number (15360 is 1.0)."""
        if key not in self:
            return default
        bits = self.get(key, int)
        if not 0 <= bits <= 0xFFFF:
            raise FormatError(f"{key} is {bits}, not the bits of a float16", where=self.where)
        return float(np.uint16(bits).view(np.float16))

    def ignore(self, *keys: str) -> Fields:
        """Mark keys that change nothing of what the network computes."""
        self._seen.update(keys)
        return self

    def done(self) -> None:
        """UnsupportedError for a key that nobody looked up: to pass over it could give a wrong answer."""
        unread = [key for key in self.content if key not in self._seen]
        if unread:
            raise UnsupportedError(f"{unread[0]} = {self.content[unread[0]]!r:.60} is not read", where=self.where)


class NetplistWeights:
    """The files of a network's Weights array.

    A file is looked up in ``files`` (by its path as written, then by its name; one without a name is the only weight
    file of a network that has one), relative to the plist's folder, then by its name beside the plist. One that is
    missing is an error when its data are looked at, not before.
    """

    def __init__(self, paths: list[str], files: Mapping[str, Any] | None, folder: Path | None) -> None:
        self.paths = paths
        self._given = dict(files or {})
        self._folder = folder
        self._open: dict[int, np.ndarray | None] = {}

    def constant(self, index: int, offset: int, kind: str, shape: tuple[int, ...], where: str) -> Constant:
        """``shape`` numbers of the kind ("Float16" ...) from byte ``offset`` on, as fp16 values."""
        if kind not in _FILE_DTYPES:
            raise UnsupportedError(f"weights of type {kind!r} are not read", where=where)
        if not 0 <= index < len(self.paths):
            raise FormatError(f"weight file {index} of {len(self.paths)}", where=where)
        if offset < 0:
            raise FormatError(f"the offset {offset} into a weight file is negative", where=where)
        type_ = TensorType("fp16", shape)
        dtype = np.dtype(_FILE_DTYPES[kind])
        path, size = self.paths[index], type_.count * dtype.itemsize
        data = self._data(index)
        if data is None:
            return Constant(type_, load=lambda: _missing(path, size, where))
        if offset > data.size or size > data.size - offset:
            raise FormatError(
                f"{size} bytes at {offset:#x} lie outside {path!r}, which has {data.size} bytes", where=where
            )
        raw = data[offset : offset + size]

        def read() -> np.ndarray:
            with np.errstate(over="ignore"):
                return np.frombuffer(raw.tobytes(), dtype).astype(np.float16).reshape(shape)

        return Constant(type_, load=read)

    def _data(self, index: int) -> np.ndarray | None:
        if index not in self._open:
            self._open[index] = self._find(self.paths[index])
        return self._open[index]

    def _find(self, path: str) -> np.ndarray | None:
        name = file_name(path)
        source = source_under(self._given, path, name, *([""] if len(self.paths) == 1 else []))
        if source is not None:
            return bytes_of(source, path)
        if self._folder is None or not name or "\0" in path:
            return None
        candidates = [] if path.startswith(("/", "\\")) else [self._folder / path]
        for candidate in (*candidates, self._folder / name):
            if is_file(candidate):
                return bytes_of(candidate, path)
        return None


def _missing(path: str, size: int, where: str) -> np.ndarray:
    raise UsageError(
        f"the weight file {path!r} is missing",
        where=where,
        hint=f"--weights FILE, in Python weights={{path: bytes or a file}}; {size} bytes of it are needed",
    )
