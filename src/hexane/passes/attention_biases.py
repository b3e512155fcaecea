"""Biases of k and v that attention does without.

A bias of k adds q . bias to all scores of a query, and softmax does not see that. Weights add up to 1, so a bias of v
passes through: it goes into the bias of the linear layer behind.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hexane.graph.registry import has
from hexane.graph.traits import RESHAPES
from hexane.lowering.attention import attention_from
from hexane.passes.attention import square_up
from hexane.passes.rewriting import array_of, as_dtype, is_static, known, sweep

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation


def drop_biases(function: Function, compilation: Compilation) -> int:
    """Leave out the biases of keys, and add those of values behind attention."""
    if not compilation.on.attention_biases:
        return 0
    square_up(function, compilation)
    keys: set[Op] = set()
    values: dict[Op, tuple[Op, np.ndarray]] = {}
    for op in function.walk():
        attention = attention_from(op, -1) if op.type == "matmul" else None
        if attention is None or not is_static(op.output) or attention.scores.arg("transpose_x"):
            continue
        k = _layer_behind(attention.scores.inputs["y"])
        if k is not None:
            keys.add(k[0])
        v = _layer_behind(attention.result.inputs["y"])
        plain = not (attention.result.arg("transpose_x") or attention.result.arg("transpose_y"))
        after = None if v is None or not plain else _layer_after(attention.result, *v)
        if v is not None and after is not None:
            values[v[0]] = after
    into: dict[Op, np.ndarray] = {}
    for layer, bias in values.values():
        into[layer] = into.get(layer, 0) + bias

    def rewritten(op: Op, b: GraphBuilder) -> Value | None:
        if op not in keys and op not in values and op not in into:
            return None
        own = array_of(op.inputs.get("bias"))
        left = None if op in keys or op in values else own
        if op in into:
            weight = array_of(op.inputs["weight"])
            assert weight is not None  # _layer_after asked
            offset = weight @ into[op]
            left = offset if left is None else left + offset
        operands = {} if left is None else {"bias": as_dtype(left, op.inputs["weight"])}
        return b.linear(x=op.inputs["x"], weight=op.inputs["weight"], **operands)

    return sweep(function, {"linear": rewritten})


def _layer_behind(value: Value) -> tuple[Op, list[Op]] | None:
    """The linear layer whose rows, moved only, are a value, and the moves in order."""
    moves: list[Op] = []
    while value.op is not None and value.only_user is not None and is_static(value):
        op = value.op
        if op.type == "linear":
            return (op, moves[::-1]) if _has_bias(op) else None
        if not _is_move(op) or (op.type == "transpose" and not known(op.arg("perm"))):
            return None
        moves.append(op)
        value = op.inputs["x"]
    return None


def _is_move(op: Op) -> bool:
    """True where ``_moved`` follows an op."""
    return has(op, RESHAPES) or op.type == "transpose"


def _has_bias(op: Op) -> bool:
    bias = op.inputs.get("bias")
    return bias is not None and bias.is_constant and _is_plain(op)


def _is_plain(op: Op) -> bool:
    constant = op.inputs["weight"].constant
    return constant is not None and constant.coding is None


def _layer_after(result: Op, layer: Op, moves: list[Op]) -> tuple[Op, np.ndarray] | None:
    """The linear layer that takes the moved result of attention, and v's bias in the order of its features."""
    behind: list[Op] = []
    value = result.output
    while True:
        user = value.only_user
        if user is None or len(user.outputs) != 1 or not is_static(user.output):
            return None
        if user.type == "linear":
            break
        if not _is_move(user) or (user.type == "transpose" and not known(user.arg("perm"))):
            return None
        behind.append(user)
        value = user.output
    forms = (tuple(map(_form_of, some)) for some in (moves, behind))
    order = _order(layer.output.shape, result.output.shape, *forms)
    bias, own = array_of(layer.inputs["bias"]), user.inputs.get("bias")
    if order is None or bias is None or not _is_plain(user) or (own is not None and not own.is_constant):
        return None
    return user, bias.reshape(-1)[order]


Move = tuple[str, tuple[int, ...]]
"""A transposition and its perm, or another move and its result's shape."""


def _form_of(move: Op) -> Move:
    return move.type, tuple(move.arg("perm")) if move.type == "transpose" else move.output.shape


@lru_cache(256)
def _order(
    rows: tuple[int, ...], result: tuple[int, ...], before: tuple[Move, ...], behind: tuple[Move, ...]
) -> np.ndarray | None:
    """Order of the features of a layer's rows in those behind attention; None where not each is one token's."""
    features = rows[-1]
    order = _moved(np.broadcast_to(np.arange(features), rows), before)
    if (order != order[..., :1, :]).any():
        return None
    order = _moved(np.broadcast_to(order[..., :1, :], result), behind)
    order = order.reshape(-1, order.shape[-1])
    return None if (order != order[0]).any() else order[0]


def _moved(order: np.ndarray, moves: tuple[Move, ...]) -> np.ndarray:
    for type, form in moves:
        order = order.transpose(form) if type == "transpose" else order.reshape(form)
    return order
