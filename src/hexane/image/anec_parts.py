"""The parts of an ``.anec`` package, the container of the open Linux drivers (docs/images.md).

Packages of H13 (M1) and of H14 (M2) have the same header. A package of H14 has one output, its text is a stream behind
a frame of 16 zero bytes, and its constants start at a multiple of 64.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from hexane.image.container import Remainder
from hexane.image.structure import Structure, array, canvas_of, u32, u64
from hexane.isa.channels import CHANNELS
from hexane.isa.granules import PAGE
from hexane.rounding import align

TILE_BYTES = PAGE
TEXT_ALIGNMENT = 16
CONST_ALIGNMENTS = {"h13": TEXT_ALIGNMENT, "h14": 64}
"""Generations whose programs packages hold, with the alignment of the constants behind the text."""
FRAME = bytes(16)
"""What a stream of H14 starts with; a task of H13 starts with its number and the network's, which is not 0."""
HEADER_SIZES = (0x1000, 0x800)
"""Header sizes in use: hexane writes the first; a reader takes file size minus content size.

Source: docs/reference/devices.md 4.2.
"""


def generation_of_text(text: bytes) -> str:
    """The generation of a package's program."""
    return "h14" if text[: len(FRAME)] == FRAME else "h13"


@dataclass(frozen=True)
class AnecHeader(Structure):
    """The header: ``tiles`` counts 16-KiB units per channel; ``nchw`` holds N, C, H, W, plane and row bytes of each."""

    content_size: int = u64()
    td_size: int = u32()
    td_count: int = u32()
    tsk_size: int = u64()
    krn_size: int = u64()
    src_count: int = u32()
    dst_count: int = u32()
    tiles: tuple[int, ...] = array("I", CHANNELS)
    nchw: tuple[int, ...] = array("Q", 6 * CHANNELS)

    def dimensions(self, channel: int) -> tuple[int, ...]:
        """N, C, H, W, plane bytes and row bytes of a channel."""
        return self.nchw[6 * channel : 6 * channel + 6]


@dataclass(frozen=True)
class AnecPackage:
    """All parts of one package. Text starts at ``header_size``; where const starts is `CONST_ALIGNMENTS`'s."""

    header: AnecHeader
    text: bytes
    const: bytes
    header_size: int
    file_size: int
    remainders: tuple[Remainder, ...] = ()

    @property
    def generation(self) -> str:
        """``"h13"`` or ``"h14"``, as the text's first bytes tell."""
        return generation_of_text(self.text)

    @property
    def const_offset(self) -> int:
        """File offset of the const bytes."""
        unit = CONST_ALIGNMENTS[self.generation]
        return self.header_size + align(len(self.text), unit)

    def write(self) -> bytes:
        """The file, written from its parts."""
        parts = (0, self.header.pack()), (self.header_size, self.text), (self.const_offset, self.const)
        return canvas_of(self.file_size, (*parts, *map(astuple, self.remainders)))
