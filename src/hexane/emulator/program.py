"""An image as the loader sees it: text, constants, scratch, and one buffer per surface.

Source: docs/reference/engine-h13.md 5, 6.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from hexane import chips
from hexane.emulator import chain, stream
from hexane.emulator.memory import DRAM_LIMIT, DramBuffer, Memory
from hexane.emulator.registers import RegisterReader, Registers
from hexane.errors import EmulationError, UnsupportedError, UsageError
from hexane.image import Image, Surface
from hexane.image.files import open_image
from hexane.isa import WRITTEN
from hexane.isa.channels import CONST, FIRST_SURFACE, SCRATCH, TEXT
from hexane.isa.generations import family_of
from hexane.isa.granules import GRANULE
from hexane.rounding import ceil_div

ELEMENTS: dict[str, np.dtype] = {
    "float16": np.dtype(np.float16),
    "uint8": np.dtype(np.uint8),
    "int8": np.dtype(np.int8),
}
Inputs = Mapping[str, object]

_programs: WeakKeyDictionary[Image, EmulatedProgram] = WeakKeyDictionary()
"""The program of each image as it was last, so that machines that ran it are found again."""


@dataclass(frozen=True, eq=False)
class EmulatedProgram:
    """The bytes that the engine gets, and what the container says of the surfaces.

    ``first_words`` and ``task_count`` are what the program header states; None where it states nothing. ``kernels`` is
    the section of weights and tables that H16 and later have besides the constants, ``kernel_channel`` its slot.
    ``idle`` is where `hexane.emulator.ready` leaves machines that ran the program, one per simultaneous call.
    """

    generation: str
    text: bytes
    const: bytes
    surfaces: tuple[Surface, ...]
    scratch_bytes: int = 0
    first_words: int | None = None
    task_count: int | None = None
    kernels: bytes = b""
    kernel_channel: int | None = None
    idle: list[Any] = field(default_factory=list, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """A copy starts without machines."""
        return {**self.__dict__, "idle": []}

    @classmethod
    def of(cls, source: EmulatedProgram | Image | str | os.PathLike[str] | bytes) -> EmulatedProgram:
        """The program of an image, of a file, or of a file's bytes."""
        if isinstance(source, EmulatedProgram):
            return source
        if not isinstance(source, Image):
            source = open_image(source)
        changed = source.tasks_changed
        text = source.text() if changed else source.contents.text
        cached_program = _programs.get(source)
        if cached_program is not None and cached_program.text == text:  # an image's other parts do not change
            return cached_program
        program = cls(
            generation=source.generation,
            text=text,
            const=source.const,
            surfaces=tuple(source.surfaces),
            scratch_bytes=source.scratch_bytes,
            first_words=None if changed else _first_words(source),
            task_count=None if changed else source.task_count,
            kernels=source.kernel_section,
            kernel_channel=source.kernel_channel,
        )
        _programs[source] = program
        return program

    def chain(self, read: RegisterReader = Registers) -> Iterator[Registers]:
        """The tasks in the order in which they run; see `chain.walk` for H13, `stream.walk` for later ones."""
        if family_of(self.generation).packed:
            return stream.walk(self.text, self.generation, count=self.task_count, read=read)
        return chain.walk(self.text, self.generation, first_words=self.first_words, count=self.task_count, read=read)

    @property
    def l2_bytes(self) -> int:
        """Size of the engine's L2."""
        return chips.generation(self.generation).l2_bytes

    @property
    def inputs(self) -> tuple[Surface, ...]:
        return tuple(s for s in self.surfaces if s.role == "input")

    @property
    def outputs(self) -> tuple[Surface, ...]:
        return tuple(s for s in self.surfaces if s.role == "output")

    def memory(self, inputs: Inputs, *, layout: str = "nchw") -> Memory:
        """Buffers behind the channels, the inputs filled in. Raises UsageError for inputs that do not fit."""
        memory = self.buffers()
        self.fill(memory, inputs, layout=layout)
        return memory

    def buffers(self) -> Memory:
        """Buffers behind the channels; the inputs hold zeros."""
        if self.generation not in WRITTEN:
            raise UnsupportedError(
                f"the emulator has no {self.generation} engine",
                hint=f"it runs {', '.join(WRITTEN)} programs; other chips are computed with level='graph'",
            )
        total = sum(map(_size, self.surfaces)) + self.scratch_bytes + len(self.text) + len(self.const)
        if total > DRAM_LIMIT:
            raise EmulationError(
                f"the buffers need {total:#x} bytes, an engine's address space ends at {DRAM_LIMIT:#x}"
            )
        memory = Memory({TEXT: DramBuffer.constant("text", self.text), CONST: DramBuffer.constant("const", self.const)})
        if self.kernel_channel is not None:
            memory.channels[self.kernel_channel] = DramBuffer.constant("kernels", self.kernels)
        if self.scratch_bytes:
            memory.channels[SCRATCH] = DramBuffer.undefined("scratch", self.scratch_bytes)
        states = {s.channel for s in self.inputs} & {s.channel for s in self.outputs}
        for surface in self.surfaces:
            channel = surface.channel
            if surface.role == "output" and channel in states:
                continue
            if channel is None or channel < FIRST_SURFACE or channel in memory.channels:
                raise UsageError(f"channel {channel} is not free for a surface", where=f"surface {surface.label!r}")
            name = f"surface {surface.label!r}"
            if surface.role == "input":
                memory.channels[channel] = DramBuffer.filled(name, np.zeros(_size(surface), np.uint8))
            else:
                memory.channels[channel] = DramBuffer.undefined(name, _size(surface))
        return memory

    def fill(self, memory: Memory, inputs: Inputs, *, layout: str = "nchw") -> None:
        """Put other inputs into a memory whose input surfaces are all zero; errors as :meth:`memory`."""
        arrays = _by_label(inputs, self.inputs)
        for surface in self.inputs:
            assert surface.channel is not None
            _fill(surface, arrays[surface.label], layout, memory.channels[surface.channel].data)

    def require_complete(self, memory: Memory) -> None:
        """EmulationError for an output with an element that no task writes."""
        for surface in self.outputs:
            assert surface.channel is not None
            _require_complete(surface, memory.channels[surface.channel])

    def results(self, memory: Memory, *, layout: str = "nchw", sanitize: bool = True) -> dict[str, np.ndarray]:
        """The output surfaces as arrays, by name."""
        if sanitize:
            self.require_complete(memory)
        results = {}
        for surface in self.outputs:
            assert surface.channel is not None
            buffer = memory.channels[surface.channel]
            results[surface.label] = buffer.data.copy() if layout == "raw" else _elements(surface, buffer.data).copy()
        return results


