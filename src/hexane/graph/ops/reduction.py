"""Reductions along axes, and the index of the largest or smallest element (docs/reference/mil.md 5.4)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._gradients import with_kept_axes
from hexane.graph.ops._rules import axes_of, axis_of
from hexane.graph.registry import op
from hexane.graph.traits import NEVER_NEGATIVE, REDUCES
from hexane.graph.types import DTYPES, TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation


def reduced(x: TensorType, axes: tuple[int, ...] | None, keep_dims: bool) -> TensorType:
    """The axes become 1 or vanish."""
    gone = set(axes_of(axes, x.rank))
    if keep_dims:
        return x.with_shape(1 if axis in gone else extent for axis, extent in enumerate(x.shape))
    return x.with_shape(extent for axis, extent in enumerate(x.shape) if axis not in gone)


def _log_sum_exp(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    top = x.max(axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, x.dtype.type(0))
    total = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return total if keepdims else total.squeeze(axis)


def _mean(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    if x.dtype.kind == "f":
        return x.mean(axis=axis, keepdims=keepdims)
    count = int(np.prod([x.shape[a] for a in axis], dtype=np.int64))
    return np.trunc(x.sum(axis=axis, keepdims=keepdims) / max(count, 1)).astype(x.dtype)


def _extreme(x: np.ndarray, axis: Any, keepdims: bool, largest: bool) -> np.ndarray:
    """Of nothing: the dtype's other end."""
    if x.dtype.kind == "f":
        initial: Any = -np.inf if largest else np.inf
    elif x.dtype.kind == "b":
        initial = not largest
    else:
        initial = np.iinfo(x.dtype).min if largest else np.iinfo(x.dtype).max
    return (x.max if largest else x.min)(axis=axis, keepdims=keepdims, initial=initial)


REDUCTIONS: dict[str, Any] = {
    "reduce_sum": lambda x, axis, keepdims: x.sum(axis=axis, keepdims=keepdims, dtype=x.dtype),
    "reduce_mean": _mean,
    "reduce_max": lambda x, axis, keepdims: _extreme(x, axis, keepdims, True),
    "reduce_min": lambda x, axis, keepdims: _extreme(x, axis, keepdims, False),
    "reduce_prod": lambda x, axis, keepdims: x.prod(axis=axis, keepdims=keepdims, dtype=x.dtype),
    "reduce_l1_norm": lambda x, axis, keepdims: np.abs(x).sum(axis=axis, keepdims=keepdims, dtype=x.dtype),
    "reduce_l2_norm": lambda x, axis, keepdims: np.sqrt(np.square(x).sum(axis=axis, keepdims=keepdims)),
    "reduce_log_sum": lambda x, axis, keepdims: np.log(x.sum(axis=axis, keepdims=keepdims)),
    "reduce_log_sum_exp": _log_sum_exp,
    "reduce_sum_square": lambda x, axis, keepdims: np.square(x).sum(axis=axis, keepdims=keepdims, dtype=x.dtype),
}


def _gradient(rule: Callable[[Formula, Formula, Formula, Derivation], Formula]) -> Callable[[Derivation], Formula]:
    """The derivative from x, and the result and its gradient with the reduced axes kept."""

    def derivative(d: Derivation) -> Formula:
        return rule(d.x, with_kept_axes(d.out, d.x, d.axes), with_kept_axes(d.grad, d.x, d.axes), d)

    return derivative


def _mean_gradient(x: Formula, out: Formula, grad: Formula, d: Derivation) -> Formula:
    count = prod(x.shape[axis] for axis in axes_of(d.axes, x.rank))
    return (grad * (1 / max(count, 1))).spread(x.shape)


def _extreme_gradient(x: Formula, out: Formula, grad: Formula, d: Derivation) -> Formula:
    """Equal shares for all that are the largest."""
    largest = x.where("equal", out)
    return largest * (grad / largest.total(axes_of(d.axes, x.rank), keep=True))


