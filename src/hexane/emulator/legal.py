"""Fields whose other values have no known effect: the one value, or few, that every decoded program has.

A task with another value here is refused with the field's name; nothing is guessed (docs/reference/engine-h13.md 17
lists the unknowns). Fields that select something known are read in `task`, `ne` and `pe`; fields that do not touch
results stand in `ignored`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from hexane.emulator.ignored import listed
from hexane.emulator.once import once
from hexane.emulator.registers import Registers
from hexane.emulator.task import EngineTask
from hexane.isa.channels import SCRATCH
from hexane.isa.fields import FieldPlan
from hexane.isa.roles import STREAMS, Roles, roles_of
from hexane.isa.schema import OUTSIDE

ALWAYS: dict[str, tuple[int, ...]] = {
    "KernelDMASrc.MasterConfig.GroupKernelReuse": (0,),
    "Common.ConvCfg3d.Kd": (1,),
    "Common.ConvCfg3d.Sz": (1,),
    "Common.ConvCfg3d.Pz": (0,),
    "Common.ConvCfg3d.Oz": (1,),
    "Common.ConvCfg.Oy": (1,),
    "Common.Cfg.ContextSwitchIn": (0,),
    "Common.Cfg.ContextSwitchOut": (0,),
    "Common.TaskInfo.TaskID": (0,),
    "Common.TaskInfo.TaskQ": (0,),
    "Common.TaskInfo.NID": (0, 1),  # bit 20 of the word chooses the unit
    "TileDMASrc.DMAConfig.CrH": (0,),
    "TileDMASrc.Src2DMAConfig.CrH": (0,),
    "TileDMASrc.Fmt.Shift": (0,),
    "TileDMASrc.Fmt.OffsetCh": (0,),
    "TileDMASrc.Fmt.CmpVec": (0,),
    "TileDMASrc.Src2Fmt.Shift": (0,),
    "TileDMASrc.Src2Fmt.OffsetCh": (0,),
    "TileDMASrc.Src2Fmt.CmpVec": (0,),
    "TileDMADst.DMAConfig.CrH": (0,),
    "TileDMADst.DMAConfig.BypassEOW": (0,),
    "TileDMADst.Fmt.Shift": (0,),
    "TileDMADst.Fmt.OffsetCh": (0,),
    "TileDMADst.Fmt.CmpVecFill": (0,),
    "TileDMADst.Fmt.CmpVec": (0,),
    "L2.L2Cfg.InputReLU": (0,),
    "L2.SourceCfg.DMACmpVec": (0,),
    "L2.SourceCfg.DMAOffsetCh": (0,),
    "L2.ResultCfg.DMACmpVec": (0,),
    "L2.ResultCfg.DMAOffsetCh": (0,),
    "NE.KernelCfg.GroupKernelReuse": (0,),
    "NE.MACCfg.PassEn": (0,),
    "NE.MACCfg.MatrixBiasEn": (0,),
    "NE.MatrixVectorBias.MatrixVectorBias": (0,),
    "NE.AccBias.AccBiasShift": (0,),
    "NE.PostScale.PostRightShift": (0,),
}

NE_ONLY: dict[str, tuple[int, ...]] = {
    "Common.ChCfg.Src2InFmt": (0,),
    "Common.PECfg.Src1Broadcast": (0,),
    "Common.PECfg.Src2Broadcast": (0,),
    "Common.PECfg.Src1Transpose": (0,),
    "Common.PECfg.Src2Transpose": (0,),
    "Common.PECfg.OutputTranspose": (0,),
    "NE.MACCfg.Bit20": (1,),  # without it results are wrong or the engine hangs (docs/reference/engine-h13.md 4.8)
    "PE.Cfg.ReduceMode": (0,),
    "PE.Cfg.OpMode": (0,),
    "PE.Cfg.ReluEn": (0,),
    "PE.Cfg.Cond": (0,),
    "PE.Cfg.NonlinearMode": (0,),
    "PE.Cfg.FirstSrc": (0,),
    "PE.Cfg.SecSrc": (0,),
    "PE.BiasScale.Bias": (0,),
    "PE.BiasScale.Scale": (0,),
    "PE.PreScale.Epsilon": (0,),
    "PE.PreScale.PreScale": (0,),
    "PE.FinalScale.FinalScale": (0,),
}

PE_ONLY: dict[str, tuple[int, ...]] = {
    "Common.Cfg.OutTrans": (0,),
    "Common.Cfg.ActiveNE": (0,),
    "Common.Cfg.ShPref": (0,),
    "Common.Cfg.ShMin": (0,),
    "Common.Cfg.ShMax": (0,),
    "Common.Cfg.SmallSourceMode": (0,),
    "Common.ConvCfg.Kw": (1,),
    "Common.ConvCfg.Kh": (1,),
    "Common.ConvCfg.OCGSize": (0,),
    "Common.ConvCfg.Sx": (1,),
    "Common.ConvCfg.Sy": (1,),
    "Common.ConvCfg.Px": (0,),
    "Common.ConvCfg.Py": (0,),
    "Common.ConvCfg.Ox": (1,),
    "Common.GroupConvCfg.UnicastEn": (0,),
    "Common.GroupConvCfg.ElemMultMode": (0,),
    "Common.GroupConvCfg.UnicastCin": (1,),
    "NE.KernelCfg.KernelFmt": (0,),
    "NE.KernelCfg.PalettizedEn": (0,),
    "NE.KernelCfg.PalettizedBits": (8, 0),
    "NE.KernelCfg.SparseFmt": (0,),
    "NE.KernelCfg.SparseBinary": (0,),
    "NE.KernelCfg.KernelAlign": (0,),
    "NE.MACCfg.OpMode": (0,),
    "NE.MACCfg.KernelMode": (0,),
    "NE.MACCfg.BiasMode": (0,),
    "NE.MACCfg.BinaryPoint": (0,),
    "NE.MACCfg.PostScaleMode": (0,),
    "NE.MACCfg.NonlinearMode": (0,),
    "NE.AccBias.AccBias": (0,),
    "NE.PostScale.PostScale": (0,),
    "KernelDMASrc.MasterConfig.MasterEnable": (0,),
    "KernelDMASrc.MasterConfig.SparseFmt": (0,),
}
"""On H13 a neural core task has zeros in the planar engine's registers, and the other way round; from H14 on such
registers are not written, so that they hold their reset values: `require_legal` asks for those instead."""

SPARE_WORDS = ("KernelDMASrc.AlignedCoeffSizePerCh", "TileDMASrc.Spare", "TileDMASrc.PixelOffset")
"""Registers that are 0 in every H13 program, by the start of their names."""

HEADER_H13: dict[str, tuple[int, ...]] = {
    "Header[3].Exceptions": (0,),
    "Header[5].DebugExceptions": (0,),
    "Header[6].TDSkip": (0,),
    "Header[6].KPC": (0,),
    "Header[6].NextPriority": (0,),
    "Header[6].TQDis": (0,),
    "Header[9].KBase1": (0,),
    "Header[9].KBE1": (0,),
    "Header[9].KBase2": (0,),
    "Header[9].KBE2": (0,),
    "Header[9].KBase3": (0,),
    "Header[9].KBE3": (0,),
    "TileDMASrc.Src2DMAConfig.En": (0,),
}
"""Further fields of H13."""

DST_CRH = (0, 3)
"""TileDMADst.DMAConfig.CrH: 0 up to H14, 3 later."""


@lru_cache
def known_values(generation: str, on_ne: bool) -> dict[str, tuple[int, ...]]:
    """Role or field to the values that a task of this unit may have there."""
    roles = roles_of(generation)
    linked = not roles.family.packed
    by_role = {role: values for role, values in ALWAYS.items() if roles.has(role)}
    if linked:
        by_role |= HEADER_H13
    elif roles.family.switched and roles.has("TileDMADst.DMAConfig.CrH"):
        by_role["TileDMADst.DMAConfig.CrH"] = DST_CRH
    for role, values in (NE_ONLY if on_ne else PE_ONLY).items():
        if roles.has(role):
            by_role[role] = values if linked or role in _AS_ALWAYS else (roles.neutral(role),)
    if not linked:
        by_role |= {name: (value,) for name, value in _unread(roles).items()}
    return by_role


_AS_ALWAYS = ("NE.MACCfg.Bit20", "NE.KernelCfg.PalettizedBits")


_RATES = ("NE.MACCfg.DoubleInt8",)
"""Fields that change a task's time alone."""
_IN_HEADER = ("Size", "TSR", "LastTask")


