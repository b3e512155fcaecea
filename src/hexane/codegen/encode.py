"""A plan as field values by dotted name: what a task means, in the names of the register tables.

Names are those of H13's table; a target spells them for its generation (``targets``). A value is an integer, the name
of a value (``isa.kinds``), or a number that the field's unit rounds. Addresses, tags and headers are the target's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from hexane.codegen.operations import After, Element, KernelFormat, PeKind, SourceType
from hexane.codegen.plan import Dma, Plan, Region
from hexane.errors import UnsupportedError
from hexane.isa.numbers import f19_bits, fp16_bits, fp16_value, fp32_bits
from hexane.isa.schema import BYTES16, BYTES64, F19, FP16, FP32, Field, Handle, Table, Values

Value = int | str | float
Fields = dict[str, Value]

TWO_OPERANDS = (PeKind.BINARY, PeKind.SCALE_SHIFT, PeKind.REDUCE_BINARY)
NO_PALETTE = 8  # PalettizedBits of a kernel without palette


def fields(plan: Plan) -> Fields:
    """What both engines, L2 and the work division are told; nothing that depends on the program around the task."""
    values: Fields = {}
    _dimensions(plan, values)
    _division(plan, values)
    _l2(plan, values)
    _engines(plan, values)
    return values


def _dimensions(plan: Plan, values: Fields) -> None:
    values["Common.InDim.Win"], values["Common.InDim.Hin"] = plan.w, plan.h
    values["Common.InDepth.Din"] = plan.d
    values["Common.OutDim.Wout"], values["Common.OutDim.Hout"] = plan.wout, plan.hout
    values["Common.OutDepth.Dout"] = plan.dout
    values["Common.Cin.Cin"], values["Common.Cout.Cout"] = plan.c, plan.cout
    values["Common.ChCfg.InFmt"] = plan.in_format
    values["Common.ChCfg.Src2InFmt"] = Element.FP16 if plan.kind in TWO_OPERANDS else Element.UINT8
    values["Common.ChCfg.OutFmt"] = plan.out_format
    window = ("Kw", plan.kw), ("Kh", plan.kh), ("Sx", plan.sx), ("Sy", plan.sy), ("Px", plan.px), ("Py", plan.py)
    for name, value in (*window, ("Ox", plan.ox), ("Oy", 1), ("OCGSize", plan.ocg)):
        values[f"Common.ConvCfg.{name}"] = value
    for name, value in (("Kd", 1), ("Sz", 1), ("Pz", 0), ("Oz", 1)):
        values[f"Common.ConvCfg3d.{name}"] = value
    values["Common.GroupConvCfg.NumGroups"] = plan.groups
    values["Common.GroupConvCfg.UnicastEn"] = plan.unicast > 0
    values["Common.GroupConvCfg.UnicastCin"] = max(1, plan.unicast)
    values["Common.GroupConvCfg.ElemMultMode"] = plan.pairs


def _division(plan: Plan, values: Fields) -> None:
    values["Common.TileCfg.TileHeight"] = plan.tile
    values["Common.PatchCfg.PatchWidthLog2"], values["Common.PatchCfg.PatchHeightLog2"] = plan.patch
    values["Common.PECfg.Src1Broadcast"] = int(plan.broadcast1)
    values["Common.PECfg.Src2Broadcast"] = int(plan.broadcast2)
    values["Common.PECfg.Src1Transpose"] = plan.transpose1
    values["Common.PECfg.Src2Transpose"] = plan.transpose2
    values["Common.PECfg.OutputTranspose"] = plan.transpose_out
    values["Common.Cfg.SmallSourceMode"] = plan.small_source
    values["Common.Cfg.PEKind"] = plan.kind
    values["Common.Cfg.ShPref"], values["Common.Cfg.ShMin"], values["Common.Cfg.ShMax"] = plan.shape
    values["Common.Cfg.ActiveNE"] = plan.cores_log2
    values["Common.Cfg.AccDoubleBufEn"] = plan.double_buffer
    values["Common.Cfg.OutTrans"] = plan.out_trans
    values["Common.TaskInfo.NID"] = plan.unit == "NE"
    values["Common.DPE.Category"] = plan.power_category


ALIASES = {
    "AliasConvSrc": After.NE_SOURCE,
    "AliasConvRslt": After.NE_RESULT,
    "AliasPlanarSrc": After.PE_SOURCE,
    "AliasPlanarRslt": After.PE_RESULT,
}


SOURCE_ALIASES = tuple(f"L2.SourceCfg.{name}" for name in ALIASES)
RESULT_ALIASES = tuple(f"L2.ResultCfg.{name}" for name in ALIASES)


@lru_cache(maxsize=256)
def _aliases(after: After) -> tuple[bool, ...]:
    return tuple(flag in after for flag in ALIASES.values())


def _l2(plan: Plan, values: Fields) -> None:
    values["L2.L2Cfg.PaddingMode"] = plan.pad_lowest
    values["L2.L2Cfg.Src2ReLU"] = plan.relu_second
    source = operand_by_dma(plan)
    after = plan.reads.after
    values["L2.SourceCfg.SourceType"] = plan.reads.type
    values["L2.SourceCfg.Dependent"] = (
        "follows_ne" if After.FOLLOWS_NE in after else "follows_pe" if After.FOLLOWS_PE in after else "no"
    )
    wide = After.STAGED in after if source is None else source.element == 2
    values["L2.SourceCfg.DMAFmt"] = "bits16" if wide else "bits8"
    values["L2.SourceCfg.DMAInterleave"] = 1 if source is None else source.interleave
    values["L2.SourceCfg.Src2Dma"] = plan.src2 is not None
    narrow_result = plan.out_format is not Element.FP16
    values["L2.ResultCfg.ResultType"] = plan.writes.type
    values["L2.ResultCfg.L2BfrMode"] = 2 * plan.writes.automatic
    values["L2.ResultCfg.DMAFmt"] = "bits8" if narrow_result else "bits16"
    values["L2.ResultCfg.DMAInterleave"] = 1 if plan.dst is None else plan.dst.interleave
    values.update(zip(SOURCE_ALIASES, _aliases(after)))
    values.update(zip(RESULT_ALIASES, _aliases(plan.writes.after)))
    _region(values, "Source", "Source", plan.source)
    _region(values, "Src2", "Src2", plan.source2)
    _region(values, "Result", "ConvResult", plan.result)


def operand_by_dma(plan: Plan) -> Dma | None:
    """The operand whose element width and interleave L2 is told: source 1 by DMA, else source 2."""
    if plan.src is not None and not plan.src_staged and plan.reads.type is not SourceType.RESIDENT:
        return plan.src
    return plan.src2


def _region(values: Fields, name: str, strides: str, region: Region) -> None:
    values[f"L2.{name}Base.Addr"] = region.base
    values[f"L2.{strides}ChannelStride.Stride"] = region.channel
    values[f"L2.{strides}RowStride.Stride"] = region.row
    values[f"L2.{strides}DepthStride.Stride"] = region.depth
    values[f"L2.{strides}GroupStride.Stride"] = region.group


def _engines(plan: Plan, values: Fields) -> None:
    values["NE.AccBias.AccBias"] = plan.acc_bias
    if plan.unit == "PE":
        operation = plan.pe
        values["PE.Cfg.ReduceMode"], values["PE.Cfg.OpMode"] = operation.reduce, operation.op
        values["PE.Cfg.ReluEn"], values["PE.Cfg.Cond"] = operation.relu, operation.condition
        values["PE.Cfg.NonlinearMode"] = operation.nonlinear
        values["PE.Cfg.FirstSrc"], values["PE.Cfg.SecSrc"] = operation.first, operation.second
        values["PE.BiasScale.Bias"], values["PE.BiasScale.Scale"] = half(plan.bias), half(plan.scale)
        values["PE.PreScale.Epsilon"], values["PE.PreScale.PreScale"] = half(plan.epsilon), half(plan.prescale)
        values["PE.FinalScale.FinalScale"] = float(plan.final)
        return
    kernel_format(plan.kernel_format, values)
    mac = plan.mac
    values["NE.MACCfg.OpMode"], values["NE.MACCfg.KernelMode"] = mac.op, mac.ones
    values["NE.MACCfg.BiasMode"], values["NE.MACCfg.BinaryPoint"] = mac.bias, mac.binary_point
    values["NE.MACCfg.NonlinearMode"] = mac.nonlinear
    values["NE.PostScale.PostScale"] = plan.post_scale


def kernel_format(coding: KernelFormat, values: Fields) -> None:
    values["NE.KernelCfg.KernelFmt"] = coding.element
    values["NE.KernelCfg.PalettizedEn"] = coding.palette_bits > 0
    values["NE.KernelCfg.PalettizedBits"] = coding.palette_bits or NO_PALETTE
    values["NE.KernelCfg.SparseFmt"], values["NE.KernelCfg.SparseBinary"] = coding.sparse, coding.binary
    values["NE.KernelCfg.KernelAlign"] = coding.computed
    if coding.scales:
        values["NE.MACCfg.PostScaleMode"] = 1


def half(value: float) -> float:
    """The number rounded to fp16: every generation's compiler starts from fp16 constants."""
    return fp16_value(fp16_bits(value))


