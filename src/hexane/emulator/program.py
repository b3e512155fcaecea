"""An image as the loader sees it: text, constants, scratch, and one buffer per surface (spec/engine-h13 §5, §6)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hexane.emulator.memory import CONST, DRAM_LIMIT, FIRST_SURFACE, GRANULE, SCRATCH, TEXT, Buffer, Memory
from hexane.errors import EmulationError, UnsupportedError, UsageError
from hexane.image import Image, Surface

GENERATIONS = ("h13",)
ELEMENTS: dict[str, np.dtype] = {
    "float16": np.dtype(np.float16),
    "uint8": np.dtype(np.uint8),
    "int8": np.dtype(np.int8),
}
Inputs = Mapping[str, object]


@dataclass(frozen=True)
class Program:
    """The bytes that the engine gets, and what the container says of the surfaces.

    ``first_words`` and ``task_count`` are what the program header states; None where it states nothing.
    """

    generation: str
    text: bytes
    const: bytes
    surfaces: tuple[Surface, ...]
    scratch_bytes: int = 0
    first_words: int | None = None
    task_count: int | None = None

    @classmethod
    def of(cls, source: Program | Image | str | os.PathLike[str] | bytes) -> Program:
        """The program of an image, of a file, or of a file's bytes."""
        if isinstance(source, Program):
            return source
        if not isinstance(source, Image):
            from hexane.formats.images import open_image

            source = open_image(source)
        changed = source.tasks_decoded
        return cls(
            generation=source.generation,
            text=source.text() if changed else source.contents.text,
            const=source.const,
            surfaces=tuple(source.surfaces),
            scratch_bytes=source.scratch_bytes,
            first_words=None if changed else _first_words(source),
            task_count=None if changed else source.task_count,
        )

    @property
    def inputs(self) -> tuple[Surface, ...]:
        return tuple(s for s in self.surfaces if s.role == "input")

    @property
    def outputs(self) -> tuple[Surface, ...]:
        return tuple(s for s in self.surfaces if s.role == "output")

    def memory(self, inputs: Inputs, *, layout: str = "nchw") -> Memory:
        """Buffers behind the channels, the inputs filled in. Raises UsageError for inputs that do not fit."""
        if self.generation not in GENERATIONS:
            raise UnsupportedError(
                f"the emulator has no {self.generation} engine",
                hint=f"it runs {', '.join(GENERATIONS)} programs; other chips are computed with level='graph'",
            )
        given = _by_label(inputs, self.inputs)
        total = sum(map(_size, self.surfaces)) + self.scratch_bytes + len(self.text) + len(self.const)
        if total > DRAM_LIMIT:
            raise EmulationError(
                f"the buffers need {total:#x} bytes, an engine's address space ends at {DRAM_LIMIT:#x}"
            )
        memory = Memory({TEXT: Buffer.constant("text", self.text), CONST: Buffer.constant("const", self.const)})
        if self.scratch_bytes:
            memory.channels[SCRATCH] = Buffer.undefined("scratch", self.scratch_bytes)
        for surface in self.surfaces:
            channel = surface.channel
            if channel is None or channel < FIRST_SURFACE or channel in memory.channels:
                raise UsageError(f"channel {channel} is not free for a surface", where=f"surface {surface.label!r}")
            if surface.role == "input":
                data = _fill(surface, given[surface.label], layout)
                memory.channels[channel] = Buffer.filled(f"surface {surface.label!r}", data)
            else:
                memory.channels[channel] = Buffer.undefined(f"surface {surface.label!r}", _size(surface))
        return memory

    def results(self, memory: Memory, *, layout: str = "nchw", sanitize: bool = True) -> dict[str, np.ndarray]:
        """The output surfaces as arrays, by name."""
        results = {}
        for surface in self.outputs:
            assert surface.channel is not None
            buffer = memory.channels[surface.channel]
            if sanitize:
                _require_complete(surface, buffer)
            results[surface.label] = buffer.data.copy() if layout == "raw" else _elements(surface, buffer.data).copy()
        return results


def _first_words(image: Image) -> int | None:
    """What the program header says of the first task's length, in 32-bit words."""
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
    last = sum((n - 1) * s for n, s in zip(surface.shape, surface.strides)) + dtype.itemsize
    if last > data.size:
        raise UsageError(
            f"its elements end at byte {last:#x} of {data.size:#x}",
            where=f"surface {surface.label!r}",
            hint="check its strides",
        )
    return np.ndarray(surface.shape, dtype, data.data, 0, surface.strides)


def _by_label(inputs: Inputs, surfaces: tuple[Surface, ...]) -> dict[str, object]:
    """Inputs under the names of their surfaces; every input given once, and no other."""
    labels = [s.label for s in surfaces]
    known = {s.name: s.label for s in surfaces} | {label: label for label in labels}
    if not isinstance(inputs, Mapping):
        raise UsageError(
            f"inputs are a mapping of names to arrays, not {type(inputs).__name__}",
            hint=f"the program's inputs are {', '.join(labels) or 'none'}",
        )
    given: dict[str, object] = {}
    for name, value in inputs.items():
        if name not in known:
            raise UsageError(f"the program has no input {name!r}", hint=f"its inputs are {', '.join(labels) or 'none'}")
        if known[name] in given:
            raise UsageError(f"input {known[name]!r} is given twice")
        given[known[name]] = value
    missing = [label for label in labels if label not in given]
    if missing:
        raise UsageError(f"input {missing[0]!r} is missing", hint=f"give {', '.join(labels)}")
    return given


def _fill(surface: Surface, value: object, layout: str) -> np.ndarray:
    """The bytes of an input surface from an array (or, with ``layout="raw"``, from bytes)."""
    where = f"input {surface.label!r}"
    data = np.zeros(_size(surface), np.uint8)
    if layout == "raw":
        raw = np.frombuffer(value, np.uint8) if isinstance(value, bytes | bytearray | memoryview) else np.asarray(value)
        if raw.dtype != np.uint8 or raw.size != data.size:
            raise UsageError(
                f"raw bytes of dtype {raw.dtype} and size {raw.size}, the surface has {data.size} bytes", where=where
            )
        data[:] = raw.ravel()
        return data
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
    return data


def _fits(shape: tuple[int, ...], surface: tuple[int, ...]) -> bool:
    """Equal, apart from axes of size 1: a declared [M, K] is the surface [1, 1, M, K] (spec/engine-h13 §6)."""
    return tuple(n for n in shape if n != 1) == tuple(n for n in surface if n != 1)


def _require_complete(surface: Surface, buffer: Buffer) -> None:
    """Every element of an output was written by some task."""
    if buffer.written is None or buffer.written.all():
        return
    touched = np.repeat(buffer.written, GRANULE)[: buffer.data.size].astype(np.uint8)
    missing = np.argwhere(_elements(surface, touched) == 0)
    if missing.size:
        n, c, h, w = map(int, missing[0])
        assert surface.strides is not None
        address = n * surface.strides[0] + c * surface.strides[1] + h * surface.strides[2] + w * surface.strides[3]
        raise EmulationError(
            f"no task writes element ({n}, {c}, {h}, {w}) of output {surface.label!r}", address=address
        )
