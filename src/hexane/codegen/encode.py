"""A plan as field values by dotted name: what a task means, in the names of the register tables.

Names are those of H13's table; a target spells them for its generation (``targets``). A value is an integer, the name
of a value (``isa.kinds``), or a number that the field's unit rounds. Addresses, tags and headers are the target's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from hexane.codegen.bare import bare, form_of
from hexane.codegen.defects import TaskError
from hexane.codegen.operations import After, Element, KernelFormat, NeOp, Reduce, SourceType
from hexane.codegen.plan import Dma, Plan, Region
from hexane.errors import UnsupportedError
from hexane.isa import FieldError
from hexane.isa.numbers import f19_bits, fp16_bits, fp16_value, fp32_bits
from hexane.isa.schema import BYTES16, BYTES64, F19, FP16, FP32, MICROSECONDS, Field, Handle, Table, Values

Value = int | str | float
Fields = dict[str, Value]
Outcome = TypeVar("Outcome")
Around = TypeVar("Around", bound=Hashable)

NO_PALETTE = 8  # PalettizedBits of a kernel without palette


MOST_BETWEEN = 15  # what four bits hold; a shorter distance waits for a later task, and so for the earlier one too

ONE_DEEP = {f"Common.ConvCfg3d.{name}": value for name, value in (("Kd", 1), ("Sz", 1), ("Pz", 0), ("Oz", 1))}
"""The window of every task along the axis of depth."""


def fields(plan: Plan) -> Fields:
    """Settings of both units, L2 and the work division; nothing that depends on the program around the task."""
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
    values["Common.ChCfg.InFmt"] = plan.source.element
    values["Common.ChCfg.Src2InFmt"] = Element.FP16 if plan.pe.operands == 2 else Element.UINT8
    values["Common.ChCfg.OutFmt"] = plan.result.element
    window = plan.window
    values["Common.ConvCfg.Kw"], values["Common.ConvCfg.Kh"] = window.kw, window.kh
    values["Common.ConvCfg.Sx"], values["Common.ConvCfg.Sy"] = window.sx, window.sy
    values["Common.ConvCfg.Px"], values["Common.ConvCfg.Py"] = window.left, window.top
    values["Common.ConvCfg.Ox"], values["Common.ConvCfg.Oy"] = window.ox, 1
    values["Common.ConvCfg.OCGSize"] = plan.ocg
    values.update(ONE_DEEP)
    values["Common.GroupConvCfg.NumGroups"] = plan.groups
    values["Common.GroupConvCfg.UnicastEn"] = plan.unicast > 0
    values["Common.GroupConvCfg.UnicastCin"] = max(1, plan.unicast)
    values["Common.GroupConvCfg.ElemMultMode"] = plan.ne.pairs


def _division(plan: Plan, values: Fields) -> None:
    values["Common.TileCfg.TileHeight"] = plan.tile
    values["Common.PatchCfg.PatchWidthLog2"], values["Common.PatchCfg.PatchHeightLog2"] = plan.patch
    values["Common.PECfg.Src1Broadcast"] = int(plan.source.broadcast)
    values["Common.PECfg.Src2Broadcast"] = int(plan.second.broadcast)
    values["Common.PECfg.Src1Transpose"] = plan.source.transposed
    values["Common.PECfg.Src2Transpose"] = plan.second.transposed
    values["Common.PECfg.OutputTranspose"] = plan.result.transposed
    values["Common.Cfg.SmallSourceMode"] = plan.small_source
    values["Common.Cfg.PEKind"] = plan.pe.kind
    values["Common.Cfg.ShPref"], values["Common.Cfg.ShMin"], values["Common.Cfg.ShMax"] = plan.shape
    values["Common.Cfg.ActiveNE"] = plan.cores_log2
    if plan.double_buffer:  # H13 alone has the field, and its early compiler alone sets it
        values["Common.Cfg.AccDoubleBufEn"] = True
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
    values["L2.L2Cfg.PaddingMode"] = plan.pe.reduce is Reduce.MAX or plan.ne.op is NeOp.MAXIMUM  # the lowest number
    values["L2.L2Cfg.Src2ReLU"] = plan.pe.relu_second
    source = operand_by_dma(plan)
    after = plan.source.after
    values["L2.SourceCfg.SourceType"] = plan.source.type
    values["L2.SourceCfg.Dependent"] = (
        "follows_ne" if After.FOLLOWS_NE in after else "follows_pe" if After.FOLLOWS_PE in after else "no"
    )
    wide = After.STAGED in after if source is None else source.element == 2
    values["L2.SourceCfg.DMAFmt"] = "bits16" if wide else "bits8"
    values["L2.SourceCfg.DMAInterleave"] = 1 if source is None else source.interleave
    values["L2.SourceCfg.Src2Dma"] = plan.second.dma is not None
    narrow_result = plan.result.element is not Element.FP16
    values["L2.ResultCfg.ResultType"] = plan.result.type
    values["L2.ResultCfg.L2BfrMode"] = 2 * plan.result.automatic
    values["L2.ResultCfg.DMAFmt"] = "bits8" if narrow_result else "bits16"
    values["L2.ResultCfg.DMAInterleave"] = 1 if plan.result.dma is None else plan.result.dma.interleave
    values.update(zip(SOURCE_ALIASES, _aliases(after)))
    values.update(zip(RESULT_ALIASES, _aliases(plan.result.after)))
    _region(values, SOURCE_REGION, plan.source.region)
    _region(values, SECOND_REGION, plan.second.region)
    _region(values, RESULT_REGION, plan.result.region)


def operand_by_dma(plan: Plan) -> Dma | None:
    """The operand whose element width and interleave L2 is told: source 1 by DMA, else source 2."""
    source = None if plan.source.type is SourceType.RESIDENT else plan.source.transfer
    return plan.second.dma if source is None else source


def _region_fields(base: str, strides: str) -> tuple[str, ...]:
    distances = (f"L2.{strides}{axis}Stride.Stride" for axis in ("Channel", "Row", "Depth", "Group"))
    return (f"L2.{base}Base.Addr", *distances)


SOURCE_REGION = _region_fields("Source", "Source")
SECOND_REGION = _region_fields("Src2", "Src2")
RESULT_REGION = _region_fields("Result", "ConvResult")


def _region(values: Fields, names: tuple[str, ...], region: Region) -> None:
    values.update(zip(names, (region.base, region.channel, region.row, region.depth, region.group)))


def _engines(plan: Plan, values: Fields) -> None:
    values["NE.AccBias.AccBias"] = plan.ne.acc_bias
    if plan.unit == "PE":
        operation = plan.pe
        values["PE.Cfg.ReduceMode"], values["PE.Cfg.OpMode"] = operation.reduce, operation.op
        values["PE.Cfg.ReluEn"], values["PE.Cfg.Cond"] = operation.relu, operation.condition
        values["PE.Cfg.NonlinearMode"] = operation.nonlinear
        values["PE.Cfg.FirstSrc"], values["PE.Cfg.SecSrc"] = operation.first, operation.second
        values["PE.BiasScale.Bias"], values["PE.BiasScale.Scale"] = half(operation.bias), half(operation.scale)
        values["PE.PreScale.Epsilon"], values["PE.PreScale.PreScale"] = half(operation.epsilon), 1.0
        values["PE.FinalScale.FinalScale"] = float(operation.final)
        return
    kernel_format(plan.kernel_format, values)
    mac = plan.ne
    values["NE.MACCfg.OpMode"], values["NE.MACCfg.KernelMode"] = mac.op, mac.ones
    values["NE.MACCfg.BiasMode"], values["NE.MACCfg.BinaryPoint"] = mac.bias, mac.binary_point
    values["NE.MACCfg.NonlinearMode"] = mac.nonlinear
    values["NE.PostScale.PostScale"] = mac.post_scale


def kernel_format(coding: KernelFormat, values: Fields) -> None:
    values["NE.KernelCfg.KernelFmt"] = coding.element
    values["NE.KernelCfg.PalettizedEn"] = coding.palette_bits > 0
    values["NE.KernelCfg.PalettizedBits"] = coding.palette_bits or NO_PALETTE
    values["NE.KernelCfg.SparseFmt"], values["NE.KernelCfg.SparseBinary"] = coding.sparse, coding.binary
    values["NE.KernelCfg.KernelAlign"] = coding.computed
    if coding.scales:
        values["NE.MACCfg.PostScaleMode"] = 1


def waits_for_writer(plan: Plan) -> bool:
    """True where a source comes from DRAM as an earlier task left it: the first source's DMA says so for both."""
    first = plan.source.transfer is not None and plan.source.hint.after_task
    return first or (plan.second.dma is not None and plan.second.hint.after_task)


