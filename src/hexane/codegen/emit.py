"""A plan as register words: every register of every block, as Apple's H13 compiler writes them (spec/engine-h13 §4)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

from hexane.codegen.plan import Buffer, Dma, Plan, Region
from hexane.isa import Task, task_from_words
from hexane.isa.schema import Handle

FORMAT_FP16 = 0x01002031
FORMAT_8BIT = 0x01000000
SECOND_FP16 = 0x00002030
DMA_OFF = 0x8880
DMA_SECOND_ONLY = 0x8881
STAGED_SOURCE = 0x48880
DST_OFF = 0xC0
DST_FP16 = 0x01302031
DST_8BIT = 0x01300000

Words = dict[str, int]


def registers(plan: Plan, base: Callable[[Buffer], int], *, early: bool = False) -> Words:
    """Words by register name, kernel DMA excluded. ``base`` gives a buffer's offset from its channel.

    ``early``: as compiler v4.2.1 writes them (§4.11).
    """
    words: Words = {}
    _common(plan, words)
    _source(plan, words, base)
    _l2(plan, words)
    _engines(plan, words)
    _destination(plan, words, base)
    if early:
        _as_early(plan, words)
    words.update(plan.extra)
    return words


def _common(plan: Plan, words: Words) -> None:
    pe = plan.unit == "PE"
    words["Common.InDim"] = plan.w | plan.h << 16
    words["Common.InDepth"] = plan.d
    words["Common.ChCfg"] = plan.in_format | plan.src2_format << 2 | plan.out_format << 4
    words["Common.Cin"] = plan.c
    words["Common.Cout"] = plan.cout
    words["Common.OutDim"] = plan.wout | plan.hout << 16
    words["Common.OutDepth"] = plan.dout
    words["Common.ConvCfg"] = (
        plan.kw
        | plan.kh << 5
        | plan.ocg << 10
        | plan.sx << 13
        | plan.sy << 15
        | plan.px << 17
        | plan.py << 22
        | plan.ox << 28
        | 1 << 30
    )
    words["Common.ConvCfg3d"] = 0x2041
    words["Common.GroupConvCfg"] = (
        plan.groups | bool(plan.unicast) << 14 | plan.pairs << 15 | max(1, plan.unicast) << 16
    )
    words["Common.TileCfg"] = plan.tile
    words["Common.PatchCfg"] = plan.patch[0] | plan.patch[1] << 4
    words["Common.PECfg"] = (
        plan.broadcast1 | plan.broadcast2 << 4 | plan.transpose1 << 8 | plan.transpose2 << 9 | plan.transpose_out << 10
    )
    pref, low, high = plan.shape
    second_only = plan.src is None and plan.src2 is not None  # then bit 0 is clear (select, softmax_1x8x375x375)
    words["Common.Cfg"] = (
        (not second_only)
        | (pe and plan.src2 is not None) << 1
        | plan.small_source << 2
        | plan.kind << 4
        | pref << 8
        | low << 12
        | high << 16
        | plan.cores_log2 << 19
        | plan.double_buffer << 26
        | plan.out_trans << 28
    )
    words["Common.TaskInfo"] = 0 if pe else 0x100000
    words["Common.DPE"] = plan.dpe


def _strides(dma: Dma | None) -> tuple[int, int, int, int]:
    return (dma.row, dma.plane, dma.depth, dma.group) if dma else (0, 0, 0, 0)


def _source(plan: Plan, words: Words, base: Callable[[Buffer], int]) -> None:
    first, second = plan.src, plan.src2
    config, form = DMA_OFF, FORMAT_8BIT
    if plan.src_staged:
        config = STAGED_SOURCE
    elif first is not None:
        config = plan.src_hint
    elif second is not None:
        config = DMA_SECOND_ONLY
    if first is not None:
        form = FORMAT_FP16 if first.element == 2 else FORMAT_8BIT
        form = form & ~0x0F000000 | first.interleave << 24
    elif second is not None:
        form = 1 | second.interleave << 24
    offset = first.offset + base(first.buffer) if first else 0
    words["TileDMASrc.DMAConfig"] = config
    words["TileDMASrc.Src2DMAConfig"] = plan.src2_hint if second is not None else DMA_OFF
    words["TileDMASrc.BaseAddr"] = offset
    names = ("RowStride", "PlaneStride", "DepthStride", "GroupStride")
    for name, value in zip(names, _strides(first)):
        words[f"TileDMASrc.{name}"] = value
    words["TileDMASrc.Src2BaseAddr"] = second.offset + base(second.buffer) if second else 0
    for name, value in zip(names, _strides(second)):
        words[f"TileDMASrc.Src2{name}"] = value
    if plan.src_staged:
        form = FORMAT_FP16
    words["TileDMASrc.Fmt"] = form
    words["TileDMASrc.Src2Fmt"] = SECOND_FP16 if second is not None else 0
    words["TileDMASrc.Unk13840"] = 0x100


def _region(prefix: str, region: Region, words: Words, names: tuple[str, ...]) -> None:
    values = (region.base, region.channel, region.row, region.depth, region.group)
    for name, value in zip(names, values):
        words[f"L2.{prefix}{name}"] = value


def _l2(plan: Plan, words: Words) -> None:
    strides = ("ChannelStride", "RowStride", "DepthStride", "GroupStride")
    words["L2.L2Cfg"] = plan.l2_config
    words["L2.SourceCfg"] = plan.source_config
    _region("Source", plan.source, words, ("Base", *strides))
    _region("Src2", plan.source2, words, ("Base", *strides))
    words["L2.ResultCfg"] = plan.result_config
    words["L2.ResultBase"] = plan.result.base
    _region("ConvResult", plan.result, words, ("", *strides))
    del words["L2.ConvResult"]


def _engines(plan: Plan, words: Words) -> None:
    pe = plan.unit == "PE"
    words["PE.Cfg"] = plan.pe if pe else 0
    words["PE.BiasScale"] = plan.bias | plan.scale << 16 if pe else 0
    words["PE.PreScale"] = plan.epsilon | plan.prescale << 16 if pe else 0
    words["PE.FinalScale"] = struct.unpack("<I", struct.pack("<f", plan.final))[0] if pe else 0
    words["NE.KernelCfg"] = 0x80 if pe else plan.kernel_config
    words["NE.MACCfg"] = 0x100000 if pe else plan.mac
    words["NE.MatrixVectorBias"] = 0
    words["NE.AccBias"] = plan.acc_bias
    words["NE.PostScale"] = 0 if pe else plan.post_scale


def _destination(plan: Plan, words: Words, base: Callable[[Buffer], int]) -> None:
    dst, config, form = plan.dst, DST_OFF, 0x01000000
    if dst is not None:
        if not plan.dst_staged:
            hint = plan.dst_hint if plan.dst_hint is not None else 0xC1
            config = hint | (plan.result_config >> 3 & 1) << 26
        form = DST_FP16 if dst.element == 2 else DST_8BIT
        form = form & ~0x0F000000 | dst.interleave << 24
    words["TileDMADst.DMAConfig"] = config
    words["TileDMADst.BaseAddr"] = dst.offset + base(dst.buffer) if dst else 0
    for name, value in zip(("RowStride", "PlaneStride", "DepthStride", "GroupStride"), _strides(dst)):
        words[f"TileDMADst.{name}"] = value
    words["TileDMADst.Fmt"] = form


def kernel_dma(plan: Plan, words: Words, base: int, *, early: bool = False) -> None:
    """Kernel DMA registers: lanes at ``base`` plus the kernel's offsets (§4.9)."""
    kernel = plan.kernel
    count = len(kernel.offsets) if kernel else 0
    if early and plan.unit == "PE":
        return
    words["KernelDMASrc.MasterConfig"] = (0x40 | kernel.sparse << 5) if kernel else 0
    for core in range(16):
        words[f"KernelDMASrc.CoeffDMAConfig[{core}]"] = 0x81 if core < count else 0x80
        if kernel or early:
            on = kernel is not None and core < count
            words[f"KernelDMASrc.CoeffBaseAddr[{core}]"] = base + kernel.offsets[core] if on else 0  # type: ignore[union-attr]
            words[f"KernelDMASrc.CoeffBfrSize[{core}]"] = kernel.sizes[core] if on else 0x40  # type: ignore[union-attr]
    for side in range(4):
        words[f"KernelDMASrc.SideDMAConfig[{side}]"] = 0x80
        words[f"KernelDMASrc.SideBfrSize[{side}]"] = 0 if early else 0x40


