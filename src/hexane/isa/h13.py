"""H13 (A14, M1 family): task descriptor version 7. Addresses are byte addresses (docs/reference/engine-h13.md 4)."""

from __future__ import annotations

from hexane.isa.kinds import (
    CONDITION,
    DEPENDENCY,
    DEPENDENT,
    DMA_WIDTH,
    ELEMENT,
    FIRST_SOURCE,
    MEMORY,
    NE_NONLINEAR,
    NE_OP,
    PE_KIND,
    PE_NONLINEAR,
    PE_OP,
    READ_HINT,
    REDUCE,
    REREAD,
    RESULT_TYPE,
    SECOND_SOURCE,
    SOURCE_TYPE,
    WRITE_HINT,
)
from hexane.isa.schema import (
    BYTES,
    BYTES16,
    BYTES64,
    FP16,
    FP32,
    INFERRED,
    LOG2,
    MICROSECONDS,
    PIXELS,
    SILICON,
    UNKNOWN,
    WORDS,
    F,
    Field,
    Register,
    RegisterBlock,
    Table,
)

HEADER = (
    Register(0, "Header", "which task, of which network", (
        F("15:0", "TID", "index of the task in its program; the firmware checks it", evidence=SILICON),
        F("23:16", "NID", "network id; 0 in files, 0x40 on the Linux path", evidence=SILICON),
        F("24", "LNID", "0 in the first task, 1 in all others", evidence=SILICON),
        F("25", "EON", "last task of the program"),
    )),
    Register(1, "Header", "duration, and how long the next task is", (
        F("15:0", "ExeCycles", "estimated duration; no effect on execution", MICROSECONDS, INFERRED),
        F("24:16", "NextSize", "words of the next task minus 1; 0 in the last", WORDS),
    )),
    Register(2, "Header", "events to log", (
        F("23:0", "LogEvents", "0x42a only task, 0x408 first, 0x400 middle, 0x422 last"),
    )),
    Register(3, "Header", "exceptions to raise", (F("23:0", "Exceptions", "always 0"),)),
    Register(4, "Header", "events to log when debugging", (
        F("23:0", "DebugLogEvents", "by unit and position; no effect on results known", evidence=INFERRED),
    )),
    Register(5, "Header", "exceptions when debugging", (F("23:0", "DebugExceptions", "always 0"),)),
    Register(6, "Header", "grouping, hand-over and loading", (
        F("8", "DisallowAbort", "a PE task whose next task is a PE task"),
        F("9", "TDSkip", "always 0"),
        F("10", "KPC", "always 0"),
        F("11", "SPL", "the task starts an L2 group"),
        F("12", "TSR", "the task ends an L2 group"),
        F("13", "SPC", "consumer of a staging pair"),
        F("14", "DPC", "producer of a staging pair"),
        F("15", "TSE", "as TSR"),
        F("21:16", "NextPriority", "always 0"),
        F("24", "TDE", "an eleventh header word follows", evidence=SILICON),
        F("28", "SrcLoc", "a source comes by tile DMA"),
        F("29", "DstLoc", "the destination goes by tile DMA"),
        F("31", "TQDis", "always 0"),
    )),
    Register(7, "Header", "link to the next task", (
        F("31:0", "NextPointer", "byte offset of the next task in the text section; 0 in the last", BYTES, SILICON),
    )),
    Register(8, "Header", "channels of the tile DMAs and of the next task", (
        F("4:0", "RBase0", "channel of source 1", evidence=SILICON),
        F("5", "RBE0", "source 1 has a channel", evidence=SILICON),
        F("10:6", "RBase1", "channel of source 2", evidence=SILICON),
        F("11", "RBE1", "source 2 has a channel", evidence=SILICON),
        F("16:12", "WBase", "channel of the destination", evidence=SILICON),
        F("17", "WBE", "the destination has a channel", evidence=SILICON),
        F("22:18", "TBase", "channel of the next task: 0"),
        F("23", "TBE", "set in every task except the last"),
        F("26:24", "ENE", "NE tasks: ActiveNE + 1; PE tasks: 0"),
    )),
    Register(9, "Header", "channels of the kernel DMA", (
        F("4:0", "KBase0", "channel of the kernel: 1 constants, 3 scratch, 4.. a surface", evidence=SILICON),
        F("5", "KBE0", "the kernel has a channel", evidence=SILICON),
        F("10:6", "KBase1", "never used"),
        F("11", "KBE1", "never used"),
        F("16:12", "KBase2", "never used"),
        F("17", "KBE2", "never used"),
        F("22:18", "KBase3", "never used"),
        F("23", "KBE3", "never used"),
    )),
    Register(10, "Header*", "only when TDE is set: where a kernel in scratch comes from", (
        F("15:0", "DTID", "TID of the task that wrote the scratch region from which this task takes its kernel"),
    )),
)  # fmt: skip


