"""A whole file as its parts, and the file out of them (docs/reference/engine-h13.md 2).

`Container.write` paints all parts on a zero canvas; what no part explains is a `Remainder`, so that reading and writing
lose nothing. A file that Apple's compiler wrote has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass

from hexane.image.parts import Command, Header, Section, Segment, Symbol, SymbolTableCommand, pack_relocations
from hexane.image.structure import canvas_of, to_bytes


@dataclass(frozen=True)
class Remainder:
    """Bytes of a file that no part explains, at their byte offset."""

    offset: int
    content: bytes


@dataclass(frozen=True)
class Container:
    """All parts of one file, in file order; ``file_size`` in bytes."""

    header: Header
    commands: tuple[Command, ...]
    symbols: tuple[Symbol, ...] = ()
    file_size: int = 0
    remainders: tuple[Remainder, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.all_of(Segment)

    def all_of(self, kind: type) -> tuple:
        """The commands of one kind, in file order."""
        return tuple(command for command in self.commands if isinstance(command, kind))

    def first(self, kind: type) -> Command | None:
        """The first command of one kind, or None."""
        return next((command for command in self.commands if isinstance(command, kind)), None)

    def offset_of(self, searched: Command) -> int:
        """File offset of a load command."""
        at = Header.fixed_size()
        for command in self.commands:
            if command is searched:
                return at
            at += command.size
        raise ValueError("not a command of this container")

    def section(self, segment: str, name: str) -> Section | None:
        """The first section of that name, or None."""
        for part in self.segments:
            for section in part.sections:
                if part.name == segment and section.name == name:
                    return section
        return None

    def write(self) -> bytes:
        """The file, written from its parts."""
        return canvas_of(self.file_size, self._pieces())

    def _pieces(self) -> Iterator[tuple[int, bytes]]:
        yield 0, self.header.pack()
        at = Header.fixed_size()
        for command in self.commands:
            yield at, command.write()
            at += command.size
        for segment in self.segments:
            for section in segment.sections:
                yield section.offset, section.content
                yield section.relocation_offset, pack_relocations(section.relocations)
        table = self.first(SymbolTableCommand)
        if isinstance(table, SymbolTableCommand):
            yield table.symbol_offset, b"".join(symbol.pack() for symbol in self.symbols)
            for symbol in self.symbols:
                yield table.string_offset + symbol.string_offset, to_bytes(symbol.name)
        yield from map(astuple, self.remainders)
