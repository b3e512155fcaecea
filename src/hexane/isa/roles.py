"""Request of a task by role: one vocabulary for every generation, and the place of each role in each.

A *role* is a dotted name that means the same on every generation: ``Common.InDim.Win`` is the input width. Where the
register table of a generation has a field of that name, the field is the role; ``SPELLED`` lists the others. A role
that a generation does not have is absent: nothing there chooses it (docs/registers-h13.md and its neighbours show the
fields).

Readers of tasks (the emulator, the kernels) ask for roles, never for a layout. ``Roles.values`` gives them all at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from hexane import chips
from hexane.isa.fields import FieldPlan, Numbers
from hexane.isa.generations import Family, family_of
from hexane.isa.numbers import f19_bits, f19_value, fp16_bits, fp16_value, fp32_bits, fp32_value
from hexane.isa.schema import F19, FP16, FP32, Field, FieldError, Handle, Unit
from hexane.isa.task import Task

STREAMS = 16
"""Streams of the kernel DMA, one for each core, each with a switch, an address and a size."""

VOCABULARY = tuple(
    """
    Task.TID Task.ENE Task.TDE Task.DTID
    Common.InDim.Win Common.InDim.Hin Common.OutDim.Wout Common.OutDim.Hout Common.InDepth.Din Common.OutDepth.Dout
    Common.Cin.Cin Common.Cout.Cout Common.ChCfg.InFmt Common.ChCfg.Src2InFmt Common.ChCfg.OutFmt
    Common.GroupConvCfg.NumGroups Common.GroupConvCfg.UnicastEn Common.GroupConvCfg.UnicastCin
    Common.GroupConvCfg.ElemMultMode
    Common.ConvCfg.Kw Common.ConvCfg.Kh Common.ConvCfg.Sx Common.ConvCfg.Sy Common.ConvCfg.Px Common.ConvCfg.Py
    Common.ConvCfg.Ox Common.ConvCfg.Oy Common.ConvCfg.OCGSize
    Common.ConvCfg3d.Kd Common.ConvCfg3d.Sz Common.ConvCfg3d.Pz Common.ConvCfg3d.Oz
    Common.TileCfg.TileHeight Common.TaskInfo.NID Common.TaskInfo.TaskID Common.TaskInfo.TaskQ
    Common.Cfg.One Common.Cfg.Src2Dma Common.Cfg.PEKind Common.Cfg.ActiveNE Common.Cfg.OutTrans
    Common.Cfg.SmallSourceMode Common.Cfg.ShPref Common.Cfg.ShMin Common.Cfg.ShMax
    Common.Cfg.ContextSwitchIn Common.Cfg.ContextSwitchOut Common.Cfg.WUStackLog2 Common.Cfg.FatTile
    Common.Cfg.Winograd1D
    Common.PECfg.Src1Broadcast Common.PECfg.Src2Broadcast Common.PECfg.Src1Transpose Common.PECfg.Src2Transpose
    Common.PECfg.OutputTranspose
    L2.L2Cfg.InputReLU L2.L2Cfg.Src2ReLU L2.L2Cfg.PaddingMode
    L2.SourceCfg.SourceType L2.SourceCfg.DMAFmt L2.SourceCfg.DMAInterleave L2.SourceCfg.Src2Dma
    L2.SourceCfg.Src2Keep
    L2.SourceCfg.DMACmpVec L2.SourceCfg.DMAOffsetCh
    L2.Src2Cfg.SourceType L2.Src2Cfg.DMAFmt L2.Src2Cfg.DMAInterleave
    L2.ResultCfg.ResultType L2.ResultCfg.L2BfrMode L2.ResultCfg.DMAFmt L2.ResultCfg.DMAInterleave
    L2.ResultCfg.DMACmpVec L2.ResultCfg.DMAOffsetCh
    L2.SourceBase.Addr L2.SourceChannelStride.Stride L2.SourceRowStride.Stride L2.SourceDepthStride.Stride
    L2.SourceGroupStride.Stride
    L2.Src2Base.Addr L2.Src2ChannelStride.Stride L2.Src2RowStride.Stride L2.Src2DepthStride.Stride
    L2.Src2GroupStride.Stride
    L2.ResultBase.Addr L2.ConvResultChannelStride.Stride L2.ConvResultRowStride.Stride
    L2.ConvResultDepthStride.Stride L2.ConvResultGroupStride.Stride
    PE.Cfg.ReduceMode PE.Cfg.OpMode PE.Cfg.ReluEn PE.Cfg.Cond PE.Cfg.NonlinearMode PE.Cfg.FirstSrc PE.Cfg.SecSrc
    PE.BiasScale.Bias PE.BiasScale.Scale PE.PreScale.Epsilon PE.PreScale.PreScale PE.FinalScale.FinalScale
    NE.KernelCfg.KernelFmt NE.KernelCfg.PalettizedEn NE.KernelCfg.PalettizedBits NE.KernelCfg.SparseFmt
    NE.KernelCfg.GroupKernelReuse NE.KernelCfg.SparseBinary NE.KernelCfg.KernelAlign
    NE.MACCfg.OpMode NE.MACCfg.KernelMode NE.MACCfg.BiasMode NE.MACCfg.PassEn NE.MACCfg.MatrixBiasEn
    NE.MACCfg.BinaryPoint NE.MACCfg.PostScaleMode NE.MACCfg.NonlinearMode NE.MACCfg.Bit20
    NE.MatrixVectorBias.MatrixVectorBias NE.AccBias.AccBias NE.AccBias.AccBiasShift
    NE.PostScale.PostScale NE.PostScale.PostRightShift
    TileDMASrc.DMAConfig.En TileDMASrc.DMAConfig.CrH TileDMASrc.Src2DMAConfig.En TileDMASrc.Src2DMAConfig.CrH
    TileDMASrc.BaseAddr.Addr TileDMASrc.RowStride.Stride TileDMASrc.PlaneStride.PlaneStride
    TileDMASrc.DepthStride.Stride TileDMASrc.GroupStride.Stride
    TileDMASrc.Src2BaseAddr.Addr TileDMASrc.Src2RowStride.Stride TileDMASrc.Src2PlaneStride.PlaneStride
    TileDMASrc.Src2DepthStride.Stride TileDMASrc.Src2GroupStride.Stride
    TileDMASrc.Fmt.FmtMode TileDMASrc.Fmt.Truncate TileDMASrc.Fmt.MemFmt TileDMASrc.Fmt.Interleave
    TileDMASrc.Fmt.Shift TileDMASrc.Fmt.OffsetCh TileDMASrc.Fmt.CmpVec
    TileDMASrc.Src2Fmt.FmtMode TileDMASrc.Src2Fmt.Truncate TileDMASrc.Src2Fmt.MemFmt TileDMASrc.Src2Fmt.Interleave
    TileDMASrc.Src2Fmt.Shift TileDMASrc.Src2Fmt.OffsetCh TileDMASrc.Src2Fmt.CmpVec
    TileDMADst.DMAConfig.DependencyMode
    TileDMADst.DMAConfig.En TileDMADst.DMAConfig.L2BfrMode TileDMADst.DMAConfig.CrH TileDMADst.DMAConfig.BypassEOW
    TileDMADst.BaseAddr.Addr TileDMADst.RowStride.RowStride TileDMADst.PlaneStride.PlaneStride
    TileDMADst.DepthStride.DepthStride TileDMADst.GroupStride.GroupStride
    TileDMADst.Fmt.FmtMode TileDMADst.Fmt.Truncate TileDMADst.Fmt.MemFmt TileDMADst.Fmt.Interleave
    TileDMADst.Fmt.Shift TileDMADst.Fmt.OffsetCh TileDMADst.Fmt.CmpVec TileDMADst.Fmt.CmpVecFill
    KernelDMASrc.MasterConfig.MasterEnable KernelDMASrc.MasterConfig.SparseFmt
    KernelDMASrc.MasterConfig.GroupKernelReuse
    KernelDMASrc.KernelBase.Addr KernelDMASrc.GroupStride.Stride KernelDMASrc.OCGStride.Stride
    KernelDMASrc.TableDMAConfig.En KernelDMASrc.TableSize.MemBfrSize KernelDMASrc.TableBase.Addr
    """.split()
) + tuple(
    f"KernelDMASrc.{register}[{core}].{field}"
    for register, field in (("CoeffDMAConfig", "En"), ("CoeffBaseAddr", "Addr"), ("CoeffBfrSize", "MemBfrSize"))
    for core in range(STREAMS)
)
"""Every role, in groups."""

Spelling = Mapping[str, str | None]

_H13: Spelling = {
    "Task.TID": "Header[0].TID",
    "Task.ENE": "Header[8].ENE",
    "Task.TDE": "Header[6].TDE",
    "Task.DTID": "Header[10].DTID",
}
_H14: Spelling = {
    "Task.TID": "Header[0].TID",
    "Task.ENE": "Header[7].ENE",
    "Task.TDE": "Header[7].TDE",
    "Task.DTID": "Header[8].DTID",
    "Common.ConvCfg.OCGSize": "Common.OCGCfg.OCGSize",
    "KernelDMASrc.TableDMAConfig.En": "KernelDMASrc.SideDMAConfig[3].En",
}
_H15: Spelling = {
    "Task.TID": "Header[0].TID",
    "Task.ENE": "Header[7].ENE",
    "Task.TDE": "Header[7].TDE",
    "Task.DTID": "Header[8].DTID",
    "Common.ConvCfg.OCGSize": "Common.OCGCfg.OCGSize",
    "Common.Cfg.One": None,  # both are 0 in every task: source 2 has a switch of its own
    "Common.Cfg.Src2Dma": None,
    "L2.SourceCfg.Src2Dma": "TileDMASrc.Src2DMAConfig.En",
    "PE.BiasScale.Bias": "PE.Bias.Bias",
    "PE.BiasScale.Scale": "PE.Scale.Scale",
    "PE.PreScale.Epsilon": "PE.Epsilon.Epsilon",
}
_H16: Spelling = {
    **{role: field for role, field in _H15.items() if field is not None},
    "Task.ENE": "Header[8].ENE",
    "Task.TDE": "Header[8].TDE",
    "Task.DTID": "Header[9].DTID",
    "Common.ConvCfg.OCGSize": "Common.NECfg.OCGSize",
    "Common.Cfg.WUStackLog2": "Common.NECfg.WUStackLog2",
    "Common.Cfg.FatTile": "Common.NECfg.FatTile",
    "Common.InDim.Win": "Common.Win.Win",
    "Common.InDim.Hin": "Common.Hin.Hin",
    "Common.InDepth.Din": "Common.Din.Din",
    "Common.OutDim.Wout": "Common.Wout.Wout",
    "Common.OutDim.Hout": "Common.Hout.Hout",
    "Common.OutDepth.Dout": "Common.Dout.Dout",
    "Common.GroupConvCfg.NumGroups": "Common.NumGroups.NumGroups",
    "Common.GroupConvCfg.UnicastEn": "Common.UnicastCfg.UnicastEn",
    "Common.GroupConvCfg.UnicastCin": "Common.UnicastCfg.UnicastCin",
    "Common.GroupConvCfg.ElemMultMode": "Common.UnicastCfg.ElemMultMode",
}

SPELLED: Mapping[str, Spelling] = {
    "h13": _H13,
    "h14": _H14,
    "h15": _H15,
    "h16": _H16,
    "h17": _H16,
    "h18": _H16,
    "h19": _H16,
}
"""By generation: the field of each role that is not a field of the same name; None for a role that it does not have."""


@dataclass(frozen=True, slots=True)
class Channel:
    """Fields by which a task names the memory behind one of its DMA engines.

    On H13 the header has the channel's ``number`` and its ``enable`` bit; from H14 on an address record writes the
    register ``base``, and its slot is the channel.
    """

    base: str
    number: str = ""
    enable: str = ""

    @property
    def shown(self) -> str:
        """The register that a message names."""
        return self.number or self.base


HEADER_CHANNELS = {
    "source1": Channel("TileDMASrc.BaseAddr", "Header[8].RBase0", "Header[8].RBE0"),
    "source2": Channel("TileDMASrc.Src2BaseAddr", "Header[8].RBase1", "Header[8].RBE1"),
    "result": Channel("TileDMADst.BaseAddr", "Header[8].WBase", "Header[8].WBE"),
    "kernel": Channel("KernelDMASrc.CoeffBaseAddr[0]", "Header[9].KBase0", "Header[9].KBE0"),
}
_SLOT_CHANNELS = {
    "source1": Channel("TileDMASrc.BaseAddr"),
    "source2": Channel("TileDMASrc.Src2BaseAddr"),
    "result": Channel("TileDMADst.BaseAddr"),
    "kernel": Channel("KernelDMASrc.KernelBase"),
    "table": Channel("KernelDMASrc.TableBase"),
}
CHANNEL = "channel of {}"
"""The name in ``Roles.values`` of a channel from H14 on, counted from 1; 0 where the task has none."""
SLOT_WORDS = 4
"""The slot field of an address record counts words of a table with 16 bytes per slot."""


FP16_POINT = {"h13": 0x1C, "h16": 0x3C}
"""NE.MACCfg.BinaryPoint with fp16 operands, -4, from a generation on; H15 has a field of six bits and writes five."""


@dataclass(frozen=True)
class Roles:
    """The roles of one generation."""

    family: Family
    spelled: Spelling
    channels: Mapping[str, Channel]

    @property
    def generation(self) -> str:
        return self.family.generation

    @cached_property
    def fp16_point(self) -> int:
        """NE.MACCfg.BinaryPoint with fp16 operands."""
        mine = chips.generation(self.generation)
        return [point for first, point in FP16_POINT.items() if mine.is_from(first)][-1]

    @cached_property
    def absolute(self) -> int:
        """PE.Cfg.Cond of an absolute value."""
        return self.handle("PE.Cfg.Cond").values.value("abs") or 0

    @cached_property
    def fields(self) -> dict[str, str]:
        """Role to field, for every role that the generation has."""
        table, handles = self.family.table, {}
        for role in VOCABULARY:
            field = self.spelled.get(role, role)
            handle = None if field is None else table.find(field)
            if field is not None and handle is not None and handle.field is not None:
                handles[role] = field
        return handles

    @cached_property
    def renamed(self) -> tuple[tuple[str, str, int], ...]:
        """Roles that are fields of another name: role, field, the field's reset value."""
        handles = ((role, self.family.table.handle(field)) for role, field in self.fields.items() if field != role)
        return tuple((role, handle.name, _reset(handle)) for role, handle in handles)

    @cached_property
    def by_field(self) -> dict[str, str]:
        """Field to role, for the fields that are a role of another name."""
        return {field: role for role, field in self.fields.items() if role != field}

    @cached_property
    def resets(self) -> dict[str, int]:
        """Every named field whose register has a reset value other than 0 there, to that value."""
        table, values = self.family.table, {}
        for name, register in table.by_key.values():
            for row in register.rows:
                value = (register.reset or 0) >> row.low & row.limit
                if value:
                    values[f"{name}.{row.name}"] = value
        return values

    def values(self, task: Task) -> Numbers:
        """All fields that the task writes, and all roles, to their values; a role that is not 0 by its reset too."""
        return task.read_all(self.plan_of(task))

    def plan_of(self, task: Task) -> FieldPlan:
        """The reader of tasks of one layout."""
        layout, key = task.layout, (self.generation, True)
        plan = layout.plans.get(key)
        if plan is None:
            plan = layout.plans[key] = self._plan(task)
        return plan

    def _plan(self, task: Task) -> FieldPlan:
        """Reader of tasks of one layout: rows of their words under both names, resets of what they do not write."""
        roles = {role: (field, reset) for role, field, reset in self.renamed}
        row_of = {row.name: row for row in task.rows()}
        rows = [row for name, row in row_of.items() if name not in roles]
        defaults = dict(self.resets)
        for role, (field, reset) in roles.items():
            if field in row_of:
                rows.append(row_of[field]._replace(name=role))
            else:
                defaults[role] = reset
        for side, place in self.channels.items():
            slot = task.slot(place.base)
            if slot is not None and not place.enable:
                defaults[CHANNEL.format(side)] = slot // SLOT_WORDS + 1
        return FieldPlan(rows, task.layout.size, defaults)

    def has(self, role: str) -> bool:
        return role in self.fields

    def field(self, role: str) -> str:
        """The field's name, for messages: as the generation's table has it where it has the role."""
        return self.fields.get(role, role)

    @cached_property
    def _handles(self) -> dict[str, Handle]:
        return {role: self.family.table.handle(field) for role, field in self.fields.items()}

    def handle(self, role: str) -> Handle:
        """The role's field; FieldError where the generation has none."""
        field = self._handles.get(role)
        return field or self.family.table.handle(role)

    def neutral(self, role: str) -> int:
        """The value in a task that does not write the role's register."""
        field = self._handles.get(role)
        return _reset(field) if field else 0

    def number(self, role: str, bits: int) -> float:
        """The number that a field of fp16, fp32 or the upper 19 bits of an fp32 holds."""
        row = self.handle(role).field
        kind = row.kind if isinstance(row, Field) else None
        if not isinstance(kind, Unit) or kind not in _NUMBERS:
            raise FieldError(f"{role} holds no number")
        return _NUMBERS[kind](bits)

    def nearest(self, role: str, value: float) -> float:
        """The number nearest to ``value`` that the role's field can hold."""
        row = self.handle(role).field
        kind = row.kind if isinstance(row, Field) else None
        if not isinstance(kind, Unit) or kind not in _BITS:
            raise FieldError(f"{role} holds no number")
        return _NUMBERS[kind](_BITS[kind](value))

    def channel(self, task: Task, side: str) -> int | None:
        """The channel (from H14 on, the slot) behind a DMA engine of the task; None where it has none.

        ``side`` is ``"source1"``, ``"source2"``, ``"result"``, ``"kernel"`` or, from H14 on, ``"table"``.
        """
        place = self.channels.get(side)
        if place is None:
            return None
        if place.enable:
            return task.get(place.number) if task.get(place.enable) else None
        slot = task.slot(place.base)
        return None if slot is None else slot // SLOT_WORDS


_BITS = {FP16: fp16_bits, FP32: fp32_bits, F19: f19_bits}
_NUMBERS = {FP16: fp16_value, FP32: fp32_value, F19: f19_value}


def _reset(handle: Handle) -> int:
    return (handle.register.reset or 0) >> handle.shift & handle.limit


@lru_cache
def roles_of(generation: str) -> Roles:
    """The roles of a generation (or of a name of Apple's compiler for it); a new one spells them as the newest here."""
    family = family_of(generation)
    channels = _SLOT_CHANNELS if family.packed else HEADER_CHANNELS
    newest = list(SPELLED.values())[-1]
    return Roles(family, SPELLED.get(family.generation, newest), channels)
