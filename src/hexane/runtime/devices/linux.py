"""Engine programs on the Linux driver: the calls of one inference (spec/devices §4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.image import to_anec
from hexane.image.anec_parts import TEXT_ALIGNMENT, TILE_BYTES, AnecPackage
from hexane.isa.channels import CHANNELS, FIRST_SURFACE
from hexane.program.run import Device, no_flavour
from hexane.runtime import drm
from hexane.runtime.machine import Machine
from hexane.runtime.record import DeviceRecord

if TYPE_CHECKING:
    from hexane.image import Image, Surface
    from hexane.program import Segment
    from hexane.program.run import Values

DTYPES = {"float16": np.dtype(np.float16), "uint8": np.dtype(np.uint8), "int8": np.dtype(np.int8)}


RUNS = "engine programs behind the open Linux driver: H13 (M1 family)"


class LinuxEngine(Device):
    """An engine behind the open driver. ``border`` answers the calls; None asks the kernel."""

    name = "linux"
    chip = "M1"

    def __init__(self, path: str, border: drm.Border | None = None, title: str = "linux") -> None:
        self.path = path
        self.border = border
        self._title = title

    @property
    def title(self) -> str:
        """``linux``, or which virtual device answers."""
        return self._title

    def load(self, segment: Segment) -> LoadedSegment:
        """The segment's program in buffers of the engine. DeviceError where the driver refuses."""
        assert segment.image is not None
        return LoadedSegment(segment, LoadedImage(segment.image, self.path, self.border))


class LoadedSegment:
    """An engine segment behind the driver."""

    def __init__(self, segment: Segment, image: LoadedImage) -> None:
        self.segment = segment
        self.image = image

    def run(self, values: Values) -> dict[str, np.ndarray]:
        """Outputs by name, as the graph declares them."""
        return self.segment.declared(self.image.run(self.segment.surfaces(values)))

    def close(self) -> None:
        """Free the buffers."""
        self.image.close()


class LoadedImage:
    """A program in the engine's buffers, with an open file of its own.

    Raises DeviceError where the driver refuses, UnsupportedError for a program of another generation.
    """

    def __init__(self, image: Image, path: str, border: drm.Border | None = None) -> None:
        package = to_anec(image).parts
        if not isinstance(package, AnecPackage):
            raise UnsupportedError("the program is no package for the Linux driver")
        self.header = header = package.header
        self.surfaces = sorted(image.surfaces, key=lambda s: (s.role == "input", s.channel or 0))
        self.device = drm.Device(path, border)
        try:
            tiles = {i: header.tiles[i] * TILE_BYTES for i in range(CHANNELS) if header.tiles[i]}
            self.channels = {i: self.device.allocate(size) for i, size in tiles.items()}
            self.first = self.device.allocate(max(header.td_size, 1))
            _put(self.channels[0], 0, package.text)
            _put(self.channels[0], -(-len(package.text) // TEXT_ALIGNMENT) * TEXT_ALIGNMENT, package.const)
            _put(self.first, 0, package.text[: header.td_size])
        except BaseException:
            self.device.close()
            raise

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by surface name. ``inputs``: name -> array in the surface's shape and dtype."""
        for channel, surface in enumerate(self.surfaces, FIRST_SURFACE):
            if surface.role == "input":
                _view(self.channels[channel], surface)[...] = _checked(inputs, surface)
        self.device.submit(
            text_bytes=self.header.tsk_size,
            tasks=self.header.td_count,
            first_bytes=self.header.td_size,
            channels=self.channels,
            first=self.first,
        )
        return {
            surface.label: _view(self.channels[channel], surface).copy()
            for channel, surface in enumerate(self.surfaces, FIRST_SURFACE)
            if surface.role == "output"
        }

    def close(self) -> None:
        """Free the buffers and close the file."""
        self.device.close()


def _put(buffer: drm.Memory, offset: int, data: bytes) -> None:
    buffer.bytes[offset : offset + len(data)] = data


def _view(buffer: drm.Memory, surface: Surface) -> np.ndarray:
    dtype: Any = DTYPES[surface.dtype]
    return np.ndarray(surface.shape, dtype, buffer.bytes, 0, surface.strides)


def _checked(inputs: Mapping[str, np.ndarray], surface: Surface) -> np.ndarray:
    if surface.label not in inputs:
        raise UsageError(f"input {surface.label!r} is missing")
    array = np.asarray(inputs[surface.label])
    if array.shape != surface.shape or array.dtype != DTYPES[surface.dtype]:
        raise UsageError(
            f"input {surface.label!r} is {array.dtype} {array.shape}", hint=f"it is {surface.dtype} {surface.shape}"
        )
    return array


def engine_path(machine: Machine) -> str | None:
    """The device file of an engine that this user may use."""
    if machine.system != "Linux":
        return None
    from hexane.runtime.probe_linux import accel_path, probe

    usable, _, _ = probe(machine)
    return accel_path(machine) if usable else None


def describe(machine: Machine) -> DeviceRecord:
    """Available where a driver has an engine that this user may open."""
    return DeviceRecord("linux", RUNS, generations=("h13",), reason=_reason(machine))


def _reason(machine: Machine) -> str:
    if machine.system != "Linux":
        return f"this machine runs {machine.system}"
    from hexane.runtime.probe_linux import probe

    usable, _, rows = probe(machine)
    if usable:
        return ""
    _, _, answer, remedy = rows[-1]
    return f"{answer}; {remedy}" if remedy else answer


def open_device(flavour: str) -> Device:
    """The first engine of this machine that may be used."""
    no_flavour(flavour)
    path = engine_path(Machine())
    if path is None:
        raise UnsupportedError("no engine that may be used", hint="`hexane doctor` says what is missing")
    return LinuxEngine(path)
