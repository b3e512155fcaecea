"""The parts of an engine program's container: a Mach-O variant with magic 0xBEEFFACE (docs/reference/engine-h13.md 2).

Every structure is a frozen value with a name for each field; bytes whose meaning is not known are fields called
``unknown_<offset>``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, NamedTuple

from hexane import chips
from hexane.errors import FormatError, UsageError
from hexane.image.structure import Structure, array, paint, text, to_bytes, to_text, u8, u16, u32, u64

MAGIC = 0xBEEFFACE
CPU_TYPE = 0x80
FILE_TYPE = 2
HEADER_FLAGS = 0x200000

SUBTYPE_GENERATIONS = {
    2: "t0",
    8: "m11",
    12: "v31",
    14: "v36",
    16: "v28",
    17: "m12",
    **{subtype: generation.name for generation in chips.GENERATIONS for subtype in generation.cpu_subtypes},
}
"""CPU subtype (header + 0x08) to generation (docs/reference/generations.md 1.1)."""

GENERATION_SUBTYPES = {name: subtype for subtype, name in SUBTYPE_GENERATIONS.items()}

LC_SYMTAB, LC_THREAD, LC_SURFACE_32, LC_IDENT, LC_SEGMENT, LC_NOTE, LC_SURFACE_64 = 2, 4, 6, 8, 0x19, 0x31, 0x40


@dataclass(frozen=True)
class Header(Structure):
    """The 32 bytes at the start (docs/reference/engine-h13.md 2.1)."""

    magic: int = u32(MAGIC)
    cpu_type: int = u32(CPU_TYPE)
    cpu_subtype: int = u32(4)
    file_type: int = u32(FILE_TYPE)
    command_count: int = u32(0)
    command_bytes: int = u32(0)
    flags: int = u32(HEADER_FLAGS)
    reserved: int = u32(0)


class Relocation(NamedTuple):
    """One relocation of a section, two 32-bit words; a plain tuple, as there may be many.

    Source: docs/reference/engine-h13.md 2.10.
    """

    address: int
    info: int

    @property
    def section(self) -> int:
        """Ordinal of the section (from 1) that the word's value is relative to."""
        return self.info & 0xFFFFFF


RELOCATION_BYTES = 8


def read_relocations(data: bytes, offset: int, count: int) -> tuple[Relocation, ...]:
    """``count`` relocations at a byte offset."""
    words = struct.iter_unpack("<2I", data[offset : offset + RELOCATION_BYTES * count])
    return tuple(map(Relocation._make, words))


def pack_relocations(relocations: tuple[Relocation, ...]) -> bytes:
    """The relocations' bytes; `UsageError` for a value beyond 32 bits."""
    try:
        return struct.pack(f"<{2 * len(relocations)}I", *chain.from_iterable(relocations))
    except struct.error:
        raise UsageError("a relocation has a value beyond 32 bits") from None


@dataclass(frozen=True)
class Section(Structure):
    """A ``section_64``; ``content`` is empty for memory that the file does not fill.

    Source: docs/reference/engine-h13.md 2.4.
    """

    name: str = text(16)
    segment: str = text(16)
    address: int = u64()
    size: int = u64()
    offset: int = u32(0)
    align: int = u32(0)
    relocation_offset: int = u32(0)
    relocation_count: int = u32(0)
    flags: int = u32(0)
    reserved: tuple[int, ...] = array("I", 3, (0, 0, 0))
    content: bytes = b""
    relocations: tuple[Relocation, ...] = ()

    def __repr__(self) -> str:
        return f"Section({self.segment},{self.name} at {self.address:#x}, {self.size:#x} bytes)"


@dataclass(frozen=True)
class Command(Structure):
    """The beginning of every load command; ``STRINGS`` are texts behind the fixed part, each at its ``_offset``."""

    STRINGS: ClassVar[tuple[str, ...]] = ()

    command: int = u32()
    size: int = u32()

    def write(self) -> bytes:
        """The command in its full size."""
        body = bytearray(self.pack().ljust(self.size, b"\0"))
        for name in self.STRINGS:
            paint(body, getattr(self, f"{name}_offset"), to_bytes(getattr(self, name)))
        return bytes(body)


@dataclass(frozen=True)
class Segment(Command):
    """``segment_command_64`` with its sections (docs/reference/engine-h13.md 2.4)."""

    name: str = text(16)
    address: int = u64()
    memory_size: int = u64()
    file_offset: int = u64()
    file_size: int = u64()
    max_protection: int = u32()
    initial_protection: int = u32()
    section_count: int = u32()
    flags: int = u32()
    sections: tuple[Section, ...] = ()

    def write(self) -> bytes:
        return self.pack() + b"".join(section.pack() for section in self.sections)


@dataclass(frozen=True)
class SurfaceName(Command):
    """The part that the two forms of a surface's name have in common."""

    STRINGS = ("name",)

    name_offset: int = u32()
    unknown_0c: int = u32()


@dataclass(frozen=True)
class SurfaceName32(SurfaceName):
    """Load command 6: the name of the surface at an address, compilers 4 and 5 (docs/reference/engine-h13.md 2.5)."""

    address: int = u32()
    name: str = ""


@dataclass(frozen=True)
class SurfaceName64(SurfaceName):
    """Load command 0x40: the same with a 64-bit address, from compiler 7 on (docs/reference/engine-h13.md 2.5)."""

    address: int = u64()
    name: str = ""


@dataclass(frozen=True)
class Tag(Structure):
    """One tag record of a program thread: tag, length in bytes, value."""

    tag: int = u32()
    length: int = u32()
    value: int = u64()


