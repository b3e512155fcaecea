"""H14 (A15, M2 family): task descriptor version 11.

Addresses are byte addresses; records hold them divided by four (docs/reference/generations.md 4, 7). A register that
a task does
not write has its reset value when the task starts (§4.5). Registers that mean the same as on H13 have the same names.
"""

from __future__ import annotations

from hexane.isa import h13
from hexane.isa.kinds import DEPENDENT, MEMORY, REREAD, WRITE_HINT
from hexane.isa.schema import (
    BYTES64,
    FP32,
    INFERRED,
    LOG2,
    MICROSECONDS,
    UNKNOWN,
    WORDS,
    F,
    Field,
    Register,
    RegisterBlock,
    Table,
    moved,
    starred,
)

_common = h13.COMMON.by_name
_l2 = h13.L2.by_name
_pe = h13.PE.by_name
_ne = h13.NE.by_name
_source = h13.TILE_DMA_SRC.by_name
_destination = h13.TILE_DMA_DST.by_name

HEADER = (
    Register(0, "Header*", "which task, how long", (
        F("15:0", "TID*", "index of the task in its program"),
        F("26:16", "Size*", "words of the task, header included", WORDS),
    )),
    Register(1, "Header*", "duration", (
        F("16:0", "ExeCycles*", "estimated duration; no effect on execution", MICROSECONDS, INFERRED),
    )),
    Register(2, "Header*", "events to log", (
        F("23:0", "LogEvents*", "0x2a only task, 8 first, 0 middle, 0x22 last"),
    )),
    Register(3, "Header*", "exceptions to raise", (F("23:0", "Exceptions*", "always 0"),)),
    Register(4, "Header*", "events to log when debugging", (
        F("23:0", "DebugLogEvents*", "by unit and position", evidence=INFERRED),
    )),
    Register(5, "Header*", "exceptions when debugging", (F("23:0", "DebugExceptions*", "always 0"),)),
    Register(6, "Header*", "L2 pages in use", (
        F("31:0", "PageMask*", "bit i: the 64 KiB page i of L2 holds live data", evidence=INFERRED),
    )),
    Register(7, "Header*", "flags", (
        F("0", "TSR*", "set in NE tasks; with TDE one more header word follows"),
        F("1", "TDE*", "the kernel comes from a runtime tensor"),
        F("18:16", "ENE*", "NE tasks: 1 + log2 of the cores that work; PE tasks: 0"),
    )),
    Register(8, "Header*", "only when TSR and TDE are set", (
        F("15:0", "DTID*", "TID of the task that wrote the kernel", evidence=INFERRED),
    )),
)  # fmt: skip


def dma_lane() -> tuple[Field, ...]:
    """Switch of one kernel stream, from H14 on."""
    return (
        F("0", "En*", "the lane fetches"),
        F("7:4", "CacheHint*", "system cache hint; 2 from constants"),
        F("15:8", "DataSetId*", "0 in all programs"),
        F("23:16", "Tag*", "TID of the task"),
    )


def offset64(name: str = "Addr", meaning: str = "offset") -> tuple[Field, ...]:
    return (F("31:6", f"{name}*", meaning, BYTES64),)


def address_pair(address: int, name: str, meaning: str) -> tuple[Register, Register]:
    """A 42-bit address that the loader completes: the task's words hold an offset (an address record)."""
    return (
        Register(address, f"{name}*", f"{meaning}: low half", (F("31:6", "Addr*", "offset from the slot", BYTES64),)),
        Register(address + 4, f"{name}High*", f"{meaning}: high half", (F("9:0", "Addr*", "upper bits"),)),
    )


KERNEL_MASTER = (
    F("4", "GroupKernelReuse*", "a group's kernel serves the next"),
    F("5", "SparseFmt*", "streams are mask-compressed"),
    F("6", "MasterEnable*", "the kernel DMA is on"),
    F("7", "LastTask*", "last task of the program"),
    F("9", "KernelStream*", "the task has kernel data"),
    F("23:16", "Tag*", "TID + 1"),
)

KERNEL_DMA = RegisterBlock("KernelDMASrc", 0x1900, 70,
                           "Kernel DMA: one weight stream per neural core, and side channels", (
    Register(0x1900, "MasterConfig*", "switch of the kernel DMA", KERNEL_MASTER),
    Register(0x1904, "AlignedCoeffSizePerCh*", "coefficients of a channel; never seen", evidence=INFERRED),
    *address_pair(0x1908, "KernelBase", "kernel section"),
    Register(0x1910, "GroupStride*", "next group's kernel, of runtime kernels", offset64("Stride", "in memory")),
    Register(0x1914, "OCGStride*", "next pass of 16 cores, of runtime kernels", offset64("Stride", "in memory")),
    Register(0x1918, "CoeffDMAConfig[16]*", "switch of core i", dma_lane(), reset=0x20),
    Register(0x1958, "CoeffBaseAddr[16]*", "where core i reads; 0 for core 0 when not written", offset64()),
    Register(0x1998, "CoeffBfrSize[16]*", "how much core i reads", offset64("MemBfrSize", "length"), reset=0x40),
    Register(0x19D8, "SideDMAConfig[4]*", "side channels: bias, post-scale, palette, table", dma_lane(), reset=0x20),
    Register(0x19E8, "SideBaseAddr[4]*", "side channels: where they read", offset64()),
    *address_pair(0x1A00, "TableBase", "look-up table"),
    Register(0x1A14, "TableSize*", "length of the look-up table", offset64("MemBfrSize", "length")),
))  # fmt: skip

