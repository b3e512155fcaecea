"""An image's parts with its tasks as they are now: in place where that is enough, else laid out anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hexane.errors import HexaneError, UnsupportedError
from hexane.image.anec_parts import AnecPackage
from hexane.image.container import Container
from hexane.image.dialect import DIALECTS
from hexane.image.layout import lay_out
from hexane.image.packages import package_of
from hexane.image.parts import Segment
from hexane.image.stream_layout import KERNEL_SECTION, KERNEL_SEGMENT
from hexane.isa import WRITTEN, decode_stream

if TYPE_CHECKING:
    from hexane.image.image import Image


def current_parts(image: Image) -> Container | AnecPackage:
    """The parts with the text that the image's tasks give."""
    text = image.text()
    if text == image.contents.text:
        return with_contents(image.parts, text, image.const)
    if isinstance(image.parts, AnecPackage):
        return package_of(image)
    if _follows_the_rule(image):
        return _laid_out(image)
    if len(text) == len(image.contents.text) and len(image.tasks) == image.task_count:
        return with_contents(image.parts, text, image.const)
    raise UnsupportedError(
        "the changed tasks do not fit their section, and this container is not one that hexane lays out itself",
        hint="image.replace(tasks=...) makes a new container of hexane's own form",
    )


def buildable_dialect(image: Image) -> str:
    """The dialect in which the image can be laid out anew."""
    return image.dialect if image.dialect in DIALECTS else "default"


def follows_the_rule(image: Image) -> bool:
    """True where the whole container, as it was read or made, follows from the program's values."""
    return isinstance(image.parts, Container) and _follows_the_rule(image)


def _follows_the_rule(image: Image) -> bool:
    contents = image.contents
    if contents.generation not in WRITTEN or contents.dialect not in DIALECTS:
        return False
    try:
        return _laid_out(image, as_read=True) == image.parts
    except HexaneError:  # values that no program of ours can hold
        return False


def _laid_out(image: Image, as_read: bool = False) -> Container:
    contents = image.contents
    tasks = decode_stream(contents.text, contents.generation) if as_read else image.tasks
    return lay_out(
        tasks,
        contents.const,
        contents.surfaces,
        contents.generation,
        contents.scratch_bytes,
        DIALECTS[contents.dialect],
        contents.ident,
        contents.procedure,
        contents.kernels,
    )


def with_contents(
    parts: Container | AnecPackage, text: bytes, const: bytes, kernels: bytes | None = None
) -> Container | AnecPackage:
    """The parts with another text, other constants and, where given, another section of kernels, of the same sizes."""
    if isinstance(parts, AnecPackage):
        _same_size(len(parts.text), text, "text")
        _same_size(len(parts.const), const, "const")
        return replace(parts, text=text, const=const)
    contents = {"__text": text, "__const": const} | ({} if kernels is None else {KERNEL_SECTION: kernels})
    commands = tuple(_segment_with(c, contents) if isinstance(c, Segment) else c for c in parts.commands)
    return replace(parts, commands=commands)


def _segment_with(segment: Segment, contents: dict[str, bytes]) -> Segment:
    if segment.name not in ("__TEXT", KERNEL_SEGMENT):
        return segment
    for section in segment.sections:
        _same_size(len(section.content), contents.get(section.name, section.content), section.name)
    sections = tuple(replace(s, content=contents.get(s.name, s.content)) for s in segment.sections)
    return replace(segment, sections=sections)


def _same_size(size: int, content: bytes, name: str) -> None:
    if len(content) != size:
        raise UnsupportedError(
            f"{len(content)} bytes do not fit section {name} of {size}",
            hint="image.replace(...) makes a new container of hexane's own form",
        )
