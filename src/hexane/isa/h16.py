"""H16 (A17 Pro, M4 family): task descriptor version 17.

Addresses are byte addresses; records hold them divided by four (docs/reference/generations.md 4, 9). Positions come
from register
setters inside Apple's compiler, meanings from pairing with H13 and H14. Names of H13 are kept where the meaning is the
same. A register that a task does not write has its reset value when the task starts (§4.5).
"""

from __future__ import annotations

from hexane.isa import h14
from hexane.isa.kinds import (
    DEPENDENCY,
    DEPENDENT,
    DMA_WIDTH,
    ELEMENT,
    FIRST_SOURCE,
    LATER_CONDITION,
    MEMORY,
    NE_NONLINEAR,
    NE_OP,
    PE_KIND,
    PE_NONLINEAR,
    PE_OP,
    REDUCE,
    RESULT_TYPE,
    SECOND_SOURCE,
    SOURCE_TYPE,
    TEXTURE,
)
from hexane.isa.schema import (
    BYTES16,
    BYTES64,
    F19,
    FP16,
    INFERRED,
    LOG2,
    PIXELS,
    UNKNOWN,
    F,
    Field,
    Register,
    RegisterBlock,
    Table,
)

_h14_header = h14.HEADER

HEADER = (
    *_h14_header[:2],
    Register(2, "Header*", "events to log", (
        F("31:0", "LogEvents*", "0x04000068 only task, 0x68 first, 0 middle, 0x04000000 last"),
    )),
    *_h14_header[3:6],
    Register(6, "Header*", "0 in all programs", evidence=UNKNOWN),
    Register(7, "Header*", "L2 pages in use", _h14_header[6].rows),
    Register(8, "Header*", "flags", (
        F("0", "TSR*", "set in all tasks; with TDE one more header word follows"),
        F("1", "TDE*", "the kernel comes from a runtime tensor"),
        F("3", "LastTask*", "last task of the program"),
        F("18:16", "ENE*", "NE tasks: 1 + ActiveNE + WUStackLog2 + FatTile; PE tasks: 0"),
    )),
    Register(9, "Header*", "only when TSR and TDE are set", _h14_header[8].rows),
)  # fmt: skip


def size17(address: int, name: str, meaning: str, reset: int | None = None) -> Register:
    return Register(address, f"{name}*", meaning, (F("16:0", f"{name}*", meaning, PIXELS),), reset)


