"""H19 and h18g (M6): task descriptor version 24. As H18 but for what stands here (docs/reference/generations.md 11).

Two published convolution streams are all that is known; block lengths are those of H18 where nothing says otherwise.
"""

from __future__ import annotations

from hexane.isa import h16, h17, h18
from hexane.isa.kinds import PE_OP, SECOND_SOURCE
from hexane.isa.schema import INFERRED, F, Register, RegisterBlock, Table, moved, without

HEADER = (
    *h16.HEADER[:8],
    h16.HEADER[8].with_rows(
        F("4", "PerfTrace*", "performance trace", evidence=INFERRED),
        F("5", "LoadTID*", "two engines only", evidence=INFERRED),
        F("6", "Publish*", "two engines only", evidence=INFERRED),
    ),
    h16.HEADER[9],
)

COMMON = RegisterBlock("Common", 0x0000, 23, h16.COMMON.meaning, (
    *without(h18.COMMON, "NECfg"),
    Register(0x40, "NECfg*", "output channel groups", (
        *(row for row in h16.COMMON.by_name["NECfg"].rows if row.name == "OCGSize"),
        F("6", "HalfWorkUnit*", "half work unit"),
    ), 3),
))  # fmt: skip

PE = RegisterBlock("PE", 0x4500, 16, h16.PE.meaning, (
    Register(0x4500, "Cfg*", "operation", (
        F("4:2", "OpMode*", "what the two operands give", PE_OP),
        F("19:18", "SecSrc*", "operand 2", SECOND_SOURCE),
    )),
    *without(h17.PE, "Cfg"),
))  # fmt: skip

NE = RegisterBlock("NE", 0x4900, 14, h16.NE.meaning, (
    h16.NE.by_name["KernelCfg"].with_rows(
        F("27:25", "PaletteBlock*", "setter's name", evidence=INFERRED),
        F("28", "DetectZeros*", "set in all streams seen"),
    ),
    *(r.with_rows(F("27", "SmallSource*", "small map")) if r.name == "MACCfg" else r
      for r in moved(h16.NE, 0x4904, 0x492C, 0x4908)),
))  # fmt: skip

_READER = h18.TILE_DMA_SRC.by_name


def _with_bit31(register: Register) -> Register:
    return register.with_rows(F("31", "Bit31*", "set in all streams seen", evidence=INFERRED))


TILE_DMA_SRC = RegisterBlock("TileDMASrc", 0x4D00, 81, h16.TILE_DMA_SRC.meaning, (
    _with_bit31(_READER["DMAConfig"]),
    _with_bit31(_READER["Src2DMAConfig"]),
    *without(h18.TILE_DMA_SRC, "DMAConfig", "Src2DMAConfig", "Fmt", "Src2Fmt"),
    Register(0x4D70, "Fmt*", "elements of source 1 in memory; fp16 0x00003211, a new encoding", (
        F("31:0", "Format*", "not taken apart", evidence=INFERRED),
    )),
    *moved(h16.TILE_DMA_SRC, 0x4DC8, 0x4DE4, 0x4DC8),
))  # fmt: skip

TABLE = Table(
    generation="h19",
    version=24,
    header=HEADER,
    blocks=(h18.KERNEL_DMA, COMMON, TILE_DMA_SRC, h18.L2, PE, NE, h18.TILE_DMA_DST, h17.CACHE_DMA),
    notes="Two convolution streams have been published, no more. Reset values are those of H16, taken over.",
)
