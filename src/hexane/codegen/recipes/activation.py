"""Activations through derived and fitted tables (docs/reference/engine-h13.md 10)."""

from __future__ import annotations

from collections.abc import Sequence

from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment
from hexane.codegen.recipes import unary
from hexane.codegen.recipes.registry import fp16, recipe, x_and_result
from hexane.errors import UnsupportedError
from hexane.graph.ir import Op
from hexane.lowering.functions import FITTED, LIMITED


def _through(op: Op, context: Context, table: str, *numbers: float, note: str, factor: float = 1.0) -> Fragment:
    x, y = x_and_result(op, context)
    fragment, plan = Fragment(context), unary.copy_of(context.target, x)
    plan = plan.computing(post_scale=factor)
    plan = unary.set_table(plan, table, *numbers)
    fragment.add(unary.ne_stream(context.target, plan, x, y))
    fragment.inferred(note)
    return fragment


@recipe("leaky_relu")
def leaky_relu(ops: Sequence[Op], context: Context) -> Fragment:
    """leaky_relu: one neural engine copy through Apple's derived table."""
    (op,) = ops
    return _through(op, context, "leaky_relu", op.arg("alpha"), note="")


@recipe("clip")
def clip(ops: Sequence[Op], context: Context) -> Fragment:
    """clip: one neural engine copy through a table of two lines and two limits."""
    (op,) = ops
    low, high = op.arg("alpha"), op.arg("beta")
    if not low <= high:
        raise UnsupportedError(f"a clip from {low} to {high}")
    return _through(op, context, "clip", low, high, note="a table with both limits")


@recipe("sigmoid_hard")
def sigmoid_hard(ops: Sequence[Op], context: Context) -> Fragment:
    """sigmoid_hard: one neural engine copy through a table of one line and two limits."""
    (op,) = ops
    alpha, beta = op.arg("alpha"), op.arg("beta")
    if not alpha > 0:
        raise UnsupportedError(f"a hard sigmoid of slope {alpha}")
    return _through(op, context, "sigmoid_hard", alpha, beta, note="a table with both limits")


@recipe(*(name for name in FITTED if name not in LIMITED))
def fitted(ops: Sequence[Op], context: Context) -> Fragment:
    """erf, softplus, softsign, asin, acos, atan: one neural engine copy through a table fitted by hexane."""
    (op,) = ops
    return _through(op, context, op.type, note="a fitted table")


@recipe("elu")
def elu(ops: Sequence[Op], context: Context) -> Fragment:
    """elu with alpha 1: one neural engine copy through a table fitted by hexane."""
    (op,) = ops
    if op.arg("alpha") != 1.0:
        raise UnsupportedError("an elu whose alpha is not 1")
    return _through(op, context, "elu", note="a fitted table")


@recipe("engine.table")
def engine_table(ops: Sequence[Op], context: Context) -> Fragment:
    """engine.table (hard swish, mish, a scaled and shifted function): one neural engine copy through its table."""
    (op,) = ops
    numbers = (op.arg("scale"), op.arg("shift"))
    factor = fp16(op.arg("factor"))
    return _through(op, context, op.arg("function"), *numbers, note="a fitted or scaled table", factor=factor)