def wait_for_reader(plan: Plan, values: Fields) -> None:
    """The wait of a destination (docs/reference/hazards.md 1)."""
    reader = plan.result.reader
    if reader is not None:
        values["TileDMADst.DMAConfig.DependencyMode"] = "kernel" if reader.as_kernel else "source"
        values["TileDMADst.DMAConfig.DependencyInterval"] = min(reader.between, MOST_BETWEEN)


def half(value: float) -> float:
    """The number rounded to fp16: every generation's compiler starts from fp16 constants."""
    return fp16_value(fp16_bits(value))


def _stride_fields(block: str, prefix: str) -> tuple[str, ...]:
    """The row of the destination has a field name of its own."""
    axes = ("RowStride", "PlaneStride", "DepthStride", "GroupStride")
    fields = (axis if block == "TileDMADst" or axis == "PlaneStride" else "Stride" for axis in axes)
    return tuple(f"{block}.{prefix}{axis}.{field}" for axis, field in zip(axes, fields))


STRIDES = {place: _stride_fields(*place) for place in (("TileDMASrc", ""), ("TileDMASrc", "Src2"), ("TileDMADst", ""))}
"""Fields of the four distances of a walk through memory, by block and operand."""


def strides(values: Fields, block: str, prefix: str, dma: Dma) -> None:
    values.update(zip(STRIDES[block, prefix], (dma.row, dma.plane, dma.depth, dma.group)))