STRIDES = ("RowStride", "PlaneStride", "DepthStride", "GroupStride")


def strides(values: Fields, block: str, prefix: str, dma: Dma) -> None:
    """The four distances of a walk through memory; the row of the destination has a field name of its own."""
    for name, distance in zip(STRIDES, (dma.row, dma.plane, dma.depth, dma.group)):
        field = name if block == "TileDMADst" or name == "PlaneStride" else "Stride"
        values[f"{block}.{prefix}{name}.{field}"] = distance


# -- values as bits ----------------------------------------------------------------------------------------------------


def bits(field: Field, value: Value) -> int:
    """The number that a field holds for a value: a name, a count of bytes, a real number, or the bits themselves."""
    kind = field.kind
    if isinstance(value, str):
        return _named(field, value)
    if isinstance(value, float):
        return _real(field, value)
    number = int(value)
    if kind is BYTES64 or kind is BYTES16:
        if number % kind.scale:
            raise UnsupportedError(f"{number} bytes in {field.name}, which counts {kind.scale} bytes")
        number //= kind.scale
    if number < 0:
        number &= field.limit  # a signed field
    if number > field.limit:
        raise UnsupportedError(f"{number} does not fit the {field.width} bits of {field.name}")
    return number


@lru_cache(maxsize=4096)
def _named(field: Field, name: str) -> int:
    found = field.kind.value(str(name)) if isinstance(field.kind, Values) else None
    if found is None:
        raise UnsupportedError(f"{field.name} has no value named {str(name)!r}")
    return found