def _dma_lane(star: str) -> tuple[Field, ...]:
    return (
        F("0", f"En{star}", "the lane fetches"),
        F("5:4", f"CrH{star}", "always 0"),
        F("9:6", f"CacheHint{star}", "system cache hint", READ_HINT),
        F("27", f"PrefetchParticipateEn{star}", "never set"),
    )


KERNEL_DMA = RegisterBlock("KernelDMASrc", 0x1F800, 62, "Kernel DMA: one weight stream per neural core", (
    Register(0x1F800, "MasterConfig*", "switch of the kernel DMA", (
        F("4", "GroupKernelReuse*", "always 0", evidence=INFERRED),
        F("5", "SparseFmt*", "streams are mask-compressed"),
        F("6", "MasterEnable*", "the kernel DMA is on"),
    )),
    Register(0x1F804, "AlignedCoeffSizePerCh*", "always 0", evidence=INFERRED),
    Register(0x1F808, "CoeffDMAConfig[16]", "switch of core i", _dma_lane("")),
    Register(0x1F848, "CoeffBaseAddr[16]", "where core i reads", (
        F("31:6", "Addr", "offset from the kernel channel", BYTES64),
    )),
    Register(0x1F888, "CoeffBfrSize[16]", "how much core i reads", (
        F("31:6", "MemBfrSize", "length; more than the core consumes hangs the engine", BYTES64, SILICON),
    )),
    Register(0x1F8C8, "SideDMAConfig[4]*", "side channels: bias, post-scale, palette, table; off on H13",
             _dma_lane("*"), evidence=INFERRED),
    Register(0x1F8D8, "SideBaseAddr[4]*", "side channels: where they read", (
        F("31:6", "Addr*", "offset from the kernel channel", BYTES64, INFERRED),
    ), evidence=INFERRED),
    Register(0x1F8E8, "SideBfrSize[4]*", "side channels: how much they read", (
        F("31:6", "MemBfrSize*", "length", BYTES64, INFERRED),
    ), evidence=INFERRED),
))  # fmt: skip