def _unread(roles: Roles) -> dict[str, int]:
    """Fields from H14 on that no rule reads, to the value that they must have: that of a task that does not write them.

    `hexane.emulator.stream` asks for tags and marks, the decoder for a task's size.
    """
    read = {f"KernelDMASrc.MasterConfig.{n}" for n in ("LastTask", "KernelStream")}
    read |= {*roles.fields.values(), *_RATES}
    unread = {}
    for name, register in roles.family.table.by_key.values():
        for row in register.fields:
            if (
                f"{name}.{row.name}" not in read
                and row.name != "Tag"
                and not (name.startswith("Header") and row.name in _IN_HEADER)
            ):
                unread[f"{name}.{row.name}"] = (register.reset or 0) >> row.low & row.limit
    return unread


@lru_cache(None)
def _is_unknown(name: str) -> bool:
    """Bits of which nobody knows what they do (the name says so)."""
    return name.startswith(OUTSIDE) or name.rpartition(".")[2].startswith("Unk")


@lru_cache(None)
def _is_spare(name: str) -> bool:
    return name.startswith(SPARE_WORDS) or name.rpartition(".")[2].startswith("Unk")


def require_legal(r: Registers, *, on_ne: bool) -> None:
    """Refuse every value that no program has and no rule covers."""
    usual = _usual(r.generation, on_ne, r.values.plan)
    values, names = r.several(usual.names), list(_asked(r.generation, on_ne, r.values.more))
    if values != usual.values:
        names += [name for name, value, usual in zip(usual.names, values, usual.values) if value != usual]
    by_name = known_values(r.generation, on_ne)
    for name in names:
        allowed = by_name.get(name, (0,))
        if r[name] not in allowed and not ((name not in by_name or not r.linked) and listed(r, name)):
            r.one_of(name, allowed)


