"""``.hwx`` files: bytes to parts and back (docs/reference/engine-h13.md 2, docs/reference/generations.md 3).

Reading is strict about what could make a later step wrong or slow (sizes, overlaps, strings that run out of their
table) and lossless about everything else: bytes that no known structure explains become a `Remainder`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hexane.errors import FormatError
from hexane.image.container import Container
from hexane.image.parts import (
    LC_IDENT,
    LC_SEGMENT,
    LC_SURFACE_32,
    LC_SURFACE_64,
    LC_SYMTAB,
    LC_THREAD,
    MAGIC,
    RELOCATION_BYTES,
    Command,
    Header,
    IdentCommand,
    OpaqueCommand,
    ProgramThread,
    Section,
    Segment,
    StreamThread,
    SurfaceName32,
    SurfaceName64,
    Symbol,
    SymbolTableCommand,
    Tag,
    TensorThread,
    read_relocations,
    string_at,
)
from hexane.image.remainders import remainders
from hexane.image.structure import to_text


def is_hwx(data: bytes) -> bool:
    """True where the bytes begin with the magic of this format."""
    return data[:4] == MAGIC.to_bytes(4, "little")


def read_hwx(data: bytes) -> Container:
    """The parts of a file; `FormatError` gives byte offset and reason where the bytes do not hold together."""
    if len(data) < Header.fixed_size():
        raise FormatError(
            f"the file ends after {len(data)} bytes, a header has {Header.fixed_size()}", offset=len(data)
        )
    if not is_hwx(data):
        raise FormatError(f"the magic is {data[:4].hex()}, an engine program begins with cefaefbe", offset=0)
    header = Header.read(data, 0, "the header")
    commands = _read_commands(data, header)
    symbols = _read_symbols(data, commands)
    relocations = sum(s.relocation_count for _, c in commands if isinstance(c, Segment) for s in c.sections)
    if relocations * RELOCATION_BYTES > len(data):
        raise FormatError(f"the sections state {relocations} relocations, more than the file can hold", offset=0x20)
    filled = tuple(_with_contents(data, c, at) if isinstance(c, Segment) else c for at, c in commands)
    _refuse_overlaps([c for c in filled if isinstance(c, Segment)])
    container = Container(header, filled, symbols, len(data))
    return replace(container, remainders=remainders(container.write(), data))


def _read_commands(data: bytes, header: Header) -> list[tuple[int, Command]]:
    at, end = Header.fixed_size(), Header.fixed_size() + header.command_bytes
    if end > len(data):
        raise FormatError(
            f"load commands of {header.command_bytes:#x} bytes end behind the file's end ({len(data):#x})", offset=0x14
        )
    if header.command_count * 8 > header.command_bytes:
        raise FormatError(
            f"{header.command_count} load commands do not fit {header.command_bytes:#x} bytes", offset=0x10
        )
    commands: list[tuple[int, Command]] = []
    for _ in range(header.command_count):
        if at + 8 > end:
            raise FormatError("the load commands end early", offset=at)
        kind, size = (int.from_bytes(data[at + i : at + i + 4], "little") for i in (0, 4))
        if size < 8 or at + size > end:
            raise FormatError(f"load command {kind:#x} states {size:#x} bytes, {end - at:#x} are left", offset=at + 4)
        commands.append((at, _read_command(kind, data[at : at + size], at)))
        at += size
    return commands


def _read_command(kind: int, body: bytes, at: int) -> Command:
    reader = _COMMANDS.get(kind)
    if reader is not None:
        return reader(body, at)
    return _opaque(body)


def _opaque(body: bytes) -> OpaqueCommand:
    return OpaqueCommand(**OpaqueCommand.read_fields(body, 0, "a load command"), body=body[8:])


def _segment(body: bytes, at: int) -> Segment:
    fields = _fields(Segment, body, at)
    room = (len(body) - Segment.fixed_size()) // Section.fixed_size()
    if fields["section_count"] > room:
        raise FormatError(
            f"segment {fields['name']!r} states {fields['section_count']} sections, its command has room for {room}",
            offset=at + 0x40,
        )
    starts = (Segment.fixed_size() + i * Section.fixed_size() for i in range(fields["section_count"]))
    return Segment(**fields, sections=tuple(Section.read(body, start, "a section") for start in starts))


def _surface_name(cls: type[SurfaceName32] | type[SurfaceName64]) -> Callable[[bytes, int], Command]:
    def read(body: bytes, at: int) -> Command:
        fields = _fields(cls, body, at)
        return cls(**fields, name=string_at(body, fields["name_offset"], at, "the surface's name"))

    return read


def _thread(body: bytes, at: int) -> Command:
    flavor = int.from_bytes(body[8:12], "little")
    for cls in (ProgramThread, StreamThread):
        if flavor == cls.FLAVOR:
            fields = _fields(cls, body, at)
            procedure = string_at(body, fields["procedure_offset"], at, "the procedure's name")
            return cls(**fields, procedure=procedure, tags=_tags(body, cls.TAGS_AT, fields["procedure_offset"]))
    if flavor == TensorThread.FLAVOR:
        fields = _fields(TensorThread, body, at)
        names: dict[str, Any] = {
            field: string_at(body, fields[f"{field}_offset"], at, f"the tensor's {field.replace('_', ' ')}")
            for field in ("procedure", "name", "second_name")
        }
        return TensorThread(**fields, **names)
    return _opaque(body)


def _tags(body: bytes, at: int, end: int) -> tuple[Tag, ...]:
    """The tag records between the fixed part and the procedure's name; none where they are not there in this form."""
    count = int.from_bytes(body[at : at + 4], "little")
    start = at + 8
    if start + count * Tag.fixed_size() != end or end > len(body):
        return ()
    return tuple(Tag.read(body, start + i * Tag.fixed_size(), "a tag record") for i in range(count))