COMMON = RegisterBlock("Common", 0x00000, 16, "Shape of the work and how it is cut among the units", (
    Register(0x00, "InDim", "input map", (
        F("14:0", "Win", "width", PIXELS),
        F("30:16", "Hin", "height", PIXELS),
    )),
    Register(0x04, "InDepth*", "input depth", (F("14:0", "Din*", "depth; 1 unless used as an extra loop axis"),)),
    Register(0x08, "ChCfg", "element formats", (
        F("1:0", "InFmt", "source 1", ELEMENT),
        F("3:2", "Src2InFmt*", "source 2; 0 when there is none", ELEMENT),
        F("5:4", "OutFmt", "result", ELEMENT),
    )),
    Register(0x0C, "Cin", "input channels", (F("16:0", "Cin", "input channels per group"),)),
    Register(0x10, "Cout", "output channels", (F("16:0", "Cout", "output channels per group"),)),
    Register(0x14, "OutDim", "output map", (
        F("14:0", "Wout", "width", PIXELS),
        F("30:16", "Hout", "height", PIXELS),
    )),
    Register(0x18, "OutDepth*", "output depth", (F("14:0", "Dout*", "depth"),)),
    Register(0x1C, "ConvCfg", "convolution window", (
        F("4:0", "Kw", "kernel width"),
        F("9:5", "Kh", "kernel height"),
        F("12:10", "OCGSize", "output channels of a core that share one pass", LOG2),
        F("14:13", "Sx", "stride along W"),
        F("16:15", "Sy", "stride along H"),
        F("21:17", "Px", "zero columns on the left"),
        F("26:22", "Py", "zero rows on top"),
        F("29:28", "Ox", "outputs per kernel position along W"),
        F("31:30", "Oy", "outputs per kernel position along H"),
    )),
    Register(0x20, "ConvCfg3d*", "third axis of the window; 1, 1, 0, 1 in all programs", (
        F("4:0", "Kd*", "kernel depth", evidence=INFERRED),
        F("7:6", "Sz*", "stride along D", evidence=INFERRED),
        F("11:8", "Pz*", "zero slices in front", evidence=INFERRED),
        F("14:13", "Oz*", "outputs per kernel position along D", evidence=INFERRED),
    )),
    Register(0x24, "GroupConvCfg", "groups, and convolutions in which an output sees few inputs", (
        F("12:0", "NumGroups", "outer loop; steps source and result by their group strides"),
        F("14", "UnicastEn", "output o reads inputs o*U .. o*U+U-1 only, U = UnicastCin"),
        F("15", "ElemMultMode", "multiply the U inputs with each other instead of with a kernel"),
        F("31:16", "UnicastCin", "U"),
    )),
    Register(0x28, "TileCfg", "tiles along H", (F("15:0", "TileHeight", "output rows per L2 tile", PIXELS),)),
    Register(0x2C, "PatchCfg*", "patch of the planar engine; 0 in NE tasks", (
        F("3:0", "PatchWidthLog2*", "patch width", LOG2),
        F("8:4", "PatchHeightLog2*", "patch height", LOG2),
    )),
    Register(0x30, "PECfg*", "broadcasts and transpositions of the planar engine", (
        F("3:0", "Src1Broadcast*", "axes W, H, D, C (bit 0 to 3) along which source 1 has size 1"),
        F("7:4", "Src2Broadcast*", "the same for source 2"),
        F("8", "Src1Transpose*", "source 1 lies with channels along W"),
        F("9", "Src2Transpose*", "source 2 lies with channels along W"),
        F("10", "OutputTranspose*", "the result lies with channels along W"),
    )),
    Register(0x34, "Cfg", "kind of task and shape of the work units", (
        F("0", "One*", "always 1"),
        F("1", "Src2Dma*", "PE: source 2 has its own tile DMA"),
        F("2", "SmallSourceMode", "NE: small map and small kernel"),
        F("6:4", "PEKind*", "what the planar engine does", PE_KIND),
        F("10:8", "ShPref", "preferred NE patch: (128 >> s) x 2^s pixels", evidence=INFERRED),
        F("14:12", "ShMin", "smallest NE patch", evidence=INFERRED),
        F("18:16", "ShMax", "largest NE patch", evidence=INFERRED),
        F("21:19", "ActiveNE", "cores that work", LOG2),
        F("22", "ContextSwitchIn", "always 0"),
        F("24", "ContextSwitchOut", "always 0"),
        F("26", "AccDoubleBufEn", "set by early compilers in small tasks"),
        F("28", "OutTrans*", "NE: the result lies with channels along W"),
    )),
    Register(0x38, "TaskInfo", "which unit runs the task", (
        F("15:0", "TaskID", "always 0"),
        F("19:16", "TaskQ", "always 0"),
        F("27:20", "NID", "1 in NE tasks, 0 in PE tasks"),
    )),
    Register(0x3C, "DPE", "power estimation", (F("3:0", "Category", "no effect on results", evidence=INFERRED),)),
))  # fmt: skip


def _source_dma(star: str) -> tuple[Field, ...]:
    return (
        F("0", f"En{star}", "the DMA is on"),
        F("5:4", f"CrH{star}", "always 0"),
        F("9:6", f"CacheHint{star}", "system cache hint", READ_HINT, INFERRED),
        F("13:10", f"CacheHintReuse{star}", "hint for data that are read again", READ_HINT, INFERRED),
        F("17:14", f"CacheHintNoReuse{star}", "hint for data that are not", READ_HINT, INFERRED),
        F("19:18", f"DependencyMode{star}", "the data come from an earlier task of this program", DEPENDENCY),
    )


