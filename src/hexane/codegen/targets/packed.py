"""Targets of H14 and later: fields by name, written by ``isa.compose``; what the generations spell alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hexane.codegen import encode
from hexane.codegen.choices import Choices
from hexane.codegen.cost import duration_us
from hexane.codegen.encode import Fields
from hexane.codegen.operations import Element, Hint, ReadHint, ResultType, SourceType, WriteHint
from hexane.codegen.plan import Dma, Plan
from hexane.codegen.targets.base import Places, Target
from hexane.codegen.targets.h13 import SLOW_TABLES, form
from hexane.isa import Task
from hexane.isa.compose import TaskFields, compose
from hexane.isa.compose.rules import KERNEL, RESULT, SECOND, SOURCE, TABLE
from hexane.isa.kinds import READ_HINT, WRITE_HINT
from hexane.isa.roles import roles_of
from hexane.kernels.layout import TABLE_BYTES

SLOW = 0xFFD800
CHOICES = Choices(
    small_area=64, small_patch=True, shared_inputs=True, narrow_copies=True, folds_products=False, follows_closely=True,
    turned_quotients=False, steps_kernels=True, mask_elements=16, holds_two_patches=True,
)  # fmt: skip


class Turn(NamedTuple):
    """Place of a task in its program, as far as its fields tell: the first, or behind planar ones alone."""

    first: bool
    planar_alone: bool
    """All before it are planar, and there are some."""


class Packed(Target):
    """Address records, resets, page masks."""

    most_tasks = 0xFF  # tags of eight bits hold a task's number plus one
    marks_slow_tables = True

    def assemble(self, plans: Sequence[Plan], places: Sequence[Places]) -> list[Task]:
        neural = next((i for i, plan in enumerate(plans) if plan.unit == "NE"), len(plans))
        turns = [Turn(i == 0, 0 < i <= neural) for i in range(len(plans))]
        tasks = zip(plans, encode.each_form(plans, turns, self.values), places)
        return compose(
            self.name,
            [TaskFields(of, self.addresses(plan, at), plan.kernel_buffer is not None) for plan, of, at in tasks],
        )

    def values(self, plan: Plan, turn: Turn) -> dict[str, int]:
        """All fields of one task but its addresses, as bits."""
        values = encode.fields(plan)
        self.common(plan, values)
        self.l2(plan, turn, values)
        self.sources(plan, values)
        self.destination(plan, values)
        self.kernel(plan, values)
        values["Header[1].ExeCycles"] = self.duration(plan)
        slow = plan.table in SLOW_TABLES and not plan.small_source
        if slow and self.marks_slow_tables:
            values["Header[4].DebugLogEvents"] = SLOW
        roles = roles_of(self.generation)
        named = {}
        for name, value in values.items():
            field = roles.handle(name).field
            assert field is not None
            named[name] = encode.bits(field, value)
        return named

    def addresses(self, plan: Plan, places: Places) -> dict[str, tuple[int, int]]:
        """Slot and offset of the operands and of the kernel."""
        ends = {SOURCE: plan.source.transfer, SECOND: plan.second.dma, RESULT: plan.result.transfer}
        addresses = {
            name: (places.channel(dma.buffer), dma.offset + places.offset(dma.buffer))
            for name, dma in ends.items()
            if dma is not None
        }
        kernel = plan.kernel
        if kernel is None:
            return addresses
        if kernel.source is None and self.only_table(plan):
            addresses[TABLE] = (places.kernel_slot, places.kernel_offset)
        else:
            slot = places.kernel_slot if kernel.source is None else places.channel(kernel.source)
            addresses[KERNEL] = (slot, places.kernel_offset + kernel.offsets[0])
        return addresses

    def duration(self, plan: Plan) -> int:
        return duration_us(plan)

    def common(self, plan: Plan, values: Fields) -> None:
        if plan.pe.operands < 2:
            del values["Common.ChCfg.Src2InFmt"]
        if plan.unit == "NE":
            values["NE.MACCfg.Bit20"] = 1
            if plan.kernel is not None:
                values["NE.KernelCfg.KernelAlign"] = plan.kernel_buffer is not None or self.only_table(plan)
            if (plan.out_trans and plan.unicast > 1) or plan.kernel_buffer is not None:
                values["Common.Cfg.FillLowerNEFirst"] = 1
        else:
            del values["NE.AccBias.AccBias"], values["Common.ConvCfg.OCGSize"]

    def l2(self, plan: Plan, turn: Turn, values: Fields) -> None:
        """A task behind planar ones alone has no task of the neural engine to wait for."""
        if turn.planar_alone:
            for name in ("AliasConvSrc", "AliasConvRslt"):
                values[f"L2.SourceCfg.{name}"] = values[f"L2.ResultCfg.{name}"] = 0
        if plan.source.type is SourceType.RESIDENT and plan.second.dma is None:
            values["L2.SourceCfg.DMAFmt"] = 0
        if plan.unit == "PE" and plan.result.type is ResultType.STAYS:
            values["L2.ResultCfg.DMAFmt"] = 0

    def sources(self, plan: Plan, values: Fields) -> None:
        if plan.source.transfer is not None:
            self.source(plan.source.transfer, plan.source.hint, "", values)
            if plan.source.element is Element.INT8:
                values["TileDMASrc.Fmt.MemFmt"] = "signed8"
        if plan.second.dma is not None:
            self.source(plan.second.dma, plan.second.hint, "Src2", values)
        values["TileDMASrc.DMAConfig.DependencyMode"] = int(encode.waits_for_writer(plan))

    def source(self, dma: Dma, hint: Hint, prefix: str, values: Fields) -> None:
        form(values, f"TileDMASrc.{prefix}Fmt", dma.element, dma.interleave)
        encode.strides(values, "TileDMASrc", prefix, dma)
        values[f"TileDMASrc.{prefix}DMAConfig.CacheHint"] = self.read_hint(hint)

    def read_hint(self, hint: Hint) -> int:
        """System cache hint of a reader."""
        return self.hint(hint.cache)

    def hint(self, hint: ReadHint) -> int:
        """The same as four bits, which is also how a kernel lane has it."""
        value = READ_HINT.value(hint)
        assert value is not None
        return value

    def write_hint(self, hint: WriteHint | None) -> int:
        value = WRITE_HINT.value(hint or WriteHint.NOALLOC)
        assert value is not None
        return value

    def destination(self, plan: Plan, values: Fields) -> None:
        dst = plan.result.transfer
        if dst is None:
            return
        form(values, "TileDMADst.Fmt", dst.element, dst.interleave, signed=plan.result.element is Element.INT8)
        values["TileDMADst.Fmt.ZeroPadLast"] = values["TileDMADst.Fmt.ZeroPadFirst"] = 1
        encode.strides(values, "TileDMADst", "", dst)
        values["TileDMADst.DMAConfig.CacheHint"] = self.write_hint(plan.result.hint)
        values["TileDMADst.DMAConfig.L2BfrMode"] = plan.result.automatic

    def kernel(self, plan: Plan, values: Fields) -> None:
        kernel = plan.kernel
        if kernel is None:
            return
        runtime = kernel.source is not None
        if not runtime and self.only_table(plan):
            values["KernelDMASrc.TableSize.MemBfrSize"] = TABLE_BYTES
            return
        values["KernelDMASrc.MasterConfig.SparseFmt"] = kernel.sparse
        for core, (offset, size) in enumerate(zip(kernel.offsets, kernel.sizes)):
            values[f"KernelDMASrc.CoeffDMAConfig[{core}].En"] = 1
            values[f"KernelDMASrc.CoeffDMAConfig[{core}].CacheHint"] = self.hint(plan.kernel_hint)
            values[f"KernelDMASrc.CoeffBaseAddr[{core}].Addr"] = offset - kernel.offsets[0]
            values[f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize"] = size
        values["KernelDMASrc.GroupStride.Stride"] = kernel.group_stride
        values["KernelDMASrc.OCGStride.Stride"] = kernel.pass_stride
        if runtime and plan.dtid is not None:
            values["Task.DTID"] = plan.dtid

    def only_table(self, plan: Plan) -> bool:
        """True where the kernel is a table and nothing else."""
        return plan.ne.ones and bool(plan.table)

    def stored(self, plan: Plan) -> bytes:
        """A table is stored once: its own channel fetches it, not the cores."""
        data = super().stored(plan)
        return data[:TABLE_BYTES] if self.only_table(plan) else data
