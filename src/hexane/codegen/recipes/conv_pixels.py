"""Channels that become pixels behind a convolution: its tasks store them where they belong, one task a row phase.

Source: words of Apple's compiler for M4 (1x1 kernels, blocks of 4): task i of b computes the channels of the rows
i, i + b, ... sorted by channel, then column phase, and stores b channels side by side (destination interleave b).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hexane.codegen import tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.plan import Plan
from hexane.codegen.recipes.blocks import Convolution, place_blocks
from hexane.codegen.recipes.conv import convolution_of, dense_plans
from hexane.codegen.recipes.registry import recipe
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op
from hexane.lowering.fusion import follows, fused_ops

BLOCKS = {"pixel_shuffle": "upscale_factor", "depth_to_space": "block_size"}
"""Ops that make pixels of channels, and the parameter that says how many along a side."""
LANES = (2, 4, 8)
"""Channels that a store can put side by side."""


def _pixels(op: Op, context: Context) -> tuple[Op, ...] | None:
    """A dense convolution, what its task fuses, and the shuffle of its result, where that leaves the network."""
    run = fused_ops(op, context.on)
    last = follows(run[-1], *BLOCKS)
    if last is None or len(last.output.shape) != 4 or op.arg("groups") != 1 or last.arg(BLOCKS[last.type]) not in LANES:
        return None
    return (*run, last) if last.output.is_output and not last.output.users else None


@recipe("conv", match=_pixels, rank=4)
def convolution_to_pixels(ops: Sequence[Op], context: Context) -> Fragment:
    """conv and pixel_shuffle or depth_to_space: a task for each row of a block stores its pixels in place."""
    *run, shuffle = ops
    conv, out = convolution_of(run, context), context.tensor(shuffle.output)
    block, fragment = shuffle.arg(BLOCKS[shuffle.type]), Fragment(context)
    for n in range(conv.x.n):
        plans = [_phase(fragment, conv, out.image(n), order, n, i) for i, order in enumerate(phases(shuffle, block))]
        place_blocks(fragment, plans)
        if fragment.plans[-1].source.dma is not None and not context.policy.between:
            raise UnsupportedError("a map that would be read again for every row of pixels", code=Reason.MEMORY)
    if not (context.target.name == "h16g" and conv.window.taps == 1 and block == 4):
        fragment.inferred("pixels stored by a convolution, as on M4 with blocks of 4")
    return fragment


def phases(shuffle: Op, block: int) -> np.ndarray:
    """[block, C * block] numbers of the channels of each row phase, by channel, then column phase."""
    channels = np.arange(shuffle.output.shape[1] * block * block)
    if shuffle.type == "pixel_shuffle":  # (channel, row phase, column phase)
        ordered = channels.reshape(-1, block, block).transpose(1, 0, 2)
    else:  # (row phase, column phase, channel)
        ordered = channels.reshape(block, block, -1).transpose(0, 2, 1)
    return ordered.reshape(block, -1)


def _phase(fragment: Fragment, conv: Convolution, out: Tensor, order: np.ndarray, n: int, row: int) -> Plan:
    """The task of one row phase of image ``n``."""
    block = conv.y.c // len(order)
    part = replace(
        conv,
        y=replace(conv.y, c=len(order)),
        weights=conv.weights.outputs(order),
        bias=None if conv.bias is None else conv.bias[order],
    )
    plans = dense_plans(fragment, part, n, of=conv.y.c)
    if len(plans) != 1:
        raise UnsupportedError("a row of pixels whose channels take several tasks", code=Reason.MEMORY)
    (plan,) = plans
    walk = out.dma(row * out.row)
    plan = plan.writing(dma=replace(walk, row=block * out.row, interleave=block))
    if not plan.small_source:
        plan = tasks.choose_shape(fragment.target, plan, weighted=True)
    return plan
