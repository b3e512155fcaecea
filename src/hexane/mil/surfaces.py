"""Surfaces: the memory behind inputs and outputs, one-dimensional, data packed from byte 0.

In strict use a model makes its surfaces itself, binds them by name and checks every array; a surface that the caller
makes has to be large enough for its tensor and for the minimum that some systems ask for (restriction S3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.errors import UsageError
from hexane.graph.types import TensorType
from hexane.restrictions.shapes import LEAST_SURFACE_BYTES

OWN_SIZE, UNIFORM = "own_size", "uniform_largest"


class Surface:
    """``nbytes`` of memory, zero at first; width = bytes, height 1, as programs for the real runtime allocate them."""

    def __init__(self, nbytes: int) -> None:
        if nbytes < 1:
            raise UsageError(f"a surface of {nbytes} bytes")
        self.data = np.zeros(nbytes, np.uint8)

    @property
    def nbytes(self) -> int:
        """Its size, which is also its allocation."""
        return int(self.data.size)

    def write(self, array: np.ndarray) -> None:
        """Put an array's elements, packed row by row, at byte 0."""
        raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        if raw.size > self.nbytes:
            raise UsageError(f"{raw.size} bytes do not fit a surface of {self.nbytes}")
        self.data[: raw.size] = raw

    def read(self, type_: TensorType) -> np.ndarray:
        """The packed elements of a tensor of this type, from byte 0; a copy."""
        size = type_.count * type_.carrier.itemsize
        if size > self.nbytes:
            raise UsageError(f"{type_} takes {size} bytes, the surface has {self.nbytes}")
        return self.data[:size].view(type_.carrier).reshape(type_.shape).copy()


@dataclass(frozen=True)
class Ports:
    """Inputs and outputs by name, as declared and listed."""

    inputs: dict[str, TensorType]
    outputs: dict[str, TensorType]

    def sizes(self, side: dict[str, TensorType], surfaces: str) -> dict[str, int]:
        """Bytes of the surface of each port of a side."""
        own = {name: type_.count * type_.carrier.itemsize for name, type_ in side.items()}
        largest = max(own.values(), default=0)
        return {name: largest if surfaces == UNIFORM else size for name, size in own.items()}


def checked(ports: Ports, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The inputs as packed arrays. UsageError for a name, shape, dtype or layout that does not fit."""
    if not isinstance(inputs, Mapping):
        raise UsageError(f"inputs are a mapping of names to arrays, not {type(inputs).__name__}")
    unknown = sorted(set(inputs) - set(ports.inputs))
    if unknown:
        raise UsageError(f"there is no input {unknown[0]!r}", hint=f"the inputs are {', '.join(ports.inputs)}")
    values = {}
    for name, type_ in ports.inputs.items():
        if name not in inputs:
            raise UsageError(f"input {name!r} is missing", hint=f"the inputs are {', '.join(ports.inputs)}")
        values[name] = _checked_input(name, type_, inputs[name])
    return values


def _checked_input(name: str, type_: TensorType, content: Any) -> np.ndarray:
    if isinstance(content, Surface):
        if content.nbytes < LEAST_SURFACE_BYTES:
            raise UsageError(
                f"the surface of {name!r} has {content.nbytes} bytes",
                hint=f"some systems ask for {LEAST_SURFACE_BYTES} (restriction S3); data are read packed from byte 0",
            )
        return content.read(type_)
    array = np.asarray(content)
    if array.shape != type_.shape:
        raise UsageError(f"input {name!r} has shape {array.shape}", hint=f"it is {type_}")
    if array.dtype != type_.carrier:
        raise UsageError(
            f"input {name!r} is of dtype {array.dtype}",
            hint=f"it is {type_}: convert it with .astype(numpy.{type_.carrier})",
        )
    if not array.flags.c_contiguous:
        raise UsageError(
            f"input {name!r} lies in memory with strides {array.strides}",
            hint="surfaces are read packed (restriction S8): numpy.ascontiguousarray(array)",
        )
    return array


def packed_as_the_runtime_reads(array: np.ndarray) -> np.ndarray:
    """An array with row strides as the real runtime takes it: the memory from its first byte on, packed.

    Arrays whose strides are smaller than packed ones (broadcast or reversed views) are copied: no caller of the real
    runtime has such.
    """
    strides = [array.itemsize]
    for extent in reversed(array.shape[1:]):
        strides.insert(0, strides[0] * extent)
    if array.flags.c_contiguous or any(real < packed for real, packed in zip(array.strides, strides)):
        return np.ascontiguousarray(array)
    return np.lib.stride_tricks.as_strided(array, array.shape, strides, writeable=False).copy()
