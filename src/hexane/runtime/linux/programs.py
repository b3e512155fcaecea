"""Engine programs in the buffers of an open driver: loaded once, run as often as needed."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.image import Image, Surface, to_anec
from hexane.image.anec_parts import TEXT_ALIGNMENT, TILE_BYTES, AnecPackage
from hexane.image.surface import in_place
from hexane.isa.channels import CHANNELS, FIRST_SURFACE
from hexane.rounding import align
from hexane.runtime.linux import uapi
from hexane.runtime.linux.border import DriverBorder
from hexane.runtime.linux.device import DriverDevice, MappedMemory
from hexane.runtime.linux.sections import SectionPort, digest, ports_of, sections_of

DTYPES = {"float16": np.dtype(np.float16), "uint8": np.dtype(np.uint8), "int8": np.dtype(np.int8)}
Arrays = Mapping[str, np.ndarray]


class LoadedProgram:
    """A program behind a driver, with an open file and buffers of its own that stay between calls."""

    device: DriverDevice
    buffers: dict[str, tuple[Surface, MappedMemory]]
    """Surface's name -> the surface and the buffer that it lies in."""
    seconds: float
    """What the last call of the driver took, without the copies before and behind it."""

    def __init__(self, device: DriverDevice) -> None:
        self.device = device
        self.buffers = {}
        self.seconds = 0.0
        self._lock = threading.Lock()

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Outputs by surface name, copied out. ``inputs``: name -> array in the surface's shape and dtype.

        Raises UsageError for inputs that do not fit, DeviceError where the driver or the engine refuses.
        """
        arrays = {s.label: _checked(inputs, s) for s, _ in self.buffers.values() if s.role == "input"}
        with self._lock:  # one set of buffers: calls of several threads take turns
            for label, array in arrays.items():
                _view(*self.buffers[label])[...] = array
            start = time.perf_counter()
            self.call()
            self.seconds = time.perf_counter() - start
            return {label: _copied(s, memory) for label, (s, memory) in self.buffers.items() if s.role == "output"}

    def call(self) -> None:
        """One run on what lies in the buffers."""
        raise NotImplementedError

    def close(self) -> None:
        """Free the buffers and close the file."""
        self.device.close()


class LinkedProgram(LoadedProgram):
    """ABI 1: a chain of tasks in a buffer; every call hands over the channel table."""

    def __init__(self, device: DriverDevice, image: Image) -> None:
        super().__init__(device)
        package = to_anec(image).parts
        assert isinstance(package, AnecPackage)
        self.header = header = package.header
        tiles = {i: header.tiles[i] * TILE_BYTES for i in range(CHANNELS) if header.tiles[i]}
        ordered = sorted(image.surfaces, key=lambda s: (s.role == "input", s.channel or 0))
        place = {s.label: i for i, s in enumerate(ordered, FIRST_SURFACE)}
        same = {place[output]: place[state] for output, state in in_place(ordered).items()}
        self.channels = {i: device.allocate(size) for i, size in tiles.items() if i not in same}
        self.channels |= {i: self.channels[j] for i, j in same.items()}
        self.first = device.allocate(max(header.td_size, 1))
        _put(self.channels[0], 0, package.text)
        _put(self.channels[0], align(len(package.text), TEXT_ALIGNMENT), package.const)
        _put(self.first, 0, package.text[: header.td_size])
        self.buffers = {s.label: (s, self.channels[place[s.label]]) for s in ordered}

    def call(self) -> None:
        """SUBMIT returns when the engine is done."""
        self.device.submit(
            text_bytes=self.header.tsk_size,
            tasks=self.header.td_count,
            first_bytes=self.header.td_size,
            channels=self.channels,
            first=self.first,
        )


@dataclass
class _Bound:
    port: SectionPort
    memory: MappedMemory

    @property
    def row(self) -> tuple[int, int, MappedMemory, int]:
        return self.port.buffer_id, self.port.kind, self.memory, self.port.size


class Sectioned(LoadedProgram):
    """ABI 2: sections that the firmware keeps until the next boot; every call brings its buffers.

    ``reused`` says whether the driver had the program already. Every buffer has a spare page: the engine touches
    memory just past a surface (docs/reference/devices.md 5).
    """

    def __init__(self, device: DriverDevice, image: Image) -> None:
        super().__init__(device)
        same = in_place(image.surfaces)
        ports = tuple(port for port in ports_of(image) if port.label not in same)
        sections = sections_of(image, ports)
        if len(ports) > uapi.MOST_BINDS:
            raise UnsupportedError(f"{len(ports)} buffers; a call has room for {uapi.MOST_BINDS}")
        handle = device.lookup(digest(sections))
        self.reused = handle is not None
        self.bound = [_Bound(port, device.allocate(port.size + uapi.SPARE_BYTES)) for port in ports]
        if handle is None:
            handle = device.load(self._parts(sections), [bound.row for bound in self.bound])
        self.program = handle
        self.process = device.process(handle)
        surfaces = {s.label: s for s in image.surfaces}
        self.buffers = {
            bound.port.label: (surfaces[bound.port.label], bound.memory)
            for bound in self.bound
            if not bound.port.scratch
        }
        self.buffers |= {output: (surfaces[output], self.buffers[state][1]) for output, state in same.items()}

    def _parts(self, sections: Mapping[int, bytes]) -> dict[int, tuple[MappedMemory, int]]:
        parts = {}
        for number, content in sections.items():
            memory = self.device.allocate(len(content) + uapi.SPARE_BYTES)
            _put(memory, 0, content)
            parts[number] = (memory, len(content))
        return parts

    def call(self) -> None:
        """EXEC returns when the firmware says that the engine is done, and its writes have settled."""
        self.device.execute(self.program, self.process, [bound.row for bound in self.bound])


def load(image: Image, path: str, border: DriverBorder | None = None) -> LoadedProgram:
    """A program on the driver behind a device file; nothing stays behind where it is refused.

    Raises DeviceError where the driver refuses, UnsupportedError for a program of another generation than the engine's
    or with elements that no surface of the drivers has.
    """
    for surface in image.surfaces:
        if surface.dtype not in DTYPES:
            raise UnsupportedError(f"surface {surface.label!r} has {surface.dtype} elements", hint=", ".join(DTYPES))
    device = DriverDevice(path, border)
    try:
        driver = device.driver
        if image.generation != driver.generation:
            chip = "M1" if driver.abi == 1 else "M2 Max"
            raise UnsupportedError(
                f"the program is for {image.generation}, the engine behind {path} is {driver.generation} ({driver})",
                hint=f"compile it for this chip: --chip '{chip}'",
            )
        program = LinkedProgram(device, image) if driver.abi == 1 else Sectioned(device, image)
        weakref.finalize(program, _close_quietly, device)  # the first driver gives nothing back by itself
        return program
    except BaseException:
        _close_quietly(device)
        raise


def _close_quietly(device: DriverDevice) -> None:
    """Give everything back; what went wrong before is what the user has to see."""
    with contextlib.suppress(HexaneError):
        device.close()


def _put(buffer: MappedMemory, offset: int, data: bytes) -> None:
    buffer.bytes[offset : offset + len(data)] = data


def _view(surface: Surface, buffer: MappedMemory) -> np.ndarray:
    dtype: Any = DTYPES[surface.dtype]
    return np.ndarray(surface.shape, dtype, buffer.bytes, 0, surface.strides)


def _copied(surface: Surface, buffer: MappedMemory) -> np.ndarray:
    """A surface's elements in memory of the caller's.

    The bytes come over in one piece: the first driver maps buffers write-combined, where single elements are read a
    hundred times slower (docs/reference/devices.md 4.2).
    """
    raw = bytearray(buffer.bytes[: surface.nbytes])
    dtype: Any = DTYPES[surface.dtype]
    return np.ascontiguousarray(np.ndarray(surface.shape, dtype, raw, 0, surface.strides))


def _checked(inputs: Arrays, surface: Surface) -> np.ndarray:
    if surface.label not in inputs:
        raise UsageError(f"input {surface.label!r} is missing")
    array = np.asarray(inputs[surface.label])
    if array.shape != surface.shape or array.dtype != DTYPES[surface.dtype]:
        raise UsageError(
            f"input {surface.label!r} is {array.dtype} {array.shape}", hint=f"it is {surface.dtype} {surface.shape}"
        )
    return array