@dataclass(frozen=True)
class Thread(Command):
    """The beginning of every LC_THREAD; its flavor says what follows. Words that are 0 in all files have defaults."""

    STRINGS: ClassVar[tuple[str, ...]] = ("procedure",)
    FLAVOR: ClassVar[int]

    flavor: int = u32()
    payload_words: int = u32()


@dataclass(frozen=True, kw_only=True)
class ProgramThread(Thread):
    """LC_THREAD of flavor 1: channel table and task list of an H11 to H13 program.

    Source: docs/reference/engine-h13.md 2.6.
    """

    FLAVOR = 1

    channels: tuple[int, ...] = array("Q", 256)
    text_address: int = u64()
    first_task_words_minus_1: int = u32()
    task_count: int = u32()
    unknown_820: int = u32(0)
    unknown_824: int = u32()
    unknown_828: tuple[int, ...] = array("I", 5, (0,) * 5)
    procedure_offset: int = u32()
    unknown_840: tuple[int, ...] = array("I", 4, (0,) * 4)
    unknown_850: int = u32()
    unknown_854: int = u32(0)
    unknown_858: int = u32()
    unknown_85c: int = u32(0)
    procedure: str = ""
    tags: tuple[Tag, ...] = ()

    TAGS_AT: ClassVar[int] = 0x860

    def write(self) -> bytes:
        return _with_tags(super().write(), self.TAGS_AT, self.tags)


@dataclass(frozen=True, kw_only=True)
class StreamThread(Thread):
    """LC_THREAD of flavor 4: slot table and task stream from H14 on (docs/reference/generations.md 3.1)."""

    FLAVOR = 4

    slots: tuple[int, ...] = array("Q", 256)
    text_address: int = u64()
    unknown_818: int = u64(0)
    unknown_820: int = u32()
    text_words: int = u32()
    unknown_828: int = u64(0)
    task_count: int = u32()
    unknown_834: int = u32(0)
    unknown_838: int = u32()
    unknown_83c: int = u32()
    unknown_840: int = u32(0)
    unknown_844: int = u32()
    procedure_offset: int = u32()
    unknown_84c: tuple[int, ...] = array("I", 3, (0,) * 3)
    scratch_bytes: int = u64()
    record_count: int = u32(0)
    unknown_864: int = u32(0)
    unknown_868: int = u32()
    unknown_86c: int = u32(0)
    procedure: str = ""
    tags: tuple[Tag, ...] = ()

    TAGS_AT: ClassVar[int] = 0x870

    def write(self) -> bytes:
        return _with_tags(super().write(), self.TAGS_AT, self.tags)

    def slot_address(self, slot: int) -> int:
        """The address in a slot; a slot takes 16 bytes, of which the first 8 are the address."""
        return self.slots[2 * slot]


@dataclass(frozen=True, kw_only=True)
class TensorThread(Thread):
    """LC_THREAD of flavor 3: shape and strides of one surface. Strides and sizes in bytes.

    Source: docs/reference/engine-h13.md 2.7.
    """

    FLAVOR = 3
    STRINGS = ("procedure", "name", "second_name")

    unknown_10: int = u32()
    role: int = u32()
    procedure_offset: int = u32()
    unknown_1c: int = u32(0)
    name_offset: int = u32()
    element_code: int = u32()
    n: int = u32()
    c: int = u32()
    h: int = u32()
    w: int = u32()
    d: int = u32()
    unknown_3c: tuple[int, ...] = array("I", 5, (0,) * 5)
    batch_stride: int = u64()
    plane_stride: int = u64()
    row_stride: int = u64()
    element_stride: int = u64()
    depth_stride: int = u64()
    interleave: int = u32()
    second_name_offset: int = u32()
    byte_size: int = u64()
    procedure: str = ""
    name: str = ""
    second_name: str = ""


@dataclass(frozen=True)
class IdentCommand(Command):
    """Load command 8: which compiler wrote the file and with which options (docs/reference/engine-h13.md 2.8)."""

    STRINGS = ("text",)
    text_offset: ClassVar[int] = 8

    text: str = ""


@dataclass(frozen=True)
class SymbolTableCommand(Command):
    """LC_SYMTAB: where symbols and strings stand in the file (docs/reference/engine-h13.md 2.9)."""

    symbol_offset: int = u32()
    symbol_count: int = u32()
    string_offset: int = u32()
    string_size: int = u32()


@dataclass(frozen=True)
class OpaqueCommand(Command):
    """A load command that hexane does not know, kept whole."""

    body: bytes = b""

    def write(self) -> bytes:
        return self.pack() + self.body


@dataclass(frozen=True)
class Symbol(Structure):
    """An ``nlist_64`` entry with its name (docs/reference/engine-h13.md 2.9)."""

    string_offset: int = u32()
    type: int = u8()
    section: int = u8()
    description: int = u16()
    value: int = u64()
    name: str = ""


def string_at(body: bytes, offset: int, base: int, what: str) -> str:
    """The NUL-terminated string at an offset of a load command that starts at file offset ``base``."""
    if not 8 <= offset < len(body):
        raise FormatError(f"{what} stands at {offset:#x} of a command of {len(body):#x} bytes", offset=base)
    return to_text(body[offset:])


def _with_tags(body: bytes, at: int, tags: tuple[Tag, ...]) -> bytes:
    if not tags:
        return body
    out = bytearray(body)
    paint(out, at, len(tags).to_bytes(4, "little"))
    paint(out, at + 8, b"".join(tag.pack() for tag in tags))
    return bytes(out)
