"""Attention of several heads with its keys as channels: found in a graph, and whether it fits L2.

scores^T = k q^T, weights^T = softmax over keys, result^T = v^T weights^T. So k and v are the kernels, small operands,
and what is large, the scores and weights of every head, never leaves L2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hexane.chips import Generation
from hexane.isa.granules import UNIT
from hexane.lowering.fusion import factor_of, follows
from hexane.rounding import align, ceil_div

if TYPE_CHECKING:
    from hexane.graph import Op, Value
    from hexane.graph.builder import GraphBuilder
    from hexane.lowering.compilation import Compilation

SPLIT_HEADS = (0, 2, 1, 3)
LAST_TWO = (0, 1, 3, 2)
MOST_BLOCKS = 20
"""Heads times blocks of queries on later generations, each of about ten tasks: a program has room for 255."""
BURST = 32
"""Values of fp16 in 64 bytes: where a DMA can begin within a row."""
MOST_LANES = 8
FEW_QUERIES = 32
"""With fewer, and heads of twice as many values, k and v as kernels cost more than scores in DRAM: by price, on every
chip. Heads that are no multiple of this are slower still in the other orientation."""


@dataclass(frozen=True)
class Sizes:
    """``heads`` of ``queries`` x ``keys`` scores over ``dims`` values each; ``mask_heads``: 0 without a mask, 1 for one
    that all heads share."""

    heads: int
    queries: int
    keys: int
    dims: int
    mask_heads: int = 0

    @property
    def line(self) -> int:
        """Bytes of a row of scores in L2, one value per query."""
        return align(2 * self.queries, UNIT)

    def at_once(self, limits: Generation) -> int:
        """Heads whose scores and weights fit L2 together, beside the turned queries of all; 0: not even one."""
        columns = self.heads * self.dims * (self.line + UNIT)
        room = limits.l2_bytes - columns - self.mask_heads * self.keys * self.line
        each = 2 * (self.keys * self.line + 4 * UNIT) + 2 * (self.line + 4 * UNIT)
        return max(0, min(self.heads, room // each))

    def block(self, compilation: Compilation) -> int:
        """Queries whose scores fit L2 for at least one head: all of them, or as even blocks as begin at whole bursts; 0
        if not even the smallest does."""
        limits = compilation.limits
        if self.at_once(limits) or not compilation.on.query_blocks:
            return self.queries if self.at_once(limits) else 0
        fitting = (n for n in range(BURST, self.queries, BURST) if replace(self, queries=n).at_once(limits))
        most = max(fitting, default=0)
        if not most:
            return 0
        each = ceil_div(self.queries, ceil_div(self.queries, most))
        each = align(each, BURST)
        count = ceil_div(self.queries, each) * self.heads
        fits = not limits.tasks_are_numbered or count <= MOST_BLOCKS
        return each if fits else 0

    def suits(self, compilation: Compilation) -> bool:
        """True where kernels can be cut from keys and dims, and at least one head fits L2."""
        limits = compilation.limits
        lanes = lanes_of(self.keys, limits.cores), lanes_of(self.dims, limits.cores)
        if self.heads < 2 or self.queries < limits.cores or self.dims % limits.cores or min(lanes) < 2:
            return False
        if self.queries < FEW_QUERIES and self.dims >= 2 * FEW_QUERIES and self.dims % FEW_QUERIES == 0:
            return False
        longest = max(self.dims * lanes[0], self.keys * lanes[1])
        return self.block(compilation) > 0 and 2 * longest <= limits.kernel_bytes_per_core


def lanes_of(rows: int, cores: int) -> int:
    """Rows of a computed kernel that a core takes side by side (docs/reference/engine-h13.md 13.2); 1: no form.

    Rows that do not fill the cores evenly, of which no program is known, take what divides them.
    """
    if rows % cores == 0:
        share = rows // cores
        return min(MOST_LANES, max(2, share & -share))
    return next(lanes for lanes in (8, 4, 2, 1) if rows % lanes == 0)


@dataclass(frozen=True)
class Attention:
    """The ops from the first product to the second; ``mask`` is what is added to the scores."""

    scores: Op
    scale: Op | None
    mask: Op | None
    softmax: Op
    result: Op

    @property
    def ops(self) -> tuple[Op, ...]:
        return tuple(op for op in (self.scores, self.scale, self.mask, self.softmax, self.result) if op is not None)


def attention_from(scores: Op, axis: int) -> Attention | None:
    """The attention that begins with this product and whose softmax runs along ``axis`` (-1 or -2), or None.

    Scores in their usual orientation (-1) may be divided by a number: written anew they are multiplied.
    """
    rank = len(scores.output.shape)
    last, scale, mask = scores, None, None
    product = follows(last, "mul", *(["real_div"] if axis == -1 else []))
    if product is not None and _factor(product) is not None:
        last = scale = product
    added = follows(last, "add")
    if added is not None:
        last = mask = added
    soft = follows(last, "softmax")
    if soft is None or soft.arg("axis") % rank != rank + axis:
        return None
    result = follows(soft, "matmul")
    if result is None:
        return None
    return Attention(scores, scale, mask, soft, result)


def mask_of(attention: Attention) -> Value | None:
    """Bias of the scores."""
    if attention.mask is None:
        return None
    before = attention.scale or attention.scores
    x, y = attention.mask.arg("x"), attention.mask.arg("y")
    return y if x is before.output else x


def times_scale(attention: Attention, scores: Value, b: GraphBuilder) -> Value:
    """Other scores with the factor of an attention, where it has one."""
    if attention.scale is None:
        return scores
    scaled: Value = b.mul(x=scores, y=_factor(attention.scale))
    return scaled


def _factor(op: Op) -> float | None:
    """The number by which a mul or a real_div multiplies its other operand."""
    number = factor_of(op)
    if op.type == "mul":
        return number
    return None if not number or op.inputs["x"].is_constant else 1 / number


def split_heads(value: Value) -> tuple[Op, ...]:
    """The reshape and transpose that made heads [1, H, S, D] of rows [1, S, H D], where nothing else uses them."""
    turn = value.op
    if turn is None or turn.type != "transpose" or tuple(turn.arg("perm")) != SPLIT_HEADS or value.only_user is None:
        return ()
    source_op = turn.arg("x").op
    if source_op is None or source_op.type != "reshape" or source_op.output.only_user is not turn:
        return ()
    rows = source_op.arg("x")
    batch, tokens, heads, dims = source_op.output.shape
    if rows.is_constant or batch != 1 or tuple(rows.shape[-2:]) != (tokens, heads * dims) or _size(rows) != tokens:
        return ()
    return (source_op, turn)


def turned_heads(value: Value) -> Op | None:
    """The transpose that made heads [1, H, S, D] of [1, H, D, S], where nothing else uses them."""
    turn = value.op
    if turn is None or turn.type != "transpose" or tuple(turn.arg("perm")) != LAST_TWO or value.only_user is None:
        return None
    x = turn.arg("x")
    return turn if len(x.shape) == 4 and x.shape[0] == 1 and not x.is_constant else None


def moves_of(value: Value) -> tuple[Op, ...]:
    """The moves that made the heads of an operand and that attention does without."""
    turn = turned_heads(value)
    return split_heads(value) if turn is None else (turn,)


def _size(rows: Value) -> int:
    size = 1
    for extent in rows.shape[:-1]:
        size *= extent
    return size


def uses_of(op: Op) -> Iterator[Op]:
    """The op, and what follows it through moves that have one user each, up to a product."""
    current: Op | None = op
    while current is not None:
        yield current
        if current.type not in ("reshape", "transpose"):
            return
        current = current.output.only_user
