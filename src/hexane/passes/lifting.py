"""Functions in front of moves, where the task that makes their operand takes them; shuffles of channels in weights."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hexane.graph.ops.conv import geometry_of
from hexane.graph.registry import has, with_trait
from hexane.graph.traits import ELEMENTWISE, MOVES
from hexane.lowering.fusion import SUMS, is_epilogue
from hexane.lowering.groups import dense, is_loop
from hexane.passes.rewriting import as_dtype, is_static, known, operand_and_constant, sweep, sweep_again

if TYPE_CHECKING:
    from hexane.chips import Generation
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation

BEFORE_RELU = (*SUMS, "add", "sub", "mul")
MOST_SWEEPS = 6


def lift_functions(function: Function, compilation: Compilation) -> int:
    """Apply functions of single elements before moves, where they are part of a task and cost none."""
    if not compilation.on.lifted_functions:
        return 0
    rules = dict.fromkeys(with_trait(ELEMENTWISE, 1), _lifted) | {"mul": _lifted_factor}
    return sweep_again(function, rules, MOST_SWEEPS)


def _lifted(op: Op, b: GraphBuilder) -> Value | None:
    source = op.inputs["x"]
    move = source.op
    if move is None or source.only_user is not op or source.dtype not in ("fp16", "fp32") or not is_static(source):
        return None
    if not is_epilogue(op):
        return None
    if has(move, MOVES):
        if not _ends_in_sum(move.inputs["x"], move):
            return None
        return b.op(move.type, **{**move.inputs, "x": _again(op, move.inputs["x"], b)})
    if move.type != "concat" or op.type != "relu" or move.arg("interleave"):
        return None
    parts = move.inputs["values"]
    if not all(_takes_relu(part, move) for part in parts):
        return None
    return b.concat(values=tuple(_again(op, part, b) for part in parts), axis=move.arg("axis"))


def _lifted_factor(op: Op, b: GraphBuilder) -> Value | None:
    """A product with one number behind moves of a sum, which takes it as its scale."""
    pair = operand_and_constant(op)
    if pair is None or pair[1].data.size != 1:
        return None
    source, number, _ = pair
    move = source.op
    if move is None or not has(move, MOVES) or source.only_user is not op or not is_static(source):
        return None
    if source.dtype not in ("fp16", "fp32") or op.output.shape != source.shape:
        return None
    if not _ends_in_sum(move.inputs["x"], move):
        return None
    scaled = b.mul(x=move.inputs["x"], y=number.data.reshape(()))
    return b.op(move.type, **{**move.inputs, "x": scaled})


def _again(op: Op, x: Value, b: GraphBuilder) -> Value:
    return b.op(op.type, **{**op.inputs, "x": x})


def _ends_in_sum(value: Value, user: Op) -> bool:
    """True where a value that one op uses comes from a sum by way of moves only."""
    while value.op is not None and value.only_user is user:
        if value.op.type in SUMS:
            return True
        if not has(value.op, MOVES):
            return False
        user, value = value.op, value.op.inputs["x"]
    return False


def _takes_relu(value: Value, user: Op) -> bool:
    return value.op is not None and value.only_user is user and value.op.type in BEFORE_RELU


# -- shuffles of channels ----------------------------------------------------------------------------------------------


def shuffle_weights(function: Function, compilation: Compilation) -> int:
    """Put a shuffle of a convolution's channels into the order of its weights, where it runs as one dense product."""
    return (
        sweep(function, {"reshape": partial(_shuffled, limits=compilation.limits)})
        if compilation.on.shuffled_weights
        else 0
    )


def _shuffled(op: Op, b: GraphBuilder, limits: Generation) -> Value | None:
    """reshape(transpose(reshape(conv))) that only exchanges channels, also with a function behind the convolution."""
    turn = op.inputs["x"].op
    if turn is None or turn.type != "transpose" or not _feeds(op.inputs["x"], op):
        return None
    split = turn.inputs["x"].op
    if split is None or split.type != "reshape" or not _feeds(turn.inputs["x"], turn):
        return None
    source, user = split.inputs["x"], split
    behind = source.op if is_epilogue(source.op) else None
    if behind is not None and _feeds(source, split):
        source, user = behind.inputs["x"], behind
    conv = source.op
    if conv is None or conv.type != "conv" or not _feeds(source, user) or not known(turn.arg("perm")):
        return None
    if len(source.shape) != 4 or source.shape[0] != 1 or op.output.shape != source.shape or not is_static(source):
        return None
    parts, perm = turn.inputs["x"].shape, [p % len(turn.arg("perm")) for p in turn.arg("perm")]
    if parts[-2:] != source.shape[2:] or perm[-2:] != [len(perm) - 2, len(perm) - 1]:
        return None
    weight, bias = conv.inputs["weight"], conv.inputs.get("bias")
    if weight.constant is None or weight.constant.coding is not None or (bias is not None and not bias.is_constant):
        return None
    groups = conv.arg("groups")
    values = np.asarray(weight.data)
    if groups > 1:
        *_, (height, width) = geometry_of(conv)
        biased = bias is not None
        if values.shape[1] == 1 or is_loop(values.shape, groups, limits, bias=biased, width=width, height=height):
            return None
        values = dense(values, groups)
    order = np.arange(source.shape[1]).reshape(parts[:-2]).transpose(perm[:-2]).reshape(-1)
    operands = {**conv.inputs, "weight": as_dtype(values[order], weight), "groups": 1}
    if bias is not None:
        operands["bias"] = as_dtype(np.asarray(bias.data)[order], bias)
    result: Value = b.op("conv", **operands)
    return result if behind is None else _again(behind, result, b)


def _feeds(value: Value, op: Op) -> bool:
    """True where an op is all that uses a value."""
    return value.only_user is op
