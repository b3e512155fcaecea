"""The early compiler (v4.2.1) for H13: what it chooses and writes otherwise than today's.

Source: docs/reference/engine-h13.md 4.11.
"""

from __future__ import annotations

from collections.abc import Sequence

from hexane.codegen import l2
from hexane.codegen.encode import Fields
from hexane.codegen.fragment import table_kernel
from hexane.codegen.geometry import ceil_log2
from hexane.codegen.operations import NO_KERNEL, Element, NeOp
from hexane.codegen.plan import Plan, Region, TaskKernel
from hexane.codegen.targets.h13 import H13, LOG_LAST, LOG_MIDDLE, Around, Blank, blank, form
from hexane.frozen import replace

ONE_PATCH_WIDTH = 64  # ShMin of a copy is 1 up to this width [INFERRED: five programs]
LARGEST_GROUP = 5  # OCGSize of the one task without double buffering [GUESS]


def as_early(plan: Plan) -> Plan:
    """Change a plan of the default dialect to what the early compiler writes."""
    if plan.unit != "NE":
        return plan
    if plan.unicast and plan.ne.op is NeOp.BYPASS:
        plan = _copy(plan)
    elif plan.kernel is not None:
        plan = _convolution(plan)
    return plan.but(double_buffer=plan.ocg < LARGEST_GROUP)


def _copy(plan: Plan) -> Plan:
    plan = plan.but(cores_log2=min(4, ceil_log2(plan.cout)), kernel_format=NO_KERNEL)
    if plan.kernel is not None and plan.kernel.source is None:
        cores = min(1 << plan.cores_log2, plan.cout)
        plan = plan.but(kernel=table_kernel(plan.kernel.data[:128], cores, plan.kernel.name or ""))
    return plan.but(ne=replace(plan.ne, binary_point=0), shape=(1, 1 if plan.wout <= ONE_PATCH_WIDTH else 0, 1))


def _convolution(plan: Plan) -> Plan:
    """Explicit result strides behind the source."""
    if plan.result.dma is None or plan.out_trans:
        return plan
    channel = l2.channel_stride(plan.wout)
    block = plan.cout * channel
    region = Region(plan.result.region.base, channel, block + l2.pe_pad(block, channel), block, block)
    return plan.writing(region=region, automatic=False)


class Early(H13):
    """Outputs have the first channels, all lanes are always written."""

    def adapt(self, plan: Plan) -> Plan:
        return as_early(plan)

    def channels(self, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, int]:
        names = [*outputs, *inputs]
        return {name: self.first_surface + i for i, name in enumerate(names)}

    def all_lanes(self, plan: Plan) -> bool:
        return True

    def duration(self, plan: Plan) -> int:
        return 0

    def log_events(self, around: Around) -> int:
        return LOG_LAST if around.last else LOG_MIDDLE

    def fetched(self, plan: Plan) -> TaskKernel | None:
        return None if plan.unit == "PE" else plan.kernel

    def blank(self, plan: Plan) -> Blank:
        extended, lanes = plan.dtid is not None, self.all_lanes(plan)
        if plan.unit == "PE":
            return blank(lanes, extended, None)
        return blank(lanes, extended, 0 if plan.kernel is None else len(plan.kernel.offsets))

    def unit_rest(self, plan: Plan, around: Around, values: Fields) -> None:
        values["TileDMASrc.Unk13840.Bit8"] = plan.unit == "NE"
        if plan.groups == 1:
            values["TileDMASrc.GroupStride.Stride"] = values["TileDMASrc.Src2GroupStride.Stride"] = 0
            values["TileDMADst.GroupStride.GroupStride"] = 0
        if plan.unit == "PE" and plan.result.dma is not None:
            form(values, "TileDMADst.Fmt", plan.result.dma.element, 1, signed=plan.result.element is Element.INT8)
            values["TileDMADst.Fmt.ZeroPadLast"] = values["TileDMADst.Fmt.ZeroPadFirst"] = 0
