"""The ends of a task: its sources and its result, read from its registers (docs/emulator.md).

What the generations do alike stands here once. They differ in where a channel is named (`Registers.channel`), in what a
switched-off DMA leaves in its registers (0 on H13, reset values later), and in the switch of source 2: a bit of
``L2.SourceCfg`` on H13 and H14, its own DMA configuration from H15 on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from hexane.emulator.l2 import L2Region
from hexane.emulator.once import once
from hexane.emulator.registers import Registers
from hexane.emulator.strides import Extent
from hexane.frozen import slot_init
from hexane.isa.channels import SCRATCH

DTYPES: dict[int, np.dtype] = {0: np.dtype(np.uint8), 1: np.dtype(np.int8), 2: np.dtype(np.float16)}
AXES = ("w", "h", "d", "c")  # order of the broadcast bits


class OperandSource(IntEnum):
    """L2.SourceCfg.SourceType (docs/reference/engine-h13.md 12.1)."""

    RESIDENT = 0
    KEEP = 1
    STREAM = 2
    STRIPS = 3


@slot_init
@dataclass(frozen=True, slots=True)
class OperandSurface:
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


@slot_init
@dataclass(frozen=True, slots=True)
class TaskSource:
    """One source: its logical extent (1 along broadcast axes), storage and way in."""

    number: int
    kind: OperandSource
    extent: Extent
    transposed: bool
    dtype: np.dtype
    region: L2Region
    surface: OperandSurface | None
    relu: bool = False

    @property
    def stored(self) -> Extent:
        """The extent as it lies in memory."""
        return self.extent.transposed() if self.transposed else self.extent

    @property
    def base_register(self) -> str:
        """The register that places the operand in L2."""
        return "L2.SourceBase.Addr" if self.number == 1 else "L2.Src2Base.Addr"


@slot_init
@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result: logical extent, storage in L2, and the surface that it is sent to (None: it stays in L2)."""

    kind: OperandSource
    extent: Extent
    transposed: bool
    dtype: np.dtype
    region: L2Region
    automatic: bool
    surface: OperandSurface | None

    @property
    def stored(self) -> Extent:
        """The extent as it lies in memory."""
        return self.extent.transposed() if self.transposed else self.extent


@dataclass(frozen=True)
class Ends:
    """Sources and result of a task."""

    source1: TaskSource
    source2: TaskSource | None


class Way(NamedTuple):
    """Mode of an end, apart from its sizes and places: what tasks of one kind have in common."""

    kind: OperandSource
    dtype: np.dtype
    channel: int | None
    """None: it stays in L2."""
    interleave: int = 1
    broadcast: int = 0
    transposed: bool = False
    relu: bool = False
    automatic: bool = False


class _Places:
    """Names of the registers that say where an end is, in L2 and behind its channel."""

    def __init__(self, base: str, strides: str, dma: str) -> None:
        axes = ("Group", "Depth", "Channel", "Row")
        self.in_l2 = (f"L2.{base}Base.Addr", *(f"L2.{strides}{axis}Stride.Stride" for axis in axes))
        prefix = dma if dma.endswith("Src2") else f"{dma}."
        names = [f"{axis}Stride" for axis in ("Group", "Depth", "Plane", "Row")]
        fields = names if dma == "TileDMADst" else ["Stride", "Stride", "PlaneStride", "Stride"]
        self.in_memory = (f"{prefix}BaseAddr.Addr", *(f"{prefix}{name}.{field}" for name, field in zip(names, fields)))
        self.dma = dma

    def region(self, r: Registers, dtype: np.dtype) -> L2Region:
        base, group, depth, channel, row = r.several(self.in_l2)
        return L2Region(base << 4, group << 4, depth << 4, channel << 4, row << 4, dtype.itemsize)

    def surface(self, r: Registers, way: Way) -> OperandSurface | None:
        if way.channel is None:
            return None
        base, group, depth, plane, row = r.several(self.in_memory)
        size = way.dtype.itemsize
        return OperandSurface(
            way.channel, base << 6, group << 6, depth << 6, plane << 6, row << 6, way.interleave, size, self.dma
        )


