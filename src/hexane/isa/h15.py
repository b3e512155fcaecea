"""H15 (A16, M3 family): task descriptor version 8.

No task stream of this generation is published. Block bases and lengths and the registers of one convolution are known;
the rest is a reconstruction that satisfies them (spec/generations §8): dimensions as on H14, everything else as on H16,
with one second source-configuration word in L2. All positions are inferred.
"""

from __future__ import annotations

from hexane.isa import h14, h16
from hexane.isa.schema import Block, F, Register, Table, inferred, moved


def _as_inferred(name: str, address: int, words: int, meaning: str, registers: tuple[Register, ...]) -> Block:
    return Block(name, address, words, meaning, tuple(inferred(register) for register in registers))


COMMON = _as_inferred("Common", 0x0000, 19, h14.COMMON.meaning, h14.COMMON.declared)

L2 = _as_inferred("L2", 0x4100, 30, h16.L2.meaning, (
    Register(0x4100, "L2Cfg*", "what happens on the way out of L2", h16.L2CFG),
    Register(0x4104, "SourceCfg*", "source 1", h16.source_config()),
    Register(0x4108, "Src2Cfg*", "source 2", h16.source_config()),
    *h16.regions(0x410C, "Source", "source 1"),
    *h16.regions(0x4120, "Src2", "source 2"),
    Register(0x4134, "ResultCfg*", "result", h16.RESULT_CFG),
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

TABLE = Table(
    generation="h15",
    version=8,
    title="A16, M3, M3 Pro, M3 Max",
    header=tuple(inferred(register) for register in h14.HEADER),
    blocks=(KERNEL_DMA, COMMON, TILE_DMA_SRC, L2, PE, NE, TILE_DMA_DST, CACHE_DMA),
    notes="No stream of this generation has been published: every position and reset value is a reconstruction.",
)
