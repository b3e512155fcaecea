"""An engine program to assembly text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

from hexane.counts import counted
from hexane.image.anec_parts import AnecPackage
from hexane.image.container import Container
from hexane.image.image import Image
from hexane.image.kernels import Kernel
from hexane.image.parts import OpaqueCommand, ProgramThread, Section, Segment, StreamThread
from hexane.image.rebuild import current_parts, follows_the_rule
from hexane.image.surface import Surface
from hexane.image.text.data import data_lines
from hexane.image.text.structures import part_line
from hexane.isa import GENERATIONS
from hexane.isa.assembly import disassemble, format_directive
from hexane.isa.channels import CONST

EXACT = "parts"
"""The name that ``.container`` takes where every part is listed."""


def disassemble_image(image: Image, comments: bool = True, *, offsets: bool = False) -> str:
    """Text that `assemble_image` turns into the same bytes; ``offsets``: comments say where in a task words stand."""
    image = Image(current_parts(image))
    by_rule = follows_the_rule(image)
    head = list(_values(image, comments) if by_rule else _parts(image, comments))
    lines = list(_intro(image, by_rule, comments))
    if image.generation in GENERATIONS:
        lines += [format_directive("generation", image.generation), *head]
        lines += [
            *disassemble(image.tasks, image.generation, comments=comments, head=False, offsets=offsets).splitlines(),
            "",
        ]
    else:
        lines += [*head, "", ".text", *data_lines(image.contents.text), ""]
    explained = comments and by_rule
    lines += [".const", *(_constants(image, image.const, CONST) if explained else data_lines(image.const))]
    if by_rule and image.kernel_section:
        own, channel = image.kernel_section, image.kernel_channel
        lines += ["", ".kernels", *(_constants(image, own, channel) if explained else data_lines(own))]
    return "\n".join(lines) + "\n"


def _intro(image: Image, by_rule: bool, comments: bool) -> Iterator[str]:
    if not comments:
        return
    count = image.task_count
    tasks = "no task list" if count is None else counted(count, "task")
    yield f"; An engine program for {image.generation}: {tasks}, {len(image.const)} constant bytes."
    if by_rule:
        yield "; Load commands, addresses, symbols and relocations follow from the lines below."
    yield ""


def _values(image: Image, comments: bool) -> Iterator[str]:
    yield format_directive("container", image.dialect)
    yield format_directive("procedure", image.procedure)
    ident = image.ident
    if ident.text is not None:
        yield format_directive("ident", text=ident.text)
    else:
        target = {"target": ident.target} if ident.target else {}
        yield format_directive("ident", input=ident.input_path, output=ident.output_path, **target)
    for name in ident.kernel_names:
        yield format_directive("kernel", name)
    if image.scratch_bytes:
        yield format_directive("scratch", image.scratch_bytes)
    if comments:
        yield "; surfaces: N, C, H, W; strides of n, c, h, w in bytes; channel = the number that tasks name them by"
    for surface in image.surfaces:
        yield _surface(surface)


def _surface(surface: Surface) -> str:
    options: dict[str, Any] = {"shape": surface.shape, "dtype": surface.dtype, "strides": surface.strides}
    if surface.channel is not None:
        options["channel"] = surface.channel
    return format_directive("surface", surface.name, surface.role, **options)


def _constants(image: Image, section: bytes, channel: int | None) -> Iterator[str]:
    """The section of a channel cut where kernels begin, with a comment on whose they are."""
    starts: dict[int, list[tuple[Kernel, int]]] = {}
    for kernel in image.kernels:
        for chunk in kernel.chunks if kernel.is_constant and kernel.channel == channel else ():
            starts.setdefault(chunk.offset, []).append((kernel, chunk.core))
    edges = sorted({0, *(start for start in starts if start < len(section)), len(section)})
    for start, stop in pairwise(edges):
        for kernel, readers in groupby(starts.get(start, ()), key=lambda pair: pair[0]):
            cores = [core for _, core in readers]
            names = f"core {cores[0]}" if len(cores) == 1 else f"cores {cores[0]} to {cores[-1]}"
            yield f"; byte {start:#x}: {kernel.kind} of task t{kernel.task}, {names}"
        yield from data_lines(section[start:stop])


def _parts(image: Image, comments: bool) -> Iterator[str]:
    yield format_directive("container", EXACT)
    parts = image.parts
    if isinstance(parts, AnecPackage):
        yield format_directive("package", header_size=parts.header_size, file_size=parts.file_size)
        yield part_line(parts.header)
    else:
        yield format_directive("file", parts.file_size)
        yield part_line(parts.header)
        yield from _commands(parts)
        for symbol in parts.symbols:
            yield part_line(symbol)
    if comments and parts.remainders:
        yield "; bytes that no known structure explains"
    for rest in parts.remainders:
        yield format_directive("remainder", rest.offset)
        yield from data_lines(rest.content)


def _commands(container: Container) -> Iterator[str]:
    for command in container.commands:
        yield part_line(command)
        if isinstance(command, ProgramThread | StreamThread):
            yield from map(part_line, command.tags)
        if isinstance(command, OpaqueCommand):
            yield ".content"
            yield from data_lines(command.body)
        if isinstance(command, Segment):
            for section in command.sections:
                yield from _section(command, section)


def _section(segment: Segment, section: Section) -> Iterator[str]:
    yield part_line(section)
    for info, group in groupby(section.relocations, key=lambda r: r.info):
        yield format_directive("relocations", [r.address for r in group], info=info)
    if section.content and not (segment.name == "__TEXT" and section.name in ("__text", "__const")):
        yield ".content"
        yield from data_lines(section.content)
