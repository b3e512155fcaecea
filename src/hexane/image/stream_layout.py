"""Lay out engine programs of H14 and later: slots, a stream of tasks, from H16 on a section of kernels.

The thread follows programs of Apple's compiler (H14 records, H16 and H17 files). The names of the kernels' segment and
section are hexane's own: no file of Apple's with them is known byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hexane.errors import UsageError
from hexane.image.assemble import KERNEL_SEGMENT, assemble
from hexane.image.commands import (
    ADDRESS_PACKET,
    ident_command,
    segment_command,
    segments,
    surface_names,
    tensor_threads,
    with_relocations,
)
from hexane.image.container import Container
from hexane.image.dialect import Dialect
from hexane.image.ident import Ident
from hexane.image.parts import GENERATION_SUBTYPES, LC_THREAD, Command, Section, Segment, StreamThread, Tag
from hexane.image.placement import SectionPlaces, place
from hexane.image.structure import to_bytes
from hexane.image.surface import Surface
from hexane.image.symbols import symbols_of
from hexane.isa import Task, encode_stream
from hexane.isa import place as place_tasks
from hexane.isa.channels import CHANNELS, CONST, SCRATCH
from hexane.isa.granules import PAGE
from hexane.isa.schema import FieldError
from hexane.rounding import align

KERNEL_SECTION = "__kern_0"
KERNEL_FLAGS = 0x26
WORDS_PER_SLOT = 4
STREAM_KIND = 4
LAST = 0xFFFF
RATE_TAG, LONGEST_TAG, SCRATCH_TAG, SCRATCH_KIND_TAG = 7, 9, 2, 3
RATE = 0x461C4000  # 10000.0 as binary32, in every program
SCRATCH_KIND = 0x08020004
KERNEL_REGISTERS = ("KernelDMASrc.KernelBase", "KernelDMASrc.TableBase")


@dataclass(frozen=True)
class ThreadStream:
    """Parts of a program of slots; ``kernels`` is empty where kernels stand among the constants."""

    tasks: Sequence[Task]
    const: bytes
    kernels: bytes
    surfaces: Sequence[Surface]
    generation: str
    scratch_bytes: int
    procedure: str

    @property
    def kernel_slot(self) -> int | None:
        """The slot behind the last surface, where there is a section of kernels."""
        if not self.kernels:
            return None
        return max((surface.channel or 0 for surface in self.surfaces), default=0) + 1


def lay_out_stream(program: ThreadStream, dialect: Dialect, ident: Ident) -> Container:
    """All parts of the container."""
    text = encode_stream(program.tasks, program.generation)
    places = place(program.surfaces, len(text), len(program.const), program.scratch_bytes, dialect)
    program = replace(program, surfaces=places.surfaces)
    kernel_at = align(places.text + places.program_size, PAGE)
    slot = program.kernel_slot
    if slot is not None and slot >= CHANNELS:
        raise UsageError(f"{len(places.surfaces)} surfaces leave no slot for the kernels")
    relocated = () if slot is None else _kernel_words(program, slot)
    parts = segments(places, text, program.const, len(relocated), dialect)
    if program.kernels:
        parts = (*parts, _kernel_segment(kernel_at, program.kernels))
    parts = with_relocations(parts, relocated, ADDRESS_PACKET, (KERNEL_SEGMENT, KERNEL_SECTION))
    commands: tuple[Command, ...] = (
        *parts,
        *surface_names(places.surfaces, dialect),
        _thread(program, places, len(text), kernel_at),
        *tensor_threads(places.surfaces, dialect, program.procedure),
        ident_command(ident, dialect, program.generation),
    )
    symbols = symbols_of((), places, program.const, ident, parts, dialect)
    return assemble(commands, symbols, GENERATION_SUBTYPES[program.generation])


def _kernel_segment(address: int, data: bytes) -> Segment:
    section = Section(
        KERNEL_SECTION, KERNEL_SEGMENT, address, len(data), align=14, flags=KERNEL_FLAGS, content=bytes(data)
    )
    return segment_command(KERNEL_SEGMENT, address, align(len(data), PAGE), 1, 0, (section,))


def _kernel_words(program: ThreadStream, slot: int) -> tuple[int, ...]:
    """Byte offsets in the text of every offset into the section of kernels."""
    places = []
    for at, task in zip(place_tasks(program.tasks, program.generation), program.tasks):
        for name in KERNEL_REGISTERS:
            try:
                key = task.handle(name).key
            except FieldError:
                continue
            if task.slot(name) == slot * WORDS_PER_SLOT:
                places.append(at + 4 * task.layout.position[key])
    return tuple(places)


def _thread(program: ThreadStream, places: SectionPlaces, text_bytes: int, kernel_at: int) -> StreamThread:
    """The slots and the task stream."""
    slots = [0] * 256
    addresses = {0: places.text, CONST: places.const, SCRATCH: places.scratch}
    addresses |= {surface.channel or 0: surface.address for surface in places.surfaces}
    if program.kernel_slot is not None:
        addresses[program.kernel_slot] = kernel_at
    for slot, address in addresses.items():
        slots[2 * slot] = address
    scratch = places.scratch_size
    tags = [Tag(SCRATCH_TAG, 8, scratch), Tag(SCRATCH_KIND_TAG, 8, SCRATCH_KIND)] if scratch else []
    longest = max(task.get("Header[1].ExeCycles") for task in program.tasks)
    tags += [Tag(RATE_TAG, 8, RATE), Tag(LONGEST_TAG, 8, longest)]
    procedure_offset = StreamThread.TAGS_AT + 8 + len(tags) * Tag.fixed_size()
    return StreamThread(
        command=LC_THREAD,
        size=align(procedure_offset + len(to_bytes(program.procedure)) + 1, 8),
        flavor=StreamThread.FLAVOR,
        payload_words=(procedure_offset - 0x10) // 4,
        slots=tuple(slots),
        text_address=places.text,
        unknown_820=STREAM_KIND,
        text_words=text_bytes // 4,
        task_count=len(program.tasks),
        unknown_838=0xFFFFFFFF,
        unknown_83c=0xFFFFFFFF,
        unknown_844=LAST,
        procedure_offset=procedure_offset,
        scratch_bytes=scratch,
        unknown_868=STREAM_KIND,
        procedure=program.procedure,
        tags=tuple(tags),
    )
