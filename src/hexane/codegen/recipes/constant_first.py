"""Products whose first operand is constant: 1x1 convolutions over the rows of the second.

Source: docs/reference/engine-h13.md 6, 8.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hexane.codegen import l2
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment
from hexane.codegen.operations import After
from hexane.codegen.plan import Region
from hexane.codegen.recipes.blocks import Product, place_blocks
from hexane.codegen.recipes.linear import (
    Kernels,
    MatrixRows,
    TransposedMap,
    as_rows,
    block_plan,
    blocks_for,
    from_transposed,
    settle,
    turn_in,
)
from hexane.codegen.recipes.registry import constant, fused, need_fp16, recipe
from hexane.codegen.weights import Weights
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op
from hexane.lowering.fusion import Epilogue


@recipe("matmul", match=fused, rank=15, shrinks=True)
def constant_first(ops: Sequence[Op], context: Context) -> Fragment:
    """matmul with a constant first operand: its rows are the output channels, the result is not turned."""
    op = ops[0]
    weight, y = constant(op.arg("x")), op.arg("y")
    if weight is None or y.is_constant or weight.ndim < 2 or prod(weight.shape[:-2]) != 1:
        raise UnsupportedError("the first operand is computed", code=Reason.COMPUTED)
    need_fp16(y)
    epilogue = Epilogue.of(ops)
    if epilogue.bias is not None or epilogue.relu or epilogue.table_name is not None:
        raise UnsupportedError(
            "more than a factor behind a product with a constant first operand", code=Reason.CONSTANT
        )
    values = np.asarray(weight, np.float16).reshape(weight.shape[-2:])
    rows = np.ascontiguousarray(values.T if op.arg("transpose_x") else values)
    weights = Product(Weights(rows), None, 0.0, epilogue)
    x, out = context.tensor(y), context.tensor(ops[-1].output)
    fragment = Fragment(context)
    kernels: Kernels = {}
    for b in range(x.n * x.c):
        source, target = as_rows(x).part(b * x.h, x.h), as_rows(out).part(b * out.h, out.h)
        (_turned if op.arg("transpose_y") else _direct)(fragment, source, target, weights, kernels)
    fragment.inferred("a product with a constant first operand")
    return fragment


def _direct(fragment: Fragment, x: MatrixRows, y: MatrixRows, weights: Product, kernels: Kernels) -> None:
    """x is [K, N]: its rows are the input channels."""
    source = TransposedMap(Region(), 1, x.k, 0, None, After.NOTHING)
    plans = []
    for block in blocks_for(fragment.target, weights, 1, x.k, transposed=False):
        plan = block_plan(fragment.target, source, weights, block, kernels, out_trans=False)
        plan = plan.reading(dma=x.walk()).writing(dma=replace(y.walk(), offset=y.offset + block.first * y.stride))
        plan = settle(fragment.target, plan)
        plans.append(plan)
    place_blocks(fragment, plans)


def _turned(fragment: Fragment, x: MatrixRows, y: MatrixRows, weights: Product, kernels: Kernels) -> None:
    """x is [N, K]: turned into L2 first."""
    fragment.need_room(
        x.k * l2.odd_channel_stride(x.m) + x.m * l2.ne_window(x.k), f"a transposed operand of {x.m} x {x.k}"
    )
    source = turn_in(fragment, x)
    blocks = blocks_for(fragment.target, weights, source.h, source.w, transposed=False)
    for i, block in enumerate(blocks):
        plan = block_plan(fragment.target, source, weights, block, kernels, out_trans=False)
        plan = plan.writing(dma=replace(y.walk(), offset=y.offset + block.first * y.stride))
        plan = from_transposed(fragment.target, plan, source, first=i == 0)
        fragment.add(plan.sending(source.end).but(holds=i < len(blocks) - 1))
