"""Engine programs on the Linux driver: the calls of one inference (spec/devices §4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.image import to_anec
from hexane.image.anec_parts import FIRST_SURFACE, TEXT_ALIGNMENT, TILE_BYTES, AnecPackage
from hexane.runtime.drm import CHANNELS, Border, Device, Memory

if TYPE_CHECKING:
    from hexane.image import Image, Surface

DTYPES = {"float16": np.dtype(np.float16), "uint8": np.dtype(np.uint8), "int8": np.dtype(np.int8)}


def run_image(
    image: Image, inputs: Mapping[str, np.ndarray], path: str, border: Border | None = None
) -> dict[str, np.ndarray]:
    """Outputs by surface name. ``inputs``: name -> array in the surface's shape and dtype.

    Raises DeviceError where the driver refuses, UnsupportedError for a program of another generation.
    """
    package = to_anec(image).parts
    if not isinstance(package, AnecPackage):
        raise UnsupportedError("the program is no package for the Linux driver")
    header = package.header
    surfaces = sorted(image.surfaces, key=lambda s: (s.role == "input", s.channel or 0))
    with Device(path, border) as device:
        channels = {i: device.allocate(header.tiles[i] * TILE_BYTES) for i in range(CHANNELS) if header.tiles[i]}
        first = device.allocate(max(header.td_size, 1))
        const_at = -(-len(package.text) // TEXT_ALIGNMENT) * TEXT_ALIGNMENT
        _put(channels[0], 0, package.text)
        _put(channels[0], const_at, package.const)
        _put(first, 0, package.text[: header.td_size])
        for channel, surface in enumerate(surfaces, FIRST_SURFACE):
            if surface.role == "input":
                _view(channels[channel], surface)[...] = _checked(inputs, surface)
        device.submit(
            text_bytes=header.tsk_size,
            tasks=header.td_count,
            first_bytes=header.td_size,
            channels=channels,
            first=first,
        )
        return {
            surface.label: _view(channels[channel], surface).copy()
            for channel, surface in enumerate(surfaces, FIRST_SURFACE)
            if surface.role == "output"
        }


def _put(buffer: Memory, offset: int, data: bytes) -> None:
    buffer.bytes[offset : offset + len(data)] = data


def _view(buffer: Memory, surface: Surface) -> np.ndarray:
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
