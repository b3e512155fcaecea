"""Meaning of the parts of a file: the program's own values, read from a container or a package."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hexane.errors import FormatError
from hexane.image.anec_parts import TILE_BYTES, AnecPackage
from hexane.image.container import Container
from hexane.image.dialect import dialect_of
from hexane.image.ident import Ident, parse_ident
from hexane.image.parts import (
    SUBTYPE_GENERATIONS,
    IdentCommand,
    ProgramThread,
    StreamThread,
    SurfaceName32,
    SurfaceName64,
    TensorThread,
)
from hexane.image.stream_layout import KERNEL_SECTION, KERNEL_SEGMENT
from hexane.image.surface import ELEMENT_NAMES, Surface
from hexane.isa.channels import FIRST_SURFACE, SCRATCH

_KERNEL_SYMBOL = re.compile(r"K([0-9A-F]{64})(?:_ne_(\d+))?")


@dataclass(frozen=True)
class ImageContents:
    """A program without its container.

    generation : ``"h13"``, ...
    dialect : name of the container's dialect, or ``"anec"``.
    text, const : the bytes of the task stream and of the constant section.
    text_offset, const_offset : where they stand in the file.
    surfaces : inputs, then outputs, each in address order.
    scratch_bytes : size of the scratch buffer.
    channels : channel or slot number to address.
    kernels, kernel_channel : the section of weights and tables of H16 and later, and its slot.
    """

    generation: str
    dialect: str
    procedure: str
    text: bytes
    text_offset: int
    const: bytes
    const_offset: int
    surfaces: tuple[Surface, ...]
    scratch_bytes: int
    channels: dict[int, int]
    ident: Ident
    kernels: bytes = b""
    kernel_channel: int | None = None


def contents_of(parts: Container | AnecPackage) -> ImageContents:
    """The program in a container or a package."""
    return _of_package(parts) if isinstance(parts, AnecPackage) else _of_container(parts)


def _of_container(container: Container) -> ImageContents:
    subtype = container.header.cpu_subtype
    generation = SUBTYPE_GENERATIONS.get(subtype, f"subtype {subtype}")
    thread = container.first(ProgramThread) or container.first(StreamThread)
    channels = _channels(thread)
    text, const = container.section("__TEXT", "__text"), container.section("__TEXT", "__const")
    kernels = container.section(KERNEL_SEGMENT, KERNEL_SECTION)
    identification = container.first(IdentCommand)
    ident_text = identification.text if isinstance(identification, IdentCommand) else ""
    return ImageContents(
        generation=generation,
        dialect=dialect_of(container).name,
        procedure=thread.procedure if isinstance(thread, ProgramThread | StreamThread) else "",
        text=text.content if text else b"",
        text_offset=text.offset if text else 0,
        const=const.content if const else b"",
        const_offset=const.offset if const else 0,
        surfaces=_surfaces(container, channels),
        scratch_bytes=_scratch(container, thread),
        channels=channels,
        ident=parse_ident(ident_text, generation, _kernel_names(container)),
        kernels=kernels.content if kernels else b"",
        kernel_channel=None if kernels is None else {at: slot for slot, at in channels.items()}.get(kernels.address),
    )


def _kernel_names(container: Container) -> tuple[str, ...]:
    """One name per kernel, in order; different kernels may have the same name (docs/reference/engine-h13.md 2.13)."""
    names: list[str] = []
    last: int | None = None
    for symbol in container.symbols:
        match = _KERNEL_SYMBOL.fullmatch(symbol.name)
        if match is None:
            continue
        name, core = match.group(1), None if match.group(2) is None else int(match.group(2))
        continues = core is not None and last is not None and core > last and names[-1] == name
        if not continues:
            names.append(name)
        last = core
    return tuple(names)


def _channels(thread: object) -> dict[int, int]:
    if isinstance(thread, ProgramThread):
        return {i: address for i, address in enumerate(thread.channels) if address}
    if isinstance(thread, StreamThread):
        slots = {i: thread.slot_address(i) for i in range(len(thread.slots) // 2)}
        return {slot: address for slot, address in slots.items() if address}
    return {}


def _scratch(container: Container, thread: object) -> int:
    segment = next((s for s in container.segments if s.name == "__DATA"), None)
    if segment is not None:
        return segment.memory_size
    return thread.scratch_bytes if isinstance(thread, StreamThread) else 0


def _surfaces(container: Container, channels: dict[int, int]) -> tuple[Surface, ...]:
    addresses = {
        command.name: command.address for kind in (SurfaceName32, SurfaceName64) for command in container.all_of(kind)
    }
    numbers = {address: channel for channel, address in reversed(channels.items()) if channel >= FIRST_SURFACE}
    surfaces = []
    for tensor in container.all_of(TensorThread):
        address = next((addresses[key] for key in (tensor.name, tensor.second_name) if key in addresses), 0)
        surfaces.append(_surface(tensor, address, numbers.get(address), container.offset_of(tensor)))
    return tuple(sorted(surfaces, key=lambda s: (s.role == "output", s.address)))


def _surface(tensor: TensorThread, address: int, channel: int | None, at: int) -> Surface:
    shape = (tensor.n, tensor.c, tensor.h, tensor.w)
    if min(shape) < 1:
        raise FormatError(f"tensor {tensor.name!r} has the shape {shape}", offset=at + 0x28)
    strides = (tensor.batch_stride, tensor.plane_stride, tensor.row_stride, tensor.element_stride)
    dtype = ELEMENT_NAMES.get(tensor.element_code, f"code{tensor.element_code}")
    role = {1: "input", 2: "output"}.get(tensor.role)
    if role is None:
        raise FormatError(f"tensor {tensor.name!r} has role {tensor.role}, neither 1 nor 2", offset=at + 0x14)
    return Surface(tensor.second_name or tensor.name, role, shape, strides, dtype, address, channel)


def _of_package(package: AnecPackage) -> ImageContents:
    header = package.header
    surfaces = []
    for i in range(header.dst_count + header.src_count):
        output = i < header.dst_count
        n, c, h, w, plane, row = header.dimensions(FIRST_SURFACE + i)
        if min(n, c, h, w) < 1:
            raise FormatError(f"channel {FIRST_SURFACE + i} has the shape {(n, c, h, w)}", offset=0xA8)
        number = i if output else i - header.dst_count
        alone = (header.dst_count if output else header.src_count) == 1
        role = "output" if output else "input"
        element = 1 if row < 2 * w else 2
        surfaces.append(
            Surface(
                role if alone else f"{role}{number}",
                role,
                (n, c, h, w),
                (c * plane, plane, row, element),
                "uint8" if element == 1 else "float16",
                0,
                FIRST_SURFACE + i,
            )
        )
    return ImageContents(
        generation=package.generation,
        dialect="anec",
        procedure="net",
        text=package.text,
        text_offset=package.header_size,
        const=package.const,
        const_offset=package.const_offset,
        surfaces=tuple(sorted(surfaces, key=lambda s: s.role == "output")),
        scratch_bytes=header.tiles[SCRATCH] * TILE_BYTES,
        channels={},
        ident=Ident(),
    )
