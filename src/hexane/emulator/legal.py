"""Fields whose other values have no known effect: the one value, or few, that every decoded program has.

A task with another value here is refused with the field's name; nothing is guessed (spec/engine-h13 §17 lists the
unknowns). Fields that select something known are read in `task`, `ne` and `pe`; fields that do not touch results
stand in `ignored`.
"""

from __future__ import annotations

from hexane.chips import CORES
from hexane.emulator.ignored import listed
from hexane.emulator.registers import Registers
from hexane.emulator.task import Task
from hexane.isa.channels import SCRATCH

ALWAYS: dict[str, tuple[int, ...]] = {
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
    "TileDMASrc.Src2DMAConfig.En": (0,),
    "TileDMASrc.Src2DMAConfig.CrH": (0,),
    "TileDMASrc.Fmt.Shift": (0,),
    "TileDMASrc.Fmt.OffsetCh": (0,),
    "TileDMASrc.Fmt.CmpVec": (0,),
    "TileDMASrc.Src2Fmt.Shift": (0,),
    "TileDMASrc.Src2Fmt.OffsetCh": (0,),
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
    "NE.MACCfg.Bit20": (1,),  # without it results are wrong or the engine hangs (spec/engine-h13 §4.8)
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
    "NE.MACCfg.NonlinearMode": (0,),
    "NE.AccBias.AccBias": (0,),
    "NE.PostScale.PostScale": (0,),
    "KernelDMASrc.MasterConfig.MasterEnable": (0,),
    "KernelDMASrc.MasterConfig.SparseFmt": (0,),
    "PE.PreScale.PreScale": (0x3C00,),
}

SPARE_WORDS = ("KernelDMASrc.AlignedCoeffSizePerCh", "TileDMASrc.Spare", "TileDMASrc.PixelOffset")
"""Registers that are 0 in every program, by the start of their names."""


def require_legal(r: Registers, *, on_ne: bool) -> None:
    """Refuse every value that no program has and no rule covers."""
    for table in (ALWAYS, NE_ONLY if on_ne else PE_ONLY):
        for name, allowed in table.items():
            r.one_of(name, allowed)
    for name, value in r.values.items():
        if not value:
            continue
        spare = name.startswith(SPARE_WORDS) or name.rpartition(".")[2].startswith("Unk")
        if spare and not listed(r, name):
            raise r.error(f"value {value:#x} has no known effect; known: 0x0", name)


def require_units_agree(task: Task, scratch_writers: set[int]) -> None:
    """Header and registers say the same of the same thing (spec/engine-h13 §4.2)."""
    r = task.registers
    on_ne = task.unit == "NE"
    wanted = {
        "Header[6].SrcLoc": r["TileDMASrc.DMAConfig.En"],
        "Header[6].DstLoc": r["TileDMADst.DMAConfig.En"],
        "Header[8].ENE": r["Common.Cfg.ActiveNE"] + 1 if on_ne else 0,
        "Header[9].KBE0": r["KernelDMASrc.MasterConfig.MasterEnable"],
    }
    if on_ne:
        r.one_of("Common.Cfg.ActiveNE", range(5), "log2 of the cores")
        wanted |= {"Common.Cfg.One": 1, "Common.Cfg.Src2Dma": 0}
    for name, value in wanted.items():
        if r[name] != value:
            raise r.error(f"value {r[name]:#x} does not agree with the rest of the task, which says {value:#x}", name)
    if not r.flag("Header[9].KBE0"):
        r.one_of("Header[9].KBase0", (0,), "no kernel channel")
        for core in range(CORES):
            r.one_of(f"KernelDMASrc.CoeffDMAConfig[{core}].En", (0,), "the kernel DMA is off")
    from_scratch = r.flag("Header[9].KBE0") and r["Header[9].KBase0"] == SCRATCH
    if r.flag("Header[6].TDE") != from_scratch:
        raise r.error("the header is extended exactly when the kernel comes from scratch", "Header[6].TDE")
    if from_scratch and r["Header[10].DTID"] not in scratch_writers:
        raise r.error(f"task {r['Header[10].DTID']} has not written to scratch before", "Header[10].DTID")