COMMON = RegisterBlock("Common", 0x0000, 23, "Shape of the work and how it is cut among the units", (
    Register(0x00, "ChCfg*", "element formats", (
        F("1:0", "InFmt*", "source 1", ELEMENT),
        F("3:2", "Src2InFmt*", "source 2", ELEMENT),
        F("5:4", "OutFmt*", "result", ELEMENT),
    ), 0x2A),
    size17(0x04, "Win", "input width", 256),
    size17(0x08, "Hin", "input height", 256),
    Register(0x0C, "Cin*", "input channels", (F("16:0", "Cin*", "input channels per group"),), 16),
    size17(0x10, "Din", "input depth", 1),
    size17(0x14, "Wout", "output width", 256),
    size17(0x18, "Hout", "output height", 256),
    Register(0x1C, "Cout*", "output channels", (F("16:0", "Cout*", "output channels per group"),), 16),
    size17(0x20, "Dout", "output depth", 1),
    Register(0x24, "NumGroups*", "outer loop", (
        F("16:0", "NumGroups*", "groups; step source and result by their group strides"),
    ), 1),
    Register(0x28, "ConvCfg*", "convolution window", h14.CONV_WINDOW, 0x5000A041),
    Register(0x2C, "ConvCfg3d*", "third axis of the window", (
        F("4:0", "Kd*", "kernel depth", evidence=INFERRED),
        F("7:6", "Sz*", "stride along D", evidence=INFERRED),
        F("11:8", "Pz*", "zero slices in front", evidence=INFERRED),
        F("14:13", "Oz*", "outputs per kernel position along D", evidence=INFERRED),
    ), 0x2041),
    Register(0x30, "UnicastCfg*", "convolutions in which an output sees few inputs", (
        F("14", "UnicastEn*", "output o reads inputs o*U .. o*U+U-1 only, U = UnicastCin"),
        F("15", "ElemMultMode*", "multiply the U inputs with each other instead of with a kernel"),
        F("31:16", "UnicastCin*", "U"),
    ), 0),
    Register(0x34, "TileCfg*", "tiles along H", (F("16:0", "TileHeight*", "output rows per L2 tile", PIXELS),)),
    Register(0x38, "TileOverlap*", "rows that tiles share", (
        F("20:16", "Overlap*", "rows"),
        F("25:21", "PadTop*", "rows"),
        F("30:26", "PadBottom*", "rows"),
    ), 0),
    Register(0x3C, "Cfg*", "kind of task and shape of the work units", (
        F("3:2", "SmallSourceMode*", "NE: small map and small kernel"),
        F("7:4", "PEKind*", "what the planar engine does; 0 in NE tasks", PE_KIND),
        F("10:8", "ShPref*", "preferred NE patch: (128 >> s) x 2^s pixels", evidence=INFERRED),
        F("14:12", "ShMin*", "smallest NE patch", evidence=INFERRED),
        F("18:16", "ShMax*", "largest NE patch", evidence=INFERRED),
        F("21:19", "ActiveNE*", "cores that work", LOG2),
        F("22", "Trace*", "never set"),
        F("23", "L2Barrier*", "never set"),
        F("27:24", "ReluType*", "setter's name; meaning unknown", evidence=INFERRED),
        F("28", "OutTrans*", "NE: the result lies with channels along W"),
        F("29", "FillLowerNEFirst*", "NE: work goes to the lower cores first"),
        F("30", "ForwardBarrier*", "never set"),
    ), 0),
    Register(0x40, "NECfg*", "output channel groups", (
        F("2:0", "OCGSize*", "output channels of a core that share one pass", LOG2),
        F("3", "FatTile*", "counts as one step of ENE"),
        F("5:4", "WUStackLog2*", "stacked work units", LOG2),
    ), 3),
    Register(0x44, "PatchCfg*", "patch of the planar engine", (
        F("3:0", "PatchWidthLog2*", "patch width", LOG2),
        F("8:4", "PatchHeightLog2*", "patch height", LOG2),
    )),
    Register(0x48, "PECfg*", "broadcasts and transpositions of the planar engine", (
        F("3:0", "Src1Broadcast*", "axes W, H, D, C (bit 0 to 3) along which source 1 has size 1"),
        F("7:4", "Src2Broadcast*", "the same for source 2"),
        F("8", "Src1Transpose*", "source 1 lies with channels along W"),
        F("9", "Src2Transpose*", "source 2 lies with channels along W"),
        F("10", "OutputTranspose*", "the result lies with channels along W"),
        F("14", "IndexTranspose*", "setter's name", evidence=INFERRED),
        F("15", "IndexBroadcast*", "setter's name", evidence=INFERRED),
        F("18:16", "PrimarySource*", "setter's name", evidence=INFERRED),
        F("21:19", "ActiveNE*", "setter's name", LOG2, INFERRED),
    ), 0),
    Register(0x4C, "TaskInfo*", "which unit runs the task", (F("27:20", "NID*", "1 in NE tasks, 0 in PE tasks"),)),
    Register(0x50, "DPE*", "power estimation", (
        F("3:0", "Category*", "no effect on results", evidence=INFERRED),
    ), 0),
    Register(0x54, "Spare0*", "never written", evidence=INFERRED),
    Register(0x58, "Spare1*", "never written", evidence=INFERRED),
))  # fmt: skip


