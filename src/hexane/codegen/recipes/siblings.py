"""Products of the same rows with different constant weights: the rows are turned once for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment
from hexane.codegen.operations import After
from hexane.codegen.recipes.blocks import Product
from hexane.codegen.recipes.linear import (
    Kernels,
    MatrixRows,
    as_rows,
    feed_forward,
    folds,
    largest_rows,
    matrix_operands,
    products,
    turn_in,
    weights_of,
    with_bias,
)
from hexane.codegen.recipes.registry import recipe
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op


def same_rows(op: Op, context: Context) -> tuple[Op, ...] | None:
    """All products of this op's rows, each with what its task does behind the sums; None unless this is the first."""
    if not context.on.rows_turned_once or not _plain(op):
        return None
    users = [user for user in op.arg("x").users if _plain(user) and user.arg("x") is op.arg("x")]
    users = [user for user in dict.fromkeys(users) if user.block is op.block and feed_forward(user, context) is None]
    if len(users) < 2 or users[0] is not op:
        return None
    return tuple(each for user in users for each in with_bias(user, context))


def _plain(op: Op) -> bool:
    """A product whose weights are constant and whose rows are given as rows."""
    if op.type not in ("linear", "matmul") or op.arg("x").is_constant:
        return False
    operands = matrix_operands(op)
    return operands is not None and not operands[1]


@recipe("matmul", "linear", match=same_rows, rank=6)
def products_of_same_rows(ops: Sequence[Op], context: Context) -> Fragment:
    """Several products of the same rows with constant weights: one turned copy for all."""
    fragment = Fragment(context)
    heads = [i for i, op in enumerate(ops) if op.type in ("linear", "matmul")]
    runs = [ops[start:end] for start, end in zip(heads, [*heads[1:], len(ops)])]
    parts: list[tuple[Product, MatrixRows, Kernels]] = []
    for run in runs:
        _, _, weights = weights_of(run, context.target)
        parts.append((weights, as_rows(context.tensor(run[-1].output)), {}))
    rows = as_rows(context.tensor(ops[0].arg("x")))
    if any(folds(context.target, rows.m, weights.n, weights.k) for weights, _, _ in parts):
        raise UnsupportedError("products that fold their rows share no copy", code=Reason.LAYOUT)
    limit = min(largest_rows(context.target, rows.k, weights.n) for weights, _, _ in parts)
    for first in range(0, rows.m, limit):
        count = min(limit, rows.m - first)
        source = turn_in(fragment, rows.part(first, count))
        for weights, y, kernels in parts:
            products(fragment, source, weights, y.part(first, count), kernels)
            source = replace(source, walk=None, after=After.NOTHING)
            fragment.change(-1, holds=weights is not parts[-1][0])
    return fragment