# -- values as bits ----------------------------------------------------------------------------------------------------


SIGNED = ("BinaryPoint", "PostRightShift", "PreRightShift")
"""Fields that hold a number below 0 as its complement; any other is refused one."""


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
            raise FieldError(f"{number} bytes in {field.name}, which counts {kind.scale} bytes")
        number //= kind.scale
    if kind is MICROSECONDS:  # an estimate, without effect on execution (docs/reference/engine-h13.md 4.2)
        number = min(number, field.limit)
    if number < 0 and field.name in SIGNED and number >= -(field.limit + 1) // 2:
        number &= field.limit
    if not 0 <= number <= field.limit:
        raise FieldError(f"{number} does not fit the {field.width} bits of {field.name}")
    return number


def each_task(plans: Sequence[Plan], write: Callable[[int], Outcome]) -> list[Outcome]:
    """Outcomes of ``write`` for the number of each plan; a value that fits no field is the failure of the task's op."""
    tasks: list[Outcome] = []
    try:
        for i in range(len(plans)):
            tasks.append(write(i))
    except FieldError as error:
        raise TaskError(error, plans[len(tasks)].op) from error
    return tasks


def each_form(
    plans: Sequence[Plan], around: Sequence[Around], write: Callable[[Plan, Around], Outcome]
) -> list[Outcome]:
    """Outcomes of ``write`` for what each task says wherever its data stand, and for what is ``around`` it.

    Tasks of one form have one outcome (``bare``): ``write`` is not told what a form leaves out.
    """
    forms: dict[Hashable, Outcome] = {}

    def outcome(i: int) -> Outcome:
        form = form_of(plans[i]), around[i]
        if form not in forms:
            forms[form] = write(bare(plans[i]), around[i])
        return forms[form]

    return each_task(plans, outcome)


@lru_cache(maxsize=4096)
def _named(field: Field, name: str) -> int:
    number = field.kind.value(str(name)) if isinstance(field.kind, Values) else None
    if number is None:
        raise UnsupportedError(f"{field.name} has no value named {str(name)!r}")
    return number


def _real(field: Field, value: float) -> int:
    if field.kind is FP16:
        return fp16_bits(value)
    if field.kind is FP32:
        return fp32_bits(value)
    if field.kind is F19:
        return f19_bits(value)
    raise UnsupportedError(f"{field.name} holds no real number")


MOST_KNOWN = 1 << 16
"""Values that one writer remembers; addresses are many, everything else repeats from task to task."""

Part = tuple[int, int]
"""The position of a field's word among the words of a task, and the field's bits in place."""


class FieldWriter:
    """Writes fields into the words of tasks that have one layout; a value is looked up once for all of them.

    ``position`` gives for a register's key (``isa.schema.Handle``) the position of its word.
    """

    def __init__(self, table: Table, position: Mapping[int, int]) -> None:
        self.table = table
        self.position = position
        self.known: dict[tuple[str, Value], Part] = {}
        self.reals: dict[tuple[str, Value], Part] = {}

    def write(self, values: Mapping[str, Value], words: list[int]) -> None:
        """Put the fields into ``words``, in which their bits are 0."""
        parts = self.known
        for item in values.items():
            value = item[1]
            if type(value) is float:
                at, part = self.real(item)
            elif not value:
                continue
            else:
                try:
                    at, part = parts[item]
                except KeyError:
                    at, part = self.remember(parts, item)
            words[at] |= part

    def real(self, item: tuple[str, Value]) -> Part:
        """Of a real number: 1.0 is not the bits 1, and -0.0 not those of 0.0."""
        if not item[1]:
            return self.part(item)
        return self.reals.get(item) or self.remember(self.reals, item)

    def remember(self, parts: dict[tuple[str, Value], Part], item: tuple[str, Value]) -> Part:
        part = self.part(item)
        if len(parts) < MOST_KNOWN:
            parts[item] = part
        return part

    def part(self, item: tuple[str, Value]) -> Part:
        handle: Handle = self.table.handle(item[0])
        assert handle.field is not None
        return self.position[handle.key], bits(handle.field, item[1]) << handle.shift