def region(address: int, name: str, meaning: str) -> Register:
    """Base (name ends in Base) or stride in L2."""
    what = "Addr*" if name.endswith("Base") else "Stride*"
    return Register(address, f"{name}*", meaning, (F("20:4", what, "in L2", BYTES16),), 0)


def regions(address: int, name: str, meaning: str, axes: str = "CRDG") -> tuple[Register, ...]:
    """Base and strides, one register after the other."""
    names = {"C": "Channel", "R": "Row", "D": "Depth", "G": "Group"}
    prefix = "ConvResult" if name == "Result" else name
    return (
        region(address, f"{name}Base", f"{meaning}: region"),
        *(region(address + 4 * i, f"{prefix}{names[axis]}Stride", f"{meaning}: next {names[axis].lower()}")
          for i, axis in enumerate(axes, 1)),
    )  # fmt: skip


def l2_config(first: Field) -> tuple[Field, ...]:
    return (
        first,
        F("4", "AliasConvSrc*", "the region touches the source of the NE task before", evidence=INFERRED),
        F("5", "AliasConvRslt*", "the region touches the result of the NE task before", evidence=INFERRED),
        F("7:6", "DMAFmt*", "element width; 0 when resident", DMA_WIDTH),
        F("11:8", "DMAInterleave*", "channels side by side"),
        F("20", "AliasPlanarSrc*", "the region touches the source of the PE task before", evidence=INFERRED),
        F("22", "AliasPlanarRslt*", "the region touches the result of the PE task before", evidence=INFERRED),
        F("26:25", "Compression*", "setter's name", evidence=INFERRED),
    )


def source_config() -> tuple[Field, ...]:
    return (
        *l2_config(F("1:0", "SourceType*", "where it comes from", SOURCE_TYPE)),
        F("3:2", "Dependent*", "runs patch by patch behind the task before", DEPENDENT),
    )


L2CFG = (
    F("0", "InputReLU*", "clamp operand 1 at 0"),
    F("3:2", "PaddingMode*", "1 in maximum tasks: padding reads as the most negative number", evidence=INFERRED),
    F("4", "Src2ReLU*", "clamp operand 2 at 0"),
    F("16", "Barrier*", "setter's name", evidence=INFERRED),
)
RESULT_CFG = (
    *l2_config(F("1:0", "ResultType*", "where it goes", RESULT_TYPE)),
    F("3:2", "L2BfrMode*", "2: automatic result buffer, only its base counts"),
)
WRAP = (
    F("11:0", "Blocks*", "blocks of a circular buffer", evidence=INFERRED),
    F("31:12", "Length*", "length of a circular buffer", evidence=INFERRED),
)

