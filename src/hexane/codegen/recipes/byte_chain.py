"""Convolutions in a row whose maps between them are bytes: every map stays in L2 whole, one task a layer.

Source: words of Apple's compiler for M4, 1x1 kernels and 64 channels of 64x64 (chains of three to six layers); other
sizes and kernels by the same rules, INFERRED.
"""

from __future__ import annotations

from collections.abc import Sequence

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment
from hexane.codegen.memory.chain import ChainStay, ChainTasks, Use
from hexane.codegen.operations import After, Element
from hexane.codegen.plan import Plan, Region
from hexane.codegen.recipes.conv import convolution
from hexane.codegen.recipes.quantise import byte_convolution
from hexane.codegen.recipes.registry import recipe
from hexane.errors import Reason, UnsupportedError
from hexane.graph.ir import Op
from hexane.lowering.eight_bit import byte_product
from hexane.lowering.fusion import sum_run

BYTES_TO_BYTES, BYTES_TO_FP16 = (2, 2, 2), (0, 0, 2)
"""Shapes of the work units of a layer that reads bytes, by what it writes."""
IN_BYTES = 3
"""The category of a layer that reads and writes bytes."""


def layers_of(op: Op, context: Context) -> list[tuple[Op, ...]]:
    """The convolutions from this one on, each with its ops, whose results are bytes that the next one alone reads."""
    layers = [sum_run(op, context.on)]
    while layers[-1][-1].type == "quantize":
        pair = layers[-1][-1].output.only_user
        conv = None if pair is None or pair.type != "dequantize" else pair.output.only_user
        if pair is None or conv is None or conv.type != "conv" or byte_product(conv, context.limits) is None:
            return []
        layers.append((pair, *sum_run(conv, context.on)))
    return layers


def _chain(op: Op, context: Context) -> tuple[Op, ...] | None:
    layers = layers_of(op, context) if context.policy.between else []
    return tuple(each for layer in layers for each in layer) if len(layers) > 1 else None


@recipe("conv", match=_chain, rank=3)
def byte_chain(ops: Sequence[Op], context: Context) -> Fragment:
    """Convolutions with bytes between them: one task each, all maps between them in L2."""
    plans = [_plan(layer, context) for layer in layers_of(ops[0], context)]
    fragment, chain, last = Fragment(context), ChainTasks(context.limits.l2_bytes), len(plans) - 1
    before: tuple[ChainStay, Region] | None = None
    for i, plan in enumerate(plans):
        stays: dict[str, Use] = {}
        if before is not None:
            stays["source"], region = before
            plan = tasks.resident(plan.reading(dma=None), region, After.FOLLOWS_NE if i > 1 else After.NOTHING)
            plan = plan.but(
                shape=BYTES_TO_BYTES if i < last else BYTES_TO_FP16, power_category=IN_BYTES if i < last else 0
            )
        if i < last:
            region = _kept(plan, plans[i + 1], BYTES_TO_BYTES if i + 1 < last else BYTES_TO_FP16)
            stay = stays["result"] = ChainStay(plan.hout * region.row, plan.hout * plan.cout * plan.wout)
            plan = plan.leaving(region, dma=None)
            before = stay, region
        chain.add(plan, **stays)
    chain.settle()
    fragment.add(*chain.plans)
    if not (context.target.name == "h16g" and all(plan.window.taps == 1 for plan in plans)):
        fragment.inferred("bytes between convolutions, as on M4 with 1x1 kernels")
    return fragment


def _plan(layer: tuple[Op, ...], context: Context) -> Plan:
    """A layer's only task; UnsupportedError where it has more."""
    alone = (byte_convolution if layer[0].type == "dequantize" else convolution)(layer, context)
    if len(alone.plans) != 1 or alone.plans[0].small_source:
        raise UnsupportedError("a layer of several tasks between maps of bytes", code=Reason.LAYOUT)
    (plan,) = alone.plans
    if plan.tile != plan.hout:
        raise UnsupportedError("a map of bytes that is computed in tiles", code=Reason.MEMORY)
    return plan.but(note="")


def _kept(plan: Plan, reader: Plan, shape: tuple[int, int, int]) -> Region:
    """Layout of a map of bytes for its reader: rows of channels, with the pad of the reader's shape."""
    assert plan.result.element in (Element.INT8, Element.UINT8)
    channel = l2.channel_stride(plan.wout, 1)
    row = plan.cout * channel
    pitch = row + l2.ne_pad(row, reader.h, shape, plan.wout // 2)
    return Region(0, channel, pitch, row)