CONV_WINDOW = (
    F("5:0", "Kw*", "kernel width"),
    F("11:6", "Kh*", "kernel height"),
    F("14:13", "Sx*", "stride along W"),
    F("16:15", "Sy*", "stride along H"),
    F("21:17", "Px*", "zero columns on the left"),
    F("26:22", "Py*", "zero rows on top"),
    F("29:28", "Ox*", "outputs per kernel position along W"),
    F("31:30", "Oy*", "outputs per kernel position along H"),
)

WHOLE = 0x01000100
"""A map of 256x256, which no task of Apple's compiler writes."""

COMMON = RegisterBlock("Common", 0x0000, 19, "Shape of the work and how it is cut among the units", (
    starred(_common["InDim"].at(0x00), reset=WHOLE),
    starred(_common["InDepth"].at(0x04), reset=1),
    starred(_common["ChCfg"].at(0x08), reset=0x2A),
    starred(_common["Cin"].at(0x0C), reset=16),
    starred(_common["Cout"].at(0x10), reset=16),
    starred(_common["OutDim"].at(0x14), reset=WHOLE),
    starred(_common["OutDepth"].at(0x18), reset=1),
    Register(0x1C, "OCGCfg*", "output channel groups", (
        F("2:0", "OCGSize*", "output channels of a core that share one pass", LOG2),
    ), reset=3),
    Register(0x20, "ConvCfg*", "convolution window", CONV_WINDOW, reset=0x5000A041),
    starred(_common["ConvCfg3d"].at(0x24), reset=0x2041),
    starred(_common["GroupConvCfg"].at(0x28), reset=0x10001),
    starred(_common["TileCfg"].at(0x2C)).with_rows(F("14:0", "TileHeight*", "output rows per L2 tile")),
    starred(_common["PatchCfg"].at(0x30), reset=0),
    starred(_common["PECfg"].at(0x34), reset=0),
    starred(_common["Cfg"].at(0x38), reset=1).with_rows(
        F("29", "FillLowerNEFirst*", "NE: work goes to the lower cores first")),
    starred(_common["TaskInfo"].at(0x3C)),
    starred(_common["DPE"].at(0x40), reset=0),
    Register(0x44, "Spare0*", "never written", evidence=INFERRED),
    Register(0x48, "Spare1*", "never written", evidence=INFERRED),
))  # fmt: skip


def source_dma() -> tuple[Field, ...]:
    return (
        F("0", "En*", "the DMA is on"),
        F("3:2", "CrH*", "0 in all programs"),
        F("7:4", "CacheHint*", "system cache hint"),
        F("15:8", "DataSetId*", "0x0e in all programs"),
        F("23:16", "Tag*", "TID of the task"),
        F("31:28", "DependencyMode*", "whether the data come from an earlier task", evidence=INFERRED),
    )


def source_hints() -> tuple[Field, ...]:
    return (
        F("3:0", "CacheHintReuse*", "hint for data that are read again", evidence=INFERRED),
        F("7:4", "CacheHintNoReuse*", "hint for data that are not", evidence=INFERRED),
    )


FORMAT = (
    F("1:0", "FmtMode*", "1 for fp16"),
    F("7:4", "Truncate*", "3 for fp16"),
    F("11:8", "Shift*", "0 in all programs"),
    F("15:12", "MemFmt*", "element in memory", MEMORY),
    F("18:16", "OffsetCh*", "0 in all programs"),
    F("27:24", "Interleave*", "channels side by side in a row"),
    F("31:28", "CmpVec*", "0 in all programs"),
)