def _real(field: Field, value: float) -> int:
    if field.kind is FP16:
        return fp16_bits(value)
    if field.kind is FP32:
        return fp32_bits(value)
    if field.kind is F19:
        return f19_bits(value)
    raise UnsupportedError(f"{field.name} holds no real number")


MOST_KNOWN = 1 << 16
"""Values that the encoder remembers for one table; addresses are many, everything else repeats from task to task."""

Part = tuple[int, int]
"""A field's register (``isa.schema.Handle.key``) and its bits in place."""

_KNOWN: dict[int, tuple[Table, dict[tuple[str, Value], Part]]] = {}


def registers(table: Table, values: Mapping[str, Value]) -> dict[int, int]:
    """Register key (``isa.schema.Handle``) to its word, words that are 0 left out."""
    words: dict[int, int] = {}
    known = _KNOWN.setdefault(id(table), (table, {}))[1]
    for name, value in values.items():
        if isinstance(value, float):  # also 0.0: all words are 0 to begin with, -0.0 is not; and 1.0 is not the bits 1
            key, part = _part(table, name, value)
        elif not value:
            continue
        else:
            found = known.get((name, value))
            if found is None:
                found = _part(table, name, value)
                if len(known) < MOST_KNOWN:
                    known[name, value] = found
            key, part = found
        words[key] = words.get(key, 0) | part
    return words


def _part(table: Table, name: str, value: Value) -> Part:
    handle: Handle = table.handle(name)
    assert handle.field is not None
    return handle.key, bits(handle.field, value) << handle.shift
