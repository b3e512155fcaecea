"""What one task asks for, read from its registers: dimensions, operands, result (spec/engine-h13 §4.3 to §4.6, §8.6).

Nothing is executed here. Every value whose effect is not known is an error that names its field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hexane.emulator.l2 import Region
from hexane.emulator.registers import Registers
from hexane.emulator.strides import Extent
from hexane.isa.channels import SCRATCH

DTYPES: dict[int, np.dtype] = {0: np.dtype(np.uint8), 1: np.dtype(np.int8), 2: np.dtype(np.float16)}
AXES = ("w", "h", "d", "c")  # order of the broadcast bits


class SourceType(IntEnum):
    """L2.SourceCfg.SourceType (spec/engine-h13 §12.1)."""

    RESIDENT = 0
    KEEP = 1
    STREAM = 2
    STRIPS = 3


class PEKind(IntEnum):
    """Common.Cfg.PEKind (spec/engine-h13 §4.3)."""

    UNARY = 2
    BINARY = 3
    SCALE_SHIFT = 4
    REDUCE = 5
    BINARY_REDUCE = 6


@dataclass(frozen=True)
class Surface:
    """A tensor in DRAM as a tile DMA addresses it: channel, byte strides, interleave, element size in bytes."""

    channel: int
    base: int
    group: int
    depth: int
    plane: int
    row: int
    interleave: int
    element: int
    registers: str  # prefix of the register names, for messages


@dataclass(frozen=True)
class Operand:
    """One source: its logical extent (1 along broadcast axes), storage and way in."""

    number: int
    kind: SourceType
    extent: Extent
    transposed: bool
    dtype: np.dtype
    region: Region
    surface: Surface | None
    relu: bool = False

    @property
    def stored(self) -> Extent:
        """The extent as it lies in memory."""
        return self.extent.transposed() if self.transposed else self.extent

    @property
    def base_register(self) -> str:
        """The register that places the operand in L2."""
        return "L2.SourceBase.Addr" if self.number == 1 else "L2.Src2Base.Addr"


@dataclass(frozen=True)
class Result:
    """The result: logical extent, storage in L2, and the surface that it is sent to (None: it stays in L2)."""

    kind: SourceType
    extent: Extent
    transposed: bool
    dtype: np.dtype
    region: Region
    automatic: bool
    surface: Surface | None

    @property
    def stored(self) -> Extent:
        """The extent as it lies in memory."""
        return self.extent.transposed() if self.transposed else self.extent


@dataclass(frozen=True)
class Task:
    """One task descriptor, understood."""

    registers: Registers
    unit: str  # "NE" or "PE"
    pe_kind: PEKind | None
    groups: int
    depth: int
    cin: int
    hin: int
    win: int
    cout: int
    hout: int
    wout: int
    tile_height: int
    source1: Operand
    source2: Operand | None
    result: Result

    @property
    def index(self) -> int:
        return self.registers.index


def understand(r: Registers) -> Task:
    """Read a task's registers. Raises EmulationError for a value that has no known effect."""
    on_ne = r.flag("Common.TaskInfo.NID")
    pe_kind = None if on_ne else PEKind(r.one_of("Common.Cfg.PEKind", tuple(PEKind), "kind of planar engine task"))
    if on_ne:
        r.one_of("Common.Cfg.PEKind", (0,), "neural core task")
    sizes = {name: _size(r, field) for name, field in _SIZES.items()}
    groups, cin, cout = sizes["groups"], sizes["cin"], sizes["cout"]
    data = Extent(groups, sizes["din"], cin, sizes["hin"], sizes["win"])
    source1 = _source1(r, data)
    source2 = _source2(r, data, pe_kind) if pe_kind in _TWO_OPERANDS else None
    if pe_kind not in _TWO_OPERANDS:
        _no_source2(r)
    _require_holdable(r, data, "Common.InDim.Win")
    out = Extent(groups, sizes["dout"], cout, sizes["hout"], sizes["wout"])
    if on_ne:
        out = out._replace(w=out.w * r["Common.ConvCfg.Ox"])
    elif out != data:
        raise r.error(f"a planar engine task keeps its size: input {data}, output {out}", "Common.OutDim.Wout")
    _require_holdable(r, out, "Common.OutDim.Wout")
    if pe_kind in (PEKind.REDUCE, PEKind.BINARY_REDUCE):
        out = out._replace(d=1, h=1, w=1)
    return Task(
        registers=r,
        unit="NE" if on_ne else "PE",
        pe_kind=pe_kind,
        groups=groups,
        depth=sizes["din"],
        cin=cin,
        hin=sizes["hin"],
        win=sizes["win"],
        cout=cout,
        hout=sizes["hout"],
        wout=sizes["wout"],
        tile_height=_size(r, "Common.TileCfg.TileHeight"),
        source1=source1,
        source2=source2,
        result=_result(r, out, on_ne=on_ne),
    )