TILE_DMA_SRC = RegisterBlock("TileDMASrc", 0x1100, 53, "Tile DMA readers: surfaces from memory into L2", (
    Register(0x1100, "DMAConfig*", "source 1", source_dma()),
    Register(0x1104, "Src2DMAConfig*", "source 2", source_dma()),
    Register(0x1108, "CacheHints*", "source 1: further system cache hints", source_hints()),
    Register(0x110C, "Src2CacheHints*", "source 2: further system cache hints", source_hints()),
    *address_pair(0x1110, "BaseAddr", "source 1: first byte"),
    *(starred(_source[name].at(0x1118 + 4 * i))
      for i, name in enumerate(("RowStride", "PlaneStride", "DepthStride", "GroupStride"))),
    *address_pair(0x1128, "Src2BaseAddr", "source 2: first byte"),
    *(starred(_source[name].at(0x1130 + 4 * i))
      for i, name in enumerate(("Src2RowStride", "Src2PlaneStride", "Src2DepthStride", "Src2GroupStride"))),
    Register(0x1150, "Fmt*", "elements of source 1 in memory; fp16 0x01002031", FORMAT, reset=0x01000000),
    Register(0x1154, "Src2Fmt*", "elements of source 2 in memory; fp16 0x01002031", FORMAT, reset=0x01000000),
    Register(0x1168, "PixelOffset[4]*", "never written", (F("15:0", "Offset*", "never written", evidence=INFERRED),),
             evidence=INFERRED),
    Register(0x11CC, "Spare0*", "never written", evidence=INFERRED),
    Register(0x11D0, "Spare1*", "never written", evidence=INFERRED),
))  # fmt: skip

L2 = RegisterBlock("L2", 0x0500, 25, "The L2 buffer: where source and result lie in it", (
    starred(_l2["L2Cfg"].at(0x500), reset=0),
    starred(_l2["SourceCfg"].at(0x504), reset=0x100).with_rows(
        F("23", "Src2Keep*", "source 2 comes by tile DMA and is kept in L2", evidence=INFERRED),
        F("26:25", "Src2Dependent*", "source 2 follows the task before patch by patch", DEPENDENT, INFERRED),
    ),
    *(starred(register, reset=0) for register in moved(h13.L2, 0x4808, 0x482C, 0x508)),
    starred(_l2["ResultCfg"].at(0x530), reset=0x100),
    *(starred(register, reset=0) for register in moved(h13.L2, 0x4834, 0x4844, 0x534)),
))  # fmt: skip

PE = RegisterBlock("PE", 0x0900, 5, "Planar engine: elementwise operations and reductions", (
    starred(_pe["Cfg"].at(0x900), reset=0),
    starred(_pe["BiasScale"].at(0x904), reset=0x3C000000),
    starred(_pe["PreScale"].at(0x908), reset=0x3C000000),
    Register(0x90C, "FinalScale*", "factor of the result; 1/N for a mean", (
        F("31:0", "FinalScale*", "factor", FP32),
    ), reset=0x3F800000),
    Register(0x910, "ZeroPoints*", "quantisation offsets; never written", evidence=UNKNOWN),
))  # fmt: skip

NE = RegisterBlock("NE", 0x0D00, 5, "Neural cores: kernel format, multiply-accumulate, non-linearity", (
    starred(_ne["KernelCfg"].at(0xD00), reset=0x82),
    starred(_ne["MACCfg"].at(0xD04), reset=0x100000),
    starred(_ne["MatrixVectorBias"].at(0xD08), reset=0),
    starred(_ne["AccBias"].at(0xD0C), reset=0),
    starred(_ne["PostScale"].at(0xD10)),
))  # fmt: skip


def writer_format() -> tuple[Field, ...]:
    return (
        *FORMAT[:5],
        F("20", "ZeroPadLast*", "presumably zeros behind a row's end", evidence=INFERRED),
        F("21", "ZeroPadFirst*", "presumably zeros before a row's start", evidence=INFERRED),
        *FORMAT[5:],
    )


TILE_DMA_DST = RegisterBlock("TileDMADst", 0x1500, 10, "Tile DMA writer: results from L2 to memory", (
    Register(0x1500, "DMAConfig*", "switch of the writer", (
        F("0", "En*", "the DMA is on"),
        F("3:2", "CrH*", "0 in all programs"),
        F("7:4", "CacheHint*", "system cache hint", WRITE_HINT),
        F("15:8", "DataSetId*", "0x0e in all programs"),
        F("23:16", "Tag*", "TID of the task"),
        F("24", "L2BfrMode*", "the result buffer is automatic (bit 3 of L2.ResultCfg)"),
        F("25", "BypassEOW*", "0 in all programs"),
        F("27:26", "DependencyMode*", "waits for an earlier task that read the place", REREAD, INFERRED),
        F("31:28", "DependencyInterval*", "how many tasks lie between the two", evidence=INFERRED),
    )),
    *address_pair(0x1508, "BaseAddr", "first byte"),
    *(starred(_destination[name].at(0x1510 + 4 * i))
      for i, name in enumerate(("RowStride", "PlaneStride", "DepthStride", "GroupStride"))),
    Register(0x1520, "Fmt*", "elements in memory; fp16 0x01302031", writer_format(), reset=0x01300000),
    Register(0x1524, "Filler*", "0x0000dead, written so that a task does not end on a multiple of 64 bytes", (
        F("31:0", "Filler*", "spare register", evidence=INFERRED),
    ), evidence=INFERRED),
))  # fmt: skip

TABLE = Table(
    generation="h14", version=11, header=HEADER, blocks=(KERNEL_DMA, COMMON, TILE_DMA_SRC, L2, PE, NE, TILE_DMA_DST)
)
