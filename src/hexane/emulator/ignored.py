"""The ignore-list: every register bit that the emulator reads over, and why.

It is the one place for this: tests flip each bit of real programs and ask that the output changes, an error
comes, or the bit stands here; docs/emulator-ignored.md is printed from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

import numpy as np

from hexane.arithmetic.multiply import bias_units
from hexane.emulator.ends import AXES, OperandSurface
from hexane.emulator.registers import Registers
from hexane.emulator.strides import Extent
from hexane.emulator.task import PEKind, understand
from hexane.isa.roles import roles_of
from hexane.rounding import ceil_div

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


def _takes_strips(r: Registers) -> bool:
    return r["L2.SourceCfg.SourceType"] == 3


def _gives_strips(r: Registers) -> bool:
    return r["L2.ResultCfg.ResultType"] == 3


def _one_operand(r: Registers) -> bool:
    return r.flag("Common.TaskInfo.NID") or r["Common.Cfg.PEKind"] in (2, 5)


def _no_weights(r: Registers) -> bool:
    return not r.flag("KernelDMASrc.MasterConfig.MasterEnable") or r.flag("NE.MACCfg.KernelMode")


def _unicast(r: Registers) -> bool:
    return r.flag("Common.GroupConvCfg.UnicastEn")


def _planar(r: Registers) -> bool:
    return not r.flag("Common.TaskInfo.NID")


def _unit_sum(r: Registers) -> bool:
    passes = r.flag("NE.MACCfg.KernelMode") and r["NE.MACCfg.OpMode"] in (0, 4)
    return passes and r["Common.GroupConvCfg.UnicastCin"] == 1 and r["NE.AccBias.AccBias"] == 0


def _on_h13(r: Registers) -> bool:
    return r.linked


def _later(r: Registers) -> bool:
    return not r.linked


def _crh(r: Registers) -> bool:
    return r.roles.family.switched


def _stays_later(r: Registers) -> bool:
    return not r.linked and _resident_result(r)


def _copies(r: Registers) -> bool:
    return not r.linked and r["NE.MACCfg.OpMode"] == 4


def _h16_on(r: Registers) -> bool:
    return r.has("Common.Cfg.WUStackLog2")


_ALIGNED = "16 K with a computed kernel and a table; effect unknown"
_AT_A_TIME = "channels that a core takes at a time: changes speed"
_SIDE = "side channels; H13 has these data in the core streams"
_PLACE = (
    "where in L2 a streamed operand passes through; space, overlap and whole rows are checked "
    "(docs/reference/engine-h13.md 12.1)"
)
_HAZARDS = "what the task waits for: no result depends on it, a missing wait is refused (docs/reference/hazards.md)"
_UNUSED = "the DMA engine is off, so the register is not read"

IGNORED: tuple[Ignored, ...] = (
    Ignored(
        "Header[0].NID",
        "network id: given by the driver when it submits the program (docs/reference/engine-h13.md 4.2)",
    ),
    Ignored("Header[1].ExeCycles", "estimated duration; not needed for execution (docs/reference/engine-h13.md 4.2)"),
    Ignored("Header[2].LogEvents", "event logging"),
    Ignored("NE.KernelCfg.DetectZeros", "set with constant fp16 kernels from H17 on; the result is the same", "H17 on"),
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
    Ignored("KernelDMASrc.SideDMAConfig*", _SIDE, "H13", _on_h13),
    Ignored("KernelDMASrc.SideBaseAddr*", _SIDE, "H13", _on_h13),
    Ignored("KernelDMASrc.SideBfrSize*", _SIDE, "H13", _on_h13),
    Ignored("Header[2].LastTaskEvents", "event logging"),
    Ignored(
        "Header[*].PageMask", "live pages of L2, for a change of context; tasks run in order here", "H14 on", _later
    ),
    Ignored("*DMAConfig*.DataSetId", "which data set the system cache counts the data to", "H14 on", _later),
    Ignored("*DMAConfig*.Tag", "number of the task; checked where the DMA is on", "its DMA is off", _later),
    Ignored("TileDMA*.*DependencyInterval", _HAZARDS),
    Ignored("TileDMADst.DMAConfig.CrH", "3 in all programs; effect unknown", "H15 on", _crh),
    Ignored("TileDMADst.Filler.*", "a spare register, written for its length", "H14", _later),
    Ignored("Common.GroupConvCfg.UnicastCin", _AT_A_TIME, "H14 on, copy", _copies),
    Ignored("Common.Cfg.Unk23", "unknown; the next task is the other unit's and does not wait", "H14 on", _later),
    Ignored("Common.Cfg.FillLowerNEFirst", "which cores work first: changes speed", "H14 on", _later),
    Ignored("Common.Cfg.L2Barrier", "waits in L2; tasks run in order here", "H16 on", _later),
    Ignored("Common.Cfg.ForwardBarrier", "waits in L2; tasks run in order here", "H16 on", _later),
    Ignored("Common.Cfg.Trace", "event logging", "H16 on", _later),
    Ignored("Common.NECfg.HalfWorkUnit", "work-unit shape: changes speed", "H18 on", _later),
    Ignored("NE.MACCfg.SmallSource", "work-unit choice: changes speed", "H18 on", _later),
    Ignored("L2.L2Cfg.Barrier", "waits in L2; tasks run in order here", "H16 on", _later),
    Ignored("L2.ResultCfg.DMAFmt", "the DMA engine is off", "H14 on, result stays in L2", _stays_later),
    Ignored("KernelDMASrc.SideBaseAddr[3].*", "repeats TableBase", "H14", _later),
    Ignored("KernelDMASrc.AlignedCoeffSizePerCh.*", _ALIGNED, "H16 on", _h16_on),
    Ignored("KernelDMASrc.Prefetch.*", "prefetch of kernel data", "H15 on", _later),
    Ignored("CacheDMA.*", "system cache and telemetry", "H15 on", _later),
    Ignored(
        "Common.TileCfg.TileHeight",
        "rows per tile: changes speed; space in L2 is checked (docs/reference/engine-h13.md 7.5)",
    ),
    Ignored("Common.PatchCfg.*", "patch of the planar engine: changes speed (docs/reference/engine-h13.md 4.3.2)"),
    Ignored("Common.Cfg.SmallSourceMode", "work-unit choice: changes speed (docs/reference/engine-h13.md 4.3)"),
    Ignored("Common.Cfg.ShPref", "work-unit shape: changes speed (docs/reference/engine-h13.md 4.3.1)"),
    Ignored("Common.Cfg.ShMin", "work-unit shape: changes speed (docs/reference/engine-h13.md 4.3.1)"),
    Ignored("Common.Cfg.ShMax", "work-unit shape: changes speed (docs/reference/engine-h13.md 4.3.1)"),
    Ignored("Common.Cfg.AccDoubleBufEn", "accumulator buffering: changes speed"),
    Ignored("Common.DPE.Category", "class for the power estimate (docs/reference/engine-h13.md 4.3)"),
    Ignored("Common.ConvCfg.OCGSize", "lanes per pass: no kernel to order", "task without weights", _no_weights),
    Ignored("Common.ConvCfg.OCGSize", "each output has a pass of its own", "unicast kernel", _unicast),
    Ignored(
        "NE.KernelCfg.KernelFmt",
        "nothing to read (docs/reference/engine-h13.md 4.10)",
        "task without weights",
        _no_weights,
    ),
    Ignored(
        "NE.MACCfg.OpMode",
        "a sum of one input and a copy of it are the same (hypothesis acc-bias)",
        "single values",
        _unit_sum,
    ),
    Ignored(
        "NE.MACCfg.Bit20",
        "0 or 1 by compiler version (docs/reference/engine-h13.md 4.11)",
        "planar engine task",
        _planar,
    ),
    Ignored("NE.MACCfg.DoubleInt8", "two products of bytes at once: a rate (docs/reference/compressed.md 4)"),
    Ignored("TileDMASrc.*CacheHint*", "system cache hint"),
    Ignored("TileDMA*.*DependencyMode", _HAZARDS),
    Ignored("TileDMASrc.Unk13840.Bit8", "unknown; 1 or 0 by compiler version (docs/reference/engine-h13.md 4.4)"),
    Ignored("TileDMADst.DMAConfig.CacheHint", "system cache hint"),
    Ignored("TileDMADst.DMAConfig.Unk16", "unknown (docs/reference/engine-h13.md 4.5)"),
    Ignored(
        "TileDMADst.Fmt.ZeroPad*",
        "bytes behind the end of a row; no element lies there (docs/reference/engine-h13.md 4.5)",
    ),
    Ignored("L2.*Cfg.*Dependent", _HAZARDS),
    Ignored("L2.*Cfg.Alias*", _HAZARDS),
    Ignored("NE.KernelCfg.KernelKeep", "runs of planar engine tasks; effect unknown"),
    Ignored("NE.KernelCfg.UsePrevKernel", "runs of planar engine tasks; effect unknown"),
    Ignored(
        "NE.KernelCfg.PalettizedBits",
        "no palette",
        "unless PalettizedEn",
        lambda r: not r.flag("NE.KernelCfg.PalettizedEn"),
    ),
    Ignored("L2.SourceBase.*", _PLACE, "source 1 streamed", _streamed1),
    Ignored("L2.Source*Stride.*", _PLACE, "source 1 streamed", _streamed1),
    Ignored("L2.SourceBase.*", _PLACE, "strips of the task before", _takes_strips),
    Ignored("L2.Source*Stride.*", _PLACE, "strips of the task before", _takes_strips),
    Ignored("L2.Src2*.*", _PLACE, "source 2 by DMA", lambda r: not _no_dma2(r)),
    Ignored("L2.Src2*.*", "the task has one operand", "one operand", _one_operand),
    Ignored("L2.ConvResult*.*", _PLACE, "result sent by DMA", _sent),
    Ignored("L2.ResultBase.*", _PLACE, "result sent by DMA", _sent),
    Ignored("L2.ConvResult*.*", _PLACE, "strips for the next task", _gives_strips),
    Ignored("L2.ResultBase.*", _PLACE, "strips for the next task", _gives_strips),
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


def listed(r: Registers, name: str) -> Ignored | None:
    """The table's entry for a field of this task (or for the role that it has); None where there is none."""
    role = r.roles.by_field.get(name, name)
    return next((e for e in _named(name, role) if e.when(r)), None)


