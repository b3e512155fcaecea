"""`Image`: an engine program, from a file or made new."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hexane.counts import counted
from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.files import write_whole
from hexane.image.anec_parts import AnecPackage
from hexane.image.container import Container
from hexane.image.contents import ImageContents, contents_of
from hexane.image.dialect import dialect_named
from hexane.image.ident import Ident
from hexane.image.kernels import GENERATIONS as KERNEL_GENERATIONS
from hexane.image.kernels import Kernel, kernels_of
from hexane.image.layout import lay_out
from hexane.image.packages import package_of
from hexane.image.parts import ProgramThread, Relocation, Segment, StreamThread, Symbol, TensorThread
from hexane.image.placement import in_name_order, numbered_by_name
from hexane.image.rebuild import buildable_dialect, current_parts, with_contents
from hexane.image.selectors import renumbered, surfaces_as_used
from hexane.image.surface import Surface, as_surface
from hexane.isa import GENERATIONS, Task, decode_stream, encode_stream, task_list
from hexane.isa.channels import FIRST_SURFACE


class Image:
    """An engine program: its tasks, constants and surfaces, and the container that holds them.

    ``tasks`` are decoded when first asked for, and may be changed in place; `rebuild` writes them as they are then.

    Parameters
    ----------
    parts : the container's parts.
    source : the bytes that the parts were read from; None for an image that was made.
    origin : the file's name, for messages.
    """

    def __init__(self, parts: Container | AnecPackage, source: bytes | None = None, origin: str | None = None) -> None:
        self.parts = parts
        self._source = source
        self._origin = origin
        self._decoded: tuple[Task, ...] = ()

    @cached_property
    def contents(self) -> ImageContents:
        """The program's values as the parts hold them; changes made to ``tasks`` do not show here."""
        return contents_of(self.parts)

    @property
    def generation(self) -> str:
        """The engine's generation, ``"h13"`` for the A14 and M1 family."""
        return self.contents.generation

    @property
    def dialect(self) -> str:
        """Whose container this is: a name of `hexane.image.DIALECTS`, or ``"anec"``."""
        return self.contents.dialect

    @property
    def procedure(self) -> str:
        """Name of the program's procedure."""
        return self.contents.procedure

    @property
    def ident(self) -> Ident:
        """Compiler identification: paths, kernel names, text."""
        return self.contents.ident

    @property
    def surfaces(self) -> list[Surface]:
        """Inputs, then outputs, each in address order."""
        return list(self._surfaces)

    @cached_property
    def _surfaces(self) -> tuple[Surface, ...]:
        if self.dialect != "anec":
            return self.contents.surfaces
        return surfaces_as_used(self.contents.surfaces, self.tasks)

    @property
    def inputs(self) -> list[Surface]:
        return [s for s in self._surfaces if s.role == "input"]

    @property
    def outputs(self) -> list[Surface]:
        return [s for s in self._surfaces if s.role == "output"]

    def surface(self, name: str) -> Surface:
        """The surface of that name, with or without ``@output``; `UsageError` lists the names."""
        for surface in self._surfaces:
            if name in (surface.name, surface.label):
                return surface
        names = ", ".join(s.name for s in self._surfaces) or "none"
        raise UsageError(f"no surface is called {name!r}", hint=f"the surfaces are {names}")

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the scratch buffer (channel 3)."""
        return self.contents.scratch_bytes

    @property
    def const(self) -> bytes:
        """The constant section: kernels, tables, constant operands."""
        return self.contents.const

    @property
    def constant_bytes(self) -> int:
        """Bytes of all that the program brings along: kernels, tables, constant operands, wherever they stand."""
        return len(self.const) + len(self.kernel_section)

    @property
    def kernel_section(self) -> bytes:
        """Weights and tables where they have a section of their own (H16 and later), else empty."""
        return self.contents.kernels

    @property
    def kernel_channel(self) -> int | None:
        """The slot of the section of kernels."""
        return self.contents.kernel_channel

    @cached_property
    def tasks(self) -> list[Task]:
        """The task descriptors in the order in which they run."""
        if self.generation not in GENERATIONS:
            raise UnsupportedError(
                f"the tasks of a {self.generation} program cannot be decoded",
                hint=f"hexane knows the tasks of {', '.join(GENERATIONS)}",
            )
        if not self.contents.text:
            raise FormatError("section __TEXT,__text is empty or missing, so there is no task", offset=0x10)
        try:
            tasks = decode_stream(self.contents.text, self.generation)
        except FormatError as error:
            offset = None if error.offset is None else self.contents.text_offset + error.offset
            raise FormatError(error.message, offset=offset, where=self._origin, hint=error.hint) from None
        self._check_count(len(tasks))
        self._decoded = tuple(tasks)
        return tasks

    def _check_count(self, count: int) -> None:
        stated = self.task_count
        if stated is not None and stated != count:
            raise FormatError(
                f"the program states {stated} tasks, its stream has {count}", offset=self.contents.text_offset
            )

    @property
    def task_count(self) -> int | None:
        """The number of tasks that the container states; None where it states none."""
        if isinstance(self.parts, AnecPackage):
            return self.parts.header.td_count
        thread = self.program_thread
        return thread.task_count if thread else None

    @property
    def program_thread(self) -> ProgramThread | StreamThread | None:
        """The command that lists channels and tasks, where there is one."""
        if isinstance(self.parts, AnecPackage):
            return None
        thread = self.parts.first(ProgramThread) or self.parts.first(StreamThread)
        return thread if isinstance(thread, ProgramThread | StreamThread) else None

    @property
    def tensor_threads(self) -> list[TensorThread]:
        """The commands that describe the surfaces, in file order."""
        return [] if isinstance(self.parts, AnecPackage) else list(self.parts.all_of(TensorThread))

    @property
    def kernels(self) -> list[Kernel]:
        """Constants that each task streams, for H13 to H18; empty for other generations."""
        return list(kernels_of(self.tasks)) if self.generation in KERNEL_GENERATIONS else []

    @property
    def segments(self) -> list[Segment]:
        """The container's segments with their sections; a package has none."""
        return [] if isinstance(self.parts, AnecPackage) else list(self.parts.segments)

    @property
    def symbols(self) -> list[Symbol]:
        """The container's symbols; a package has none."""
        return [] if isinstance(self.parts, AnecPackage) else list(self.parts.symbols)

    @property
    def relocations(self) -> list[Relocation]:
        """The relocations of all sections."""
        return [r for segment in self.segments for section in segment.sections for r in section.relocations]

    def section(self, segment: str, section: str) -> bytes:
        """The file's bytes of a section (empty for memory that the file does not fill).

        Raises `UsageError` where there is no such section. A package has ``__TEXT,__text`` and ``__TEXT,__const``.
        """
        if isinstance(self.parts, AnecPackage):
            sections = {("__TEXT", "__text"): self.contents.text, ("__TEXT", "__const"): self.contents.const}
        else:
            sections = {(p.name, s.name): s.content for p in reversed(self.segments) for s in p.sections}
        try:
            return sections[segment, section]
        except KeyError:
            names = ", ".join(",".join(key) for key in sections)
            raise UsageError(f"no section {segment},{section}", hint=f"the sections are {names}") from None

    def to_bytes(self) -> bytes:
        """The very bytes that were read; what `rebuild` gives for an image that was made."""
        return self.rebuild() if self._source is None else self._source

    def rebuild(self) -> bytes:
        """The file written from its parts, with the tasks as they are now.

        Where changed tasks need other symbols, relocations or room, everything is laid out anew.
        """
        return current_parts(self).write()

    def patched(self, tasks: Sequence[Task], const: bytes, kernels: bytes | None = None) -> Image:
        """The program with other tasks, constants and kernels of the same sizes, everything else kept as it is."""
        return Image(with_contents(self.parts, encode_stream(tasks, self.generation), const, kernels))

    @property
    def tasks_decoded(self) -> bool:
        """True where ``tasks`` has been asked for, so that they may differ from the parts."""
        return "tasks" in self.__dict__

    @property
    def tasks_changed(self) -> bool:
        """True where ``tasks`` is another list than the parts hold, or one of them was written to."""
        if not self.tasks_decoded:
            return False
        same = len(self.tasks) == len(self._decoded) and all(a is b for a, b in zip(self.tasks, self._decoded))
        return not (same and all(task.stands_in(self.contents.text) for task in self.tasks))

    def text(self) -> bytes:
        """The text section with the tasks as they are now."""
        if not self.tasks_decoded and (self.generation not in GENERATIONS or not self.contents.text):
            return self.contents.text
        if not self.tasks and not decode_stream(self.contents.text, self.generation):
            return self.contents.text  # a stream of nothing but its frame
        return encode_stream(self.tasks, self.generation)

    def replace(
        self,
        *,
        tasks: Sequence[Task] | None = None,
        const: bytes | None = None,
        surfaces: Iterable[Surface | Mapping[str, Any]] | None = None,
        scratch_bytes: int | None = None,
        dialect: str | None = None,
        ident: Ident | None = None,
        procedure: str | None = None,
    ) -> Image:
        """A new image with some values changed, laid out anew: addresses, tables, symbols and relocations follow."""
        return build_image(
            self.tasks if tasks is None else tasks,
            self.const if const is None else const,
            self.surfaces if surfaces is None else surfaces,
            self.generation,
            self.scratch_bytes if scratch_bytes is None else scratch_bytes,
            dialect=buildable_dialect(self) if dialect is None else dialect,
            ident=self.ident if ident is None else ident,
            procedure=self.procedure if procedure is None else procedure,
            kernels=self.kernel_section,
        )

    def with_surface(self, name: str, /, **changes: Any) -> Image:
        """A new image with one surface renamed or reshaped (``name=``, ``shape=``, ``dtype=``, ...), laid out anew.

        A new shape or type without ``strides`` gets the plain strides of docs/reference/engine-h13.md 6. Where channels
        follow the order of the names (docs/reference/engine-h13.md 5), they do so afterwards, too, and the tasks name
        the new ones.
        """
        old = self.surface(name)
        if ({"shape", "dtype"} & changes.keys()) and "strides" not in changes:
            changes["strides"] = None
        new = as_surface({item.name: getattr(old, item.name) for item in fields(old)} | changes)
        surfaces = [new if s is old else s for s in self._surfaces]
        if not numbered_by_name(self._surfaces, self.dialect) or "channel" in changes:
            return self.replace(surfaces=surfaces)
        by_name = {s.name: FIRST_SURFACE + i for i, s in enumerate(in_name_order(surfaces))}
        tasks = renumbered(self.tasks, {s.channel: by_name[s.name] for s in surfaces if s.channel is not None})
        return self.replace(tasks=tasks, surfaces=[replace(s, channel=by_name[s.name]) for s in surfaces])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to a file, whole or not at all: ``.anec`` as a package, any other name as a container."""
        package = isinstance(path, str | os.PathLike) and Path(path).suffix.lower() == ".anec"
        write_whole(path, (to_anec if package else to_hwx)(self).rebuild())

    def __repr__(self) -> str:
        count = self.task_count
        tasks = "no task list" if count is None else counted(count, "task")
        surfaces = ", ".join(f"{s.name} {'x'.join(map(str, s.shape))}" for s in self.contents.surfaces)
        return f"Image({self.generation} {self.dialect}, {tasks}, {len(self.const)} constant bytes; {surfaces})"


def build_image(
    tasks: Sequence[Task],
    const: bytes,
    surfaces: Iterable[Surface | Mapping[str, Any]],
    generation: str,
    scratch_bytes: int = 0,
    *,
    dialect: str = "default",
    ident: Ident | None = None,
    procedure: str = "net",
    kernels: bytes = b"",
) -> Image:
    """An engine program from its values; every other byte of the container follows from them.

    Source: docs/reference/engine-h13.md 2.

    Parameters
    ----------
    tasks : in the order in which they run, linked (`hexane.isa.link` sets the links).
    const : the constant section; empty for a program without constants.
    surfaces : `Surface` values, or mappings with the same names. Surfaces without a channel take the dialect's.
        In the dialects ``zin4`` and ``zin5`` inputs lie in memory in the order given, then outputs; in ``default``
        all surfaces lie in the order of their names.
    generation : ``"h13"`` to ``"h18"``.
    scratch_bytes : size of the scratch buffer; rounded up to 16 KiB.
    dialect : whose container to write: a name of `hexane.image.DIALECTS`.
    ident : compiler identification; nothing of it changes what the engine computes.
    procedure : name of the procedure.
    kernels : weights and tables where they have a section of their own (H16 and later), behind the last surface.

    Raises
    ------
    UsageError : values that no program can hold.
    UnsupportedError : a generation whose container hexane does not write.
    """
    if not isinstance(surfaces, Iterable):
        raise UsageError(f"a list of surfaces is needed, not a {type(surfaces).__name__}")
    try:
        section = const if type(const) is bytes else memoryview(const).tobytes()
        scratch = operator.index(scratch_bytes)
    except TypeError as error:
        raise UsageError(f"constants are bytes and scratch_bytes is an integer ({error})") from None
    parts = lay_out(
        task_list(tasks),
        section,
        [as_surface(surface) for surface in surfaces],
        generation,
        scratch,
        dialect_named(dialect),
        ident or Ident(),
        procedure,
        bytes(kernels),
    )
    return Image(parts)


def to_hwx(image: Image) -> Image:
    """The program in an ``.hwx`` container; a package gets a new one in the dialect ``default``."""
    return image if isinstance(image.parts, Container) else image.replace()


def to_anec(image: Image) -> Image:
    """The program as a package: channels renumbered so that outputs come first, network id 0x40 in every task."""
    return image if isinstance(image.parts, AnecPackage) else Image(package_of(image))
