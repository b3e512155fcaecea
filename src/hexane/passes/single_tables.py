"""Functions that are one table on the engine, with the numbers around them; maps that are one depthwise convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hexane.isa.numbers import LARGEST_HALF
from hexane.lowering.functions import SCALED
from hexane.passes.rewriting import (
    array_of,
    as_dtype,
    is_static,
    operand_and_constant,
    operand_and_number,
    per_channel,
    sweep,
)
from hexane.restrictions.forms import is_sixth

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation

FLOATS = ("fp16", "fp32")
LINEAR = ("mul", "add", "sub", "real_div")
MOST_IMAGES = 8  # of a batch; convolutions run image by image


def single_tables(function: Function, compilation: Compilation) -> int:
    """Write hard swish and mish as one table each, where that accuracy was asked for."""
    return sweep(function, {"mul": _named}) if compilation.on.single_tables else 0


def scaled_tables(function: Function, compilation: Compilation) -> int:
    """Put numbers that multiply a function's results, or move them, into its table."""
    return sweep(function, dict.fromkeys(LINEAR, _scaled)) if compilation.on.scaled_tables else 0


def _named(op: Op, b: GraphBuilder) -> Value | None:
    """x * sigmoid_hard(x) with slope 1/6 and shift 1/2; x * tanh(softplus(x))."""
    for gate, other in (("x", "y"), ("y", "x")):
        x, inner = op.inputs[other], op.inputs[gate].op
        if inner is None or x.dtype not in FLOATS or "x" not in inner.inputs:
            continue
        if inner.type == "sigmoid_hard" and inner.inputs["x"] is x and is_sixth(inner):
            return b.op("engine.table", x=x, function="hard_swish")
        if inner.type == "tanh":
            softplus = inner.inputs["x"].op
            if softplus is not None and softplus.type == "softplus" and softplus.inputs["x"] is x:
                return b.op("engine.table", x=x, function="mish")
    return None


def _scaled(op: Op, b: GraphBuilder) -> Value | None:
    """A number that multiplies the results of a table, or moves them."""
    pair = operand_and_number(op)
    if pair is None or (pair[2] and op.type == "real_div"):
        return None
    value, number, first = pair
    inner = value.op
    if inner is None or value.only_user is not op or value.shape != op.output.shape or value.dtype not in FLOATS:
        return None
    scale, shift = 1.0, 0.0
    front = 1.0  # multiplies the inputs
    if inner.type == "engine.table" and inner.arg("function") in SCALED:
        name, scale, shift = inner.arg("function"), inner.arg("scale"), inner.arg("shift")
        front = inner.arg("factor")
    elif inner.type in SCALED and not (inner.type == "gelu" and inner.arg("mode") != "EXACT"):
        name = inner.type
    else:
        return None
    if op.type in ("mul", "real_div"):
        factor = number if op.type == "mul" else 1 / number if number else 0.0
        scale, shift = scale * factor, shift * factor
    elif op.type == "add":
        shift += number
    else:
        scale, shift = (-scale, number - shift) if first else (scale, shift - number)
    if not 2.0**-8 <= abs(scale) <= 2.0**8 or abs(shift) > 2.0**8:
        return None
    x = inner.inputs["x"]
    return b.op("engine.table", x=x, function=name, scale=scale, shift=shift, factor=front)


# -- one number per channel --------------------------------------------------------------------------------------------


def affine_maps(function: Function, compilation: Compilation) -> int:
    """Write products and sums with one number per channel, one behind the other, as a depthwise 1x1 convolution."""
    return sweep(function, dict.fromkeys(LINEAR, _affine)) if compilation.on.affine_maps else 0


def _affine(op: Op, b: GraphBuilder) -> Value | None:
    user = op.output.only_user
    if user is not None and _step(user, op.output) is not None:
        return None  # the chain goes on
    steps: list[tuple[str, np.ndarray, bool]] = []
    value = op.output
    while value.op is not None and (value is op.output or value.only_user is not None):
        pair = operand_and_constant(value.op) if value.op.type in LINEAR else None
        step = None if pair is None else _step(value.op, pair[0])
        if pair is None or step is None:
            break
        steps.append(step)
        value = pair[0]
    kinds = {"mul" if kind in ("mul", "real_div") else "add" for kind, _, _ in steps}
    if len(kinds) < 2 or all(numbers.size == 1 for _, numbers, _ in steps):
        return None
    channels = value.shape[1]
    scale, shift = np.ones(channels), np.zeros(channels)
    for kind, numbers, first in reversed(steps):
        if kind == "mul":
            scale, shift = scale * numbers, shift * numbers
        elif kind == "real_div":
            scale, shift = scale / numbers, shift / numbers
        elif kind == "add":
            shift = shift + numbers
        else:
            scale, shift = (-scale, numbers - shift) if first else (scale, shift - numbers)
    if not (np.abs(scale).max() <= LARGEST_HALF and np.abs(shift).max() <= LARGEST_HALF):
        return None
    weight = as_dtype(scale.reshape(-1, 1, 1, 1), value)
    return b.conv(x=value, weight=weight, bias=as_dtype(shift, value), pad_type="valid", groups=channels)


def batch_norms(function: Function, compilation: Compilation) -> int:
    """Write a product and a sum with a number per channel as (x + shift / scale) * scale, one planar task."""
    on = compilation.on
    return sweep(function, {"add": _batch_norm}) if on.batch_norms and not on.affine_maps else 0


def _batch_norm(op: Op, b: GraphBuilder) -> Value | None:
    pair = operand_and_constant(op)
    product = None if pair is None else pair[0].op
    if pair is None or product is None or product.type != "mul" or pair[0].only_user is not op:
        return None
    source = operand_and_constant(product)
    if source is None:
        return None
    before = source[0].op
    if before is not None and before.type == "add" and source[0].only_user is product and _operand_of(before):
        return None  # the product ends such a pair already
    outer, inner = _step(op, pair[0]), _step(product, source[0])
    if outer is None or inner is None or outer[1].size == inner[1].size == 1 or not inner[1].all():
        return None
    channels = op.output.shape[1]
    shape = (1, channels, 1, 1)
    scale = np.broadcast_to(inner[1], channels).reshape(shape)
    shift = np.broadcast_to(outer[1], channels).reshape(shape) / scale
    if not np.abs(shift).max() <= LARGEST_HALF:
        return None
    total = b.add(x=source[0], y=as_dtype(shift, source[0]))
    return b.mul(x=total, y=as_dtype(scale, source[0]))


def _operand_of(op: Op) -> bool:
    """True where the op maps each channel of one computed operand alike."""
    pair = operand_and_constant(op)
    return pair is not None and _step(op, pair[0]) is not None


def _step(op: Op, value: Value) -> tuple[str, np.ndarray, bool] | None:
    """(op, numbers per channel or one, whether they come first) of an op that maps each channel of ``value`` alike."""
    if op.type not in LINEAR or len(value.shape) != 4 or not is_static(value) or value.dtype not in FLOATS:
        return None
    pair = operand_and_constant(op)
    if pair is None or pair[0] is not value or value.shape != op.output.shape or value.shape[0] > MOST_IMAGES:
        return None
    data = array_of(pair[1])
    numbers = None if data is None or data.dtype.kind != "f" else per_channel(data, value.shape[1], 4)
    if numbers is None or data is None or (op.type == "real_div" and (pair[2] or not numbers.all())):
        return None
    return op.type, numbers[:1] if data.size == 1 else numbers, pair[2]