def _stride(name: str, star: str = "") -> tuple[Field, ...]:
    return (F("31:6", name + star, "distance in memory", BYTES64),)


def _address(star: str = "") -> tuple[Field, ...]:
    return (F("31:6", f"Addr{star}", "offset from the channel", BYTES64),)


TILE_DMA_SRC = RegisterBlock("TileDMASrc", 0x13800, 28, "Tile DMA readers: surfaces from memory into L2", (
    Register(0x13800, "DMAConfig", "switch of source 1; on too when only source 2 reads", _source_dma("")),
    Register(0x13804, "Src2DMAConfig*", "source 2; its switch is L2.SourceCfg.Src2Dma", _source_dma("*")),
    Register(0x13808, "BaseAddr", "source 1: first byte", _address()),
    Register(0x1380C, "RowStride", "source 1: next row", _stride("Stride")),
    Register(0x13810, "PlaneStride", "source 1: next channel", _stride("PlaneStride")),
    Register(0x13814, "DepthStride", "source 1: next slice", _stride("Stride")),
    Register(0x13818, "GroupStride", "source 1: next group", _stride("Stride")),
    Register(0x1381C, "Src2BaseAddr*", "source 2: first byte", _address("*")),
    Register(0x13820, "Src2RowStride*", "source 2: next row", _stride("Stride", "*")),
    Register(0x13824, "Src2PlaneStride*", "source 2: next channel", _stride("PlaneStride", "*")),
    Register(0x13828, "Src2DepthStride*", "source 2: next slice", _stride("Stride", "*")),
    Register(0x1382C, "Src2GroupStride*", "source 2: next group", _stride("Stride", "*")),
    Register(0x13830, "Spare0", "always 0", evidence=INFERRED),
    Register(0x13834, "Spare1", "always 0", evidence=INFERRED),
    Register(0x13838, "Fmt", "elements of source 1 in memory; fp16 0x01002031, 8-bit 0x01000000", (
        F("1:0", "FmtMode", "1 for fp16"),
        F("5:4", "Truncate", "3 for fp16"),
        F("8", "Shift", "always 0"),
        F("13:12", "MemFmt", "element in memory", MEMORY),
        F("18:16", "OffsetCh", "always 0"),
        F("27:24", "Interleave", "channels side by side in a row; of source 2 when only that one reads"),
        F("31:28", "CmpVec", "always 0"),
    )),
    Register(0x1383C, "Src2Fmt*", "elements of source 2 in memory; fp16 0x2030", (
        F("1:0", "FmtMode*", "0"),
        F("5:4", "Truncate*", "3 for fp16"),
        F("8", "Shift*", "always 0"),
        F("13:12", "MemFmt*", "element in memory", MEMORY),
        F("18:16", "OffsetCh*", "always 0"),
    )),
    Register(0x13840, "Unk13840*", "0x100 in nearly every task", (
        F("8", "Bit8*", "0 only in PE tasks of the early compiler", evidence=UNKNOWN),
    ), evidence=UNKNOWN),
    Register(0x13850, "PixelOffset[4]", "always 0", (F("15:0", "Offset", "always 0", PIXELS),)),
))  # fmt: skip


def _region(meaning: str, star: str, name: str = "Stride") -> tuple[Field, ...]:
    return (F("20:4", name + star, meaning, BYTES16),)


_ALIASES = (
    F("4", "AliasConvSrc", "the region touches the source of the NE task before", evidence=INFERRED),
    F("5", "AliasConvRslt", "the region touches the result of the NE task before", evidence=INFERRED),
    F("7:6", "DMAFmt", "element width; 0 when resident", DMA_WIDTH),
    F("11:8", "DMAInterleave", "channels side by side"),
    F("15:12", "DMACmpVec", "always 0"),
    F("18:16", "DMAOffsetCh", "always 0"),
    F("20", "AliasPlanarSrc", "the region touches the source of the PE task before", evidence=INFERRED),
    F("22", "AliasPlanarRslt", "the region touches the result of the PE task before", evidence=INFERRED),
)