L2 = RegisterBlock("L2", 0x4100, 41, "The L2 buffer: where source and result lie in it", (
    Register(0x4100, "L2Cfg*", "what happens on the way out of L2", L2CFG, 0),
    Register(0x4104, "SourceCfg*", "source 1", source_config(), 0x100),
    Register(0x4108, "Src2Cfg*", "source 2", source_config(), 0x100),
    Register(0x410C, "IndexCfg*", "index of a gather", (
        *source_config(), F("27", "Index*", "setter's name", evidence=INFERRED),
    )),
    *regions(0x4110, "Source", "source 1"),
    *regions(0x4124, "Src2", "source 2"),
    *regions(0x4138, "Index", "index", "CDG"),
    Register(0x4148, "ResultCfg*", "result", RESULT_CFG, 0x100),
    *regions(0x414C, "Result", "result"),
    Register(0x4164, "ResultWrapCfg*", "result: circular buffer", WRAP),
    Register(0x4168, "SourceWrapCfg*", "source 1: circular buffer", WRAP),
    Register(0x416C, "Src2WrapCfg*", "source 2: circular buffer", WRAP),
    Register(0x4174, "WrapIndex*", "circular buffer: where it starts", (
        F("15:0", "Index*", "wrap index", evidence=INFERRED),
        F("31:16", "StartOffset*", "start", evidence=INFERRED),
    )),
    *(Register(0x417C + 4 * i, f"Result2{name}*", "second result (position from a list of names)", (
        F("20:4", "Addr*" if name == "Base" else "Stride*", "in L2", BYTES16, INFERRED),
    ), evidence=INFERRED) for i, name in enumerate(("Base", "ChannelStride", "RowStride", "DepthStride"))),
    Register(0x418C, "PEIndex*", "index unit of the planar engine", (
        F("15:0", "MaxIndex*", "largest index", evidence=INFERRED),
        F("18:16", "Mode*", "setter's name", evidence=INFERRED),
        F("25:24", "Broadcast*", "setter's name", evidence=INFERRED),
        F("26", "Transpose*", "setter's name", evidence=INFERRED),
    )),
    Register(0x4190, "WrapAddress*", "circular buffer", evidence=INFERRED),
    Register(0x4194, "WrapAddress2*", "circular buffer", evidence=INFERRED),
    Register(0x419C, "WrapAddress3*", "circular buffer", (
        F("11:0", "Address*", "setter's name", evidence=INFERRED),
        F("26:16", "Offset*", "setter's name", evidence=INFERRED),
    )),
    Register(0x41A0, "SubPixel*", "sub-pixel offsets of the source", (
        F("5:0", "X*", "setter's name", evidence=INFERRED),
        F("12:8", "Y*", "setter's name", evidence=INFERRED),
    )),
))  # fmt: skip

PE_CFG = (
    F("1:0", "ReduceMode*", "how a reduction or pooling combines", REDUCE),
    F("4:2", "OpMode*", "what the two operands give", PE_OP),
    F("5", "ReluEn*", "table or clamp at 0"),
    F("8:6", "Cond*", "absolute value; comparisons have not been seen", LATER_CONDITION),
    F("10:9", "ReduceIndex*", "setter's name", evidence=INFERRED),
    F("11", "Keep*", "setter's name", evidence=INFERRED),
    F("13:12", "NonlinearMode*", "of the reduced result", PE_NONLINEAR),
    F("16", "FirstSrc*", "operand 1", FIRST_SOURCE, INFERRED),
    F("19:18", "SecSrc*", "operand 2", SECOND_SOURCE),
)


def factor(address: int, name: str, meaning: str, reset: int) -> Register:
    return Register(address, f"{name}*", meaning, (F("31:13", f"{name}*", meaning, F19),), reset)


PE = RegisterBlock("PE", 0x4500, 15, "Planar engine: elementwise operations and reductions", (
    Register(0x4500, "Cfg*", "operation", PE_CFG, 0),
    factor(0x4504, "Bias", "addend", 0),
    factor(0x4508, "Scale", "factor", 0x3F800000),
    factor(0x450C, "Epsilon", "addend before the non-linearity", 0),
    factor(0x4510, "PreScale", "factor before the non-linearity", 0x3F800000),
    factor(0x4514, "FinalScale", "factor of the result; 1/N for a mean", 0x3F800000),
    Register(0x4518, "Piecewise[8]*", "parameters of a piecewise-linear unit; never seen", evidence=INFERRED),
    Register(0x4538, "ZeroPoints*", "quantisation offsets", (
        F("7:0", "Src1*", "source 1", evidence=INFERRED),
        F("15:8", "Src2*", "source 2", evidence=INFERRED),
        F("23:16", "Out*", "result", evidence=INFERRED),
    )),
))  # fmt: skip

