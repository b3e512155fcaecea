"""Attention of several heads, turned so that keys are channels (hexane.lowering.attention)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hexane.graph.rewrite import remove_dead
from hexane.lowering.attention import Attention, Sizes, attention_from, mask_of, times_scale
from hexane.passes.rewriting import is_static, sweep

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation

LAST_TWO = [0, 1, 3, 2]


def turn_attention(function: Function, compilation: Compilation) -> int:
    """Write attention of several heads with keys as channels: scores^T = k q^T, softmax over keys, v^T weights^T.

    What follows sees heads side by side already, and a linear layer behind them takes its rows turned.
    """
    if not compilation.on.keys_as_channels:
        return 0
    square_up(function, compilation)
    suits = partial(Sizes.suits, compilation=compilation)
    rewrites = sweep(function, {"matmul": partial(_attention, suits)})
    if rewrites:
        rewrites += sweep(function, {"reshape": _joined_heads})
        rewrites += sweep(function, {"linear": _of_turned_rows})
    return rewrites


def square_up(function: Function, compilation: Compilation) -> None:
    """Products of [H, ..] between reshapes, as products of four axes; heads of several images as heads of one."""
    if not compilation.on.keys_as_channels:
        return
    if sweep(function, {"matmul": _of_four_axes}):
        sweep(function, {"reshape": _back_again})
        remove_dead(function)  # what stays has one user only where it really has
    if sweep(function, {"matmul": partial(_of_one_image, compilation)}):
        remove_dead(function)


@dataclass(frozen=True)
class Operands:
    """Around the attentions that will be turned: ``columns`` can be given turned already, ``kept`` are the moves
    between a product and k, whose rows attention wants, ``results`` come turned."""

    columns: frozenset[Value]
    kept: frozenset[Op]
    results: frozenset[Value]


def operands_of_attention(function: Function, compilation: Compilation) -> Operands:
    """The operands and results of the attentions of a function that ``turn_attention`` takes."""
    columns, moves, results = set(), set(), set()
    suits = partial(Sizes.suits, compilation=compilation)
    for op in function.ops if compilation.on.keys_as_channels else ():
        attention = usual_form(op, suits) if op.type == "matmul" else None
        if attention is None:
            continue
        columns |= {attention.scores.inputs["x"], op.inputs["y"]}
        results.add(op.output)
        moves |= _moves_behind_product(attention.scores.inputs["y"])
    return Operands(frozenset(columns), frozenset(moves), frozenset(results))


def _moves_behind_product(value: Value) -> set[Op]:
    """The moves that make a value of the rows of a linear layer, where nothing else uses them."""
    moves: set[Op] = set()
    while value.op is not None and value.only_user is not None:
        if value.op.type in ("linear", "matmul"):
            return moves
        if value.op.type not in ("reshape", "transpose", "squeeze", "expand_dims", "pad"):
            break
        moves.add(value.op)
        value = value.op.inputs["x"]
    return set()


def _of_one_image(compilation: Compilation, op: Op, b: GraphBuilder) -> Value | None:
    """The second product of an attention of several images [B, H, ..], as that of one with B H heads."""
    attention = _plain_attention(op)
    if attention is None:
        return None
    q, k, v, mask = attention.scores.inputs["x"], attention.scores.inputs["y"], op.inputs["y"], mask_of(attention)
    values = (q, k, v, op.output)
    if any(value.is_constant or not is_static(value) or len(value.shape) != 4 for value in values):
        return None
    images, heads = q.shape[:2]
    if images == 1 or any(value.shape[:2] != (images, heads) for value in values):
        return None
    turned_k = not attention.scores.arg("transpose_y")
    sizes = Sizes(images * heads, q.shape[2], k.shape[-1 if turned_k else -2], q.shape[3], 0 if mask is None else 1)
    if v.shape[-1] != sizes.dims or not sizes.suits(compilation) or (mask is not None and not _shared(mask, sizes)):
        return None

    def of_one(value: Value) -> Any:
        return b.reshape(x=value, shape=[1, images * heads, *value.shape[2:]])

    scores = times_scale(attention, b.matmul(x=of_one(q), y=of_one(k), transpose_y=not turned_k), b)
    if mask is not None:
        scores = b.add(x=scores, y=mask)
    product = b.matmul(x=b.softmax(x=scores, axis=-1), y=of_one(v))
    return b.reshape(x=product, shape=list(op.output.shape))


def _plain_attention(op: Op) -> Attention | None:
    """The attention whose second product this is, none of its products with a turned operand but k."""
    soft = op.inputs["x"].op
    first = None if soft is None or soft.type != "softmax" else _product_behind(soft)
    attention = None if first is None else attention_from(first, -1)
    if attention is None or attention.result is not op:
        return None
    transposed = op.arg("transpose_x") or op.arg("transpose_y") or attention.scores.arg("transpose_x")
    return None if transposed else attention


def _of_four_axes(op: Op, b: GraphBuilder) -> Value | None:
    """A product of [H, ..] that are reshapes of [1, H, ..], as a product of those."""
    wide = [_before_reshape(op.inputs[name]) for name in ("x", "y")]
    if wide[0] is None or wide[1] is None or not is_static(op.output) or wide[0].shape[:2] != wide[1].shape[:2]:
        return None
    rest = {name: value for name, value in op.inputs.items() if name not in ("x", "y")}
    return b.reshape(x=b.matmul(x=wide[0], y=wide[1], **rest), shape=list(op.output.shape))


def _before_reshape(value: Value) -> Value | None:
    """[B, H, ..] of which a value [B H, ..] is the reshape."""
    op = value.op
    if op is None or op.type not in ("reshape", "squeeze") or len(value.shape) != 3:
        return None
    source = op.inputs["x"]
    whole = is_static(source) and len(source.shape) == 4 and source.shape[-2:] == value.shape[-2:]
    return source if whole else None


def _back_again(op: Op, _b: GraphBuilder) -> Value | None:
    """A reshape of a reshape to the shape before both."""
    before = op.inputs["x"].op
    if before is None or before.type not in ("reshape", "squeeze"):
        return None
    source = before.inputs["x"]
    return source if source.shape == op.output.shape and source.type == op.output.type else None


def _attention(suits: Callable[[Sizes], bool], op: Op, b: GraphBuilder) -> Value | None:
    """The second product of an attention in its usual orientation."""
    attention = usual_form(op, suits)
    if attention is None:
        return None
    k = attention.scores.inputs["y"]
    turned_k = not attention.scores.arg("transpose_y")
    return _turned(attention, _untransposed(k, b) if turned_k else k, mask_of(attention), b)


def usual_form(op: Op, suits: Callable[[Sizes], bool]) -> Attention | None:
    """The attention of one image whose second product this is, if its sizes suit: those that can be turned."""
    attention = _plain_attention(op)
    if attention is None:
        return None
    q, k, v = attention.scores.inputs["x"], attention.scores.inputs["y"], op.inputs["y"]
    mask = mask_of(attention)
    values = [q, k, v, op.output] + ([] if mask is None else [mask])
    if any(not is_static(value) or (value is not mask and len(value.shape) != 4) for value in values):
        return None
    turned_k = not attention.scores.arg("transpose_y")
    keys = k.shape[-1] if turned_k else k.shape[-2]
    sizes = Sizes(q.shape[1], q.shape[2], keys, q.shape[3], 0 if mask is None else 1)
    heads = (1, q.shape[1])
    if any(value.is_constant or value.shape[:2] != heads for value in (q, k, v)) or v.shape[-1] != sizes.dims:
        return None
    if not suits(sizes) or (mask is not None and not _shared(mask, sizes)):
        return None
    return attention


def _shared(mask: Value, sizes: Sizes) -> bool:
    """True where a mask is one map of queries x keys for all heads, or one row of keys for all queries."""
    return tuple(mask.shape) in ((1, 1, sizes.queries, sizes.keys), (1, 1, 1, sizes.keys))


def _product_behind(soft: Op) -> Op | None:
    """The product whose scores a softmax takes, through a mask and a factor."""
    value = soft.inputs["x"]
    for kinds in (("add",), ("mul", "real_div")):
        op = value.op
        if op is not None and op.type in kinds:
            x, y = op.inputs["x"], op.inputs["y"]
            value = next((v for v in (x, y) if not v.is_constant and v.op is not None and v.op.type in _SCORES), x)
    return value.op if value.op is not None and value.op.type == "matmul" else None


_SCORES = ("mul", "real_div", "matmul")


def _untransposed(k: Value, b: GraphBuilder) -> Value:
    """k given as [D, keys], as [keys, D]; a transposition that made it is undone."""
    turn = k.op
    if turn is not None and turn.type == "transpose":
        perm = list(turn.arg("perm"))
        perm[-1], perm[-2] = perm[-2], perm[-1]
        return b.transpose(x=turn.inputs["x"], perm=perm)
    return b.transpose(x=k, perm=LAST_TWO)


def _turned(attention: Attention, k: Value, mask: Value | None, b: GraphBuilder) -> Value:
    scores = times_scale(attention, b.matmul(x=k, y=attention.scores.inputs["x"], transpose_y=True), b)
    if mask is not None:
        column = b.transpose(x=mask, perm=LAST_TWO)
        rows = scores.shape[-1] // column.shape[-1]
        scores = b.add(x=scores, y=column if rows == 1 else b.tile(x=column, reps=[1, 1, 1, rows]))
    weights = b.softmax(x=scores, axis=-2)
    product = b.matmul(x=attention.result.inputs["y"], y=weights, transpose_x=True)
    return b.transpose(x=product, perm=LAST_TWO)


def _is_turn(op: Op | None, perm: tuple[int, ...]) -> bool:
    return op is not None and op.type == "transpose" and tuple(op.arg("perm")) == perm


def _joined_heads(op: Op, b: GraphBuilder) -> Value | None:
    """[1, S, H D] out of heads [1, H, D, S]: one transposition of a reshape in place of two moves and a reshape."""
    to_rows = op.inputs["x"].op
    if not _is_turn(to_rows, (0, 2, 1, 3)):
        return None
    assert to_rows is not None
    back = to_rows.inputs["x"].op
    if not _is_turn(back, tuple(LAST_TWO)):
        return None
    assert back is not None
    heads = back.inputs["x"]
    if heads.op is None or heads.op.type != "matmul" or heads.shape[0] != 1:
        return None
    _, h, d, s = heads.shape
    lead = list(op.output.shape[:-2])
    if tuple(op.output.shape[-2:]) != (s, h * d) or lead not in ([], [1]):
        return None
    return b.transpose(x=b.reshape(x=heads, shape=[*lead, h * d, s]), perm=[0, 2, 1] if lead else [1, 0])


def _of_turned_rows(op: Op, b: GraphBuilder) -> Value | None:
    """A linear layer of rows that were turned takes them as they were: the product has a form for that."""
    turn, weight = op.inputs["x"].op, op.inputs["weight"]
    bias = op.inputs.get("bias")
    if (
        not (_is_turn(turn, (0, 2, 1)) or _is_turn(turn, (1, 0)))
        or not weight.is_constant
        or (bias is not None and not bias.is_constant)
    ):
        return None
    assert turn is not None
    joined = turn.inputs["x"]
    if joined.op is None or joined.op.type != "reshape" or (len(joined.shape) == 3 and joined.shape[0] != 1):
        return None
    product = b.matmul(x=joined, y=weight, transpose_x=True, transpose_y=True)
    return product if bias is None else b.add(x=product, y=bias)
