"""Groups of a convolution that are no loop of one task: sums of some neighbouring groups, with zeros between them.

One dense sum over all channels multiplies by zeros as many times as there are groups and fetches them all. Cut into
parts, each a dense sum over a slice of the channels, it fetches and multiplies less, in more tasks. How many parts
there are is a question of price; the bits are the same, since zeros add nothing to a sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from hexane.chips import Chip
from hexane.codegen.context import Context
from hexane.codegen.plan import Plan
from hexane.codegen.price import sum_us
from hexane.codegen.recipes.blocks import Convolution, StreamHeads, channel_blocks
from hexane.codegen.weights import Weights
from hexane.frozen import replace
from hexane.lowering.groups import dense, is_loop

if TYPE_CHECKING:
    from hexane.codegen.targets import Target

MOST_PARTS = 64
LEAST_GAIN_US = 0.2
"""What a further task has to save: the model's 13 ns are an M6's, and nobody has published what one costs on M1."""
NOTE = "some groups of a convolution as a task of their own"


def parts_of(conv: Convolution, context: Context) -> int:
    """Into how many sums the groups of a convolution are cut; 1 where they are a loop, or where it saves nothing."""
    y, (cout, cin, *_) = conv.y, conv.weights.shape
    if conv.groups == 1 or conv.one_to_one or not context.on.split_groups:
        return 1
    if is_loop(conv.weights.shape, conv.groups, context.limits, bias=conv.bias is not None, width=y.w, height=y.h):
        return 1
    window = conv.window
    return _cheapest(
        context.target, context.chip, y.h * y.w, cin, cout // conv.groups, conv.groups, window.kh, window.kw, window.sx
    )


@lru_cache(maxsize=4096)
def _cheapest(
    target: Target, chip: Chip, pixels: int, cin: int, cout: int, groups: int, kh: int, kw: int, stride: int
) -> int:
    """Of ``groups`` groups of ``cin`` to ``cout`` channels: one sum if none is cheaper."""

    def price(parts: int) -> float:
        inputs, outputs = groups // parts * cin, groups // parts * cout
        blocks = channel_blocks(
            target, outputs, inputs * kh * kw, StreamHeads(False, True), one_patch=False, transposed=False
        )
        return parts * (
            len(blocks) * LEAST_GAIN_US + sum_us(chip, pixels, (inputs, outputs), (kh, kw, stride), parts / groups)
        )

    divisors = [parts for parts in range(1, min(groups, MOST_PARTS) + 1) if groups % parts == 0]
    return min(divisors, key=lambda parts: (price(parts), parts))


def neighbours(conv: Convolution, n: int) -> Iterator[Convolution]:
    """The dense convolutions of image ``n``, each over a slice of the channels."""
    x, y, groups = conv.x, conv.y, conv.groups
    count = groups // conv.parts
    cin, cout = x.c // conv.parts, y.c // conv.parts
    for part in range(conv.parts):
        outputs = slice(part * cout, (part + 1) * cout)
        yield replace(
            conv,
            x=replace(x, n=1, c=cin, offset=x.offset + n * x.batch + part * cin * x.plane),
            y=replace(y, n=1, c=cout, offset=y.offset + n * y.batch + part * cout * y.plane),
            weights=Weights(dense(conv.weights.values[outputs], count)),
            bias=None if conv.bias is None else conv.bias[outputs],
            groups=1,
            parts=1,
        )


def walk_of_part(plan: Plan, conv: Convolution) -> Plan:
    """A task whose walks through slices name the steps of the whole tensors."""
    if plan.source.dma is not None:  # a later block finds it in L2
        plan = plan.reading(dma=replace(plan.source.dma, depth=conv.x.batch, group=conv.x.batch))
    if plan.result.dma is not None:
        plan = plan.writing(dma=replace(plan.result.dma, depth=conv.y.batch, group=conv.y.batch))
    return plan.inferred(NOTE)