NE = RegisterBlock("NE", 0x4900, 12, "Neural cores: kernel format, multiply-accumulate, non-linearity", (
    Register(0x4900, "KernelCfg*", "coding of the kernel stream", (
        F("1:0", "KernelFmt*", "weights", ELEMENT),
        F("2", "PalettizedEn*", "weights are palette indices"),
        F("7:4", "PalettizedBits*", "index width; 8 stands for none"),
        F("8", "SparseFmt*", "mask-compressed stream"),
        F("10", "GroupKernelReuse*", "setter's name"),
        F("15", "SparseBinary*", "mask only: a set bit means the palette's entry"),
        F("16", "KernelAlign*", "table stream, or a runtime kernel"),
        F("23:21", "BlockSize*", "setter's name", evidence=INFERRED),
        F("24", "Asymmetric*", "setter's name", evidence=INFERRED),
    ), 0x82),
    Register(0x4904, "MACCfg*", "multiply-accumulate", (
        F("2:0", "OpMode*", "how inputs and kernel positions combine", NE_OP),
        F("3", "KernelMode*", "no stream: a kernel of ones"),
        F("4", "BiasMode*", "one bias per output channel"),
        F("5", "PassEn*", "setter's name"),
        F("6", "MatrixBiasEn*", "setter's name"),
        F("13:8", "BinaryPoint*", "signed; 0x3c (-4) with fp16, 0 with int8"),
        F("14", "PostScaleMode*", "one post-scale per channel"),
        F("17:16", "NonlinearMode*", "what follows the post-scale", NE_NONLINEAR),
        F("19", "MaxPool*", "setter's name", evidence=INFERRED),
        F("20", "Bit20*", "1 in fp16 NE tasks; the setter counts it to a field 23:20"),
        F("23:21", "ArgSelect*", "upper bits of the setter's field 23:20", evidence=INFERRED),
        F("26", "DoubleInt8*", "two int8 products at once"),
    ), 0x100000),
    Register(0x4908, "MatrixVectorBias*", "setter's name", (F("15:0", "MatrixVectorBias*", "bias"),), 0),
    Register(0x490C, "AccBias*", "one addend for all outputs", (
        F("15:0", "AccBias*", "added before the table", FP16),
        F("20:16", "AccBiasShift*", "exponent"),
    ), 0),
    Register(0x4910, "PostScale*", "factor of the accumulator, before the table", (
        F("15:0", "PostScale*", "factor", FP16),
        F("20:16", "PostRightShift*", "negated exponent"),
    )),
    Register(0x4914, "RCAS*", "setter's name", (
        F("7:0", "KeyMask*", "setter's name", evidence=INFERRED),
        F("10:8", "CompareBit*", "setter's name", evidence=INFERRED),
        F("13:12", "Axis*", "setter's name", evidence=INFERRED),
        F("19:16", "SenseBit*", "setter's name", evidence=INFERRED),
        F("20", "Mode*", "setter's name", evidence=INFERRED),
    )),
    Register(0x4918, "Rounding*", "rounding of the result", (
        F("1:0", "Mode*", "setter's name", evidence=INFERRED),
        F("8:4", "IntegerBits*", "setter's name", evidence=INFERRED),
    )),
    Register(0x491C, "Seed[4]*", "stochastic rounding", (F("31:0", "Seed*", "seed", evidence=INFERRED),)),
    Register(0x492C, "ZeroPoint*", "quantisation offset", (F("7:0", "Out*", "result", evidence=INFERRED),)),
))  # fmt: skip


def source_dma() -> tuple[Field, ...]:
    return (
        F("0", "En*", "the DMA is on"),
        F("7:5", "CacheHint*", "1 normal, 2 reading scratch, 6 and 7 reuse"),
        F("15:8", "DataSetId*", "data set"),
        F("23:16", "Tag*", "TID of the task"),
        F("27:24", "DependencyInterval*", "setter's name", evidence=INFERRED),
        F("29:28", "DependencyMode*", "whether the data come from an earlier task", DEPENDENCY),
    )