@lru_cache(8192)
def _named(name: str, role: str) -> tuple[Ignored, ...]:
    """The entries whose pattern fits the field or its role."""
    return tuple(entry for entry in IGNORED if _matches(entry, name, role))


def _matches(entry: Ignored, name: str, role: str) -> bool:
    pattern = _escape(entry.pattern)
    return fnmatchcase(name, pattern) or fnmatchcase(role, pattern)


EMULATED = ("h13", "h14", "h15", "h16", "h17", "h18")


def generations_of(entry: Ignored) -> tuple[str, ...]:
    """Generations with a field of the entry's pattern; ``H13`` and ``H14 on`` in its condition bound them."""
    pattern, matching = _escape(entry.pattern), []
    for generation in EMULATED:
        if entry.condition.startswith("H") and not _within(entry.condition.split(",")[0], generation):
            continue
        roles = roles_of(generation)
        registers = roles.family.table.by_key.values()
        names = {f"{name}.{row.name}" for name, register in registers for row in register.fields} | set(roles.fields)
        if any(fnmatchcase(name, pattern) for name in names):
            matching.append(generation.upper())
    return tuple(matching)


def _within(words: str, generation: str) -> bool:
    first, _, on = words.partition(" ")
    return generation.upper() >= first if on else generation.upper() == first


