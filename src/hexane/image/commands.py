"""The load commands of a program, from what lies where (docs/reference/engine-h13.md 2.3 to 2.8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hexane.image.dialect import Dialect
from hexane.image.ident import Ident
from hexane.image.parts import (
    LC_IDENT,
    LC_SEGMENT,
    LC_SURFACE_32,
    LC_SURFACE_64,
    LC_THREAD,
    Command,
    IdentCommand,
    ProgramThread,
    Relocation,
    Section,
    Segment,
    SurfaceName32,
    SurfaceName64,
    Tag,
    TensorThread,
)
from hexane.image.placement import SectionPlaces, by_role
from hexane.image.structure import to_bytes
from hexane.image.surface import ELEMENT_CODES, Surface
from hexane.isa.channels import CONST, SCRATCH
from hexane.isa.granules import PAGE
from hexane.rounding import align

FIXED, FVMLIB = 4, 6
TEXT_FLAGS, RELOCATED, CONST_FLAGS, INPUT_FLAGS, OUTPUT_FLAGS, ZERO_FILL = 0x28, 0x100, 0x26, 0x21, 0x23, 1
TEXT_OFFSET = 0x4000
"""Where the text begins in the file, unless the commands and symbols need more room."""


def segments(places: SectionPlaces, text: bytes, const: bytes, relocated: int, dialect: Dialect) -> tuple[Segment, ...]:
    """All segments in file order; ``relocated`` counts the text's relocations, which are not yet in it."""
    flags = TEXT_FLAGS | (RELOCATED if relocated else 0)
    sections = (
        Section("__text", "__TEXT", places.text, len(text), align=14, flags=flags, content=text),
        Section("__const", "__TEXT", places.const, len(const), align=6, flags=CONST_FLAGS, content=const),
    )
    program = segment_command("__TEXT", places.text, places.program_size, 5, 0 if relocated else FIXED, sections)
    scratch: tuple[Segment, ...] = ()
    if places.scratch_size:
        bss = Section("__bss", "__DATA", places.scratch, places.scratch_size, align=14, flags=ZERO_FILL)
        scratch = (segment_command("__DATA", places.scratch, places.scratch_size, 3, FIXED, (bss,)),)
    page_zero = segment_command("__PAGEZERO", 0, PAGE, 0, FIXED)
    owners = {surface.address: surface for surface in by_role(places.surfaces)}  # a state is an output, too
    libraries = tuple(_library(s) for s in places.surfaces if owners[s.address] is s)
    if dialect.surfaces_first:
        return (page_zero, *scratch, *libraries, program)
    return (page_zero, program, *scratch, *libraries)


def segment_command(
    name: str, address: int, size: int, protection: int, flags: int, sections: tuple[Section, ...] = ()
) -> Segment:
    bytes_of_command = Segment.fixed_size() + len(sections) * Section.fixed_size()
    return Segment(
        command=LC_SEGMENT,
        size=bytes_of_command,
        name=name,
        address=address,
        memory_size=size,
        file_offset=0,
        file_size=0,
        max_protection=protection,
        initial_protection=protection,
        section_count=len(sections),
        flags=flags,
        sections=sections,
    )


def _library(surface: Surface) -> Segment:
    name, flags, protection = ("__const", INPUT_FLAGS, 1) if surface.role == "input" else ("__data", OUTPUT_FLAGS, 2)
    section = Section(name, "__FVMLIB", surface.address, surface.nbytes, align=14, flags=flags)
    return segment_command("__FVMLIB", surface.address, align(surface.nbytes, PAGE), protection, FVMLIB, (section,))


def surface_names(surfaces: Iterable[Surface], dialect: Dialect) -> list[Command]:
    """One command per surface, inputs first."""
    commands: list[Command] = []
    for surface in by_role(surfaces):
        cls, kind = (SurfaceName64, LC_SURFACE_64) if dialect.wide_names else (SurfaceName32, LC_SURFACE_32)
        offset = cls.fixed_size()
        size = align(offset + len(to_bytes(surface.name)) + 1, 8)
        commands.append(cls(kind, size, offset, 0, surface.address, surface.name))
    return commands


