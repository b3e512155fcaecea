"""Placement of the pieces of a program in memory, and the channels of its surfaces.

Source: docs/reference/engine-h13.md 2.2, 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hexane.errors import UsageError
from hexane.image.dialect import DIALECTS, Dialect
from hexane.image.structure import to_bytes
from hexane.image.surface import ELEMENT_CODES, OUTPUT_SUFFIX, Surface
from hexane.isa.channels import CHANNELS, FIRST_SURFACE
from hexane.isa.granules import PAGE
from hexane.rounding import align

BASE_ADDRESS = 0x30000000
CONST_ALIGNMENT = 0x40

END_OF_MEMORY = 0xE0000000
"""All buffers of a program must end at or below this address of the engine (docs/reference/engine-h13.md 4.2)."""


@dataclass(frozen=True)
class SectionPlaces:
    """Addresses and sizes in bytes; surfaces in address order, with addresses and channels filled in."""

    text: int
    text_size: int
    const: int
    const_size: int
    program_size: int
    scratch: int
    scratch_size: int
    surfaces: tuple[Surface, ...]

    @property
    def const_offset(self) -> int:
        """Bytes from the start of the text to the constant section."""
        return self.const - self.text


def place(
    surfaces: Iterable[Surface], text_size: int, const_size: int, scratch_bytes: int, dialect: Dialect
) -> SectionPlaces:
    """Place text, constants, scratch and surfaces by the dialect's rule; sizes in bytes."""
    linkable = [_linkable(surface) for surface in surfaces]
    names = [surface.name for surface in linkable]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two surfaces are called {name!r}")
    const_offset = align(text_size, CONST_ALIGNMENT)
    program_size = align(const_offset + const_size, PAGE)
    scratch_size = align(scratch_bytes, PAGE)
    if dialect.surfaces_first:
        ordered = in_name_order(linkable)
        scratch = BASE_ADDRESS
        placed, text = _in_a_row(ordered, scratch + scratch_size)
    else:
        ordered = by_role(linkable)
        text, scratch = BASE_ADDRESS, BASE_ADDRESS + program_size
        placed, _ = _in_a_row(ordered, scratch + scratch_size)
    end = max([text + program_size, *(s.address + align(s.nbytes, PAGE) for s in placed)])
    if end > END_OF_MEMORY:
        raise UsageError(
            f"the program needs memory up to {end:#x}, the engine reaches {END_OF_MEMORY:#x}",
            hint="make surfaces, constants or scratch smaller",
        )
    return SectionPlaces(
        text,
        text_size,
        text + const_offset,
        const_size,
        program_size,
        scratch if scratch_size else 0,
        scratch_size,
        _with_channels(placed, dialect),
    )


def in_name_order(surfaces: Iterable[Surface]) -> list[Surface]:
    """Ascending by the bytes of their names, inputs and outputs mixed."""
    return sorted(surfaces, key=lambda s: to_bytes(s.label))


def numbered_by_name(surfaces: Iterable[Surface], dialect: str) -> bool:
    """True where the dialect gives channels in the order of names, and these surfaces have them so."""
    dialect_row = DIALECTS.get(dialect)
    channels = [s.channel for s in in_name_order(surfaces)]
    ascending = list(range(FIRST_SURFACE, FIRST_SURFACE + len(channels)))
    return dialect_row is not None and dialect_row.surfaces_first and channels == ascending


def _linkable(surface: Surface) -> Surface:
    """The surface under the name that the container links it by."""
    if not surface.name or "\0" in surface.name:
        raise UsageError(f"surface name {surface.name!r}")
    if surface.dtype not in ELEMENT_CODES:
        raise UsageError(f"{surface.dtype!r} has no element code", where=f"surface {surface.name!r}")
    return surface if surface.role == "input" else replace(surface, name=surface.label + OUTPUT_SUFFIX)


def by_role(surfaces: Iterable[Surface]) -> list[Surface]:
    """Inputs, then outputs, each in the order given."""
    return sorted(surfaces, key=lambda s: s.role == "output")


def _in_a_row(surfaces: list[Surface], at: int) -> tuple[list[Surface], int]:
    placed: list[Surface] = []
    for surface in surfaces:
        other = next((s for s in placed if surface.channel is not None and s.channel == surface.channel), None)
        placed.append(replace(surface, address=at if other is None else other.address))
        at += align(surface.nbytes, PAGE) if other is None else 0
    return placed, at


def _with_channels(surfaces: list[Surface], dialect: Dialect) -> tuple[Surface, ...]:
    """The surfaces with the channels that they ask for; the others take free ones by the dialect's rule."""
    occupied = [s.channel for s in surfaces if s.channel is not None]
    for channel in occupied:
        if not FIRST_SURFACE <= channel < CHANNELS:
            raise UsageError(f"channel {channel} is not one of {FIRST_SURFACE} to {CHANNELS - 1}")
        roles = [s.role for s in surfaces if s.channel == channel]
        if len(roles) > len(set(roles)):  # a state is an input and an output
            raise UsageError(f"two surfaces have channel {channel}")
    free = (channel for channel in range(FIRST_SURFACE, CHANNELS) if channel not in occupied)
    order = surfaces if dialect.channels_by_address else sorted(surfaces, key=lambda s: s.role == "input")
    channel_of: dict[str, int] = {}
    for surface in order:
        number = surface.channel if surface.channel is not None else next(free, None)
        if number is None:
            room = CHANNELS - FIRST_SURFACE
            raise UsageError(f"{len(surfaces)} surfaces, and a program has {room} channels for them")
        channel_of[surface.name] = number
    return tuple(replace(surface, channel=channel_of[surface.name]) for surface in surfaces)
