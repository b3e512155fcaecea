"""Operands by a task's fields: extents, which strides count, which bytes of L2 each covers.

Which strides Apple's compiler writes follows from the extents: a stride counts where its axis has a second element. The
same extents give the L2 pages that hold live data between tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hexane.isa.compose.rules import RESULT, SECOND, SOURCE
from hexane.rounding import align

CELL = 16  # bytes: L2 hands out whole cells
BEHIND_PLANAR = 2  # of Dependent
PAGE_BITS = 16  # pages of 64 KiB
ALL_PAGES = (1 << 32) - 1  # one register

# Axes of PECfg's broadcast fields
ALONG_H, ALONG_D, ALONG_C = 2, 4, 8

# Common.Cfg.PEKind
SCALE_SHIFT = 4
REDUCTIONS = (5, 6)
TWO_OPERANDS = (3, 4, 6)

STREAMED_OR_KEPT = (1, 2)  # L2.SourceCfg.SourceType and L2.ResultCfg.ResultType
KEPT = 1
AUTOMATIC = 2  # bit of L2.ResultCfg.L2BfrMode: only the base counts

AXES = ("Row", "Channel", "Depth", "Group")
MEMORY_NAMES = {"Row": "RowStride", "Channel": "PlaneStride", "Depth": "DepthStride", "Group": "GroupStride"}

Get = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class TaskExtents:
    """Number of steps of an operand along each axis, and the elements of one row."""

    width: int
    row: int
    channel: int
    depth: int
    group: int

    def steps(self, axis: str) -> int:
        return {"Row": self.row, "Channel": self.channel, "Depth": self.depth, "Group": self.group}[axis]


class TaskShape:
    """The operands of one task, read by role through ``get``; ``addresses`` names the surfaces that it reaches."""

    def __init__(self, get: Get, addresses: Mapping[str, object]):
        self.get = get
        self.reads_first = SOURCE in addresses
        self.reads_second = SECOND in addresses
        self.writes = RESULT in addresses
        self.planar = not get("Common.TaskInfo.NID")
        self.kind = get("Common.Cfg.PEKind") if self.planar else 0
        self.two_operands = self.kind in TWO_OPERANDS

    def source(self, second: bool) -> TaskExtents:
        get = self.get
        broadcast, transposed = 0, 0
        if self.planar:
            broadcast = get("Common.PECfg.Src2Broadcast" if second else "Common.PECfg.Src1Broadcast")
            transposed = get("Common.PECfg.Src2Transpose" if second else "Common.PECfg.Src1Transpose")
        rows = 1 if broadcast & ALONG_H else get("Common.InDim.Hin")
        if second and self.kind == SCALE_SHIFT:
            rows = 2  # a row of addends and a row of factors
        channels = 1 if broadcast & ALONG_C or transposed else get("Common.Cin.Cin")
        depth = 1 if broadcast & ALONG_D else get("Common.InDepth.Din")
        return TaskExtents(get("Common.InDim.Win"), rows, channels, depth, get("Common.GroupConvCfg.NumGroups"))

    def result(self) -> TaskExtents:
        get = self.get
        width, rows = get("Common.OutDim.Wout"), get("Common.OutDim.Hout")
        channels, depth = get("Common.Cout.Cout"), get("Common.OutDepth.Dout")
        if self.kind in REDUCTIONS:
            width = rows = depth = 1
        if not self.planar and get("Common.Cfg.OutTrans"):
            width, channels = channels, width
        if self.planar and get("Common.PECfg.OutputTranspose"):
            width, channels = channels, 1
        return TaskExtents(width, rows, channels, depth, get("Common.GroupConvCfg.NumGroups"))

    def used_strides(self) -> dict[str, bool]:
        """Register name of every stride to whether it counts."""
        strides: dict[str, bool] = {}
        for second, prefix, by_dma in ((False, "", self.reads_first), (True, "Src2", self.reads_second)):
            extents = self.source(second)
            interleave = self.get(f"TileDMASrc.{prefix}Fmt.Interleave") or 1
            here = not second or self.two_operands
            for axis in AXES:
                steps = extents.steps(axis) > (interleave if axis == "Channel" else 1)
                strides[f"TileDMASrc.{prefix}{MEMORY_NAMES[axis]}"] = by_dma and steps
                strides[f"L2.{prefix or 'Source'}{axis}Stride"] = by_dma or (here and extents.steps(axis) > 1)
        extents = self.result()
        automatic = self.get("L2.ResultCfg.L2BfrMode") & AUTOMATIC
        buffered = self.get("L2.ResultCfg.ResultType") in STREAMED_OR_KEPT
        interleave = self.get("TileDMADst.Fmt.Interleave") or 1
        for axis in AXES:
            steps = extents.steps(axis) > (interleave if axis == "Channel" else 1)
            strides[f"TileDMADst.{MEMORY_NAMES[axis]}"] = self.writes and steps
            strides[f"L2.ConvResult{axis}Stride"] = not automatic and (buffered or extents.steps(axis) > 1)
        return strides

    def span(self, side: str) -> tuple[int, int]:
        """First byte in L2 of ``"Source"``, ``"Src2"`` or ``"Result"``, and the byte behind its last channel."""
        get = self.get
        extents = self.result() if side == "Result" else self.source(side == "Src2")
        element = 2 if get(f"Common.ChCfg.{_FORMATS[side]}") == FP16 else 1
        strides = "ConvResult" if side == "Result" else side
        step = {axis: CELL * get(f"L2.{strides}{axis}Stride.Stride") for axis in AXES}
        row = max(CELL, align(extents.width * element, CELL))
        if extents.channel > 1:
            row = max(row, step["Channel"])  # the last channel counts whole, also where two operands share its cells
        base = CELL * get(f"L2.{side}Base.Addr")
        return base, base + row + sum((extents.steps(axis) - 1) * step[axis] for axis in AXES)

    def resident(self) -> list[int]:
        """Start of the sources that stand in L2."""
        get = self.get
        first = [] if self.reads_first else [CELL * get("L2.SourceBase.Addr")]
        second = self.two_operands and not self.reads_second
        return [*first, CELL * get("L2.Src2Base.Addr")] if second else first


FP16 = 2
_FORMATS = {"Source": "InFmt", "Src2": "Src2InFmt", "Result": "OutFmt"}


def live_pages(shapes: Sequence[TaskShape]) -> list[int]:
    """For each task the mask of the 64 KiB pages of L2 that hold data which it or a later task reads; 0 for the last.

    Alive is a source that is kept, from its load, and a result that is not sent to memory, each until its last reader;
    what stands at one address is read as the last task wrote it. The page of the byte behind counts too, where L2 has
    one. Of a pair that runs patch by patch, planar task first, the second's result counts from the first on; what the
    first reads counts until the second is done where that is a task of the other unit.
    """
    masks = [0] * len(shapes)
    starts, ends = list(range(len(shapes))), list(range(len(shapes)))  # of a task's result, of what it reads
    for i, shape in enumerate(shapes):
        follows = shape.get("L2.SourceCfg.Dependent")
        leader = next((k for k in reversed(range(i)) if follows and shapes[k].planar == (follows == BEHIND_PLANAR)), i)
        if follows == BEHIND_PLANAR:
            starts[i] = leader
        if shapes[leader].planar != shape.planar:
            ends[leader] = i
    places: list[tuple[int, int, int, int]] = []  # first byte, end, first task, last task
    for i, shape in enumerate(shapes):
        for base in shape.resident():
            at = next((k for k in reversed(range(len(places))) if places[k][0] <= base < places[k][1]), None)
            if at is not None:
                places[at] = (*places[at][:3], ends[i])
        if shape.reads_first and shape.get("L2.SourceCfg.SourceType") == KEPT:
            places.append((*shape.span("Source"), i, i))
        if not shape.writes:
            places.append((*shape.span("Result"), starts[i], i))
    for first, end, begin, last in places:
        pages = (1 << (end >> PAGE_BITS) + 1) - (1 << (first >> PAGE_BITS)) & ALL_PAGES
        for k in range(begin, last + 1):
            masks[k] |= pages
    if masks:
        masks[-1] = 0
    return masks