class _Usual(NamedTuple):
    """The fields of one layout that have known values only, and a known value of each."""

    names: tuple[str, ...]
    values: tuple[int, ...]


@lru_cache(1024)
def _usual(generation: str, on_ne: bool, plan: FieldPlan) -> _Usual:
    allowed = known_values(generation, on_ne)
    names = tuple(_asked(generation, on_ne, plan.index))
    return _Usual(names, tuple(allowed.get(name, (0,))[0] for name in names))


def _asked(generation: str, on_ne: bool, present: Iterable[str]) -> Iterator[str]:
    """Those of the names that have known values only: named fields, and bits of which nobody knows what they do."""
    allowed = known_values(generation, on_ne)
    unknown = _is_unknown if roles_of(generation).family.packed else _is_spare
    return (name for name in present if name in allowed or unknown(name))


def require_scratch_written(task: EngineTask, scratch_writers: set[int]) -> None:
    """A kernel in scratch comes from a task before (docs/reference/engine-h13.md 4.2)."""
    r = task.registers
    if r.channel("kernel") == SCRATCH and r["Task.DTID"] not in scratch_writers:
        raise r.error(f"task {r['Task.DTID']} has not written to scratch before", "Task.DTID")


@once
def require_units_agree(r: Registers, on_ne: bool) -> None:
    """Header and registers say the same of the same thing (docs/reference/engine-h13.md 4.2)."""
    kernel = r.channel("kernel")
    if r.linked:
        for name, value in {
            "Header[6].SrcLoc": r["TileDMASrc.DMAConfig.En"],
            "Header[6].DstLoc": r["TileDMADst.DMAConfig.En"],
            "Header[9].KBE0": r["KernelDMASrc.MasterConfig.MasterEnable"],
        }.items():
            r.expect_field(name, value, "as the registers say")
        if kernel is None:
            r.one_of("Header[9].KBase0", (0,), "no kernel channel")
    steps = r["Common.Cfg.ActiveNE"] + r["Common.Cfg.WUStackLog2"] + r["Common.Cfg.FatTile"] + 1
    r.expect("Task.ENE", steps if on_ne else 0, "as the registers say")
    if on_ne:
        r.one_of("Common.Cfg.ActiveNE", range(5), "log2 of the cores")
        r.expect("Common.Cfg.One", 1, "a neural core task has one source")
        r.expect("Common.Cfg.Src2Dma", 0, "a neural core task has one source")
    if kernel is None:
        for core in range(STREAMS):
            r.one_of(f"KernelDMASrc.CoeffDMAConfig[{core}].En", (0,), "the kernel DMA is off")
    from_scratch = kernel == SCRATCH
    if r.flag("Task.TDE") != from_scratch:
        raise r.error("the header is extended exactly when the kernel comes from scratch", "Task.TDE")