def program_thread(
    places: SectionPlaces, first_task_words: int, task_count: int, dialect: Dialect, procedure: str
) -> ProgramThread:
    """The channel table and the task list."""
    channels = [0] * 256
    channels[0], channels[CONST], channels[SCRATCH] = places.text, places.const, places.scratch
    for surface in places.surfaces:
        channels[surface.channel or 0] = surface.address
    tags = (Tag(9, 8, 0),) if dialect.tagged_thread else ()
    procedure_offset = ProgramThread.TAGS_AT + (8 + len(tags) * Tag.fixed_size() if tags else 0)
    mark_850, mark_858 = dialect.thread_marks[task_count > 1]
    return ProgramThread(
        command=LC_THREAD,
        size=align(procedure_offset + len(to_bytes(procedure)) + 1, 8),
        flavor=ProgramThread.FLAVOR,
        payload_words=(procedure_offset - 0x10) // 4,
        channels=tuple(channels),
        text_address=places.text,
        first_task_words_minus_1=first_task_words - 1,
        task_count=task_count,
        unknown_824=0xFFFF,
        procedure_offset=procedure_offset,
        unknown_850=mark_850,
        unknown_858=mark_858,
        procedure=procedure,
        tags=tags,
    )


def tensor_threads(surfaces: Iterable[Surface], dialect: Dialect, procedure: str) -> list[TensorThread]:
    """One descriptor per surface: inputs in ascending order of their names, then outputs."""
    ordered = by_role(surfaces)
    inputs = sorted((s for s in ordered if s.role == "input"), key=lambda s: to_bytes(s.name))
    return [_tensor_thread(s, dialect, procedure) for s in (*inputs, *(s for s in ordered if s.role == "output"))]


def _tensor_thread(surface: Surface, dialect: Dialect, procedure: str) -> TensorThread:
    second = surface.name if dialect.suffixed_second_name else surface.label
    at = dialect.strings_at
    name_at = at + len(to_bytes(procedure)) + 1
    second_at = name_at + len(to_bytes(surface.name)) + 1
    n, c, h, w = surface.shape
    _, plane, row, element = surface.strides  # type: ignore[misc]
    exact = dialect.exact_output_size and surface.role == "output"
    return TensorThread(
        command=LC_THREAD,
        size=align(second_at + len(to_bytes(second)) + 1, 8),
        flavor=TensorThread.FLAVOR,
        payload_words=dialect.tensor_payload_words,
        unknown_10=3,
        role=2 if surface.role == "output" else 1,
        procedure_offset=at,
        name_offset=name_at,
        element_code=ELEMENT_CODES[surface.dtype],
        n=n,
        c=c,
        h=h,
        w=w,
        d=1,
        batch_stride=surface.bytes_per_batch,
        plane_stride=plane,
        row_stride=row,
        element_stride=element,
        depth_stride=surface.bytes_per_batch,
        interleave=1,
        second_name_offset=second_at,
        byte_size=surface.last_byte if exact else surface.bytes_per_batch,
        procedure=procedure,
        name=surface.name,
        second_name=second,
    )


def ident_command(ident: Ident, dialect: Dialect, generation: str) -> IdentCommand:
    """Writer of the file."""
    text = (ident.written_by_zin4 if dialect.name == "zin4" else ident.written_by_hexane)(generation)
    return IdentCommand(LC_IDENT, align(8 + len(to_bytes(text)) + 1, 8), text)


CONSTANT_WORD, ADDRESS_PACKET = 1 << 24 | 2 << 25, 1 << 24 | 3 << 25
"""Relocations of a word of the text, and of one that an address record holds (docs/reference/engine-h13.md 2.10)."""


def with_relocations(
    parts: Sequence[Segment], offsets: Iterable[int], kind: int, section: tuple[str, str]
) -> tuple[Segment, ...]:
    """The segments, with the words at these offsets of the text as addresses in a section (segment and name)."""
    ordinals = {(s.segment, s.name): i for i, s in enumerate((s for part in parts for s in part.sections), 1)}
    relocations = tuple(Relocation(offset, kind | ordinals[section]) for offset in offsets)
    sections = {part.name: (replace(part.sections[0], relocations=relocations), *part.sections[1:])
                for part in parts if part.name == "__TEXT" and relocations}  # fmt: skip
    return tuple(replace(part, sections=sections.get(part.name, part.sections)) for part in parts)