def _first_words(image: Image) -> int | None:
    """Length of the first task by the program header, in 32-bit words."""
    parts = image.parts
    header = getattr(parts, "header", None)
    td_size = getattr(header, "td_size", None)
    if td_size is not None:
        return td_size // 4
    words = getattr(image.program_thread, "first_task_words_minus_1", None)
    return None if words is None else words + 1


def _size(surface: Surface) -> int:
    return surface.nbytes


def _dtype(surface: Surface) -> np.dtype:
    if surface.dtype not in ELEMENTS:
        raise UnsupportedError(
            f"surface {surface.label!r} has {surface.dtype} elements, which no H13 program was seen to use",
            hint=f"known are {', '.join(ELEMENTS)}",
        )
    return ELEMENTS[surface.dtype]


def _elements(surface: Surface, data: np.ndarray) -> np.ndarray:
    """A view of a surface's bytes as its elements, (N, C, H, W)."""
    dtype = _dtype(surface)
    assert surface.strides is not None
    if prod(surface.shape) > data.size:
        raise UsageError(
            f"{'x'.join(map(str, surface.shape))} elements in {data.size:#x} bytes",
            where=f"surface {surface.label!r}",
            hint="check its extents and strides",
        )
    last = sum((n - 1) * s for n, s in zip(surface.shape, surface.strides)) + dtype.itemsize
    if last > data.size:
        raise UsageError(
            f"its elements end at byte {last:#x} of {data.size:#x}",
            where=f"surface {surface.label!r}",
            hint="check its strides",
        )
    steps = tuple(s if n > 1 else 0 for n, s in zip(surface.shape, surface.strides))  # of a single one: any number
    return np.ndarray(surface.shape, dtype, data.data, 0, steps)


