"""Lay an engine program out from values: every byte of the container follows from them.

Source: docs/reference/engine-h13.md 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hexane.chips import CORES
from hexane.errors import UnsupportedError, UsageError
from hexane.image.commands import (
    TEXT_OFFSET,
    constant_relocations,
    ident_command,
    program_thread,
    segments,
    surface_names,
    tensor_threads,
)
from hexane.image.container import Container
from hexane.image.dialect import Dialect
from hexane.image.ident import Ident
from hexane.image.kernels import Kernel, kernels_of
from hexane.image.parts import (
    GENERATION_SUBTYPES,
    LC_SYMTAB,
    PAGE,
    RELOCATION_BYTES,
    Command,
    Header,
    Relocation,
    Section,
    Segment,
    Symbol,
    SymbolTableCommand,
)
from hexane.image.placement import place
from hexane.image.stream_layout import Stream, lay_out_stream
from hexane.image.surface import Surface, align
from hexane.image.symbols import string_table_size, symbols_of
from hexane.isa import WRITTEN, Task, encode_stream
from hexane.isa import place as place_tasks

"""Generations whose tasks and container are known well enough to be written."""

EMPTY_CONST = bytes(PAGE)
"""The constant section of a program without constants (docs/reference/engine-h13.md 2.2)."""


def lay_out(
    tasks: Sequence[Task],
    const: bytes,
    surfaces: Iterable[Surface],
    generation: str,
    scratch_bytes: int,
    dialect: Dialect,
    ident: Ident,
    procedure: str,
    kernels: bytes = b"",
) -> Container:
    """All parts of the container that holds this program."""
    if generation not in WRITTEN:
        raise UnsupportedError(
            f"hexane writes engine programs for {', '.join(WRITTEN)}, not for {generation!r}",
        )
    if not tasks:
        raise UsageError("a program needs at least one task")
    if scratch_bytes < 0:
        raise UsageError(f"scratch of {scratch_bytes} bytes")
    if not procedure or "\0" in procedure:
        raise UsageError(f"procedure name {procedure!r}")
    const = const or EMPTY_CONST
    if generation != "h13":
        stream = Stream(tasks, const, kernels, tuple(surfaces), generation, scratch_bytes, procedure)
        return lay_out_stream(stream, dialect, ident)
    text = encode_stream(tasks, generation)
    streams = kernels_of(tasks)
    places = place(surfaces, len(text), len(const), scratch_bytes, dialect)
    relocated = _relocated_words(tasks, generation, streams)
    parts = segments(places, text, const, len(relocated), dialect)
    parts = tuple(_relocate(segment, parts, relocated) for segment in parts)
    commands: tuple[Command, ...] = (
        *parts,
        *surface_names(places.surfaces, dialect),
        program_thread(places, len(tasks[0].words()), len(tasks), dialect, procedure),
        *tensor_threads(places.surfaces, dialect, procedure),
        ident_command(ident, dialect, generation),
    )
    symbols = symbols_of(streams, places, const, ident, parts, dialect)
    return _assemble(commands, symbols, len(relocated), places.const_offset, GENERATION_SUBTYPES[generation])


def _relocated_words(tasks: Sequence[Task], generation: str, kernels: Sequence[Kernel]) -> tuple[int, ...]:
    """Byte offsets in the text of every word that names a place in the constant section.

    Source: docs/reference/engine-h13.md 2.10.
    """
    offsets = place_tasks(tasks, generation)
    keys = [tasks[0].handle(f"KernelDMASrc.CoeffBaseAddr[{core}]").key for core in range(CORES)]
    found = []
    for kernel in kernels:
        if kernel.is_constant:
            at, position = offsets[kernel.task], tasks[kernel.task].layout.position
            found += [at + 4 * position[keys[chunk.core]] for chunk in kernel.chunks if keys[chunk.core] in position]
    return tuple(found)


def _relocate(segment: Segment, parts: Sequence[Segment], offsets: tuple[int, ...]) -> Segment:
    if segment.name != "__TEXT" or not offsets:
        return segment
    text, const = segment.sections
    ordinal = [section for part in parts for section in part.sections].index(const) + 1
    relocations: tuple[Relocation, ...] = constant_relocations(offsets, ordinal)
    return replace(segment, sections=(replace(text, relocations=relocations), const))


def _assemble(
    commands: tuple[Command, ...], symbols: tuple[Symbol, ...], relocations: int, const_offset: int, subtype: int
) -> Container:
    """Give every table its place in the file: commands, symbols, strings, relocations, then the program."""
    table_size = SymbolTableCommand.fixed_size()
    command_bytes = sum(command.size for command in commands) + table_size
    symbol_offset = Header.fixed_size() + command_bytes
    string_offset = symbol_offset + len(symbols) * Symbol.fixed_size()
    string_size = string_table_size(symbols)
    relocation_offset = align(string_offset + string_size, 8)
    end = relocation_offset + relocations * RELOCATION_BYTES
    text_offset = max(TEXT_OFFSET, align(end, PAGE))
    table = SymbolTableCommand(LC_SYMTAB, table_size, symbol_offset, len(symbols), string_offset, string_size)
    filled = tuple(
        _in_file(command, text_offset, const_offset, relocation_offset) if isinstance(command, Segment) else command
        for command in commands
    )
    header = Header(cpu_subtype=subtype, command_count=len(commands) + 1, command_bytes=command_bytes)
    program = next(c for c in filled if isinstance(c, Segment) and c.name == "__TEXT")
    return Container(header, (*filled, table), symbols, text_offset + program.file_size)


def _in_file(segment: Segment, text_offset: int, const_offset: int, relocation_offset: int) -> Segment:
    """The segment with its place in the file; only ``__TEXT`` has one."""
    if segment.name != "__TEXT":
        return segment
    text, const = segment.sections
    placed: tuple[Section, ...] = (replace(text, offset=text_offset), replace(const, offset=text_offset + const_offset))
    if text.relocations:
        placed = (
            replace(placed[0], relocation_offset=relocation_offset, relocation_count=len(text.relocations)),
            placed[1],
        )
    return replace(segment, file_offset=text_offset, file_size=segment.memory_size, sections=placed)