_SIZES = {
    "groups": "Common.GroupConvCfg.NumGroups",
    "din": "Common.InDepth.Din",
    "dout": "Common.OutDepth.Dout",
    "cin": "Common.Cin.Cin",
    "cout": "Common.Cout.Cout",
    "hin": "Common.InDim.Hin",
    "win": "Common.InDim.Win",
    "hout": "Common.OutDim.Hout",
    "wout": "Common.OutDim.Wout",
}
_TWO_OPERANDS = (PEKind.BINARY, PEKind.SCALE_SHIFT, PEKind.BINARY_REDUCE)


MOST_ELEMENTS = 1 << 27
"""Elements of one operand that the emulator holds; strides of 0 could ask for any number."""


def _require_holdable(r: Registers, extent: Extent, register: str) -> None:
    if math.prod(extent) > MOST_ELEMENTS:
        raise r.error(f"a map of {extent} elements is more than the emulator holds", register)


def _size(r: Registers, name: str) -> int:
    """A size of 0 hangs the engine (spec/engine-h13 §4.10)."""
    value = r[name]
    if value == 0:
        raise r.error("size 0 hangs the engine", name)
    return value


def _without(data: Extent, broadcast: int) -> Extent:
    """The extent of a source with size 1 along each axis whose broadcast bit is set."""
    return data._replace(**{axis: 1 for bit, axis in enumerate(AXES) if broadcast >> bit & 1})


def _dtype(r: Registers, name: str) -> np.dtype:
    return DTYPES[r.one_of(name, DTYPES, "number format")]


def _region(r: Registers, base: str, strides: str, dtype: np.dtype) -> Region:
    """Where an operand or result lies in L2: its base register, and the four strides that go with it."""
    return Region(
        base=r.l2(f"L2.{base}Base.Addr"),
        group=r.l2(f"L2.{strides}GroupStride.Stride"),
        depth=r.l2(f"L2.{strides}DepthStride.Stride"),
        channel=r.l2(f"L2.{strides}ChannelStride.Stride"),
        row=r.l2(f"L2.{strides}RowStride.Stride"),
        element=dtype.itemsize,
    )


def _source1(r: Registers, data: Extent) -> Operand:
    kind = SourceType(r["L2.SourceCfg.SourceType"])
    dtype = _dtype(r, "Common.ChCfg.InFmt")
    region = _region(r, "Source", "Source", dtype)
    surface = None
    if kind in (SourceType.KEEP, SourceType.STREAM):
        _expect(r, "TileDMASrc.DMAConfig.En", 1, "the source comes by DMA")
        _expect(r, "Header[8].RBE0", 1, "the source comes by DMA")
        _format(r, "TileDMASrc.Fmt", dtype)
        _expect(r, "L2.SourceCfg.DMAFmt", 1 if dtype.itemsize == 2 else 0, "format of the source")
        surface = Surface(
            channel=r["Header[8].RBase0"],
            base=r.addr("TileDMASrc.BaseAddr.Addr"),
            group=r.addr("TileDMASrc.GroupStride.Stride"),
            depth=r.addr("TileDMASrc.DepthStride.Stride"),
            plane=r.addr("TileDMASrc.PlaneStride.PlaneStride"),
            row=r.addr("TileDMASrc.RowStride.Stride"),
            interleave=_interleave(r, "TileDMASrc.Fmt.Interleave", "L2.SourceCfg.DMAInterleave"),
            element=dtype.itemsize,
            registers="TileDMASrc",
        )
    else:
        _no_source1_dma(r)
    broadcast = r["Common.PECfg.Src1Broadcast"]
    return Operand(
        number=1,
        kind=kind,
        extent=_without(data, broadcast),
        transposed=r.flag("Common.PECfg.Src1Transpose"),
        dtype=dtype,
        region=region,
        surface=surface,
    )


