"""H18 (A19): task descriptor version 20. As H17 but for what stands here (docs/reference/generations.md 10).

The places of the tile DMA registers and of the table's are Apple's: 122 tasks of 94 programs.
"""

from __future__ import annotations

from hexane.isa import h14, h16, h17
from hexane.isa.kinds import ELEMENT_3BIT, MEMORY
from hexane.isa.schema import INFERRED, F, Field, Register, RegisterBlock, Table, moved, without

COMMON = RegisterBlock("Common", 0x0000, 23, h16.COMMON.meaning, (
    *without(h17.COMMON, "ChCfg", "TileOverlap", "NECfg", "Cfg"),
    Register(0x00, "ChCfg*", "element formats", (
        F("2:0", "InFmt*", "source 1", ELEMENT_3BIT),
        F("5:3", "Src2InFmt*", "source 2", ELEMENT_3BIT),
        F("8:6", "OutFmt*", "result", ELEMENT_3BIT),
    ), 0x92),
    h16.COMMON.by_name["TileOverlap"].with_rows(F("31", "ReflectPad*", "padding mirrors the map")),
    h16.COMMON.by_name["NECfg"].with_rows(F("6", "HalfWorkUnit*", "half work unit")),
    h16.COMMON.by_name["Cfg"].without_rows("ReluType").with_rows(
        F("26:24", "ReluType*", "setter's name; meaning unknown", evidence=INFERRED),
        F("27", "Winograd1D*", "one-dimensional Winograd convolution"),
    ),
))  # fmt: skip

L2 = RegisterBlock("L2", 0x4100, 43, h16.L2.meaning, (
    *h16.L2.declared,
    Register(0x41A8, "Trace*", "trace", (h17.TRACE,)),
))  # fmt: skip

NE = RegisterBlock("NE", 0x4900, 13, h16.NE.meaning, (
    *without(h17.NE, "MACCfg"),
    h17.NE.by_name["MACCfg"].with_rows(F("27", "SmallSource*", "1 in products of at most eight rows")),
))  # fmt: skip


def nibbles(*more: Field) -> tuple[Field, ...]:
    """Elements of a surface in memory; fp16 is 0x3211, of other formats nothing is seen."""
    return (
        F("3:0", "FmtMode*", "1 for fp16", evidence=INFERRED),
        F("7:4", "Interleave*", "channels side by side in a row", evidence=INFERRED),
        F("11:8", "MemFmt*", "element in memory", MEMORY, INFERRED),
        F("15:12", "Truncate*", "3 for fp16", evidence=INFERRED),
        *more,
    )


_reader = h16.TILE_DMA_SRC  # two words of event ids behind the hints move what follows by 8

TILE_DMA_SRC = RegisterBlock("TileDMASrc", 0x4D00, 81, h16.TILE_DMA_SRC.meaning, (
    *moved(_reader, 0x4D00, 0x4D0C, 0x4D00),
    Register(0x4D10, "Event*", "source 1: event to wait for", evidence=INFERRED),
    Register(0x4D14, "Src2Event*", "source 2: event to wait for", evidence=INFERRED),
    *moved(_reader, 0x4D10, 0x4D3C, 0x4D18),
    Register(0x4D70, "Fmt*", "elements of source 1 in memory; fp16 0x00003211", nibbles(), 0x10),
    Register(0x4D74, "Src2Fmt*", "elements of source 2 in memory; fp16 0x00003211", nibbles(), 0x10),
))  # fmt: skip

TILE_DMA_DST = RegisterBlock("TileDMADst", 0x5100, 27, h16.TILE_DMA_DST.meaning, (
    h16.TILE_DMA_DST.by_name["DMAConfig"],
    Register(0x5108, "Event*", "event to signal", evidence=INFERRED),
    *h14.address_pair(0x5110, "BaseAddr", "first byte"),
    *moved(h16.TILE_DMA_DST, 0x5110, 0x511C, 0x5118),
    Register(0x5140, "Fmt*", "elements in memory; fp16 0xf0003211", nibbles(
        F("31:28", "ZeroPad*", "15: presumably zeros before a row's start and behind its end", evidence=INFERRED),
    ), 0xF0000010),
))  # fmt: skip

KERNEL_DMA = RegisterBlock("KernelDMASrc", 0x5500, 83, h16.KERNEL_DMA.meaning, (
    *(register for register in h16.KERNEL_DMA.declared if register.address < 0x5610),
    *h16.side_channel(0x562C, "Table", "look-up table")[:2],
    *h14.address_pair(0x5638, "TableBase", "look-up table"),
    Register(0x5648, "Tag*", "setter's name", evidence=INFERRED),
))  # fmt: skip

TABLE = Table(
    generation="h18",
    version=20,
    header=h16.HEADER,
    blocks=(KERNEL_DMA, COMMON, TILE_DMA_SRC, L2, h17.PE, NE, TILE_DMA_DST, h17.CACHE_DMA),
    notes="Reset values are those of H16, taken over. Bit 24 of two source registers, which ones is not known, chooses "
    "the overflow of fp8 E4M3 (1 saturates, 0 gives NaN). Where H16's metadata, compression and texture registers lie "
    "here is not known.",
)