def source_hints() -> tuple[Field, ...]:
    return (
        F("7:0", "CacheHints*", "further system cache hints", evidence=INFERRED),
        F("10:8", "WrapMode*", "circular buffer", evidence=INFERRED),
        F("31:16", "WrapStatic*", "circular buffer", evidence=INFERRED),
    )


def format_fields(*more: Field) -> tuple[Field, ...]:
    return (
        F("1:0", "FmtMode*", "1 for fp16"),
        F("6:4", "Truncate*", "3 for fp16"),
        F("8", "Shift*", "bits above the element"),
        F("13:12", "MemFmt*", "element in memory", MEMORY),
        F("18:16", "OffsetCh*", "first channel of an interleaved row"),
        F("27:24", "Interleave*", "channels side by side in a row"),
        F("31:28", "CmpVec*", "setter's name"),
        *more,
    )


def strides(address: int, prefix: str, meaning: str) -> tuple[Register, ...]:
    """Row, plane, depth and group stride of a surface."""
    names = ("RowStride", "PlaneStride", "DepthStride", "GroupStride")
    return tuple(
        Register(address + 4 * i, f"{prefix}{name}*", f"{meaning}: next {name[:-6].lower()}",
                 (F("31:6", "PlaneStride*" if name == "PlaneStride" else "Stride*", "in memory", BYTES64),))
        for i, name in enumerate(names)
    )  # fmt: skip


_COMPRESSION = (
    F("0", "En*", "compressed surface", evidence=INFERRED),
    F("2", "MacroBlock*", "setter's name", evidence=INFERRED),
    F("9:4", "Packing*", "setter's name", evidence=INFERRED),
    F("13", "Lossy*", "setter's name", evidence=INFERRED),
    F("31:24", "Tag*", "setter's name", evidence=INFERRED),
)
_CROP = (F("15:0", "Y*", "rows", PIXELS, INFERRED), F("31:16", "X*", "columns", PIXELS, INFERRED))
_TEXTURE = (
    F("2:0", "Mode*", "sampling", TEXTURE, INFERRED),
    F("5:3", "NormalizeX*", "setter's name", evidence=INFERRED),
    F("8:6", "NormalizeY*", "setter's name", evidence=INFERRED),
    F("14:12", "Filter*", "setter's name", evidence=INFERRED),
    F("22", "Background*", "setter's name", evidence=INFERRED),
)


def plain(address: int, name: str, meaning: str) -> Register:
    return Register(address, f"{name}*", meaning, evidence=INFERRED)