def reason(r: Registers, name: str, bit: int = 0) -> str | None:
    """Reason to ignore this bit of the field (counted from its register's bit 0) in this task; None without one."""
    entry = listed(r, name)
    if entry is not None:
        return entry.reason
    name = r.roles.by_field.get(name, name)
    return next((text for rule in SPECIAL if (text := rule(r, name, bit)) is not None), None)


def _of_single_element(r: Registers, name: str, bit: int) -> str | None:
    """A stride is never added, a broadcast bit changes nothing, along an axis that has one element."""
    task = understand(r)
    if name.startswith("Common.PECfg."):
        ends = {"Src1": task.source1, "Src2": task.source2, "Outp": task.result}
        end = ends.get(name.removeprefix("Common.PECfg.")[:4])
        if end is None:
            return None
        if name == "Common.PECfg.Src2Broadcast" and task.pe_kind is PEKind.SCALE_SHIFT and bit != 7:
            return "scale and shift have one value per channel without being told (docs/reference/engine-h13.md 8.4)"
        single = getattr(end.extent, AXES[bit % 4]) == 1 if "Broadcast" in name else end.extent.c == end.extent.w == 1
        return SINGLE if single else None
    for end, prefixes in ((task.source1, ("TileDMASrc.", "L2.Source")), (task.source2, ("TileDMASrc.Src2", "L2.Src2"))):
        if end is not None and name.startswith(prefixes) and ("Src2" in name) == (end is task.source2):
            return _single(name, end.stored, end.surface)
    if name.startswith(("TileDMADst.", "L2.ConvResult")):
        return _single(name, task.result.stored, task.result.surface)
    return None