def _no_source1_dma(r: Registers) -> None:
    """Source 1 is in L2: its DMA is off. The consumer of a staging pair keeps selector, strides and format filled in,
    for the place in scratch that the tensor had before it was kept in L2 (spec/engine-h13 §12)."""
    if r.flag("Header[8].RBE0"):
        _expect(r, "Header[8].RBase0", SCRATCH, "consumer of a staging pair")
        _expect(r, "TileDMASrc.DMAConfig.En", 0, "consumer of a staging pair")
        _format(r, "TileDMASrc.Fmt", DTYPES[2])
        _expect(r, "L2.SourceCfg.DMAFmt", 1, "consumer of a staging pair")
        _interleave(r, "TileDMASrc.Fmt.Interleave", "L2.SourceCfg.DMAInterleave")
        return
    src2 = r.flag("L2.SourceCfg.Src2Dma")
    _expect(r, "Header[8].RBase0", 0, "no source 1 DMA")
    _expect(r, "TileDMASrc.DMAConfig.En", int(src2), "on when any source comes by DMA")
    for name, value in (("FmtMode", int(src2)), ("Truncate", 0), ("MemFmt", 0)):
        _expect(r, f"TileDMASrc.Fmt.{name}", value, "no source 1 DMA")
    _expect(r, "L2.SourceCfg.DMAFmt", int(src2), "16-bit when source 2 comes by DMA")
    if not src2:
        _interleave(r, "TileDMASrc.Fmt.Interleave", "L2.SourceCfg.DMAInterleave", (1,))


def _source2(r: Registers, data: Extent, kind: PEKind | None) -> Operand:
    dtype = _dtype(r, "Common.ChCfg.Src2InFmt")
    region = _region(r, "Src2", "Src2", dtype)
    surface = None
    source1_dma = r["L2.SourceCfg.SourceType"] in (SourceType.KEEP, SourceType.STREAM)
    src2_dma = r.flag("L2.SourceCfg.Src2Dma")
    _expect(r, "Common.Cfg.Src2Dma", int(src2_dma), "as L2.SourceCfg.Src2Dma")
    _expect(r, "Common.Cfg.One", int(source1_dma or not src2_dma), "0 when only source 2 comes by DMA")
    _expect(r, "Header[8].RBE1", int(src2_dma), "as L2.SourceCfg.Src2Dma")
    if src2_dma:
        if dtype.itemsize != 2:
            raise r.error("a source 2 of 8 bits has no known DMA format", "Common.ChCfg.Src2InFmt")
        _format(r, "TileDMASrc.Src2Fmt", dtype, low=False)
        surface = Surface(
            channel=r["Header[8].RBase1"],
            base=r.addr("TileDMASrc.Src2BaseAddr.Addr"),
            group=r.addr("TileDMASrc.Src2GroupStride.Stride"),
            depth=r.addr("TileDMASrc.Src2DepthStride.Stride"),
            plane=r.addr("TileDMASrc.Src2PlaneStride.PlaneStride"),
            row=r.addr("TileDMASrc.Src2RowStride.Stride"),
            # the word of source 1 carries the interleave of source 2 when source 2 comes alone (spec/engine-h13 §4.4)
            interleave=1 if source1_dma else _interleave(r, "TileDMASrc.Fmt.Interleave", "L2.SourceCfg.DMAInterleave"),
            element=dtype.itemsize,
            registers="TileDMASrc.Src2",
        )
    else:
        _expect(r, "Header[8].RBase1", 0, "no source 2 DMA")
        _format(r, "TileDMASrc.Src2Fmt", DTYPES[0])
    extent = _without(data, r["Common.PECfg.Src2Broadcast"])
    if kind is PEKind.SCALE_SHIFT:  # two rows, one value per channel (spec/engine-h13 §8.4)
        extent = extent._replace(d=1, h=2, w=1)
    return Operand(
        number=2,
        kind=SourceType.STREAM if surface else SourceType.RESIDENT,
        extent=extent,
        transposed=r.flag("Common.PECfg.Src2Transpose"),
        dtype=dtype,
        region=region,
        surface=surface,
        relu=r.flag("L2.L2Cfg.Src2ReLU"),
    )


def _no_source2(r: Registers) -> None:
    for name in _SOURCE2_FIELDS:
        _expect(r, name, 0, "the task has one operand")
    _expect(r, "Common.Cfg.One", 1, "0 when only source 2 comes by DMA")