TILE_DMA_SRC = RegisterBlock("TileDMASrc", 0x4D00, 81, "Tile DMA readers: surfaces from memory into L2", (
    Register(0x4D00, "DMAConfig*", "source 1", source_dma()),
    Register(0x4D04, "Src2DMAConfig*", "source 2", source_dma()),
    Register(0x4D08, "CacheHints*", "source 1: hints and circular buffer", source_hints()),
    Register(0x4D0C, "Src2CacheHints*", "source 2: hints and circular buffer", source_hints()),
    *h14.address_pair(0x4D10, "BaseAddr", "source 1: first byte"),
    *strides(0x4D18, "", "source 1"),
    *h14.address_pair(0x4D28, "Src2BaseAddr", "source 2: first byte"),
    *strides(0x4D30, "Src2", "source 2"),
    *h14.address_pair(0x4D40, "MetaBaseAddr", "source 1: metadata of a compressed surface"),
    *h14.address_pair(0x4D48, "Src2MetaBaseAddr", "source 2: metadata of a compressed surface"),
    plain(0x4D50, "MetaConfig", "source 1: metadata"),
    plain(0x4D58, "MetaSize", "source 1: metadata"),
    plain(0x4D5C, "Src2MetaConfig", "source 2: metadata"),
    plain(0x4D64, "Src2MetaSize", "source 2: metadata"),
    Register(0x4D68, "Fmt*", "elements of source 1 in memory; fp16 0x01002031", format_fields(),
             0x01000000),
    Register(0x4D6C, "Src2Fmt*", "elements of source 2 in memory; fp16 0x01002031", format_fields(), 0x01000000),
    Register(0x4D78, "Compression*", "source 1: compressed surface", _COMPRESSION),
    plain(0x4D7C, "CompressedSize", "source 1"),
    plain(0x4D80, "CompressedSize2", "source 1"),
    Register(0x4D84, "CompressedCrop*", "source 1: crop", _CROP),
    Register(0x4D88, "Src2Compression*", "source 2: compressed surface", _COMPRESSION),
    plain(0x4D8C, "Src2CompressedSize", "source 2"),
    plain(0x4D90, "Src2CompressedSize2", "source 2"),
    Register(0x4D94, "Src2CompressedCrop*", "source 2: crop", _CROP),
    Register(0x4DB8, "WrapCfg*", "source 1: circular buffer", WRAP),
    Register(0x4DBC, "Src2WrapCfg*", "source 2: circular buffer", WRAP),
    plain(0x4DC0, "DependencyOffset", "source 1"),
    plain(0x4DC4, "Src2DependencyOffset", "source 2"),
    Register(0x4DC8, "Texture*", "texture unit", _TEXTURE),
    plain(0x4DCC, "TexturePermute", "texture unit"),
    plain(0x4DD0, "TexturePermute2", "texture unit"),
    plain(0x4DD4, "TextureBackground", "texture unit: value outside"),
    Register(0x4DD8, "TextureExtent[3]*", "texture unit: extents", evidence=INFERRED),
    Register(0x4DE4, "TextureCrop[3]*", "texture unit: crop", evidence=INFERRED),
    plain(0x4DF8, "Ephemeral", "setter's name"),
    plain(0x4E04, "CropCoefficient", "texture unit"),
))  # fmt: skip

DESTINATION_DMA = (
    F("0", "En*", "the DMA is on"),
    F("5:4", "CrH*", "3 in all programs"),
    F("7:6", "CacheHint*", "3 into scratch", evidence=INFERRED),
    F("15:8", "DataSetId*", "data set"),
    F("23:16", "Tag*", "TID of the task"),
    F("24", "L2BfrMode*", "the result buffer is automatic (bit 3 of L2.ResultCfg)"),
)

TILE_DMA_DST = RegisterBlock("TileDMADst", 0x5100, 21, "Tile DMA writer: results from L2 to memory", (
    Register(0x5100, "DMAConfig*", "switch of the writer", DESTINATION_DMA),
    *h14.address_pair(0x5108, "BaseAddr", "first byte"),
    *(r.with_rows(F("31:6", r.name + "*", "in memory", BYTES64)).without_rows("Stride")
      for r in strides(0x5110, "", "result")),
    plain(0x5120, "Internal", "setter's name"),
    *h14.address_pair(0x5128, "MetaBaseAddr", "metadata of a compressed surface"),
    plain(0x5130, "MetaConfig", "metadata of a compressed surface"),
    Register(0x5138, "Fmt*", "elements in memory; fp16 0x01302031", format_fields(
        F("20", "ZeroPadLast*", "presumably zeros behind a row's end", evidence=INFERRED),
        F("21", "ZeroPadFirst*", "presumably zeros before a row's start", evidence=INFERRED),
    ), 0x01300000),
    Register(0x5140, "Compression*", "compressed surface", _COMPRESSION),
    plain(0x5150, "PixelOffset", "setter's name"),
))  # fmt: skip


def side_channel(address: int, name: str, meaning: str) -> tuple[Register, ...]:
    return (
        Register(address, f"{name}DMAConfig*", f"{meaning}: switch", h14.dma_lane(), 0x20, INFERRED),
        Register(address + 4, f"{name}Size*", f"{meaning}: length", h14.offset64("MemBfrSize", "length"),
                 evidence=INFERRED),
        *h14.address_pair(address + 8, f"{name}Base", meaning),
    )  # fmt: skip


