"""Ops that the engine computes in several steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hexane.isa.numbers import LARGEST_HALF
from hexane.passes.local_norms import local_response_norm
from hexane.passes.recurrent import one_step
from hexane.passes.rewriting import Rule, array_of, as_dtype, is_static, known, number_of, reduced_axes, sweep

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation


def decompose(function: Function, compilation: Compilation) -> int:
    """Write ops without a task of their own (norms, reductions, powers, recurrent steps) in ops that have one."""
    rules = _RULES | {"local_response_norm": partial(local_response_norm, compilation.on)}
    if not compilation.as_apple:  # which has neither
        rules |= {"onnx.LSTM": one_step, "onnx.GRU": one_step}
    return sweep(function, {name: _for_floats(rule) for name, rule in rules.items()})


def _for_floats(rule: Rule) -> Rule:
    """The rule for results that the engine can hold; integers stay as they are."""

    def guarded(op: Op, b: GraphBuilder) -> Value | tuple[Value, ...] | None:
        return rule(op, b) if op.outputs[0].dtype in ("fp16", "fp32") else None

    return guarded


def _l2_norm(op: Op, b: GraphBuilder) -> Value:
    """x / sqrt(sum of squares + epsilon) over all axes but the first ones."""
    x = op.inputs["x"]
    axes = list(range(max(len(x.shape) - 3, 0), len(x.shape)))
    total = b.reduce_sum_square(x=x, axes=axes, keep_dims=True)
    return b.mul(x=x, y=b.rsqrt(x=total, epsilon=float(op.arg("epsilon"))))


def _pow(op: Op, b: GraphBuilder) -> Value | None:
    """x to whole numbers is a product, to 0.5 a root; the others stay powers, of numbers that are not negative."""
    exponent = number_of(op.inputs["y"])
    x = op.inputs["x"]
    if exponent is None or x.is_constant or x.shape != op.output.shape:
        return None
    if exponent == 1.0 and not op.output.is_output:
        return x
    if exponent == 2.0:
        return b.square(x=x)
    if exponent == 0.5:
        return b.sqrt(x=x)
    if not float(exponent).is_integer() or exponent == 0.0 or x.dtype not in ("fp16", "fp32") or _is_abs(x):
        return None
    # The engine's power is 2^(y log2 x), which has no answer for a negative x; whole exponents have one.
    count = abs(int(exponent))
    if count <= MOST_PRODUCTS:
        result = _product(x, count, b)
    else:
        result = b.pow(x=b.abs(x=x), y=array_like(float(count), x))
        result = result if count % 2 == 0 else b.mul(x=b.sign(x=x), y=result)
    if exponent < 0:
        return b.inverse(x=result, epsilon=0.0)
    return b.identity(x=x) if result is x else result


MOST_PRODUCTS = 16
"""Whole exponents up to here are products; beyond, a power of the magnitude with its sign."""


def _is_abs(x: Value) -> bool:
    return x.op is not None and x.op.type == "abs"


def _product(x: Value, count: int, b: GraphBuilder) -> Value:
    """x to a whole power by squares."""
    if count == 1:
        return x
    half = _product(x, count // 2, b)
    square = b.square(x=half)
    return b.mul(x=square, y=x) if count % 2 else square


def array_like(number: float, x: Value) -> np.ndarray:
    """A scalar in a value's dtype."""
    return np.array(number, x.type.carrier)  # type: ignore[union-attr]


def _real_div(op: Op, b: GraphBuilder) -> Value | None:
    """v / x with a constant v is v times the inverse."""
    x, y = op.inputs["x"], op.inputs["y"]
    if not x.is_constant or y.is_constant or x.dtype not in ("fp16", "fp32"):
        return None
    inverse = b.inverse(x=y, epsilon=0.0)
    if number_of(x) == 1.0 and y.shape == op.output.shape:
        return inverse
    return b.mul(x=inverse, y=x)


def _reduce_min(op: Op, b: GraphBuilder) -> Value:
    """-max(-x): the engine reduces by sum and maximum."""
    largest = b.reduce_max(x=b.mul(x=op.inputs["x"], y=-1.0), axes=reduced_axes(op), keep_dims=op.arg("keep_dims"))
    return b.mul(x=largest, y=-1.0)


def _reduce_l1(op: Op, b: GraphBuilder) -> Value:
    return b.reduce_sum(x=b.abs(x=op.inputs["x"]), axes=reduced_axes(op), keep_dims=op.arg("keep_dims"))


def _reduce_l2(op: Op, b: GraphBuilder) -> Value:
    total = b.reduce_sum_square(x=op.inputs["x"], axes=reduced_axes(op), keep_dims=op.arg("keep_dims"))
    return b.sqrt(x=total)


def _reduce_log_sum(op: Op, b: GraphBuilder) -> Value:
    return b.log(x=b.reduce_sum(x=op.inputs["x"], axes=reduced_axes(op), keep_dims=op.arg("keep_dims")))


def _reduce_log_sum_exp(op: Op, b: GraphBuilder) -> Value:
    """log of the sum of exp(x - m), plus m, with m the maximum."""
    x, axes = op.inputs["x"], reduced_axes(op)
    largest = b.reduce_max(x=x, axes=axes, keep_dims=True)
    total = b.reduce_sum(x=b.exp(x=b.sub(x=x, y=largest)), axes=axes, keep_dims=True)
    result = b.add(x=b.log(x=total), y=largest)
    return result if op.arg("keep_dims") else b.reshape(x=result, shape=list(op.output.shape))


