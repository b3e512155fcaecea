"""Remedies of remarks, carried out: ops rewritten into forms that a phone computes right, by rule.

Each rewrite keeps the network's function in float32 (masks and exponents are cut where fp16 ends) and is tried, not
trusted: ``hexane check --fix`` runs the network as Apple's compiler lowers it before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.graph.types import FLOATS
from hexane.restrictions.bounds import LARGEST_HALF
from hexane.restrictions.forms import SLICES, behind_flat_product, gated, hard_swish, product_scales, within_row
from hexane.restrictions.lowerings import like
from hexane.restrictions.numbers import spelled_log_softmax
from hexane.restrictions.ranges import EXP_END

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Op, Value

Rewrite = Callable[["Op", "GraphBuilder"], "Value | tuple[Value, ...] | None"]
MASKED = 30000.0
"""What stands for minus infinity: two of them still add up within fp16."""
LEAST_EPSILON = 2.0**-23


@dataclass(frozen=True)
class Remedy:
    """``rule``: what it cures; ``ops``: where it begins; ``own``: whether that op is the one that the rule names.

    ``grows``: how many times larger results are on the way, which have to stay below 32752.
    """

    rule: str
    ops: tuple[str, ...]
    rewrite: Rewrite
    own: bool = True
    grows: float = 1.0


def _softplus(op: Op, b: GraphBuilder) -> Value:
    """max(x, 0) + log(1 + exp(-abs(x)))."""
    x = op.arg("x")
    small = b.exp(x=b.mul(x=b.abs(x=x), y=like(-1.0, x)))
    return b.add(x=b.relu(x=x), y=b.log(x=b.add(x=small, y=like(1.0, x))))


def _clipped_exp(op: Op, b: GraphBuilder) -> Value:
    x = op.arg("x")
    return b.exp(x=b.minimum(x=x, y=like(np.floor(EXP_END * 64) / 64, x)))


def _log_sum_exp(op: Op, b: GraphBuilder) -> Value:
    """max + log(sum(exp(x - max)))."""
    x = op.arg("x")
    axes = list(range(x.rank)) if op.arg("axes") is None else list(op.arg("axes"))
    top, total = _shifted(x, axes, b)
    result = b.add(x=top, y=b.log(x=total))
    return result if op.arg("keep_dims") else b.reshape(x=result, shape=op.outputs[0].shape)


def _shifted(x: Value, axes: list[int], b: GraphBuilder) -> tuple[Value, Value]:
    top = b.reduce_max(x=x, axes=axes, keep_dims=True)
    return top, b.reduce_sum(x=b.exp(x=b.sub(x=x, y=top)), axes=axes, keep_dims=True)


def _log_softmax(op: Op, b: GraphBuilder) -> Value | None:
    """x - max - log(sum(exp(x - max))), also where a file has one node for it, of which a converter makes the log."""
    if op.type == "sub":
        logits = spelled_log_softmax(op)
    else:
        soft = op.arg("x").op
        logits = (soft.arg("x"), soft.arg("axis")) if soft is not None and soft.type == "softmax" else None
    if logits is None:
        return None
    x, axis = logits
    top, total = _shifted(x, [axis], b)
    return b.sub(x=b.sub(x=x, y=top), y=b.log(x=total))


def _rms_norm(op: Op, b: GraphBuilder) -> Value | None:
    """x * rsqrt(mean(x * x) + epsilon) as the first half of layer_norm of [x, -x]: its squares are not stored."""
    for name, other in (("x", "y"), ("y", "x")):
        x, root = op.arg(name), op.arg(other).op
        if root is None or root.type != "rsqrt" or x.is_constant:
            continue
        inner, epsilon = root.arg("x").op, float(root.arg("epsilon"))
        if inner is not None and inner.type == "add" and inner.arg("y").is_constant and inner.arg("y").data.size == 1:
            inner, epsilon = inner.arg("x").op, epsilon + float(inner.arg("y").data.reshape(-1)[0])
        square = inner.arg("x").op if inner is not None and inner.type == "reduce_mean" else None
        if inner is None or square is None or square.inputs.get("x") is not x or square.type not in ("mul", "square"):
            continue
        axes = inner.arg("axes")
        if axes is None or len(axes) != 1 or (square.type == "mul" and square.arg("y") is not x):
            continue
        axis, size = axes[0] % x.rank, list(x.shape)
        both = b.concat(values=(x, b.mul(x=x, y=like(-1.0, x))), axis=axis)
        norm = b.layer_norm(x=both, axes=[axis], epsilon=like(max(epsilon, LEAST_EPSILON), x))
        return b.slice_by_size(x=norm, begin=[0] * x.rank, size=size)
    return None


def _width_slice(op: Op, b: GraphBuilder) -> Value | tuple[Value, ...] | None:
    """The row is an axis further out while it is cut."""
    x = op.arg("x")
    if not within_row(op) or x.rank < 2:
        return None
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    transposed = b.transpose(x=x, perm=order)
    arguments = {name: value for name, value in op.inputs.items() if name != "x"}
    if op.type == "split":
        arguments["axis"] = x.rank - 2
    else:
        for name in ("begin", "end", "size", "stride", "begin_mask", "end_mask", "squeeze_mask"):
            positions = op.arg(name) if name in op.inputs else None
            if positions is not None:
                arguments[name] = [positions[axis] for axis in order]
        if any(arguments.get("squeeze_mask", ())):
            return None
    make: Any = getattr(b, op.type)
    parts = make(x=transposed, **arguments)
    back = tuple(b.transpose(x=part, perm=order) for part in (parts if isinstance(parts, tuple) else (parts,)))
    return back if isinstance(parts, tuple) else back[0]


def _clamped_product(op: Op, b: GraphBuilder) -> Value | None:
    """The product is cut to the range of its codes before they are made."""
    scales = product_scales(op)
    if scales is None:
        return None
    product = b.mul(x=op.arg("x"), y=op.arg("y"))
    return b.clip(x=product, alpha=like(-128 * scales[1], product), beta=like(127 * scales[1], product))


def _silu(op: Op, b: GraphBuilder) -> Value | None:
    """x / (1 + exp(-x)), of silu or of x * sigmoid(x)."""
    x = op.arg("x") if op.type == "silu" else gated(op)
    if x is None:
        return None
    below = b.add(x=b.exp(x=b.mul(x=x, y=like(-1.0, x))), y=like(1.0, x))
    return b.mul(x=x, y=b.inverse(x=below, epsilon=like(0.0, x)))


def _gelu(op: Op, b: GraphBuilder) -> Value:
    """x / 2 * (1 + tanh(0.7979 x (1 + 0.044715 x^2)))."""
    x = op.arg("x")
    inner = b.add(x=b.mul(x=b.mul(x=x, y=x), y=like(0.0356774, x)), y=like(0.7978846, x))
    gate = b.add(x=b.tanh(x=b.mul(x=x, y=inner)), y=like(1.0, x))
    return b.mul(x=b.mul(x=x, y=like(0.5, x)), y=gate)


def _four_axes(op: Op, b: GraphBuilder) -> Value | None:
    """x * hard_sigmoid(x) with axes of 1 before the others."""
    x, gate = behind_flat_product(op), hard_swish(op)
    if x is None or gate is None or gate[0].type != "sigmoid_hard" or None in x.shape:
        return None
    wide = b.reshape(x=x, shape=(1,) * (4 - x.rank) + x.shape)
    numbers = {name: like(gate[0].arg(name), x) for name in ("alpha", "beta")}
    return b.reshape(x=b.mul(x=wide, y=b.sigmoid_hard(x=wide, **numbers)), shape=x.shape)


def _within_half(op: Op, b: GraphBuilder) -> Value | tuple[Value, ...] | None:
    """Constants beyond fp16 end at 30000 of their sign."""
    operands: dict[str, Any] = dict(op.inputs)
    changed = False
    for name, value in op.inputs.items():
        if isinstance(value, tuple) or not value.is_constant or value.dtype not in FLOATS:
            continue
        if np.any(np.abs(value.data[np.isfinite(value.data)]) > LARGEST_HALF):
            operands[name], changed = np.clip(value.data, -MASKED, MASKED), True
    return b.op(op.type, **operands) if changed else None


def _epsilon(op: Op, b: GraphBuilder) -> Value | tuple[Value, ...] | None:
    return b.op(op.type, **{**op.inputs, "epsilon": like(LEAST_EPSILON, op.arg("x"))})


def _scaled_product(op: Op, b: GraphBuilder) -> Value | None:
    """The operand times 64, the result by 64 before its bias: powers of two cost nothing in fp16."""
    bias = op.inputs.get("bias")
    if isinstance(bias, tuple) or (bias is not None and not bias.is_constant):
        return None
    operands: dict[str, Any] = {name: value for name, value in op.inputs.items() if name != "bias"}
    product = b.op(op.type, **operands | {"x": b.mul(x=op.arg("x"), y=like(64.0, op.arg("x")))})
    result = b.mul(x=product, y=like(1 / 64, product))
    if bias is None:
        return result
    shape = (1, -1, *(1,) * (result.rank - 2)) if op.type == "conv" else bias.shape
    return b.add(x=result, y=bias.data.reshape(shape))


SUMS = ("conv", "matmul", "linear")
MASKS = ("add", "sub", "mul", "select", "maximum", "minimum")
REMEDIES: tuple[Remedy, ...] = (
    Remedy("O15", ("softplus",), _softplus),
    Remedy("N1", ("exp",), _clipped_exp),
    Remedy("N2", ("reduce_log_sum_exp",), _log_sum_exp),
    Remedy("N3", ("log", "sub"), _log_softmax),
    Remedy("N4", ("mul",), _rms_norm, own=False),
    Remedy("N7", SLICES, _width_slice),
    Remedy("N8", ("mul",), _clamped_product),
    Remedy("N9", ("silu", "mul"), _silu),
    Remedy("N9", ("gelu",), _gelu),
    Remedy("N15", ("mul",), _four_axes),
    Remedy("N18", ("layer_norm", "instance_norm", "l2_norm"), _epsilon),
    Remedy("N20", MASKS, _within_half),
    Remedy("float32_constant", MASKS, _within_half),
    Remedy("N6", SUMS, _scaled_product, grows=64.0),
    Remedy("N21", SUMS, _scaled_product, grows=64.0),
)
"""Rules without a row need a change of the model that nobody can make for its author."""
