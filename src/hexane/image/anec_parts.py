"""The parts of an ``.anec`` package, the container of the open Linux driver (spec/engine-h13 §3)."""

from __future__ import annotations

from dataclasses import dataclass

from hexane.image.container import Remainder
from hexane.image.structure import Structure, array, u32, u64
from hexane.isa.channels import CHANNELS

TILE_BYTES = 0x4000
TEXT_ALIGNMENT = 16
HEADER_SIZES = (0x1000, 0x800)
"""Header sizes in use: hexane writes the first; a reader takes file size minus content size (spec/devices §4.5)."""


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
    """All parts of one package. Text starts at ``header_size``, const at the next multiple of 16 behind it."""

    header: AnecHeader
    text: bytes
    const: bytes
    header_size: int
    file_size: int
    remainders: tuple[Remainder, ...] = ()

    @property
    def const_offset(self) -> int:
        """File offset of the const bytes."""
        return self.header_size + -(-len(self.text) // TEXT_ALIGNMENT) * TEXT_ALIGNMENT

    def write(self) -> bytes:
        """The file, written from its parts."""
        canvas = bytearray(self.file_size)
        pieces = ((0, self.header.pack()), (self.header_size, self.text), (self.const_offset, self.const))
        for offset, content in (*pieces, *((rest.offset, rest.content) for rest in self.remainders)):
            canvas[offset : offset + len(content)] = content
        return bytes(canvas)