KERNEL_DMA = RegisterBlock("KernelDMASrc", 0x5500, 72,
                           "Kernel DMA: one weight stream per neural core, and side channels", (
    Register(0x5500, "MasterConfig*", "switch of the kernel DMA", h14.KERNEL_MASTER),
    Register(0x5504, "AlignedCoeffSizePerCh*", "16 K with a runtime kernel of depth K and a table", (
        F("31:0", "Size*", "size"),
    )),
    Register(0x5508, "Prefetch*", "prefetch", (
        F("0", "EarlyTermination*", "setter's name", evidence=INFERRED),
        F("1", "StopOnError*", "setter's name", evidence=INFERRED),
        F("31:16", "Rate*", "setter's name", evidence=INFERRED),
    )),
    *h14.address_pair(0x5510, "KernelBase", "kernel section, or a runtime kernel"),
    Register(0x5518, "GroupStride*", "next group's kernel", (F("31:6", "Stride*", "in memory", BYTES64),)),
    Register(0x551C, "OCGStride*", "next output channel group; 256 K for runtime kernels", (
        F("31:6", "Stride*", "in memory", BYTES64),
    )),
    Register(0x5520, "CoeffDMAConfig[16]*", "switch of core i", h14.dma_lane(), 0x20),
    Register(0x5560, "CoeffBaseAddr[16]*", "where core i reads; 0 for core 0 when not written", h14.offset64()),
    Register(0x55A0, "CoeffBfrSize[16]*", "how much core i reads", h14.offset64("MemBfrSize", "length"), 0x40),
    *side_channel(0x55E0, "Bias", "bias"),
    *side_channel(0x55F0, "PostScale", "post-scale"),
    *side_channel(0x5600, "Palette", "palette"),
    *side_channel(0x5610, "Table", "look-up table"),
))  # fmt: skip

CACHE_DMA = RegisterBlock("CacheDMA", 0x5900, 12, "System cache and telemetry; not needed for results", (
    Register(0x5900, "Control*", "0x12 in the last task of every program", (
        F("0", "Flush*", "setter's name", evidence=INFERRED),
        F("1", "En*", "setter's name", evidence=INFERRED),
        F("3:2", "TaskSync*", "setter's name", evidence=INFERRED),
        F("8:4", "EarlyTermination*", "setter's name", evidence=INFERRED),
    )),
    Register(0x5904, "Prefetch*", "0x00a000a0", (F("31:0", "Prefetch*", "parameters", evidence=INFERRED),)),
    Register(0x5908, "Prefetch2*", "in programs of several tasks", (
        F("15:0", "Prefetch*", "0xe0", evidence=INFERRED),
        F("31:16", "TID*", "task", evidence=INFERRED),
    )),
    Register(0x5918, "DataSet*", "data set and size", (F("31:0", "DataSet*", "0", evidence=INFERRED),)),
    Register(0x591C, "Footprint*", "footprint", (F("31:0", "Footprint*", "footprint", evidence=INFERRED),)),
    Register(0x5920, "EarlyTermination*", "arguments", (F("31:0", "Argument*", "argument", evidence=INFERRED),)),
    Register(0x5924, "Flush*", "argument", (F("31:0", "Argument*", "argument", evidence=INFERRED),)),
    Register(0x5928, "BackOff*", "0x007f0000", (F("31:0", "BackOff*", "parameters", evidence=INFERRED),)),
    Register(0x592C, "BackOff2*", "0x20010701", (F("31:0", "BackOff*", "parameters", evidence=INFERRED),)),
))  # fmt: skip

TABLE = Table(
    generation="h16",
    version=17,
    header=HEADER,
    blocks=(KERNEL_DMA, COMMON, TILE_DMA_SRC, L2, PE, NE, TILE_DMA_DST, CACHE_DMA),
)
