"""Arrays from files: the header first, its size against what the input needs, and only then the data.

``.npy`` and ``.npz`` (NumPy), ``.txt`` and ``.csv`` (numbers between spaces, commas or lines), ``.wav`` (sound).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from hexane.errors import FormatError, UsageError
from hexane.files import plain_errors
from hexane.formats.npy import Fit, array_of, read_arrays
from hexane.graph.types import kinds_of

if TYPE_CHECKING:
    from hexane.program import Port

TEXTS = (".txt", ".csv")
SOUNDS = (".wav", ".wave")
TEXT_BYTES = 64
"""Bytes of a text file per number, at most: 17 digits, sign, exponent, and generous space."""


def described(port: Port) -> str:
    """Shape and dtype of an input, as a user reads it."""
    return f"{'x'.join(map(str, port.shape)) or 'a scalar'} {port.dtype}"


def require_fit(shape: tuple[int, ...], dtype: np.dtype, port: Port) -> None:
    """UsageError for an array of another shape (axes of size 1 may be missing) or of no numbers."""
    where, hint = f"input {port.name!r}", f"it is {described(port)}"
    if dtype.kind not in kinds_of(port.dtype):
        raise UsageError(f"an array of dtype {dtype}", where=where, hint=hint)
    if tuple(n for n in shape if n != 1) != tuple(n for n in port.shape if n != 1):
        raise UsageError(f"an array of shape {shape}", where=where, hint=hint)


def npy(path: Path, port: Port) -> np.ndarray:
    """The array of an .npy file for an input."""
    with plain_errors(path, "cannot be read"), path.open("rb") as file:
        return array_of(file, _fit(port), f"{path}", "no .npy file")


def _fit(port: Port) -> Fit:
    return lambda shape, dtype: require_fit(shape, dtype, port)


def npz(path: Path, ports_by_name: dict[str, Port]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by input; a "/" in an input's name may be "_" in the file."""
    renamed = {name.replace("/", "_"): name for name in ports_by_name}

    def named(member: str) -> str:
        name = member if member in ports_by_name else renamed.get(member)
        if name is None:
            raise UsageError(
                f"there is no input {member!r}", where=str(path), hint=f"the inputs are {', '.join(ports_by_name)}"
            )
        return name

    arrays = read_arrays(path, lambda member: _fit(ports_by_name[named(member)]))
    return {named(member): array for member, array in arrays.items()}


def text(path: Path, port: Port) -> np.ndarray:
    """The numbers of a text file, in the order of the input's elements; "#" begins a remark."""
    count = prod(port.shape)
    with plain_errors(path, "cannot be read"), path.open("rb") as file:
        content = file.read(TEXT_BYTES * count + (1 << 16) + 1)
    if len(content) > TEXT_BYTES * count + (1 << 16):
        raise UsageError(f"has more text than {count} numbers take", where=str(path), hint=f"it is {described(port)}")
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise FormatError("is no text", offset=error.start, where=str(path)) from None
    numbers: list[float] = []
    for number, line in enumerate(lines, 1):
        for word in line.partition("#")[0].replace(",", " ").replace(";", " ").split():
            try:
                numbers.append(float(word))
            except ValueError:
                raise FormatError(f"line {number}: {word[:40]!r} is no number", where=str(path)) from None
    if len(numbers) != count:
        raise UsageError(f"holds {len(numbers)} numbers", where=str(path), hint=f"the input is {described(port)}")
    values = np.array(numbers, np.float64)
    if not port.dtype.startswith(("fp", "bf")):
        if not np.array_equal(values, np.round(values)):
            raise UsageError("holds fractions", where=str(path), hint=f"the input is {described(port)}")
        return values.astype(bool if port.dtype == "bool" else np.int64).reshape(port.shape)
    return values.astype(np.float32).reshape(port.shape)


@dataclass(frozen=True)
class _Sound:
    channels: int
    rate: int
    samples: np.ndarray
    """(frames, channels), -1 to 1."""