def _as_early(plan: Plan, words: Words) -> None:
    """What compiler v4.2.1 writes otherwise (§4.11)."""
    if plan.groups == 1:
        words["TileDMASrc.GroupStride"] = words["TileDMASrc.Src2GroupStride"] = words["TileDMADst.GroupStride"] = 0
    if plan.unit == "PE":
        words["TileDMASrc.Unk13840"] = 0
        if plan.dst is not None:
            words["TileDMADst.Fmt"] = FORMAT_FP16
        words["NE.KernelCfg"] = words["NE.MACCfg"] = 0


@lru_cache(maxsize=8)
def _template(kernel: bool, extended: bool) -> Task:
    """A task that writes every register, in the record layout of a task with or without kernel data (§4.1)."""
    header = 11 if extended else 10
    words = [0] * header
    if extended:
        words[6] = 1 << 24
    runs = [(0x1F800, 62)] if kernel else [(0x1F800, 18), (0x1F8C8, 12)]
    runs += [(0, 16), (0x13800, 28), (0x4800, 18), (0x8800, 4), (0xC800, 5), (0x17800, 7)]
    for address, count in runs:
        words.append((count - 1) << 26 | address)
        words += [0] * count
    return task_from_words(words, "h13")


@lru_cache(maxsize=1024)
def _handle(name: str) -> Handle:
    return _template(True, True).handle(name)


def task(words: Words, dtid: int | None, *, early: bool = False) -> Task:
    """The task that writes these words; today's compiler leaves out the lanes of tasks without kernel data."""
    made = _template(early or bool(words.get("KernelDMASrc.MasterConfig")), dtid is not None).copy()
    for name, value in words.items():
        if value:
            made.write(_handle(name), value)
    if dtid is not None:
        made.set("Header[10].DTID", dtid)
    return made