def _single(name: str, stored: Extent, surface: OperandSurface | None) -> str | None:
    blocks = ceil_div(stored.c, surface.interleave if surface and "TileDMA" in name else 1)
    sizes = {"Row": stored.h, "Plane": blocks, "Channel": blocks, "Depth": stored.d, "Group": stored.g}
    register = name.split(".")[1].removeprefix("Src2")
    return next((SINGLE for axis, size in sizes.items() if axis in register and size == 1), None)


SINGLE = "the axis has one element, so a stride, a broadcast or a transposition changes nothing"


def _of_single_pass(r: Registers, name: str, bit: int) -> str | None:
    """The distance between passes, or groups, of a computed kernel that has one of them."""
    counts = {"OCGStride": ceil_div(r["Common.Cout.Cout"], 16 << r["Common.ConvCfg.OCGSize"]), "GroupStride": 0}
    counts["GroupStride"] = r["Common.GroupConvCfg.NumGroups"]
    register = name.removeprefix("KernelDMASrc.").removesuffix(".Stride")
    if name.startswith("KernelDMASrc.") and counts.get(register) == 1 and r.channel("kernel") is not None:
        return SINGLE
    return None


def _of_idle_core(r: Registers, name: str, bit: int) -> str | None:
    """Offset and size of a core whose DMA is off."""
    match = re.fullmatch(r"KernelDMASrc\.Coeff(?:BaseAddr|BfrSize)\[(\d+)\]\..*", name)
    if match and not r.flag(f"KernelDMASrc.CoeffDMAConfig[{match.group(1)}].En"):
        return "the core's DMA is off, so the register is not read"
    return None


def _of_negative_zero(r: Registers, name: str, bit: int) -> str | None:
    """The sign of an addend that is zero."""
    if name in _ADDENDS and bit == 15 and r[name] & 0x7FFF == 0:
        return "-0 is added as +0"
    return None


_ADDENDS = ("PE.BiasScale.Bias", "PE.PreScale.Epsilon", "NE.AccBias.AccBias")


def _of_less_than_a_unit(r: Registers, name: str, bit: int) -> str | None:
    """A start value of a sum is rounded to units of 2^-16 (docs/reference/numerics.md 3.5)."""
    if name != "NE.AccBias.AccBias" or _no_weights(r):
        return None
    before, after = (bias_units(np.array([bits], np.uint16).view(np.float16)) for bits in (r[name], r[name] ^ 1 << bit))
    return "rounds to the same unit of the accumulator" if before == after else None


def _of_factor(r: Registers, name: str, bit: int) -> str | None:
    """Low bits of a float32 factor whose product is rounded to fp16."""
    if name == "PE.FinalScale.FinalScale" and bit < 12:
        return "changes the factor by less than half a last place of the fp16 result"
    return None


SPECIAL = (_of_single_element, _of_single_pass, _of_idle_core, _of_negative_zero, _of_less_than_a_unit, _of_factor)
"""Rules that need more than a field's name."""


def _escape(pattern: str) -> str:
    """Register names carry brackets of their own; only the stars are wild."""
    return pattern.replace("[", "[[]")