def sound(path: Path, port: Port) -> tuple[np.ndarray, str]:
    """A .wav file as an input, samples from -1 to 1, and what was done to it.

    The input's longest axis is time. An axis of the file's number of channels takes the channels, else they are
    averaged into one. A longer sound is cut, a shorter one is followed by silence; the rate stays as it is.
    """
    shape = port.shape
    long = [axis for axis, extent in enumerate(shape) if extent != 1]
    if not port.dtype.startswith(("fp", "bf")) or not 1 <= len(long) <= 2:
        raise UsageError(f"input {port.name!r} takes no sound", hint=f"it is {described(port)}; give an .npy file")
    with plain_errors(path, "cannot be read"), path.open("rb") as file:
        waveform = _wave(file, max(shape), str(path))
    time = max(long, key=lambda axis: shape[axis])
    across = [axis for axis in long if axis != time]
    mixed = ""
    samples = waveform.samples
    if across and shape[across[0]] != waveform.channels:
        raise UsageError(
            f"a sound of {waveform.channels} channel(s)", where=f"input {port.name!r}", hint=f"it is {described(port)}"
        )
    if not across and waveform.channels > 1:
        samples, mixed = samples.mean(axis=1, keepdims=True), f", {waveform.channels} channels averaged"
    frames, length = len(samples), shape[time]
    fitted = np.zeros((length, samples.shape[1]), np.float32)
    fitted[: min(frames, length)] = samples[:length]
    change = "" if frames == length else ", cut" if frames > length else f", then {length - frames} of silence"
    values = fitted if not across or time < across[0] else fitted.T
    note = f"{port.name}: {path.name} at {waveform.rate} Hz, {min(frames, length)} samples from -1 to 1{mixed}{change}"
    return np.ascontiguousarray(values).reshape(shape), note


def _wave(file: BinaryIO, most: int, where: str) -> _Sound:
    """The first ``most`` frames, and one more where there are more."""

    def damaged(reason: str) -> FormatError:
        return FormatError(f"is no .wav file: {reason}", where=where)

    head = file.read(12)
    if len(head) < 12 or head[:4] != b"RIFF" or head[8:] != b"WAVE":
        raise damaged("it does not begin as one")
    form: Any = None
    while len(chunk := file.read(8)) == 8:
        name, size = chunk[:4], struct.unpack("<I", chunk[4:])[0]
        if name == b"fmt ":
            if not 16 <= size <= 4096 or len(body := file.read(size + size % 2)) < size:
                raise damaged("its format is cut off")
            form = struct.unpack("<HHIIHH", body[:16])
            if form[0] == 0xFFFE and size >= 26:
                form = (struct.unpack("<H", body[24:26])[0], *form[1:])
        elif name == b"data":
            if form is None:
                raise damaged("its data come before their format")
            return _samples(file, form, size, most, damaged)
        else:
            file.seek(size + size % 2, 1)
    raise damaged("it has no data")


def _samples(file: BinaryIO, form: Any, size: int, most: int, damaged: Any) -> _Sound:
    kind, channels, rate, _, frame, bits = form
    width = bits // 8
    if (kind, bits) not in {(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)}:
        raise damaged(f"samples of kind {kind} with {bits} bits; PCM of 8 to 32 bits or floats are read")
    if not channels or frame != channels * width:
        raise damaged(f"{channels} channels of {bits} bits are no {frame} bytes")
    data = file.read(min(size, (most + 1) * frame))
    data = data[: len(data) // frame * frame]
    if kind == 3:
        values: np.ndarray = np.frombuffer(data, f"<f{width}").astype(np.float32)
    elif width == 1:
        values = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    else:
        wide = np.zeros((len(data) // width, 4), np.uint8)
        wide[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width)
        values = (wide.view("<i4").ravel() / np.float64(1 << 31)).astype(np.float32)
    return _Sound(channels, rate, values.reshape(-1, channels))