def sources(r: Registers, data: Extent, *, two: bool, rows: bool) -> Ends:
    """Both sources; with ``rows`` source 2 is two rows, one value per channel each (a bias row and a scale row)."""
    first = _operand(r, 1, data, _way1(r))
    if not two:
        _no_source2(r)
        return Ends(first, None)
    second = _operand(r, 2, data, _way2(r))
    if rows:
        extent = second.extent._replace(d=1, h=2, w=1)
        second = replace(second, extent=extent)
    return Ends(first, second)


def _operand(r: Registers, number: int, data: Extent, way: Way) -> TaskSource:
    places = _SOURCES[number]
    region, surface = places.region(r, way.dtype), places.surface(r, way)
    extent = _without(data, way.broadcast)
    return TaskSource(number, way.kind, extent, way.transposed, way.dtype, region, surface, way.relu)


def _without(data: Extent, broadcast: int) -> Extent:
    """The extent of a source with size 1 along each axis whose broadcast bit is set."""
    if not broadcast:
        return data
    return data._replace(**{axis: 1 for bit, axis in enumerate(AXES) if broadcast >> bit & 1})


def _dtype(r: Registers, name: str) -> np.dtype:
    return DTYPES[r.one_of(name, DTYPES, "number format")]


def _channel(r: Registers, side: str, because: str) -> int:
    """The channel behind a DMA that is on."""
    channel = r.channel(side)
    if channel is None:
        raise r.error(f"names no channel ({because})", r.channel_register(side))
    return channel


def require_no_channel(r: Registers, side: str, because: str) -> None:
    """A DMA that is off names no channel; on H13 its number is 0."""
    place = r.roles.channels[side]
    if place.enable:
        r.expect_field(place.enable, 0, because)
        r.expect_field(place.number, 0, because)
    elif r.channel(side) is not None:
        raise r.error(f"names a channel ({because})", place.base)


@once
def _way1(r: Registers) -> Way:
    kind = OperandSource(r["L2.SourceCfg.SourceType"])
    dtype = _dtype(r, "Common.ChCfg.InFmt")
    way = Way(
        kind, dtype, None, broadcast=r["Common.PECfg.Src1Broadcast"], transposed=r.flag("Common.PECfg.Src1Transpose")
    )
    if kind not in (OperandSource.KEEP, OperandSource.STREAM):
        _no_source1_dma(r)
        return way
    r.expect("TileDMASrc.DMAConfig.En", 1, "the source comes by DMA")
    _format(r, "TileDMASrc.Fmt", dtype)
    r.expect("L2.SourceCfg.DMAFmt", 1 if dtype.itemsize == 2 else 0, "format of the source")
    return way._replace(
        channel=_channel(r, "source1", "the source comes by DMA"),
        interleave=_interleave(r, "TileDMASrc.Fmt.Interleave", "L2.SourceCfg.DMAInterleave"),
    )


def _no_source1_dma(r: Registers) -> None:
    """Source 1 is in L2: its DMA is off. On H13 the consumer of a staging pair keeps selector, strides and format
    filled in, for the place in scratch that the tensor had before it was kept in L2
    (docs/reference/engine-h13.md 12)."""
    if r.linked and r.channel("source1") is not None:
        r.expect_field(r.channel_register("source1"), SCRATCH, "consumer of a staging pair")
        r.expect("TileDMASrc.DMAConfig.En", 0, "consumer of a staging pair")
        _format(r, "TileDMASrc.Fmt", DTYPES[2])
        r.expect("L2.SourceCfg.DMAFmt", 1, "consumer of a staging pair")
        _interleave(r, "TileDMASrc.Fmt.Interleave", "L2.SourceCfg.DMAInterleave")
        return
    src2 = _src2_dma(r) is not OperandSource.RESIDENT
    shared = src2 and r.has("Common.Cfg.Src2Dma")  # one switch for both sources
    require_no_channel(r, "source1", "no source 1 DMA")
    r.expect("TileDMASrc.DMAConfig.En", int(shared), "on when any source comes by DMA" if shared else "source 1 in L2")
    for name, value in (("FmtMode", int(src2 and r.linked)), ("Truncate", 0), ("MemFmt", 0)):
        r.expect(f"TileDMASrc.Fmt.{name}", value, "no source 1 DMA")
    r.expect("L2.SourceCfg.DMAFmt", int(shared), "16-bit when only source 2 comes by DMA")
    if not (src2 and r.linked):
        _interleave(r, "TileDMASrc.Fmt.Interleave", "L2.SourceCfg.DMAInterleave", (1,))