L2 = RegisterBlock("L2", 0x04800, 18, "The L2 buffer: where source and result lie in it", (
    Register(0x4800, "L2Cfg", "what happens on the way out of L2", (
        F("0", "InputReLU", "always 0"),
        F("3:2", "PaddingMode", "1 in maximum reductions: padding reads as the most negative number",
          evidence=INFERRED),
        F("4", "Src2ReLU*", "clamp operand 2 at 0"),
    )),
    Register(0x4804, "SourceCfg", "source 1", (
        F("1:0", "SourceType", "where it comes from", SOURCE_TYPE),
        F("3:2", "Dependent", "runs patch by patch behind the task before", DEPENDENT),
        *_ALIASES,
        F("24", "Src2Dma*", "source 2 comes by tile DMA"),
    )),
    Register(0x4808, "SourceBase", "source 1: region", _region("first byte", "", "Addr")),
    Register(0x480C, "SourceChannelStride", "source 1: next channel", _region("distance in L2", "")),
    Register(0x4810, "SourceRowStride", "source 1: next row", _region("distance in L2", "")),
    Register(0x4814, "SourceDepthStride*", "source 1: next slice", _region("distance in L2", "*")),
    Register(0x4818, "SourceGroupStride*", "source 1: next group", _region("distance in L2", "*")),
    Register(0x481C, "Src2Base*", "source 2: region", _region("first byte", "*", "Addr")),
    Register(0x4820, "Src2ChannelStride*", "source 2: next channel", _region("distance in L2", "*")),
    Register(0x4824, "Src2RowStride*", "source 2: next row", _region("distance in L2", "*")),
    Register(0x4828, "Src2DepthStride*", "source 2: next slice", _region("distance in L2", "*")),
    Register(0x482C, "Src2GroupStride*", "source 2: next group", _region("distance in L2", "*")),
    Register(0x4830, "ResultCfg", "result", (
        F("1:0", "ResultType", "where it goes", RESULT_TYPE),
        F("3:2", "L2BfrMode", "2: automatic result buffer, only its base counts"),
        *_ALIASES,
    )),
    Register(0x4834, "ResultBase", "result: region", _region("first byte", "", "Addr")),
    Register(0x4838, "ConvResultChannelStride", "result: next channel", _region("distance in L2", "")),
    Register(0x483C, "ConvResultRowStride", "result: next row", _region("distance in L2", "")),
    Register(0x4840, "ConvResultDepthStride*", "result: next slice", _region("distance in L2", "*")),
    Register(0x4844, "ConvResultGroupStride*", "result: next group", _region("distance in L2", "*")),
))  # fmt: skip

PE = RegisterBlock("PE", 0x08800, 4, "Planar engine: elementwise operations and reductions; 0 in NE tasks", (
    Register(0x8800, "Cfg*", "operation", (
        F("1:0", "ReduceMode*", "how a reduction combines (average and min never seen)", REDUCE),
        F("4:2", "OpMode*", "what the two operands give", PE_OP, SILICON),
        F("5", "ReluEn*", "clamp the result at 0"),
        F("8:6", "Cond*", "comparison; only abs has been seen", CONDITION, INFERRED),
        F("13:12", "NonlinearMode*", "of the reduced result", PE_NONLINEAR),
        F("17:16", "FirstSrc*", "operand 1", FIRST_SOURCE, INFERRED),
        F("19:18", "SecSrc*", "operand 2", SECOND_SOURCE),
    )),
    Register(0x8804, "BiasScale*", "first affine step", (
        F("15:0", "Bias*", "addend", FP16),
        F("31:16", "Scale*", "factor", FP16),
    )),
    Register(0x8808, "PreScale*", "before the non-linearity", (
        F("15:0", "Epsilon*", "addend", FP16),
        F("31:16", "PreScale*", "factor", FP16),
    )),
    Register(0x880C, "FinalScale*", "factor of the result; 1/N for a mean", (
        F("31:0", "FinalScale*", "factor", FP32),
    )),
))  # fmt: skip

