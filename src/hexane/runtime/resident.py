"""Buffers that stay on the device between programs, and programs bound to them: no host copy between two of them.

On the emulator a buffer is the very memory behind a DMA channel; the output buffer of one program is the input buffer
of the next. What crosses the border between host and device is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hexane.emulator.engine import Engine
from hexane.emulator.memory import DramBuffer, Memory
from hexane.emulator.program import ELEMENTS
from hexane.emulator.program import EmulatedProgram as Machine
from hexane.emulator.ready import PreparedChain
from hexane.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph.ir import Graph
    from hexane.image import Image, Surface


@dataclass
class CopyTraffic:
    """Copies between host and device: how often, and how many bytes."""

    uploads: int = 0
    downloads: int = 0
    uploaded_bytes: int = 0
    downloaded_bytes: int = 0

    @property
    def copies(self) -> int:
        """Copies in either direction."""
        return self.uploads + self.downloads

    def up(self, nbytes: int) -> None:
        """Count a copy to the device."""
        self.uploads += 1
        self.uploaded_bytes += nbytes

    def down(self, nbytes: int) -> None:
        """Count a copy from the device."""
        self.downloads += 1
        self.downloaded_bytes += nbytes


@dataclass(frozen=True)
class BufferLayout:
    """Layout of a tensor in a buffer: shape as declared, shape and byte strides in memory, element type, bytes."""

    declared: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    nbytes: int

    def fits(self, other: BufferLayout) -> bool:
        """True where a buffer of this layout may stand for one of the other."""
        return (self.shape, self.strides, self.dtype, self.nbytes) == (
            other.shape,
            other.strides,
            other.dtype,
            other.nbytes,
        )


class DeviceBuffer:
    """Memory of the device; the host reads and writes copies."""

    def __init__(self, layout: BufferLayout, traffic: CopyTraffic) -> None:
        self.layout = layout
        self.traffic = traffic
        self.data = np.zeros(layout.nbytes, np.uint8)

    @property
    def elements(self) -> np.ndarray:
        """A view of the elements where they lie; for the device, not for the host."""
        layout = self.layout
        return np.ndarray(layout.shape, layout.dtype, self.data.data, 0, layout.strides)

    def write(self, array: np.ndarray) -> None:
        """Copy an array of the declared shape from the host."""
        self.traffic.up(array.nbytes)
        self.elements[...] = np.asarray(array).reshape(self.layout.shape)

    def read(self) -> np.ndarray:
        """A copy for the host, in the declared shape."""
        self.traffic.down(self.elements.nbytes)
        return np.ascontiguousarray(self.elements).reshape(self.layout.declared).copy()


Buffers = Mapping[str, DeviceBuffer]


class Resident(Protocol):
    """A program that runs on buffers of the device."""

    inputs: dict[str, BufferLayout]
    outputs: dict[str, BufferLayout]

    def bind(self, buffers: Buffers) -> Callable[[], None]:
        """A function that runs it once on these buffers, by the names of its inputs and outputs."""


def _packed(shape: tuple[int, ...], dtype: np.dtype) -> BufferLayout:
    array = np.empty(shape, dtype)
    return BufferLayout(shape, shape, array.strides, dtype, max(1, array.nbytes))


@dataclass
class ResidentGraph:
    """A network with the arithmetic of a chip; its buffers hold packed arrays."""

    graph: Graph
    chip: Chip
    inputs: dict[str, BufferLayout] = field(init=False)
    outputs: dict[str, BufferLayout] = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = {v.name: _packed(tuple(v.shape), v.type.carrier) for v in self.graph.main.inputs}  # type: ignore[union-attr]
        self.outputs = {v.name: _packed(tuple(v.shape), v.type.carrier) for v in self.graph.main.outputs}  # type: ignore[union-attr]

    def bind(self, buffers: Buffers) -> Callable[[], None]:
        """Evaluation reads the buffers in place and writes its results into them."""
        from hexane import numerics

        sizes = {name: buffers[name].elements for name in self.inputs}
        places = {name: buffers[name].elements for name in self.outputs}

        def run() -> None:
            results = numerics.evaluate(self.graph, sizes, chip=self.chip)
            for name, place in places.items():
                np.copyto(place, results[name], casting="unsafe")

        return run


class ResidentImage:
    """An engine program on the emulator; ``declared`` gives the shape of each surface as the network declares it."""

    def __init__(self, image: Image, declared: Mapping[str, tuple[int, ...]]) -> None:
        self.machine = Machine.of(image)
        self.inputs = {s.label: _surface(s, declared[s.label]) for s in self.machine.inputs}
        self.outputs = {s.label: _surface(s, declared[s.label]) for s in self.machine.outputs}

    def bind(self, buffers: Buffers) -> Callable[[], None]:
        """One machine on these buffers: tasks are checked at its first run and only computed from then on."""
        chain = PreparedChain(Engine(self._memory(buffers), self.machine.l2_bytes))
        return lambda: chain.run(self.machine.chain())

    def _memory(self, buffers: Buffers) -> Memory:
        machine = self.machine
        memory = machine.memory({s.label: np.zeros(s.shape, ELEMENTS[s.dtype]) for s in machine.inputs})
        for surface in machine.surfaces:
            assert surface.channel is not None
            buffer = buffers[surface.label]
            name = f"surface {surface.label!r}"
            port = (self.inputs if surface.role == "input" else self.outputs)[surface.label]
            if not buffer.layout.fits(port):
                raise UsageError(f"the buffer of {name} has another layout: {buffer.layout}", hint=f"it is {port}")
            memory.channels[surface.channel] = DramBuffer.filled(name, buffer.data)
        return memory


def _surface(surface: Surface, declared: tuple[int, ...]) -> BufferLayout:
    if surface.dtype not in ELEMENTS or surface.strides is None:
        raise UnsupportedError(f"surface {surface.label!r} has {surface.dtype} elements")
    return BufferLayout(declared, surface.shape, surface.strides, ELEMENTS[surface.dtype], surface.nbytes)
