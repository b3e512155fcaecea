"""An engine program of H13 or H14 as an ``.anec`` package (docs/images.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hexane.errors import UnsupportedError, UsageError
from hexane.image.anec_parts import CONST_ALIGNMENTS, HEADER_SIZES, TILE_BYTES, AnecHeader, AnecPackage
from hexane.image.selectors import renumbered
from hexane.image.surface import Surface
from hexane.isa import Task, encode_stream
from hexane.isa.channels import CHANNELS, FIRST_SURFACE, SCRATCH
from hexane.isa.generations import family_of
from hexane.isa.roles import roles_of
from hexane.rounding import align, ceil_div

if TYPE_CHECKING:
    from hexane.image.image import Image

NETWORK_ID = 0x40
"""Network id that every task must carry on Linux [HW, docs/reference/engine-h13.md 4.2]."""

_REACH = {
    "source1": ("TileDMASrc.BaseAddr.Addr", "TileDMASrc.DepthStride.Stride"),
    "source2": ("TileDMASrc.Src2BaseAddr.Addr", "TileDMASrc.Src2DepthStride.Stride"),
    "result": ("TileDMADst.BaseAddr.Addr", "TileDMADst.DepthStride.DepthStride"),
}
"""Base and depth stride of a side of H13, in units of 64 bytes."""


def package_of(image: Image, *, order: Sequence[str] = (), header_size: int = HEADER_SIZES[0]) -> AnecPackage:
    """The parts of a package that holds the image's program.

    Channels are renumbered so that outputs come first, as the drivers' libraries expect. A package has no names:
    inputs and outputs are counted in the order of ``order`` (names of surfaces, the network's order), what it does not
    name follows in the order of its channels. ``header_size`` is 0x1000 or 0x800, by the library that will read the
    package (docs/reference/devices.md 4.2). Every task of H13 gets network id 0x40; the scratch buffer is as large as
    the container says, or as the tasks need where that is more.

    Raises UnsupportedError for other generations, and for an H14 program with several outputs: how a package says
    where they are is not known.
    """
    if image.generation not in CONST_ALIGNMENTS:
        raise UnsupportedError(
            f"packages hold {' and '.join(CONST_ALIGNMENTS)} programs, this is one for {image.generation}",
            hint="no open driver of later chips is known; .hwx holds the program",
        )
    if family_of(image.generation).packed and len(image.outputs) != 1:
        raise UnsupportedError(
            f"{len(image.outputs)} outputs; how a package of H14 names several is not known",
            hint="compile one output at a time, or write .hwx",
        )
    if header_size not in HEADER_SIZES:
        sizes = " and ".join(map(hex, HEADER_SIZES))
        raise UsageError(
            f"no library reads packages with a header of {header_size:#x} bytes", hint=f"{sizes} are known"
        )
    surfaces = in_package_order(image.surfaces, order)
    for surface in surfaces:
        if surface.channel is None:
            raise UsageError("no channel leads to it", where=f"surface {surface.name!r}")
    if FIRST_SURFACE + len(surfaces) > CHANNELS:
        raise UsageError(f"{len(surfaces)} surfaces; a package has room for {CHANNELS - FIRST_SURFACE}")
    mapping = {s.channel: FIRST_SURFACE + i for i, s in enumerate(surfaces) if s.channel is not None}
    tasks = renumbered(image.tasks, mapping)
    linked = family_of(image.generation).linked
    for task in tasks if linked else ():
        task.set("Header[0].NID", NETWORK_ID)
    text = encode_stream(tasks, image.generation)
    scratch = max(image.scratch_bytes, scratch_needed(tasks) if linked else 0)
    header = _header(text, image.const, tasks, surfaces, scratch)
    return AnecPackage(header, text, image.const, header_size, header_size + header.content_size)


def in_package_order(surfaces: Iterable[Surface], order: Sequence[str] = ()) -> list[Surface]:
    """Outputs first, each role in the order of the names; surfaces without a name in it last, by channel."""
    place = {name: i for i, name in enumerate(order)}
    return sorted(surfaces, key=lambda s: (s.role == "input", place.get(s.name, len(place)), s.channel or 0))


def scratch_needed(tasks: Iterable[Task]) -> int:
    """Bytes of scratch that the tasks' DMAs reach: the largest base plus depth stride.

    Source: docs/reference/engine-h13.md 3.
    """
    need = 0
    for task in tasks:
        for side, (base, depth) in _REACH.items():
            if roles_of(task.generation).channel(task, side) == SCRATCH:
                need = max(need, (task.get(base) << 6) + (task.get(depth) << 6))
    return need


def _header(text: bytes, const: bytes, tasks: list[Task], surfaces: list[Surface], scratch: int) -> AnecHeader:
    program = align(len(text), CONST_ALIGNMENTS[tasks[0].generation]) + len(const)
    tiles = [0] * CHANNELS
    tiles[0] = ceil_div(max(program, len(text) + 1), TILE_BYTES)  # the driver wants a buffer larger than the text
    tiles[SCRATCH] = ceil_div(scratch, TILE_BYTES)
    nchw = [0] * (6 * CHANNELS)
    for channel, surface in enumerate(surfaces, FIRST_SURFACE):
        _, plane, row, _ = surface.strides  # type: ignore[misc]
        tiles[channel] = ceil_div(surface.nbytes, TILE_BYTES)
        nchw[6 * channel : 6 * channel + 6] = [*surface.shape, plane, row]
    return AnecHeader(
        content_size=program,
        td_size=tasks[0].size,
        td_count=len(tasks),
        tsk_size=len(text),
        krn_size=len(const),
        src_count=sum(s.role == "input" for s in surfaces),
        dst_count=sum(s.role == "output" for s in surfaces),
        tiles=tuple(tiles),
        nchw=tuple(nchw),
    )
