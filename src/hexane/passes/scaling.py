"""Factors and summands around convolutions and products."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.graph.constants import Constant
from hexane.graph.registry import has, spec_of
from hexane.graph.traits import PRODUCTS
from hexane.graph.types import TensorType
from hexane.passes.rewriting import array_of, as_dtype, float_of, operand_and_constant, per_channel, sweep

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation


def fold_scales(function: Function, compilation: Compilation) -> int:
    """Fold x * v, x / v, x + v, x - v by numbers or channels into the weights and bias before them.

    A product with one number stays where the task takes it along, unless coremltools folds it before Apple's compiler.
    """
    every = compilation.nodes is not None
    return sweep(function, dict.fromkeys(("mul", "real_div", "add", "sub"), partial(_fold, every=every)))


def affine_of(op: Op, channels: int, rank: int, axis: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(scale, shift) per channel of an op on a computed operand and a constant; None when it is no such op."""
    pair = operand_and_constant(op)
    if pair is None:
        return None
    x, constant, first = pair
    data = array_of(constant)
    if data is None or x.shape != op.output.shape or not np.all(np.isfinite(data)):
        return None
    vector = _along(data, channels, rank, axis)
    if vector is None:
        return None
    one, zero = np.ones(channels), np.zeros(channels)
    if op.type == "mul":
        return vector, zero
    if op.type == "add":
        return one, vector
    if op.type == "sub":
        return (-one, vector) if first else (one, -vector)
    if op.type == "real_div" and not first and np.all(vector):
        return 1 / vector, zero
    return None


def _along(data: np.ndarray, channels: int, rank: int, axis: int) -> np.ndarray | None:
    if axis == 1:
        return per_channel(data, channels, rank)
    shape = (1,) * (rank - data.ndim) + data.shape
    if len(shape) != rank or any(extent != 1 for extent in shape[:-1]) or shape[-1] not in (1, channels):
        return None
    return np.broadcast_to(data.reshape(-1), (channels,)).astype(np.float64)


def channel_axis(op: Op) -> int:
    """Axis of the output channels of a linear op."""
    rank = len(op.output.shape)
    return rank - 1 if op.type == "linear" else 1


def _fold(op: Op, b: GraphBuilder, *, every: bool = False) -> Value | None:
    pair = operand_and_constant(op)
    if pair is None:
        return None
    source = pair[0].op
    if source is None or not has(source, PRODUCTS) or "bias" not in spec_of(source).tensors:
        return None
    if pair[0].only_user is not op:
        return None
    axis = channel_axis(source)
    shape = source.output.shape
    if not every and _rides_along(op, source, pair[1]):
        return None
    affine = affine_of(op, shape[axis], len(shape), axis)
    return None if affine is None else scaled(source, *affine, b)


def _rides_along(op: Op, source: Op, constant: Value) -> bool:
    """A product with one number costs the engine nothing (PostScale, docs/reference/limits.md 7), unless an addition
    follows it."""
    if op.type != "mul" or source.type == "conv_transpose" or any(extent != 1 for extent in constant.shape):
        return False
    following = op.output.only_user
    return following is None or following.type not in ("add", "sub", "mul", "real_div")


def _recoded(b: GraphBuilder, weight: np.ndarray, source: Op, scale: np.ndarray) -> Any:
    """The new weight with the coding of the old one, whose outputs are multiplied now."""
    old = source.inputs["weight"].constant
    if old is None or old.coding is None or source.type == "conv_transpose" or old.coding.vector > 1:
        return weight
    coding = old.coding.scaled(scale.reshape(-1, *(1,) * (weight.ndim - 1)))
    return b.const(Constant(TensorType(source.inputs["weight"].dtype, weight.shape), weight, coding=coding))


def _multiplied(weight: Value, factor: np.ndarray) -> np.ndarray:
    """A constant times float64 factors, rounded once to its own dtype; piece by piece, never all of it in float64."""
    if weight.data.dtype.kind == "f" and np.all(factor == 1):
        return weight.data
    array = np.empty(weight.shape, float_of(weight))
    with np.errstate(over="ignore"):
        np.multiply(weight.data, factor, out=array, dtype=np.float64, casting="same_kind")
    return array


def scaled(source: Op, scale: np.ndarray, shift: np.ndarray, b: GraphBuilder) -> Value | None:
    """The linear op with its result multiplied by ``scale`` and moved by ``shift`` per output channel."""
    weight, bias = source.inputs["weight"], array_of(source.inputs.get("bias"))
    if not weight.is_constant or (bias is None and source.inputs.get("bias") is not None):
        return None
    operands: dict[str, Any] = dict(source.inputs)
    shape = weight.shape
    if source.type == "conv_transpose":
        groups = source.arg("groups")
        factor = np.repeat(scale.reshape(groups, shape[1]), shape[0] // groups, axis=0)
        weights = _multiplied(weight, factor.reshape(*shape[:2], *(1,) * (len(shape) - 2)))
    else:
        weights = _multiplied(weight, scale.reshape(-1, *(1,) * (len(shape) - 1)))
    start = np.zeros_like(shift) if bias is None else np.broadcast_to(bias.reshape(-1), shift.shape)
    start = start * scale + shift
    operands["weight"] = _recoded(b, weights, source, scale)
    if bias is not None or np.any(start):
        operands["bias"] = as_dtype(start, weight)
    result = b.op(source.type, opset=source.opset, **operands)
    return result