_SOURCE2_FIELDS = (
    "L2.SourceCfg.Src2Dma",
    "Common.Cfg.Src2Dma",
    "L2.L2Cfg.Src2ReLU",
    "Common.ChCfg.Src2InFmt",
    "Header[8].RBase1",
    "Header[8].RBE1",
    "TileDMASrc.Src2Fmt.FmtMode",
    "TileDMASrc.Src2Fmt.Truncate",
    "TileDMASrc.Src2Fmt.MemFmt",
    "Common.PECfg.Src2Broadcast",
    "Common.PECfg.Src2Transpose",
)


def _result(r: Registers, extent: Extent, *, on_ne: bool) -> Result:
    dtype = _dtype(r, "Common.ChCfg.OutFmt")
    kind = SourceType(r["L2.ResultCfg.ResultType"])
    automatic = r.one_of("L2.ResultCfg.L2BfrMode", (0, 2), "result buffer") == 2
    _expect(r, "L2.ResultCfg.DMAFmt", 1 if dtype.itemsize == 2 else 0, "format of the result")
    _expect(r, "TileDMADst.DMAConfig.L2BfrMode", int(automatic), "as L2.ResultCfg.L2BfrMode")
    surface = None
    if kind in (SourceType.KEEP, SourceType.STREAM):
        _expect(r, "TileDMADst.DMAConfig.En", 1, "the result goes by DMA")
        _expect(r, "Header[8].WBE", 1, "the result goes by DMA")
        _format(r, "TileDMADst.Fmt", dtype)
        surface = Surface(
            channel=r["Header[8].WBase"],
            base=r.addr("TileDMADst.BaseAddr.Addr"),
            group=r.addr("TileDMADst.GroupStride.GroupStride"),
            depth=r.addr("TileDMADst.DepthStride.DepthStride"),
            plane=r.addr("TileDMADst.PlaneStride.PlaneStride"),
            row=r.addr("TileDMADst.RowStride.RowStride"),
            interleave=_interleave(r, "TileDMADst.Fmt.Interleave", "L2.ResultCfg.DMAInterleave"),
            element=dtype.itemsize,
            registers="TileDMADst",
        )
    else:
        _expect(r, "TileDMADst.DMAConfig.En", 0, "the result stays in L2")
        staged = r.flag("Header[8].WBE")  # producer of a staging pair: filled in, and off
        _expect(r, "Header[8].WBase", SCRATCH if staged else 0, "the result stays in L2")
        _format(r, "TileDMADst.Fmt", dtype if staged else DTYPES[0])
        _interleave(r, "TileDMADst.Fmt.Interleave", "L2.ResultCfg.DMAInterleave")
        if automatic:
            raise r.error("a result that stays in L2 needs its own strides", "L2.ResultCfg.L2BfrMode")
    return Result(
        kind=kind,
        extent=extent,
        transposed=r.flag("Common.Cfg.OutTrans") if on_ne else r.flag("Common.PECfg.OutputTranspose"),
        dtype=dtype,
        region=_region(r, "Result", "ConvResult", dtype),
        automatic=automatic,
        surface=surface,
    )


def _expect(r: Registers, name: str, value: int, because: str) -> None:
    if r[name] != value:
        raise r.error(f"value {r[name]:#x} does not agree with the rest of the task ({because}: {value:#x})", name)


def _interleave(r: Registers, name: str, mirror: str, known: tuple[int, ...] = (1, 2, 4, 8)) -> int:
    value = r.one_of(name, known, "channel interleave")
    _expect(r, mirror, value, f"as {name}")
    return value


def _format(r: Registers, prefix: str, dtype: np.dtype, *, low: bool = True) -> None:
    """FmtMode, Truncate and MemFmt say the number format (spec/engine-h13 §4.4); source 2 has no FmtMode (``low``)."""
    for name, value in _FORMATS[dtype].items():
        _expect(r, f"{prefix}.{name}", value if low or name != "FmtMode" else 0, f"format {dtype}")


_FORMATS = {
    np.dtype(np.float16): {"FmtMode": 1, "Truncate": 3, "MemFmt": 2},
    np.dtype(np.uint8): {"FmtMode": 0, "Truncate": 0, "MemFmt": 0},
    np.dtype(np.int8): {"FmtMode": 0, "Truncate": 0, "MemFmt": 1},
}
