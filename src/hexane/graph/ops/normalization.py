"""Normalisations (docs/reference/mil.md 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._gradients import channels, per_channel, through_matrix
from hexane.graph.ops._rules import along, axes_of, channel_vector, rank_between
from hexane.graph.registry import op
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation


def _layer_norm_type(x: TensorType, axes: Any, gamma: TensorType | None, beta: TensorType | None) -> TensorType:
    over = axes_of(axes, x.rank)
    shape = tuple(x.shape[axis] for axis in over)
    for vector, what in ((gamma, "gamma"), (beta, "beta")):
        if vector is not None and vector.shape != shape:
            raise GraphError(f"{what} has shape {vector.shape}, the normalised axes have {shape}")
    return x


def _spread(parameter: np.ndarray, axes: tuple[int, ...], rank: int) -> np.ndarray:
    """A parameter shaped as the axes, ready to broadcast against x."""
    order = np.argsort(axes)
    permuted = parameter.transpose(order)
    shape = [1] * rank
    for axis, extent in zip(sorted(axes), permuted.shape):
        shape[axis] = extent
    return permuted.reshape(shape)


def _normal(x: Formula, over: Sequence[int], epsilon: float) -> tuple[Formula, Formula]:
    """(x - mean) / sqrt(variance + epsilon) along axes, and 1 / sqrt(variance + epsilon)."""
    centred = x - x.reduce_mean(axes=list(over), keep_dims=True)
    scale = centred.square().reduce_mean(axes=list(over), keep_dims=True).rsqrt(epsilon=epsilon)
    return centred * scale, scale


def _normal_gradient(d: Derivation, grad: Formula, over: Sequence[int]) -> Formula:
    """Rest of a gradient without its mean and without its share along the normalised x."""
    normal, scale = _normal(d.x, over, d.epsilon)
    along = (grad * normal).reduce_mean(axes=list(over), keep_dims=True)
    return (grad - grad.reduce_mean(axes=list(over), keep_dims=True) - normal * along) * scale


def _layer_gradient(d: Derivation, of: str) -> Formula:
    over = axes_of(d.axes, d.x.rank)
    rest = [axis for axis in range(d.x.rank) if axis not in over]
    order, place = np.argsort(over), np.argsort(np.argsort(over))
    if of == "x":
        if d.gamma is None:
            return _normal_gradient(d, d.grad, over)
        shape = [extent if axis in over else 1 for axis, extent in enumerate(d.x.shape)]
        return _normal_gradient(d, d.grad * d.gamma.ordered(*order.tolist()).shaped(shape), over)
    full = d.grad * _normal(d.x, over, d.epsilon)[0] if of == "gamma" else d.grad
    return full.total(rest).ordered(*place.tolist())


@op(
    "layer_norm",
    "x:T axes:ints? gamma:U? beta:U? epsilon:float=1e-5",
    infer=_layer_norm_type,
    derivative={name: partial(_layer_gradient, of=name) for name in ("x", "gamma", "beta")},
)
def layer_norm(x: np.ndarray, axes: Any, gamma: Any, beta: Any, epsilon: float) -> np.ndarray:
    """gamma (x - mean) / sqrt(variance + epsilon) + beta over the axes."""
    over = axes_of(axes, x.ndim)
    centred = x - x.mean(axis=over, keepdims=True)
    scale = 1 / np.sqrt(np.square(centred).mean(axis=over, keepdims=True) + x.dtype.type(epsilon))
    if gamma is not None:
        scale = scale * _spread(gamma, over, x.ndim)
    result = centred * scale
    return result if beta is None else result + _spread(beta, over, x.ndim)


def _batch_norm_type(x: TensorType, mean: TensorType, variance: TensorType, gamma: Any, beta: Any) -> TensorType:
    rank_between(x, 3, 5)
    for vector, what in ((mean, "mean"), (variance, "variance"), (gamma, "gamma"), (beta, "beta")):
        channel_vector(vector, x.shape[1], what)
    return x


def _batch_gradient(d: Derivation, of: str) -> Formula:
    """Of gamma (x - mean) / sqrt(variance + epsilon) + beta, all but x with one number per channel."""
    if of == "beta":
        return per_channel(d.grad, d.beta)
    scale = d.variance.rsqrt(epsilon=d.epsilon)
    slope = scale if d.gamma is None else scale * d.gamma
    if of == "x":
        return d.grad * channels(slope, d.x.rank)
    if of == "mean":
        return -(per_channel(d.grad, d.mean) * slope)
    offset = per_channel(d.grad * (d.x - channels(d.mean, d.x.rank)), d.mean)
    return offset * scale if of == "gamma" else offset * (slope * scale.square() * -0.5)


@op(
    "batch_norm",
    "x:T mean:U variance:U gamma:U? beta:U? epsilon:float=1e-5",
    infer=_batch_norm_type,
    derivative={name: partial(_batch_gradient, of=name) for name in ("x", "mean", "variance", "gamma", "beta")},
)
def batch_norm(
    x: np.ndarray, mean: np.ndarray, variance: np.ndarray, gamma: Any, beta: Any, epsilon: float
) -> np.ndarray:
    """gamma (x - mean) / sqrt(variance + epsilon) + beta with one number per channel."""
    scale = 1 / np.sqrt(variance + variance.dtype.type(epsilon))
    if gamma is not None:
        scale = scale * gamma
    shift = -mean * scale
    if beta is not None:
        shift = shift + beta
    return x * along(scale, x.ndim, 1) + along(shift, x.ndim, 1)


def _instance_norm_type(x: TensorType, gamma: Any, beta: Any) -> TensorType:
    rank_between(x, 3, 5)
    channel_vector(gamma, x.shape[1], "gamma")
    channel_vector(beta, x.shape[1], "beta")
    return x


def _instance_gradient(d: Derivation, of: str) -> Formula:
    over = range(2, d.x.rank)
    if of == "x":
        grad = d.grad if d.gamma is None else d.grad * channels(d.gamma, d.x.rank)
        return _normal_gradient(d, grad, over)
    return per_channel(d.grad * _normal(d.x, over, d.epsilon)[0] if of == "gamma" else d.grad, getattr(d, of))


@op(
    "instance_norm",
    "x:T gamma:U? beta:U? epsilon:float=1e-5",
    infer=_instance_norm_type,
    derivative={name: partial(_instance_gradient, of=name) for name in ("x", "gamma", "beta")},
)
def instance_norm(x: np.ndarray, gamma: Any, beta: Any, epsilon: float) -> np.ndarray:
    """Each channel of each image by its own mean and variance."""
    over = tuple(range(2, x.ndim))
    centred = x - x.mean(axis=over, keepdims=True)
    scale = 1 / np.sqrt(np.square(centred).mean(axis=over, keepdims=True) + x.dtype.type(epsilon))
    if gamma is not None:
        scale = scale * along(gamma, x.ndim, 1)
    result = centred * scale
    return result if beta is None else result + along(beta, x.ndim, 1)


def _at_least_3(x: TensorType) -> TensorType:
    rank_between(x, 3, 16)
    return x


def _l2_gradient(d: Derivation) -> Formula:
    scale = d.x.square().total([-3, -2, -1], keep=True).rsqrt(epsilon=d.epsilon)
    return (d.grad - d.out * (d.grad * d.out).total([-3, -2, -1], keep=True)) * scale


@op("l2_norm", "x:T epsilon:float=1e-6", infer=_at_least_3, derivative=_l2_gradient)
def l2_norm(x: np.ndarray, epsilon: float) -> np.ndarray:
    """x / sqrt(sum of squares over the last three axes + epsilon)."""
    return x / np.sqrt(np.square(x).sum(axis=(-3, -2, -1), keepdims=True) + x.dtype.type(epsilon))


def _lrn_type(x: TensorType, size: int) -> TensorType:
    rank_between(x, 3, 16)
    if size < 1:
        raise GraphError(f"size {size} must be positive")
    return x


def _lrn_gradient(d: Derivation) -> Formula:
    """Through x itself, and through the sums of the channels in whose windows x stands."""
    away = np.arange(d.x.shape[1])[None, :] - np.arange(d.x.shape[1])[:, None]
    before = (d.size - 1) // 2
    near = ((-before <= away) & (away < d.size - before)).astype(np.float64)
    total = through_matrix(d, d.x.square(), 1, near) * (d.alpha / d.size) + d.k
    sums = d.grad * d.x * total.pow(y=-d.beta - 1)
    return d.grad * total.pow(y=-d.beta) - d.x * through_matrix(d, sums, 1, near.T) * (2 * d.alpha * d.beta / d.size)


@op(
    "local_response_norm",
    "x:T size:int alpha:float=1e-4 beta:float=0.75 k:float=1.0",
    infer=_lrn_type,
    derivative=_lrn_gradient,
)
def local_response_norm(x: np.ndarray, size: int, alpha: float, beta: float, k: float) -> np.ndarray:
    """x / (k + alpha/size * sum of squares of the ``size`` channels around)^beta.

    Of an even size the larger half lies after the channel, as in ONNX; MIL's definition leaves it open.
    """
    before = (size - 1) // 2
    squares = np.square(x)
    total = np.zeros_like(x)
    channels = x.shape[1]
    for shift in range(-before, size - before):
        low, high = max(-shift, 0), min(channels - shift, channels)
        if low < high:
            total[:, low:high] += squares[:, low + shift : high + shift]
    return x / np.power(k + (alpha / size) * total, x.dtype.type(beta))
