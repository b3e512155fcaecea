"""Give every table and every part of a container its place in the file.

Order: header, commands, symbols, strings, relocations; from the next page on the segments that have bytes in the file.
Source: docs/reference/engine-h13.md 2, docs/reference/generations.md 3.
"""

from __future__ import annotations

from dataclasses import replace

from hexane.image.commands import TEXT_OFFSET
from hexane.image.container import Container
from hexane.image.parts import LC_SYMTAB, RELOCATION_BYTES, Command, Header, Segment, Symbol, SymbolTableCommand
from hexane.image.symbols import string_table_size
from hexane.isa.granules import PAGE
from hexane.rounding import align

PROGRAM_SEGMENT, KERNEL_SEGMENT = "__TEXT", "__KERN_0"


def assemble(commands: tuple[Command, ...], symbols: tuple[Symbol, ...], subtype: int) -> Container:
    """The container of these commands and symbols; ``subtype`` names the generation."""
    table_size = SymbolTableCommand.fixed_size()
    command_bytes = sum(command.size for command in commands) + table_size
    symbol_offset = Header.fixed_size() + command_bytes
    string_offset = symbol_offset + len(symbols) * Symbol.fixed_size()
    string_size = string_table_size(symbols)
    relocation_offset = align(string_offset + string_size, 8)
    end = relocation_offset + sum(_relocations(command) for command in commands) * RELOCATION_BYTES
    at = max(TEXT_OFFSET, align(end, PAGE))
    table = SymbolTableCommand(LC_SYMTAB, table_size, symbol_offset, len(symbols), string_offset, string_size)
    filled: list[Command] = []
    for command in commands:
        if isinstance(command, Segment) and command.name in (PROGRAM_SEGMENT, KERNEL_SEGMENT):
            command = _in_file(command, at, relocation_offset)
            at += command.file_size
        filled.append(command)
    header = Header(cpu_subtype=subtype, command_count=len(commands) + 1, command_bytes=command_bytes)
    return Container(header, (*filled, table), symbols, at)


def _relocations(command: Command) -> int:
    if not isinstance(command, Segment):
        return 0
    return sum(len(section.relocations) for section in command.sections)


def _in_file(segment: Segment, at: int, relocation_offset: int) -> Segment:
    """The segment with its place in the file; its relocations are those of its first section."""
    sections = tuple(replace(section, offset=at + section.address - segment.address) for section in segment.sections)
    if sections[0].relocations:
        first = replace(sections[0], relocation_offset=relocation_offset, relocation_count=len(sections[0].relocations))
        sections = (first, *sections[1:])
    return replace(segment, file_offset=at, file_size=segment.memory_size, sections=sections)
