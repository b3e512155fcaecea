"""H15 (A16, M3 family): task descriptor version 8.

Dimensions as on H14, everything else as on H16, with a source-configuration word of its own for source 2 in L2. The
table was a reconstruction; 40 programs of Apple's compiler (elementwise operations, tables, products with constants)
write 74 of its 125 registers and agree with it. Positions of the others are inferred, and so are most meanings.
"""

from __future__ import annotations

from dataclasses import replace

from hexane.isa import h14, h16
from hexane.isa.schema import F, Register, RegisterBlock, Table, inferred, moved, without


def _as_inferred(name: str, address: int, words: int, meaning: str, registers: tuple[Register, ...]) -> RegisterBlock:
    return RegisterBlock(name, address, words, meaning, tuple(inferred(register) for register in registers))


COMMON = _as_inferred("Common", 0x0000, 19, h14.COMMON.meaning, (
    *without(h14.COMMON, "Cfg"),
    replace(h14.COMMON.by_name["Cfg"], reset=0),  # bits 0 and 1 are 0 in every task
))  # fmt: skip

L2 = _as_inferred("L2", 0x4100, 30, h16.L2.meaning, (
    Register(0x4100, "L2Cfg*", "what happens on the way out of L2", h16.L2CFG),
    Register(0x4104, "SourceCfg*", "source 1", h16.source_config(), 0x100),
    Register(0x4108, "Src2Cfg*", "source 2", h16.source_config(), 0x100),
    *h16.regions(0x410C, "Source", "source 1"),
    *h16.regions(0x4120, "Src2", "source 2"),
    Register(0x4134, "ResultCfg*", "result", h16.RESULT_CFG, 0x100),
    *h16.regions(0x4138, "Result", "result"),
    Register(0x414C, "WrapCfg*", "circular buffer", h16.WRAP),
    Register(0x4150, "SourceWrapStart*", "source 1: circular buffer"),
    Register(0x4154, "Src2WrapStart*", "source 2: circular buffer"),
    Register(0x415C, "ResultWrapIndex*", "result: circular buffer", (F("15:0", "Index*", "wrap index"),)),
))  # fmt: skip

PE = _as_inferred("PE", 0x4500, 15, h16.PE.meaning, h16.PE.declared)
NE = _as_inferred("NE", 0x4900, 11, h16.NE.meaning, moved(h16.NE, 0x4900, 0x491C, 0x4900))
TILE_DMA_SRC = _as_inferred("TileDMASrc", 0x4D00, 69, h16.TILE_DMA_SRC.meaning, (
    *moved(h16.TILE_DMA_SRC, 0x4D00, 0x4D3C, 0x4D00),
    *moved(h16.TILE_DMA_SRC, 0x4D68, 0x4D6C, 0x4D68),
))  # fmt: skip
TILE_DMA_DST = _as_inferred("TileDMADst", 0x5100, 21, h16.TILE_DMA_DST.meaning, h16.TILE_DMA_DST.declared)
KERNEL_DMA = _as_inferred("KernelDMASrc", 0x5500, 72, h16.KERNEL_DMA.meaning, h16.KERNEL_DMA.declared)
CACHE_DMA = _as_inferred("CacheDMA", 0x5900, 12, h16.CACHE_DMA.meaning, h16.CACHE_DMA.declared)

_LOG, _FLAGS = h14.HEADER[2], h14.HEADER[7]
HEADER = (
    *h14.HEADER[:2],
    _LOG.with_rows(F("25:24", "LastTaskEvents*", "3 in the last task, else 0")),
    *h14.HEADER[3:7],
    _FLAGS.with_rows(F("3", "LastTask*", "last task of the program")),
    h14.HEADER[8],
)

TABLE = Table(
    generation="h15",
    version=8,
    header=HEADER,
    blocks=(KERNEL_DMA, COMMON, TILE_DMA_SRC, L2, PE, NE, TILE_DMA_DST, CACHE_DMA),
    notes="Programs of elementwise operations, tables and products with constants are known; positions that they do "
    "not write, and reset values, are taken over from H14 and H16.",
)
