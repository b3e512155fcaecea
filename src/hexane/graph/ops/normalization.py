"""Normalisations (docs/reference/mil.md 5.4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import axes_of, channel_vector, rank_between
from hexane.graph.registry import op
from hexane.graph.types import TensorType


def _layer_norm_type(
    x: TensorType, axes: Any, gamma: TensorType | None, beta: TensorType | None, epsilon: float
) -> TensorType:
    over = axes_of(axes, x.rank)
    shape = tuple(x.shape[axis] for axis in over)
    for vector, what in ((gamma, "gamma"), (beta, "beta")):
        if vector is not None and vector.shape != shape:
            raise GraphError(f"{what} has shape {vector.shape}, the normalised axes have {shape}")
    return x


def _spread(parameter: np.ndarray, axes: tuple[int, ...], rank: int) -> np.ndarray:
    """A parameter shaped as the axes, ready to broadcast against x."""
    order = np.argsort(axes)
    moved = parameter.transpose(order)
    shape = [1] * rank
    for axis, extent in zip(sorted(axes), moved.shape):
        shape[axis] = extent
    return moved.reshape(shape)


@op("layer_norm", "x:T axes:ints? gamma:U? beta:U? epsilon:float=1e-5", infer=_layer_norm_type)
def layer_norm(x: np.ndarray, axes: Any, gamma: Any, beta: Any, epsilon: float) -> np.ndarray:
    """gamma (x - mean) / sqrt(variance + epsilon) + beta over the axes."""
    over = axes_of(axes, x.ndim)
    centred = x - x.mean(axis=over, keepdims=True)
    scale = 1 / np.sqrt(np.square(centred).mean(axis=over, keepdims=True) + x.dtype.type(epsilon))
    if gamma is not None:
        scale = scale * _spread(gamma, over, x.ndim)
    result = centred * scale
    return result if beta is None else result + _spread(beta, over, x.ndim)


def _batch_norm_type(
    x: TensorType, mean: TensorType, variance: TensorType, gamma: Any, beta: Any, epsilon: float
) -> TensorType:
    rank_between(x, 3, 5)
    for vector, what in ((mean, "mean"), (variance, "variance"), (gamma, "gamma"), (beta, "beta")):
        channel_vector(vector, x.shape[1], what)
    return x


def _per_channel(vector: np.ndarray, rank: int) -> np.ndarray:
    return vector.reshape((-1,) + (1,) * (rank - 2))


@op("batch_norm", "x:T mean:U variance:U gamma:U? beta:U? epsilon:float=1e-5", infer=_batch_norm_type)
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
    return x * _per_channel(scale, x.ndim) + _per_channel(shift, x.ndim)


def _instance_norm_type(x: TensorType, gamma: Any, beta: Any, epsilon: float) -> TensorType:
    rank_between(x, 3, 5)
    channel_vector(gamma, x.shape[1], "gamma")
    channel_vector(beta, x.shape[1], "beta")
    return x


@op("instance_norm", "x:T gamma:U? beta:U? epsilon:float=1e-5", infer=_instance_norm_type)
def instance_norm(x: np.ndarray, gamma: Any, beta: Any, epsilon: float) -> np.ndarray:
    """Each channel of each image by its own mean and variance."""
    over = tuple(range(2, x.ndim))
    centred = x - x.mean(axis=over, keepdims=True)
    scale = 1 / np.sqrt(np.square(centred).mean(axis=over, keepdims=True) + x.dtype.type(epsilon))
    if gamma is not None:
        scale = scale * _per_channel(gamma, x.ndim)
    result = centred * scale
    return result if beta is None else result + _per_channel(beta, x.ndim)


def _at_least_3(x: TensorType, **_: Any) -> TensorType:
    rank_between(x, 3, 16)
    return x


@op("l2_norm", "x:T epsilon:float=1e-6", infer=_at_least_3)
def l2_norm(x: np.ndarray, epsilon: float) -> np.ndarray:
    """x / sqrt(sum of squares over the last three axes + epsilon)."""
    return x / np.sqrt(np.square(x).sum(axis=(-3, -2, -1), keepdims=True) + x.dtype.type(epsilon))


def _lrn_type(x: TensorType, size: int, alpha: float, beta: float, k: float) -> TensorType:
    rank_between(x, 3, 16)
    if size < 1:
        raise GraphError(f"size {size} must be positive")
    return x


@op("local_response_norm", "x:T size:int alpha:float=1e-4 beta:float=0.75 k:float=1.0", infer=_lrn_type)
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
