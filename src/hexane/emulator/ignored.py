"""The ignore-list: every register bit that the emulator reads over, and why.

It is the one place for this: tests flip each bit of real programs and ask that the output changes, an error
comes, or the bit stands here; docs/emulator-ignored.md is printed from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hexane.emulator.registers import Registers

Condition = Callable[[Registers], bool]


@dataclass(frozen=True)
class Ignored:
    """Fields that match ``pattern`` do not change results in tasks for which ``when`` holds."""

    pattern: str
    reason: str
    condition: str = "always"
    when: Condition = lambda r: True


def _resident1(r: Registers) -> bool:
    return r["L2.SourceCfg.SourceType"] in (0, 3)


def _streamed1(r: Registers) -> bool:
    return r["L2.SourceCfg.SourceType"] == 2


def _no_dma2(r: Registers) -> bool:
    return not r.flag("L2.SourceCfg.Src2Dma")


def _resident_result(r: Registers) -> bool:
    return r["L2.ResultCfg.ResultType"] in (0, 3)


def _sent(r: Registers) -> bool:
    return r["L2.ResultCfg.ResultType"] in (1, 2)


def _strips(r: Registers) -> bool:
    return r["L2.ResultCfg.ResultType"] == 3 or r["L2.SourceCfg.SourceType"] == 3


def _one_operand(r: Registers) -> bool:
    return r.flag("Common.TaskInfo.NID") or r["Common.Cfg.PEKind"] in (2, 5)


def _no_kernel(r: Registers) -> bool:
    return not r.flag("KernelDMASrc.MasterConfig.MasterEnable")


def _has_kernel(r: Registers) -> bool:
    return not _no_kernel(r)


def _off_lanes(r: Registers) -> bool:
    return True


def _depth_1(r: Registers) -> bool:
    return r["Common.InDepth.Din"] <= 1


def _groups_1(r: Registers) -> bool:
    return r["Common.GroupConvCfg.NumGroups"] <= 1


_PLACE = "where in L2 a streamed operand passes through; space and overlap are checked (spec/engine-h13 §12.1)"
_UNUSED = "the DMA engine is off, so the register is not read"

IGNORED: tuple[Ignored, ...] = (
    Ignored("Header[0].NID", "network id: given by the driver when it submits the program (spec/engine-h13 §4.2)"),
    Ignored("Header[1].ExeCycles", "estimated duration; not needed for execution (spec/engine-h13 §4.2)"),
    Ignored("Header[2].LogEvents", "event logging"),
    Ignored("Header[4].DebugLogEvents", "event logging; no effect on results known"),
    Ignored("Header[6].DisallowAbort", "scheduling; effect on results unknown"),
    Ignored("Header[6].SPL", "start of a group of tasks in L2; tasks run in order here"),
    Ignored("Header[6].TSR", "end of a group of tasks in L2; tasks run in order here"),
    Ignored("Header[6].SPC", "consumer of a staging pair; effect unknown"),
    Ignored("Header[6].DPC", "producer of a staging pair; effect unknown"),
    Ignored("Header[6].TSE", "as TSR"),
    Ignored("KernelDMASrc.*.CrH", "effect unknown"),
    Ignored("KernelDMASrc.*.CacheHint", "system cache hint"),
    Ignored("KernelDMASrc.*.PrefetchParticipateEn", "prefetch of kernel data"),
    Ignored("KernelDMASrc.SideDMAConfig*", "side channels; H13 has these data in the core streams"),
    Ignored("KernelDMASrc.SideBaseAddr*", "side channels; H13 has these data in the core streams"),
    Ignored("KernelDMASrc.SideBfrSize*", "side channels; H13 has these data in the core streams"),
    Ignored("Common.TileCfg.TileHeight", "rows per tile: changes speed; space in L2 is checked (spec/engine-h13 §7.5)"),
    Ignored("Common.PatchCfg.*", "patch of the planar engine: changes speed (spec/engine-h13 §4.3.2)"),
    Ignored("Common.Cfg.SmallSourceMode", "work-unit choice: changes speed (spec/engine-h13 §4.3)"),
    Ignored("Common.Cfg.ShPref", "work-unit shape: changes speed (spec/engine-h13 §4.3.1)"),
    Ignored("Common.Cfg.ShMin", "work-unit shape: changes speed (spec/engine-h13 §4.3.1)"),
    Ignored("Common.Cfg.ShMax", "work-unit shape: changes speed (spec/engine-h13 §4.3.1)"),
    Ignored("Common.Cfg.AccDoubleBufEn", "accumulator buffering: changes speed"),
    Ignored("Common.DPE.Category", "class for the power estimate (spec/engine-h13 §4.3)"),
    Ignored("Common.ConvCfg.OCGSize", "lanes per pass: no kernel to order", "task without weights", _no_kernel),
    Ignored("TileDMASrc.*CacheHint*", "system cache hint"),
    Ignored("TileDMASrc.*DependencyMode", "waits for an earlier task; tasks run in order here"),
    Ignored("TileDMASrc.Unk13840.Bit8", "unknown; 1 or 0 by compiler version (spec/engine-h13 §4.4)"),
    Ignored("TileDMADst.DMAConfig.CacheHint", "system cache hint"),
    Ignored("TileDMADst.DMAConfig.Unk*", "unknown dependency bits (spec/engine-h13 §4.5)"),
    Ignored("TileDMADst.Fmt.ZeroPad*", "bytes behind the end of a row; no element lies there (spec/engine-h13 §4.5)"),
    Ignored("L2.*Cfg.Dependent", "follows the task before patch by patch; tasks run in order here"),
    Ignored("L2.*Cfg.Alias*", "hazard hints; tasks run in order here (spec/engine-h13 §4.6)"),
    Ignored("NE.KernelCfg.KernelKeep", "runs of planar engine tasks; effect unknown"),
    Ignored("NE.KernelCfg.UsePrevKernel", "runs of planar engine tasks; effect unknown"),
    Ignored(
        "NE.KernelCfg.PalettizedBits",
        "no palette",
        "unless PalettizedEn",
        lambda r: not r.flag("NE.KernelCfg.PalettizedEn"),
    ),
    Ignored("L2.Source*.*", _PLACE, "source 1 streamed", _streamed1),
    Ignored("L2.Source*.*", _PLACE, "strips of the task before", lambda r: r["L2.SourceCfg.SourceType"] == 3),
    Ignored("L2.Src2*.*", _PLACE, "source 2 by DMA", lambda r: not _no_dma2(r)),
    Ignored("L2.Src2*.*", "the task has one operand", "one operand", _one_operand),
    Ignored("L2.ConvResult*.*", _PLACE, "result sent by DMA", _sent),
    Ignored("L2.ResultBase.*", _PLACE, "result sent by DMA", _sent),
    Ignored("L2.ConvResult*.*", _PLACE, "strips for the next task", _strips),
    Ignored("L2.ResultBase.*", _PLACE, "strips for the next task", _strips),
    Ignored("TileDMASrc.BaseAddr.*", _UNUSED, "source 1 in L2", _resident1),
    Ignored("TileDMASrc.*Stride.*", _UNUSED, "source 1 in L2", lambda r: _resident1(r) and _no_dma2(r)),
    Ignored("TileDMASrc.RowStride.*", _UNUSED, "source 1 in L2", _resident1),
    Ignored("TileDMASrc.PlaneStride.*", _UNUSED, "source 1 in L2", _resident1),
    Ignored("TileDMASrc.DepthStride.*", _UNUSED, "source 1 in L2", _resident1),
    Ignored("TileDMASrc.GroupStride.*", _UNUSED, "source 1 in L2", _resident1),
    Ignored("TileDMASrc.Src2BaseAddr.*", _UNUSED, "no source 2 by DMA", _no_dma2),
    Ignored("TileDMASrc.Src2*Stride.*", _UNUSED, "no source 2 by DMA", _no_dma2),
    Ignored("TileDMADst.BaseAddr.*", _UNUSED, "result stays in L2", _resident_result),
    Ignored("TileDMADst.*Stride.*", _UNUSED, "result stays in L2", _resident_result),
)


def axis_of_size_one(r: Registers, name: str) -> bool:
    """Whether a stride belongs to an axis that has one element only, so that nothing is ever added."""
    groups_one, depth_one = _groups_1(r), _depth_1(r)
    return ("Group" in name and groups_one) or ("DepthStride" in name and depth_one)


def reason(r: Registers, name: str) -> str | None:
    """Why the field may be ignored in this task; None where it may not."""
    for entry in IGNORED:
        if fnmatchcase(name, _escape(entry.pattern)) and entry.when(r):
            return entry.reason
    return None


def _escape(pattern: str) -> str:
    """Register names carry brackets of their own; only the stars are wild."""
    return pattern.replace("[", "[[]")