@once
def _way2(r: Registers) -> Way:
    dtype = _dtype(r, "Common.ChCfg.Src2InFmt")
    source1_dma = r["L2.SourceCfg.SourceType"] in (OperandSource.KEEP, OperandSource.STREAM)
    kind = _src2_dma(r)
    src2_dma = kind is not OperandSource.RESIDENT
    r.expect("Common.Cfg.Src2Dma", int(src2_dma), "as L2.SourceCfg.Src2Dma")
    r.expect("Common.Cfg.One", int(source1_dma or not src2_dma), "0 when only source 2 comes by DMA")
    way = Way(
        kind,
        dtype,
        None,
        broadcast=r["Common.PECfg.Src2Broadcast"],
        transposed=r.flag("Common.PECfg.Src2Transpose"),
        relu=r.flag("L2.L2Cfg.Src2ReLU"),
    )
    if not src2_dma:
        require_no_channel(r, "source2", "no source 2 DMA")
        _format(r, "TileDMASrc.Src2Fmt", DTYPES[0])
        r.expect("L2.Src2Cfg.DMAFmt", 0, "no source 2 DMA")
        r.expect("L2.Src2Cfg.DMAInterleave", r.neutral("L2.Src2Cfg.DMAInterleave"), "no source 2 DMA")
        return way
    if dtype.itemsize != 2:
        raise r.error("a source 2 of 8 bits has no known DMA format", "Common.ChCfg.Src2InFmt")
    _format(r, "TileDMASrc.Src2Fmt", dtype, low=not r.linked)
    r.expect("L2.Src2Cfg.DMAFmt", 1, "format of source 2")
    channel = _channel(r, "source2", "source 2 comes by DMA")
    return way._replace(channel=channel, interleave=_interleave2(r, source1_dma))


def _src2_dma(r: Registers) -> OperandSource:
    """Mode of source 2: bits of source 1's configuration on H13 and H14, a configuration of its own later."""
    if r.has("L2.Src2Cfg.SourceType"):
        kind = OperandSource(r.one_of("L2.Src2Cfg.SourceType", (0, 1, 2), "way in of source 2"))
        r.expect("L2.SourceCfg.Src2Dma", int(kind is not OperandSource.RESIDENT), "as L2.Src2Cfg.SourceType")
        return kind
    if r.flag("L2.SourceCfg.Src2Keep"):
        r.expect("L2.SourceCfg.Src2Dma", 0, "source 2 is kept")
        return OperandSource.KEEP
    return OperandSource.STREAM if r.flag("L2.SourceCfg.Src2Dma") else OperandSource.RESIDENT


def _interleave2(r: Registers, source1_dma: bool) -> int:
    """Of source 2: a field of its own from H14 on; on H13 the word of source 1 has it when source 2 comes alone."""
    if r.has("TileDMASrc.Src2Fmt.Interleave"):
        if r.has("L2.Src2Cfg.DMAInterleave"):
            return _interleave(r, "TileDMASrc.Src2Fmt.Interleave", "L2.Src2Cfg.DMAInterleave")
        return r.one_of("TileDMASrc.Src2Fmt.Interleave", INTERLEAVES, "channel interleave")
    return 1 if source1_dma else _interleave(r, "TileDMASrc.Fmt.Interleave", "L2.SourceCfg.DMAInterleave")


@once
def _no_source2(r: Registers) -> None:
    for name in _SOURCE2_FIELDS:
        r.expect(name, r.neutral(name), "the task has one operand")
    r.expect("Common.Cfg.One", 1, "0 when only source 2 comes by DMA")
    require_no_channel(r, "source2", "the task has one operand")