def _by_label(inputs: Inputs, surfaces: tuple[Surface, ...]) -> dict[str, object]:
    """Inputs under the names of their surfaces; every input given once, and no other."""
    labels = [s.label for s in surfaces]
    label_of = {s.name: s.label for s in surfaces} | {label: label for label in labels}
    if not isinstance(inputs, Mapping):
        raise UsageError(
            f"inputs are a mapping of names to arrays, not {type(inputs).__name__}",
            hint=f"the program's inputs are {', '.join(labels) or 'none'}",
        )
    arrays: dict[str, object] = {}
    for name, value in inputs.items():
        if name not in label_of:
            raise UsageError(f"the program has no input {name!r}", hint=f"its inputs are {', '.join(labels) or 'none'}")
        if label_of[name] in arrays:
            raise UsageError(f"input {label_of[name]!r} is given twice")
        arrays[label_of[name]] = value
    missing = [label for label in labels if label not in arrays]
    if missing:
        raise UsageError(f"input {missing[0]!r} is missing", hint=f"give {', '.join(labels)}")
    return arrays


def _fill(surface: Surface, value: object, layout: str, data: np.ndarray) -> None:
    """Set the bytes of an input surface from an array (or, with ``layout="raw"``, from bytes); they are zero before."""
    where = f"input {surface.label!r}"
    if layout == "raw":
        raw = np.frombuffer(value, np.uint8) if isinstance(value, bytes | bytearray | memoryview) else np.asarray(value)
        if raw.dtype != np.uint8 or raw.size != data.size:
            raise UsageError(
                f"raw bytes of dtype {raw.dtype} and size {raw.size}, the surface has {data.size} bytes", where=where
            )
        data[:] = raw.ravel()
        return
    if layout != "nchw":
        raise UsageError(f"no layout is called {layout!r}", where="layout", hint="use 'nchw' or 'raw'")
    array, dtype = np.asarray(value), _dtype(surface)
    if array.dtype == np.bool_ and dtype == np.uint8:
        array = array.astype(np.uint8)
    if array.dtype != dtype:
        raise UsageError(
            f"dtype {array.dtype}, the surface holds {dtype}",
            where=where,
            hint=f"convert it with .astype(numpy.{dtype})",
        )
    if not _fits(array.shape, surface.shape):
        shape = "x".join(map(str, surface.shape))
        raise UsageError(f"shape {array.shape}, the surface is {shape} (N, C, H, W)", where=where)
    _elements(surface, data)[...] = array.reshape(surface.shape)


def _fits(shape: tuple[int, ...], surface: tuple[int, ...]) -> bool:
    """Equal, apart from axes of size 1: a declared [M, K] is the surface [1, 1, M, K].

    Source: docs/reference/engine-h13.md 6.
    """
    return tuple(n for n in shape if n != 1) == tuple(n for n in surface if n != 1)


def _require_complete(surface: Surface, buffer: DramBuffer) -> None:
    """Every element of an output was written by some task."""
    if buffer.written is None or buffer.written.all():
        return
    starts, ends = _rows(surface)
    granules = np.concatenate([[0], np.cumsum(buffer.written, dtype=np.int64)])
    first, last = starts // GRANULE, -(-ends // GRANULE)
    missing = np.argwhere(granules[last] - granules[first] < last - first)
    if missing.size:
        n, c, h = map(int, missing[0])
        start, end = int(starts[n, c, h]), int(ends[n, c, h])
        hole = start // GRANULE + int(np.argmin(buffer.written[start // GRANULE : ceil_div(end, GRANULE)]))
        assert surface.strides is not None
        w = max(0, ceil_div(hole * GRANULE - start, surface.strides[3])) if surface.strides[3] else 0
        raise EmulationError(
            f"no task writes element ({n}, {c}, {h}, {w}) of output {surface.label!r}",
            address=start + w * surface.strides[3],
        )


def _rows(surface: Surface) -> tuple[np.ndarray, np.ndarray]:
    """First byte of every row (n, c, h) of a surface, and one past its last."""
    assert surface.strides is not None
    starts = np.zeros(surface.shape[:3], np.int64)
    for axis in range(3):
        places = np.arange(surface.shape[axis]) * surface.strides[axis]
        starts += places.reshape([-1 if i == axis else 1 for i in range(3)])
    return starts, starts + (surface.shape[3] - 1) * surface.strides[3] + _dtype(surface).itemsize
