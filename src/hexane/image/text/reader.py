"""Assembly text to an engine program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hexane.errors import HexaneError, SyntaxProblem, UsageError
from hexane.image.anec_parts import AnecHeader, AnecPackage
from hexane.image.container import Container, Remainder
from hexane.image.dialect import DIALECTS
from hexane.image.ident import Ident
from hexane.image.image import Image, build_image
from hexane.image.parts import (
    Command,
    Header,
    OpaqueCommand,
    ProgramThread,
    Relocation,
    Section,
    Segment,
    StreamThread,
    Symbol,
    Tag,
)
from hexane.image.surface import Surface
from hexane.image.text.data import LARGEST, DataReader
from hexane.image.text.structures import COMMANDS, part_from
from hexane.image.text.writer import EXACT
from hexane.isa import GENERATIONS, encode_stream
from hexane.isa.assembly import Assembly, Directive, assemble

DEFAULT_GENERATION = "h13"
"""The generation of a text that names none."""


def assemble_image(text: str, name: str = "line") -> Image:
    """The program that a text describes.

    Parameters
    ----------
    name : the file's name, for messages.

    Raises
    ------
    SyntaxProblem : with line and column, for everything that is wrong with the text.
    UsageError : with the file's name, for values that no program can hold together.
    """
    reader = _Reader()
    assembly = assemble(text, DEFAULT_GENERATION, reader.handlers(), name)
    try:
        return reader.image(assembly)
    except UsageError as error:
        where = ": ".join(filter(None, ("the text" if name == "line" else name, error.where)))
        raise UsageError(error.message, where=where, hint=error.hint) from None


@dataclass
class _Reader:
    container: str = "default"
    procedure: str = "net"
    ident: dict[str, Any] = field(default_factory=dict)
    kernel_names: list[str] = field(default_factory=list)
    scratch_bytes: int = 0
    surfaces: list[Surface] = field(default_factory=list)
    data: DataReader = field(default_factory=DataReader)
    text: bytearray | None = None
    const: bytearray = field(default_factory=bytearray)
    kernels: bytearray = field(default_factory=bytearray)
    parts: list[_Part] = field(default_factory=list)
    remainders: list[tuple[int, bytearray]] = field(default_factory=list)
    file_size: int | None = None
    package: tuple[int, int] | None = None

    def handlers(self) -> dict[str, Callable[[Directive], None]]:
        """The directives by name."""
        own = (
            self._container,
            self._procedure,
            self._ident,
            self._kernel,
            self._scratch,
            self._surface,
            self._part,
            self._relocations,
            self._content,
            self._remainder,
            self._file,
            self._package,
        )
        sections = dict.fromkeys(("text", "const", "kernels"), self._section)
        return {**self.data.handlers(), **sections, **{handler.__name__[1:]: handler for handler in own}}

    def _container(self, directive: Directive) -> None:
        name = _text(directive)
        if name not in DIALECTS and name != EXACT:
            directive.fail(f"there is no container {name!r}", f"one of {', '.join(DIALECTS)}, {EXACT}")
        self.container = name

    def _procedure(self, directive: Directive) -> None:
        self.procedure = _text(directive)

    def _ident(self, directive: Directive) -> None:
        names = {"input": "input_path", "output": "output_path", "target": "target", "text": "text"}
        for name, value in directive.options.items():
            if name not in names or not isinstance(value, str):
                directive.fail(f"{name} is not one of the texts {', '.join(names)}")
            self.ident[names[name]] = value
        _checked(directive, lambda: Ident(**self.ident))

    def _kernel(self, directive: Directive) -> None:
        name = _text(directive)
        _checked(directive, lambda: Ident(kernel_names=(name,)))
        self.kernel_names.append(name)

    def _scratch(self, directive: Directive) -> None:
        self.scratch_bytes = _number(directive)

    def _surface(self, directive: Directive) -> None:
        if len(directive.arguments) != 2 or not all(isinstance(a, str) for a in directive.arguments):
            directive.fail("takes a name and a role", ".surface x input shape=[1, 3, 8, 8]")
        unknown = set(directive.options) - {"shape", "dtype", "strides", "channel"}
        if unknown or "shape" not in directive.options:
            directive.fail("takes shape, and dtype, strides and channel where they are not the usual ones")
        name, role = directive.arguments
        self.surfaces.append(_checked(directive, lambda: Surface(name, role, **directive.options)))

    def _section(self, directive: Directive) -> None:
        """``.text``, ``.const`` or ``.kernels``."""
        _nothing(directive)
        setattr(self, directive.name, self.data.start())

    def _part(self, directive: Directive) -> None:
        part = part_from(directive)
        if isinstance(part, Section):
            self._last(directive, Segment).sections.append(_Part(part))
        elif isinstance(part, Tag):
            self._last(directive, ProgramThread, StreamThread).tags.append(part)
        else:
            self.parts.append(_Part(part))
        self.data.open = None

    def _relocations(self, directive: Directive) -> None:
        section = self._last_section(directive)
        info = directive.options.get("info", 0)
        if len(directive.arguments) != 1 or not isinstance(directive.arguments[0], list) or not isinstance(info, int):
            directive.fail("takes a list of byte offsets, and info")
        for offset in directive.arguments[0]:
            if not isinstance(offset, int):
                directive.fail(f"{offset!r} is not a byte offset")
            section.relocations.append(Relocation(offset, info))

    def _content(self, directive: Directive) -> None:
        _nothing(directive)
        if not self.parts or not isinstance(self.parts[-1].value, Segment | OpaqueCommand):
            directive.fail("stands behind a section or an unknown command")
        last = self.parts[-1]
        owner = self._last_section(directive) if isinstance(last.value, Segment) else last
        owner.content = self.data.start()

    def _remainder(self, directive: Directive) -> None:
        self.remainders.append((_number(directive), self.data.start()))

    def _file(self, directive: Directive) -> None:
        self.file_size = _number(directive)

    def _package(self, directive: Directive) -> None:
        sizes = tuple(directive.options.get(name) for name in ("header_size", "file_size"))
        if not all(isinstance(size, int) and 0 <= size <= LARGEST for size in sizes):
            directive.fail("takes header_size and file_size")
        self.package = sizes  # type: ignore[assignment]

    def _last(self, directive: Directive, *kinds: type) -> _Part:
        if not self.parts or not isinstance(self.parts[-1].value, kinds):
            directive.fail(f"stands behind a {' or '.join(kind.__name__ for kind in kinds)}")
        return self.parts[-1]

    def _last_section(self, directive: Directive) -> _Part:
        sections = self._last(directive, Segment).sections
        if not sections:
            directive.fail("stands behind a Section")
        return sections[-1]

    def image(self, assembly: Assembly) -> Image:
        """The program of everything that was read."""
        if self.container != EXACT:
            ident = Ident(kernel_names=tuple(self.kernel_names), **self.ident)
            return build_image(
                assembly.tasks,
                bytes(self.const),
                self.surfaces,
                assembly.generation,
                self.scratch_bytes,
                dialect=self.container,
                ident=ident,
                procedure=self.procedure,
                kernels=bytes(self.kernels),
            )
        decodable = assembly.generation in GENERATIONS and self.text is None
        text = encode_stream(assembly.tasks, assembly.generation) if decodable else bytes(self.text or b"")
        remainders = tuple(Remainder(offset, bytes(content)) for offset, content in self.remainders)
        parts = self._as_package(text, remainders) if self.package else self._as_container(text, remainders)
        try:
            parts.write()
        except HexaneError as error:
            raise UsageError(f"the parts do not fit together: {error}") from None
        return Image(parts)

    def _as_package(self, text: bytes, remainders: tuple[Remainder, ...]) -> AnecPackage:
        headers = [part.value for part in self.parts if isinstance(part.value, AnecHeader)]
        if len(headers) != 1 or self.package is None:
            raise UsageError("a package has one AnecHeader")
        return AnecPackage(headers[0], text, bytes(self.const), *self.package, remainders)

    def _as_container(self, text: bytes, remainders: tuple[Remainder, ...]) -> Container:
        headers = [part.value for part in self.parts if isinstance(part.value, Header)]
        if len(headers) != 1 or self.file_size is None or self.file_size > LARGEST:
            raise UsageError("a container of parts has one Header and a .file size")
        contents = {"__text": text, "__const": bytes(self.const)}
        commands: list[Command] = [p.command(contents) for p in self.parts if type(p.value).__name__ in COMMANDS]
        symbols = tuple(part.value for part in self.parts if isinstance(part.value, Symbol))
        return Container(headers[0], tuple(commands), symbols, self.file_size, remainders)


@dataclass
class _Part:
    """A structure and what stands below it."""

    value: Any
    sections: list[_Part] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    relocations: list[Relocation] = field(default_factory=list)
    content: bytearray = field(default_factory=bytearray)

    def command(self, contents: dict[str, bytes]) -> Any:
        """The load command with everything in it; ``contents`` are those of the program's own sections."""
        if isinstance(self.value, Segment):
            own = contents if self.value.name == "__TEXT" else {}
            sections = tuple(
                replace(
                    part.value,
                    content=own.get(part.value.name, bytes(part.content)),
                    relocations=tuple(part.relocations),
                )
                for part in self.sections
            )
            return replace(self.value, sections=sections)
        if isinstance(self.value, ProgramThread | StreamThread):
            return replace(self.value, tags=tuple(self.tags))
        if isinstance(self.value, OpaqueCommand):
            return replace(self.value, body=bytes(self.content))
        return self.value


def _text(directive: Directive) -> str:
    if len(directive.arguments) != 1 or directive.options or not isinstance(directive.arguments[0], str):
        directive.fail("takes one name")
    return directive.arguments[0]


def _number(directive: Directive) -> int:
    value = directive.arguments[0] if len(directive.arguments) == 1 and not directive.options else None
    if not isinstance(value, int) or value < 0:
        directive.fail("takes one number")
    return value


def _nothing(directive: Directive) -> None:
    if directive.arguments or directive.options:
        directive.fail("takes nothing")


def _checked(directive: Directive, make: Callable[[], Any]) -> Any:
    """A value, or its error at the directive's line."""
    try:
        return make()
    except SyntaxProblem:
        raise
    except HexaneError as error:
        directive.fail(error.message, error.hint)
    except (TypeError, ValueError) as error:
        directive.fail(str(error))
