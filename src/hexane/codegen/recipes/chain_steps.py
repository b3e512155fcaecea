"""Layers that a chain of matrices takes, and the matrices that stand in L2 meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import dropwhile

from hexane.codegen import l2
from hexane.codegen.context import Context
from hexane.codegen.memory.chain import ChainStay
from hexane.codegen.plan import Dma, Plan, Region
from hexane.codegen.recipes import linear
from hexane.codegen.recipes.linear import MatrixRows
from hexane.codegen.recipes.norm import axes_of, projection
from hexane.graph.ir import Op, Value
from hexane.isa.numbers import fp16_bits
from hexane.lowering.functions import FUNCTIONS
from hexane.lowering.fusion import follows, fused_ops
from hexane.rounding import align

MOST_ROWS = 192
"""Rows of a reduction in one task; more are cut into blocks."""
PADDED = 512
"""Columns up to which the rows of a product's turned result take a pad."""
STEP = 8
"""Elements of 16 bytes: rows and columns of the matrices are multiples of it."""
PRODUCTS = ("matmul", "linear")
ONE = fp16_bits(1.0)
"""1.0 in fp16."""
PLAIN_FUNCTIONS = tuple(name for name, function in FUNCTIONS.items() if not function.epsilon and function.scale == ONE)


class MatrixView(Enum):
    """Walk of a task through a matrix: each row a channel, a map of one channel, or each column a channel."""

    ROWS = auto()
    MAP = auto()
    COLUMNS = auto()


@dataclass(eq=False)
class MatrixPlace:
    """A matrix in L2 in one order: ``pitch`` bytes from row to row, or from column to column."""

    stay: ChainStay
    pitch: int
    offset: int = 0

    @property
    def use(self) -> tuple[ChainStay, int]:
        """The stay, and bytes from its base."""
        return self.stay, self.offset


@dataclass(eq=False)
class ChainMatrix:
    """A value of the chain: where it is, and the task that wrote it last with its view.

    ``kernel``: in scratch as the kernel of a product, ``copied`` of scores: a planar task wrote theirs there.
    """

    m: int
    k: int
    dram: MatrixRows | None = None
    rows: MatrixPlace | None = None
    columns: MatrixPlace | None = None
    writer: int = -1
    view: MatrixView = MatrixView.ROWS
    kernel: Dma | None = None
    copied: bool = False


def steps_of(op: Op, context: Context, *, attention: bool = False) -> list[tuple[Op, ...]]:
    """The ops from this one on, in the order of the network, that a chain takes, each with its fused ops.

    ``attention``: with the products of two of its matrices and the softmax between them.
    """
    steps: list[tuple[Op, ...]] = []
    members: set[Op] = set()
    for each in dropwhile(lambda other: other is not op, () if op.block is None else op.block.ops):
        if each in members:
            continue
        run = (_of_attention(each, steps, context) if attention else None) or _step(each, context)
        if run is None:
            break
        steps.append(run)
        members.update(run)
    return steps


def _step(op: Op, context: Context) -> tuple[Op, ...] | None:
    if any(not _is_matrix(value) for value in (*op.outputs, *(v for v in op.operands() if not v.is_constant))):
        return None
    if op.type in PRODUCTS:
        parts = linear.matrix_operands(op)
        return None if parts is None or parts[1] else fused_ops(op, context.on)
    if op.type == "layer_norm":
        plain = op.arg("gamma") is None and op.arg("beta") is None and axes_of(op)[0] == frozenset("w")
        return (op,) if plain else None
    if op.type == "softmax":
        rank = len(op.output.shape)
        return (op,) if op.arg("axis") % rank == rank - 1 and op.arg("x").op is None else None
    if op.type == "add":
        x, y = op.arg("x"), op.arg("y")
        return (op,) if x.shape == y.shape and x is not y and not x.is_constant else None
    return (op,) if op.type in PLAIN_FUNCTIONS else None


def _of_attention(op: Op, steps: Sequence[tuple[Op, ...]], context: Context) -> tuple[Op, ...] | None:
    """A step of softmax(s x y^T) z on results of steps before it; nobody else reads the scores."""
    results = {run[-1].output: run[0] for run in steps}
    if op.type == "softmax":
        scores = results.get(op.arg("x"))
        return (op,) if scores is not None and is_scores(scores) else None
    if op.type != "matmul" or op.arg("transpose_x") or not {op.arg("x"), op.arg("y")} <= results.keys():
        return None
    if not op.arg("transpose_y"):
        return (op,) if results[op.arg("x")].type == "softmax" and _is_matrix(op.output) else None
    run = fused_ops(op, context.on)
    soft = follows(run[-1], "softmax")
    last = None if soft is None else follows(soft, "matmul")
    if soft is None or last is None or last.arg("x") is not soft.output or any(each.type != "mul" for each in run[1:]):
        return None
    return run if soft.arg("axis") in (-1, len(op.output.shape) - 1) and _is_matrix(op.output) else None


def is_scores(op: Op) -> bool:
    """True for a product of two computed matrices."""
    return op.type == "matmul" and not op.arg("y").is_constant


def _is_matrix(value: Value) -> bool:
    shape = value.shape
    if value.dtype != "fp16" or len(shape) < 2 or any(extent != 1 for extent in shape[:-2]):
        return False
    return all(extent > 1 and extent % STEP == 0 for extent in shape[-2:])


def attention_chain(op: Op, context: Context) -> tuple[Op, ...] | None:
    """A chain that has attention over its matrices."""
    if not context.policy.between or op.type not in ("layer_norm", *PRODUCTS):
        return None
    steps = steps_of(op, context, attention=True)
    return tuple(each for run in steps for each in run) if any(is_scores(run[0]) for run in steps) else None


def chain(op: Op, context: Context) -> tuple[Op, ...] | None:
    """Several layers with a product or a norm among them; None for those that have a recipe of their own."""
    if not context.policy.between or op.type not in ("layer_norm", "softmax", "add", *PRODUCTS, *PLAIN_FUNCTIONS):
        return None
    steps = steps_of(op, context)
    if len(steps) < 2 or not any(run[0].type in (*PRODUCTS, "layer_norm") for run in steps):
        return None
    ops = tuple(each for run in steps for each in run)
    alone = linear.feed_forward(op, context) if op.type in PRODUCTS else None
    if op.type == "layer_norm" and op.arg("x").shape[-2] <= MOST_ROWS:
        alone = projection(op, context)
    return None if alone is not None and set(alone) == set(ops) else ops


def by_rows(pitch: int, m: int) -> Region:
    """Each row a channel."""
    return Region(0, pitch, m * pitch, m * pitch)


def constant_rows(plan: Plan) -> Region:
    """The window of a map of constants that comes by DMA: 32 columns at least."""
    window = l2.pe_window(plan.w, max(5, plan.patch[0]))
    return Region(0, window, window + l2.pe_pad(window, window), window, window)


def as_one(region: Region, channel: int) -> Region:
    """The same rows as those of one channel."""
    return Region(region.base, align(channel, l2.UNIT), region.channel, align(channel, l2.UNIT))