def _ident(body: bytes, at: int) -> IdentCommand:
    return IdentCommand(**_fields(IdentCommand, body, at), text=to_text(body[8:]))


def _symbol_table(body: bytes, at: int) -> SymbolTableCommand:
    return SymbolTableCommand(**_fields(SymbolTableCommand, body, at))


def _fields(cls: Any, body: bytes, at: int) -> dict[str, Any]:
    if len(body) < cls.fixed_size():
        raise FormatError(
            f"load command {int.from_bytes(body[:4], 'little'):#x} has {len(body):#x} bytes, "
            f"a {cls.__name__} needs {cls.fixed_size():#x}",
            offset=at + 4,
        )
    return cls.read_fields(body, 0, cls.__name__)


_COMMANDS: dict[int, Callable[[bytes, int], Command]] = {
    LC_SEGMENT: _segment,
    LC_SURFACE_32: _surface_name(SurfaceName32),
    LC_SURFACE_64: _surface_name(SurfaceName64),
    LC_THREAD: _thread,
    LC_IDENT: _ident,
    LC_SYMTAB: _symbol_table,
}


def _read_symbols(data: bytes, commands: list[tuple[int, Command]]) -> tuple[Symbol, ...]:
    tables = [(at, c) for at, c in commands if isinstance(c, SymbolTableCommand)]
    if not tables:
        return ()
    if len(tables) > 1:
        raise FormatError("a second symbol table", offset=tables[1][0])
    at, table = tables[0]
    size = table.symbol_count * Symbol.fixed_size()
    if table.symbol_offset + size > len(data):
        raise FormatError(
            f"{table.symbol_count} symbols at {table.symbol_offset:#x} end behind the file's end", offset=at + 8
        )
    if table.string_offset + table.string_size > len(data):
        raise FormatError(
            f"{table.string_size:#x} bytes of strings at {table.string_offset:#x} end behind the file's end",
            offset=at + 16,
        )
    strings = data[table.string_offset : table.string_offset + table.string_size]
    names: dict[int, str] = {}
    budget = 4 * len(strings) + 64
    symbols = []
    for start in range(table.symbol_offset, table.symbol_offset + size, Symbol.fixed_size()):
        fields = Symbol.read_fields(data, start, "a symbol")
        at_string = fields["string_offset"]
        if at_string not in names:
            end = strings.find(b"\0", at_string) if at_string < len(strings) else -1
            if end < 0:
                raise FormatError(f"the symbol's name at {at_string:#x} runs out of the string table", offset=start)
            names[at_string] = to_text(strings[at_string:end])
            budget -= end - at_string
            if budget < 0:
                raise FormatError("the symbols' names overlap each other without end", offset=start)
        symbols.append(Symbol(**fields, name=names[at_string]))
    return tuple(symbols)


def _with_contents(data: bytes, segment: Segment, at: int) -> Segment:
    where = f"segment {segment.name!r}"
    if segment.address + segment.memory_size > 1 << 64:
        raise FormatError(f"{where} of {segment.memory_size:#x} bytes leaves the address space", offset=at + 0x18)
    if segment.file_offset + segment.file_size > len(data):
        raise FormatError(
            f"{where} wants bytes {segment.file_offset:#x} to {segment.file_offset + segment.file_size:#x}, "
            f"the file has {len(data):#x}",
            offset=at + 0x28,
        )
    sections = []
    for i, section in enumerate(segment.sections):
        here = at + Segment.fixed_size() + i * Section.fixed_size()
        content = b""
        if segment.file_size and (section.offset or segment.name == "__TEXT"):
            low, high = section.offset, section.offset + section.size
            if low < segment.file_offset or high > segment.file_offset + segment.file_size:
                raise FormatError(
                    f"section {section.name!r} wants bytes {low:#x} to {high:#x}, outside its segment", offset=here
                )
            content = data[low:high]
        end = section.relocation_offset + section.relocation_count * RELOCATION_BYTES
        if section.relocation_count and end > len(data):
            raise FormatError(f"{section.relocation_count} relocations end behind the file's end", offset=here + 0x38)
        relocations = read_relocations(data, section.relocation_offset, section.relocation_count)
        sections.append(replace(section, content=content, relocations=relocations))
    ranges = sorted((s.offset, s.offset + len(s.content), s.name) for s in sections if s.content)
    for (_, end, name), (start, _, other) in pairwise(ranges):
        if start < end:
            raise FormatError(f"sections {name!r} and {other!r} of {where} overlap in the file", offset=start)
    return replace(segment, sections=tuple(sections))


def _refuse_overlaps(segments: list[Segment]) -> None:
    """No two segments may fill the same bytes of the file, nor two mapped ones the same addresses."""
    in_file = [(s.file_offset, s.file_offset + s.file_size, s.name) for s in segments if s.file_size]
    mapped = [(s.address, s.address + s.memory_size, s.name) for s in segments if s.memory_size and s.max_protection]
    for ranges, what in ((in_file, "in the file"), (mapped, "in memory")):
        ranges.sort()
        for (_, end, name), (start, _, other) in pairwise(ranges):
            if start < end:
                raise FormatError(f"segments {name!r} and {other!r} overlap {what}", offset=start)
