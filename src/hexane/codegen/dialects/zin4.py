"""Plans as compiler v4.2.1 makes them (spec/engine-h13 §4.11): applied to what today's recipes give."""

from __future__ import annotations

from hexane.codegen import l2
from hexane.codegen.fragment import table_kernel
from hexane.codegen.geometry import ceil_log2
from hexane.codegen.plan import Plan, Region

BINARY_POINT = 0x1F00
ONE_PATCH_WIDTH = 64  # ShMin of a copy is 1 up to this width [INFERRED: five programs]
LARGEST_GROUP = 5  # OCGSize of the one task without double buffering [GUESS]


def as_early(plan: Plan) -> None:
    """Change a plan of the default dialect to what the early compiler writes."""
    if plan.unit != "NE":
        return
    if plan.unicast and plan.mac & 7 == 4:
        _copy(plan)
    elif plan.kernel is not None:
        _convolution(plan)
    plan.double_buffer = plan.ocg < LARGEST_GROUP


def _copy(plan: Plan) -> None:
    plan.cores_log2 = min(4, ceil_log2(plan.cout))
    plan.kernel_config = 0x80
    if plan.kernel is not None and plan.kernel.source is None:
        plan.kernel = table_kernel(plan.kernel.data[:128], min(1 << plan.cores_log2, plan.cout), plan.kernel.name or "")
    plan.mac &= ~BINARY_POINT
    plan.shape = (1, 1 if plan.wout <= ONE_PATCH_WIDTH else 0, 1)


def _convolution(plan: Plan) -> None:
    """Explicit result strides behind the source."""
    if plan.dst is None or plan.out_trans:
        return
    channel = l2.channel_stride(plan.wout)
    block = plan.cout * channel
    plan.result = Region(plan.result.base, channel, block + l2.pe_pad(block, channel), block, block)
    plan.result_config = plan.result_config & ~0xF | 2