_SOURCE2_FIELDS = (
    "L2.SourceCfg.Src2Dma",
    "L2.SourceCfg.Src2Keep",
    "Common.Cfg.Src2Dma",
    "L2.L2Cfg.Src2ReLU",
    "L2.Src2Cfg.SourceType",
    "L2.Src2Cfg.DMAFmt",
    "Common.ChCfg.Src2InFmt",
    "TileDMASrc.Src2Fmt.FmtMode",
    "TileDMASrc.Src2Fmt.Truncate",
    "TileDMASrc.Src2Fmt.MemFmt",
    "Common.PECfg.Src2Broadcast",
    "Common.PECfg.Src2Transpose",
)


def result(r: Registers, extent: Extent, *, on_ne: bool) -> TaskResult:
    """Destination of the result."""
    way = _way_out(r, on_ne)
    region, surface = _RESULT.region(r, way.dtype), _RESULT.surface(r, way)
    return TaskResult(way.kind, extent, way.transposed, way.dtype, region, way.automatic, surface)


@once
def _way_out(r: Registers, on_ne: bool) -> Way:
    dtype = _dtype(r, "Common.ChCfg.OutFmt")
    kind = OperandSource(r["L2.ResultCfg.ResultType"])
    automatic = r.one_of("L2.ResultCfg.L2BfrMode", (0, 2), "result buffer") == 2
    r.expect("TileDMADst.DMAConfig.L2BfrMode", int(automatic), "as L2.ResultCfg.L2BfrMode")
    sent = kind in (OperandSource.KEEP, OperandSource.STREAM)
    if sent or r.linked:  # from H14 on a result that stays says nothing of a format
        r.expect("L2.ResultCfg.DMAFmt", 1 if dtype.itemsize == 2 else 0, "format of the result")
    transposed = r.flag("Common.Cfg.OutTrans") if on_ne else r.flag("Common.PECfg.OutputTranspose")
    way = Way(kind, dtype, None, transposed=transposed, automatic=automatic)
    if not sent:
        _no_destination(r, dtype)
        if automatic:
            raise r.error("a result that stays in L2 needs its own strides", "L2.ResultCfg.L2BfrMode")
        return way
    r.expect("TileDMADst.DMAConfig.En", 1, "the result goes by DMA")
    _format(r, "TileDMADst.Fmt", dtype)
    return way._replace(
        channel=_channel(r, "result", "the result goes by DMA"),
        interleave=_interleave(r, "TileDMADst.Fmt.Interleave", "L2.ResultCfg.DMAInterleave"),
    )


def _no_destination(r: Registers, dtype: np.dtype) -> None:
    """The result stays in L2; on H13 the producer of a staging pair keeps channel and format filled in."""
    r.expect("TileDMADst.DMAConfig.En", 0, "the result stays in L2")
    staged = r.linked and r.channel("result") is not None
    if staged:
        r.expect_field(r.channel_register("result"), SCRATCH, "the result stays in L2")
    else:
        require_no_channel(r, "result", "the result stays in L2")
    _format(r, "TileDMADst.Fmt", dtype if staged else DTYPES[0])
    _interleave(r, "TileDMADst.Fmt.Interleave", "L2.ResultCfg.DMAInterleave")


INTERLEAVES = (1, 2, 4, 8)


def _interleave(r: Registers, name: str, mirror: str, factors: tuple[int, ...] = INTERLEAVES) -> int:
    value = r.one_of(name, factors, "channel interleave")
    r.expect(mirror, value, f"as {name}")
    return value


def _format(r: Registers, prefix: str, dtype: np.dtype, *, low: bool = True) -> None:
    """FmtMode, Truncate and MemFmt say the number format; source 2 of H13 has no FmtMode (``low``)."""
    for name, value in _FORMATS[dtype].items():
        expected = value if low or name != "FmtMode" else 0
        if r[f"{prefix}.{name}"] != expected:
            r.expect(f"{prefix}.{name}", expected, f"format {dtype}")


_FORMATS = {
    np.dtype(np.float16): {"FmtMode": 1, "Truncate": 3, "MemFmt": 2},
    np.dtype(np.uint8): {"FmtMode": 0, "Truncate": 0, "MemFmt": 0},
    np.dtype(np.int8): {"FmtMode": 0, "Truncate": 0, "MemFmt": 1},
}


_SOURCES = {1: _Places("Source", "Source", "TileDMASrc"), 2: _Places("Src2", "Src2", "TileDMASrc.Src2")}
_RESULT = _Places("Result", "ConvResult", "TileDMADst")
