"""Weights of a network: which constants are trained, and a network with its constants as inputs, or back again."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import numpy as np

from hexane.errors import UsageError
from hexane.graph.builder import builder_before
from hexane.graph.constants import Constant
from hexane.graph.ir import Graph, Op, Value
from hexane.graph.rewrite import replace_op, replace_uses
from hexane.graph.types import TensorType
from hexane.lowering.fusion import SUMS

PARAMETERS = frozenset(("weight", "bias", "gamma", "beta", "alpha"))
"""Parameters of ops that hold weights by their meaning (means and variances of norms do not)."""


def trainable(graph: Graph, names: Iterable[str] | None = None) -> tuple[str, ...]:
    """Names of the constants that are trained.

    By default: weights, biases, scales and shifts by their parameter (``weight``, ``bias``, ``gamma``, ``beta``,
    ``alpha``), factors of sums of products, tables that ``gather`` chooses from, and what is added or multiplied along
    one axis only. Masks, rotation tables, means and single numbers are not. ``names`` says otherwise: exactly these.
    UsageError for a name that no constant of a float type has, or a network without weights.
    """
    values = {value.name: value for value in graph.main.constants() if _is_float(value)}
    if names is None:
        result = tuple(name for name, value in values.items() if any(_is_weight(value, op) for op in value.users))
        if not result:
            raise UsageError("the network has no weights among its constants", hint="name constants to train")
        return result
    for name in names:
        if name not in values:
            near = difflib.get_close_matches(name, values, n=3) or list(values)[:5]
            raise UsageError(f"there is no constant {name!r} to train", hint=f"there are {', '.join(near)}")
    return tuple(dict.fromkeys(names))


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.dtype in ("fp16", "fp32", "bf16") and value.type.count > 0


def _is_weight(value: Value, op: Op) -> bool:
    params = [param for param, operand in op.inputs.items() if operand is value]
    if any(param in PARAMETERS for param in params):
        return value.rank > 0
    if op.type in SUMS or (op.type == "gather" and "x" in params):
        return value.rank > 0
    long = [extent for extent in value.shape if extent is not None and extent > 1]
    return op.type in ("add", "mul") and len(long) == 1


def lifted(graph: Graph, names: Iterable[str]) -> Graph:
    """A copy with these constants as inputs of their names, behind its own."""
    copy = graph.clone()
    constants = {value.name: value for value in copy.main.constants()}
    for name in names:
        old = constants[name]
        new = Value(name, old.type)
        old.name = f"{name}__constant"
        copy.main.add_input(new)
        replace_uses(old, new)
    for op in list(copy.main.ops):
        if op.type == "linear" and not op.arg("weight").is_constant:
            _as_product(op)
        elif op.type == "layer_norm":
            _scaled_behind(op)
    return copy


def _as_product(op: Op) -> None:
    """``linear`` with a computed weight as a product and a sum: the engine computes these."""
    b = builder_before(op)
    bias = op.inputs.get("bias")
    result = b.matmul(x=op.arg("x"), y=op.arg("weight"), transpose_y=True)
    replace_op(op, result if bias is None else b.add(x=result, y=bias))


def _scaled_behind(op: Op) -> None:
    """A norm over the last axes whose scale or shift is computed: both follow as a product and a sum."""
    gamma, beta = (op.inputs.get(param) for param in ("gamma", "beta"))
    computed = any(isinstance(value, Value) and not value.is_constant for value in (gamma, beta))
    axes = sorted(axis % op.arg("x").rank for axis in op.arg("axes") or range(op.arg("x").rank))
    if not computed or axes != list(range(op.arg("x").rank))[-len(axes) :]:
        return
    b = builder_before(op)
    rest = {param: value for param, value in op.inputs.items() if param not in ("gamma", "beta")}
    result = b.layer_norm(**rest)
    result = result if gamma is None else b.mul(x=result, y=gamma)
    replace_op(op, result if beta is None else b.add(x=result, y=beta))


def bound(graph: Graph, values: Mapping[str, np.ndarray]) -> Graph:
    """A copy with these inputs as constants of their names; others than its inputs are ignored."""
    copy = graph.clone()
    for old in list(copy.main.inputs):
        if old.name not in values:
            continue
        assert isinstance(old.type, TensorType)
        name, old.name = old.name, f"{old.name}__input"
        with np.errstate(over="ignore"):
            data = np.asarray(values[name]).astype(old.type.carrier)
        replace_uses(old, Value(name, old.type, constant=Constant(old.type, data)))
        copy.main.remove_input(old)
    return copy


def with_weights(graph: Graph, values: Mapping[str, np.ndarray]) -> Graph:
    """A copy of a network with other values for constants, rounded to their declared types."""
    copy = graph.clone()
    for value in list(copy.main.constants()):
        if value.name in values:
            assert isinstance(value.type, TensorType)
            with np.errstate(over="ignore"):
                data = values[value.name].astype(value.type.carrier)
            value.constant = Constant(value.type, data)
    return copy
