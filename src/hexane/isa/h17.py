"""H17 (A18, M5 family): task descriptor version 19. As H16 but for what stands here.

Source: docs/reference/generations.md 10.
"""

from __future__ import annotations

from hexane.isa import h16
from hexane.isa.kinds import FIRST_SOURCE, PE_NONLINEAR, SECOND_SOURCE
from hexane.isa.schema import INFERRED, F, Register, RegisterBlock, Table, without

COMMON = RegisterBlock("Common", 0x0000, 23, h16.COMMON.meaning, (
    *without(h16.COMMON, "TaskInfo"),
    Register(0x4C, "TaskInfo*", "which unit runs the task", (
        F("28:21", "NID*", "1 in NE tasks, 0 in PE tasks", evidence=INFERRED),
    )),
))  # fmt: skip

TRACE = F("31:0", "Trace*", "setter's name", evidence=INFERRED)

L2 = RegisterBlock("L2", 0x4100, 42, h16.L2.meaning, (
    *h16.L2.declared,
    Register(0x41A4, "Trace*", "trace", (TRACE,)),
))  # fmt: skip

PE_CFG = (
    *(row for row in h16.PE_CFG if row.high < 12),
    F("14:12", "NonlinearMode*", "of the reduced result", PE_NONLINEAR),
    F("15", "ChannelToWidth*", "setter's name", evidence=INFERRED),
    F("16", "FirstSrc*", "operand 1; the setter counts bits 19:16 as one index", FIRST_SOURCE, INFERRED),
    F("19:18", "SecSrc*", "operand 2, as in the programs of H16 and of h18g", SECOND_SOURCE, INFERRED),
    F("23:20", "SecondIndex*", "setter's name: index of operand 2", evidence=INFERRED),
    F("31:24", "MaxIndex*", "setter's name", evidence=INFERRED),
)

PE = RegisterBlock("PE", 0x4500, 16, h16.PE.meaning, (
    *without(h16.PE, "Cfg"),
    Register(0x4500, "Cfg*", "operation", PE_CFG, 0),
))  # fmt: skip

KERNEL_CFG = next(register for register in h16.NE.declared if register.address == 0x4900)

NE = RegisterBlock("NE", 0x4900, 13, h16.NE.meaning, (
    *without(h16.NE, "KernelCfg"),
    KERNEL_CFG.with_rows(F("28", "DetectZeros*", "1 with a constant fp16 kernel")),
))  # fmt: skip

TILE_DMA_SRC = RegisterBlock("TileDMASrc", 0x4D00, 83, h16.TILE_DMA_SRC.meaning, h16.TILE_DMA_SRC.declared)

TILE_DMA_DST = RegisterBlock("TileDMADst", 0x5100, 23, h16.TILE_DMA_DST.meaning, h16.TILE_DMA_DST.declared)

KERNEL_DMA = RegisterBlock("KernelDMASrc", 0x5500, 81, h16.KERNEL_DMA.meaning, (
    *h16.KERNEL_DMA.declared,
    Register(0x5640, "Tag*", "setter's name", evidence=INFERRED),
))  # fmt: skip

CACHE_DMA = RegisterBlock("CacheDMA", 0x5900, 14, h16.CACHE_DMA.meaning, (
    *h16.CACHE_DMA.declared,
    Register(0x5934, "PrefetchRate*", "prefetch", (F("31:0", "Rate*", "setter's name", evidence=INFERRED),)),
))  # fmt: skip

TABLE = Table(
    generation="h17",
    version=19,
    header=h16.HEADER,
    blocks=(KERNEL_DMA, COMMON, TILE_DMA_SRC, L2, PE, NE, TILE_DMA_DST, CACHE_DMA),
    notes="Reset values are those of H16, taken over.",
)