NE = RegisterBlock("NE", 0x0C800, 5, "Neural cores: kernel format, multiply-accumulate, non-linearity", (
    Register(0xC800, "KernelCfg", "coding of the kernel stream", (
        F("1:0", "KernelFmt", "weights", ELEMENT),
        F("2", "PalettizedEn", "weights are palette indices"),
        F("7:4", "PalettizedBits", "index width; 8 stands for none"),
        F("8", "SparseFmt", "mask-compressed stream"),
        F("10", "GroupKernelReuse", "always 0"),
        F("12", "KernelKeep*", "PE task before a PE task", evidence=INFERRED),
        F("14", "UsePrevKernel*", "PE task behind a PE task", evidence=INFERRED),
        F("15", "SparseBinary*", "mask only: a set bit means the palette's entry"),
        F("16", "KernelAlign*", "the kernel is an activation in scratch"),
    )),
    Register(0xC804, "MACCfg", "multiply-accumulate; 0 hangs an NE task", (
        F("2:0", "OpMode", "how inputs and kernel positions combine", NE_OP),
        F("3", "KernelMode", "no stream: a kernel of ones"),
        F("4", "BiasMode", "one bias per output channel at the head of each core's stream"),
        F("5", "PassEn*", "always 0"),
        F("6", "MatrixBiasEn", "always 0"),
        F("12:8", "BinaryPoint", "0x1c with fp16, 0 with int8 kernels and uint8 sources"),
        F("14", "PostScaleMode", "always 0"),
        F("17:16", "NonlinearMode", "what follows the post-scale", NE_NONLINEAR),
        F("20", "Bit20*", "must be 1 in NE tasks", evidence=SILICON),
    )),
    Register(0xC808, "MatrixVectorBias", "always 0", (F("15:0", "MatrixVectorBias", "always 0"),)),
    Register(0xC80C, "AccBias", "one addend for all outputs", (
        F("15:0", "AccBias", "added before the table", FP16),
        F("20:16", "AccBiasShift", "always 0"),
    )),
    Register(0xC810, "PostScale", "factor of the accumulator, before the table", (
        F("15:0", "PostScale", "factor", FP16, SILICON),
        F("20:16", "PostRightShift", "always 0"),
    )),
))  # fmt: skip

TILE_DMA_DST = RegisterBlock("TileDMADst", 0x17800, 7, "Tile DMA writer: results from L2 to memory", (
    Register(0x17800, "DMAConfig", "switch of the writer", (
        F("0", "En", "the DMA is on"),
        F("5:4", "CrH", "always 0"),
        F("9:6", "CacheHint", "system cache hint", WRITE_HINT, INFERRED),
        F("16", "Unk16*", evidence=UNKNOWN),
        F("19:18", "DependencyMode*", "waits for an earlier task that read the place", REREAD, INFERRED),
        F("25:22", "DependencyInterval*", "how many tasks lie between the two", evidence=INFERRED),
        F("26", "L2BfrMode", "the result buffer is automatic (bit 3 of L2.ResultCfg)"),
        F("27", "BypassEOW", "always 0"),
    )),
    Register(0x17804, "BaseAddr", "first byte", _address()),
    Register(0x17808, "RowStride", "next row", _stride("RowStride")),
    Register(0x1780C, "PlaneStride", "next channel", _stride("PlaneStride")),
    Register(0x17810, "DepthStride", "next slice", _stride("DepthStride")),
    Register(0x17814, "GroupStride", "next group", _stride("GroupStride")),
    Register(0x17818, "Fmt", "elements in memory; fp16 0x01302031, 8-bit 0x01300000", (
        F("1:0", "FmtMode", "1 for fp16"),
        F("5:4", "Truncate", "3 for fp16"),
        F("8", "Shift", "always 0"),
        F("13:12", "MemFmt", "element in memory", MEMORY),
        F("18:16", "OffsetCh", "always 0"),
        F("20", "ZeroPadLast", "presumably zeros behind a row's end", evidence=INFERRED),
        F("21", "ZeroPadFirst", "presumably zeros before a row's start", evidence=INFERRED),
        F("22", "CmpVecFill", "always 0"),
        F("27:24", "Interleave", "channels side by side in a row"),
        F("31:28", "CmpVec", "always 0"),
    )),
))  # fmt: skip

TABLE = Table(
    generation="h13", version=7, header=HEADER, blocks=(KERNEL_DMA, COMMON, TILE_DMA_SRC, L2, PE, NE, TILE_DMA_DST)
)
