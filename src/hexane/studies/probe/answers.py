"""The file of answers: what was asked of which device, and every bit of what it gave. JSON, schema hexane-probe/1."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import FormatError
from hexane.files import write_whole
from hexane.studies.probe.runner import entry_of

SCHEMA = "hexane-probe/1"
LARGEST = 64 << 20
DTYPES = ("float16", "float32", "uint8", "int8", "bool", "int32")
MOST_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class ProbeAnswer:
    """Answer of a device to a question: outputs by name, or why there are none; the fastest call in seconds."""

    question: str
    digest: str
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Answers:
    """A file: the device and chip that were asked, and the answers. Holds no name, address or serial number."""

    device: str
    chip: str
    version: str
    system: str = ""
    answers: tuple[ProbeAnswer, ...] = ()

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        entries = [
            {**asdict(answer), "outputs": {name: entry_of(array) for name, array in answer.outputs.items()}}
            for answer in self.answers
        ]
        data = {"schema": SCHEMA, **{k: v for k, v in asdict(self).items() if k != "answers"}, "answers": entries}
        write_whole(path, (json.dumps(data, indent=1) + "\n").encode())


def load(path: Path) -> Answers:
    """FormatError for a file that is none."""
    where = str(path)
    try:
        if path.stat().st_size > LARGEST:
            raise FormatError("is too large for a file of answers", where=where, hint=f"the limit is {LARGEST} bytes")
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise FormatError(
            "is no JSON", where=where, hint="hexane probe --device D -o FILE writes such a file"
        ) from None
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", where=where) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise FormatError("is no file of answers", where=where, hint="hexane probe --device D -o FILE writes one")
    try:
        answers = tuple(_answer(entry) for entry in data["answers"])
        texts = {key: _text(data[key]) for key in ("device", "chip", "version", "system")}
        return Answers(**texts, answers=answers)
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error, zlib.error) as error:
        raise FormatError(f"is damaged ({type(error).__name__}: {str(error)[:120]})", where=where) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _answer(entry: Any) -> ProbeAnswer:
    outputs = {_text(name): _array(array) for name, array in entry["outputs"].items()}
    seconds = entry.get("seconds")
    return ProbeAnswer(
        _text(entry["question"]),
        _text(entry["digest"]),
        outputs,
        float(seconds) if isinstance(seconds, (int, float)) else None,
        _text(entry.get("error", "")),
    )


def _array(entry: Any) -> np.ndarray:
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"dtype {entry['dtype']!r}")
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    if any(type(extent) is not int for extent in shape):
        raise ValueError("an extent that is no whole number")
    count = 1
    for extent in shape:
        count *= extent
    if not 0 <= count <= MOST_ELEMENTS or min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    size = count * dtype.itemsize
    raw = zlib.decompressobj().decompress(base64.b64decode(entry["data"], validate=True), size + 1)
    if len(raw) != size:
        raise ValueError(f"{len(raw)} bytes of data, {size} expected")
    return np.frombuffer(raw, dtype).reshape(shape)