def _prod_gradient(x: Formula, out: Formula, grad: Formula, d: Derivation) -> Formula:
    """The product of the others: with one zero that of the rest for the zero alone, with two zeros nothing."""
    axes = axes_of(d.axes, x.rank)
    gone = x.where("equal", 0.0)
    count, rest = gone.total(axes, keep=True), x + gone
    others = rest.reduce_prod(axes=list(axes), keep_dims=True)
    of_zero = gone * count.where("equal", 1.0)
    return grad * others * (of_zero + count.where("equal", 0.0) / rest)


_ABOUT: dict[str, tuple[str, Callable[[Derivation], Formula]]] = {
    "reduce_sum": ("sum", _gradient(lambda x, out, grad, d: grad.spread(x.shape))),
    "reduce_mean": ("mean; of integers rounded toward zero", _gradient(_mean_gradient)),
    "reduce_max": ("largest", _gradient(_extreme_gradient)),
    "reduce_min": ("smallest", _gradient(_extreme_gradient)),
    "reduce_prod": ("product", _gradient(_prod_gradient)),
    "reduce_l1_norm": ("sum of magnitudes", _gradient(lambda x, out, grad, d: x.sign() * grad)),
    "reduce_l2_norm": (
        "square root of the sum of squares",
        _gradient(lambda x, out, grad, d: x * (grad / (out + out.where("equal", 0.0)))),
    ),
    "reduce_log_sum": (
        "ln of the sum",
        _gradient(lambda x, out, grad, d: (grad / x.total(axes_of(d.axes, x.rank), keep=True)).spread(x.shape)),
    ),
    "reduce_log_sum_exp": ("ln of the sum of exponentials", _gradient(lambda x, out, grad, d: (x - out).exp() * grad)),
    "reduce_sum_square": ("sum of squares", _gradient(lambda x, out, grad, d: x * (grad * 2.0))),
}

_AT_LEAST_ZERO = ("reduce_l1_norm", "reduce_l2_norm", "reduce_sum_square")

for _name, (_about, _derivative) in _ABOUT.items():
    _letter = "A" if _name in ("reduce_max", "reduce_min") else "N"

    _traits = REDUCES | NEVER_NEGATIVE if _name in _AT_LEAST_ZERO else REDUCES

    @op(
        _name,
        f"x:{_letter} axes:ints? keep_dims:bool=False",
        infer=reduced,
        dynamic=True,
        about=_about,
        traits=_traits,
        derivative=_derivative,
    )
    def _reduce(x: np.ndarray, axes: Any, keep_dims: bool, _function: Any = REDUCTIONS[_name]) -> np.ndarray:
        return _function(x, axes_of(axes, x.ndim), keep_dims)


def _arg_type(x: TensorType, axis: int, keep_dims: bool, output_dtype: str) -> TensorType:
    where = axis_of(axis, x.rank)
    if x.shape[where] == 0:
        raise GraphError("the largest of nothing has no index")
    return reduced(x, (axis,), keep_dims).with_dtype(output_dtype)


def _arg(x: np.ndarray, axis: int, keep_dims: bool, output_dtype: str, function: Any) -> np.ndarray:
    return function(x, axis=axis, keepdims=keep_dims).astype(DTYPES[output_dtype].carrier)


_INDEX_DTYPES = ("int32", "uint16", "int64")
_ARG = "x:N axis:int=-1 keep_dims:bool=False output_dtype:str='int32'@17"
for _name, _choose, _about in (
    ("reduce_argmax", np.argmax, "index of the largest, the first of equals"),
    ("reduce_argmin", np.argmin, "index of the smallest, the first of equals"),
):
    op(
        _name,
        _ARG,
        infer=_arg_type,
        dynamic=True,
        about=_about,
        output_dtype=_INDEX_DTYPES,
        derivative="an index is constant between its jumps",
    )(lambda _f=_choose, **args: _arg(**args, function=_f))