def _stack(op: Op, b: GraphBuilder) -> Value | None:
    """concat along a new axis."""
    values = op.inputs["values"]
    if not all(is_static(v) for v in values):
        return None
    rank = len(values[0].shape) + 1
    axis = op.arg("axis") % rank
    return b.concat(values=tuple(b.expand_dims(x=v, axes=[axis]) for v in values), axis=axis)


def _reverse(op: Op, b: GraphBuilder) -> Value | None:
    """One slice per element in the opposite order, for short axes."""
    x, axes = op.inputs["x"], op.arg("axes")
    if not is_static(x) or x.dtype not in ("fp16", "fp32"):
        return None
    rank = len(x.shape)
    reversed_axes = range(rank) if axes is None else [a % rank for a in axes]
    if any(x.shape[a] > 16 for a in reversed_axes):
        return None
    for axis in reversed_axes:
        parts = []
        for i in reversed(range(x.shape[axis])):
            begin, size = [0] * rank, list(x.shape)
            begin[axis], size[axis] = i, 1
            parts.append(b.slice_by_size(x=x, begin=begin, size=size))
        x = b.concat(values=tuple(parts), axis=axis)
    return x


def _open_clip(op: Op, b: GraphBuilder) -> Value | None:
    """clip to one open side is a maximum or a minimum."""
    low, high = op.arg("alpha"), op.arg("beta")
    x = op.inputs["x"]
    if not known(low, high) or x.dtype not in ("fp16", "fp32"):
        return None
    if low <= -LARGEST_HALF and high < LARGEST_HALF:
        return b.minimum(x=x, y=float(high))
    if high >= LARGEST_HALF and low > -LARGEST_HALF:
        return b.maximum(x=x, y=float(low))
    return None


def _tile(op: Op, b: GraphBuilder) -> Value | None:
    """A tile of a longer axis, or along the batch, is a concat of copies."""
    x, reps = op.inputs["x"], op.arg("reps")
    if not known(reps) or not is_static(x):
        return None
    joined = [axis for axis, r in enumerate(reps) if r > 1 and (x.shape[axis] > 1 or axis == len(reps) - 4)]
    if not joined or any(reps[axis] > 32 for axis in joined):
        return None
    for axis in joined:
        x = b.concat(values=(x,) * reps[axis], axis=axis)
    rest = [1 if axis in joined else r for axis, r in enumerate(reps)]
    return b.tile(x=x, reps=rest) if any(r > 1 for r in rest) else x


def _sub_constant_first(op: Op, b: GraphBuilder) -> Value | None:
    """v - x with v per channel is v + (-1) x: both have verified tasks."""
    x, y = op.inputs["x"], op.inputs["y"]
    data = array_of(x)
    if data is None or y.is_constant or y.dtype not in ("fp16", "fp32"):
        return None
    return b.add(x=b.mul(x=y, y=-1.0), y=x)


MOST_RUNS = 16
"""A gather of more separate pieces stays with the host."""


def _gather(op: Op, b: GraphBuilder) -> Value | None:
    """Constant indices along one axis: a slice per run of neighbours, joined."""
    x, indices = op.inputs["x"], op.inputs["indices"]
    if not indices.is_constant or x.is_constant or not is_static(x) or op.arg("batch_dims"):
        return None
    rank = len(x.shape)
    axis = op.arg("axis") % rank
    index = indices.data.reshape(-1)
    if index.size == 0 or index.min() < -x.shape[axis] or index.max() >= x.shape[axis]:
        return None
    index = np.where(index < 0, index + x.shape[axis], index)
    runs = np.split(index, np.flatnonzero(np.diff(index) != 1) + 1)
    if len(runs) > MOST_RUNS:
        return None
    parts = []
    for run in runs:
        begin, size = [0] * rank, list(x.shape)
        begin[axis], size[axis] = int(run[0]), len(run)
        parts.append(b.slice_by_size(x=x, begin=begin, size=size))
    result = parts[0] if len(parts) == 1 else b.concat(values=tuple(parts), axis=axis)
    return result if result.shape == op.output.shape else b.reshape(x=result, shape=list(op.output.shape))


def _thresholded_relu(op: Op, b: GraphBuilder) -> Value:
    """x where it is at least alpha, 0 elsewhere."""
    x = op.inputs["x"]
    passes = b.greater_equal(x=x, y=as_dtype(np.full((1,) * len(x.shape), op.arg("alpha")), x))
    return b.mul(x=x, y=b.cast(x=passes, dtype=x.dtype))


_RULES: dict[str, Rule] = {
    "gather": _gather,
    "thresholded_relu": _thresholded_relu,
    "l2_norm": _l2_norm,
    "pow": _pow,
    "real_div": _real_div,
    "reduce_min": _reduce_min,
    "reduce_l1_norm": _reduce_l1,
    "reduce_l2_norm": _reduce_l2,
    "reduce_log_sum": _reduce_log_sum,
    "reduce_log_sum_exp": _reduce_log_sum_exp,
    "stack": _stack,
    "reverse": _reverse,
    "sub": _sub_constant_first,
    "clip": _open_clip,
    "tile": _tile,
}
