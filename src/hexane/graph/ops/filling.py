"""Tensors made from numbers: fill, ranges, random (docs/reference/mil.md 5.7, 5.8)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._gradients import zero
from hexane.graph.registry import op
from hexane.graph.types import TensorType, dtype_name

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation


def _fill_type(shape: Any, value: TensorType | None) -> TensorType:
    if value is not None and value.count != 1:
        raise GraphError(f"value has shape {value.shape}, a scalar is needed")
    return TensorType("fp32" if value is None else value.dtype, shape)


def _value_gradient(d: Derivation) -> Formula:
    return d.grad.total(range(d.grad.rank)).shaped(d.value.shape)


_NO_OPERAND = "no operand of a float type changes the result smoothly"


@op("fill", "shape:ints value:A?", infer=_fill_type, derivative={"value": _value_gradient})
def fill(shape: Any, value: Any) -> np.ndarray:
    """A tensor of one value (fp32 0 by default)."""
    return np.full(shape, np.float32(0) if value is None else value.reshape(()))


def _fill_like_type(ref_tensor: TensorType, value: TensorType | None) -> TensorType:
    if value is not None and value.count != 1:
        raise GraphError(f"value has shape {value.shape}, a scalar is needed")
    return ref_tensor.with_dtype("fp32" if value is None else value.dtype)


@op(
    "fill_like",
    "ref_tensor:A value:C?",
    infer=_fill_like_type,
    dynamic=True,
    since=16,
    derivative={"ref_tensor": zero, "value": _value_gradient},
)
def fill_like(ref_tensor: np.ndarray, value: Any) -> np.ndarray:
    """A tensor of one value, shaped as another one."""
    return np.full(ref_tensor.shape, np.float32(0) if value is None else value.reshape(()))


def _range_length(start: Any, end: Any, step: Any) -> int:
    if not int(step) if isinstance(start, (int, np.integer)) else not step:
        raise GraphError("a range with step 0")
    if isinstance(start, (int, np.integer)):
        count = -((int(start) - int(end)) // int(step))
    else:
        span = (float(end) - float(start)) / float(step)
        if not math.isfinite(span):
            raise GraphError("a range without an end")
        count = math.ceil(span)
    return max(count, 0)


def _range_type(end: Any, start: Any, step: Any) -> TensorType:
    constants = [bound for bound in (end, start, step) if not isinstance(bound, TensorType)]
    if len(constants) == 3:
        return TensorType(dtype_name(end.dtype), (_range_length(start, end, step),))
    dtype = next(bound.dtype for bound in (end, start, step) if isinstance(bound, TensorType))
    return TensorType(dtype, (None,))  # type: ignore[arg-type]


@op("range_1d", "end:number~ start:number~ step:number~", infer=_range_type, derivative=_NO_OPERAND)
def range_1d(end: Any, start: Any, step: Any) -> np.ndarray:
    """start, start + step ... up to, not including, end."""
    return (start + np.arange(_range_length(start, end, step)) * step).astype(end.dtype)


def _generator(seed: int) -> np.random.Generator:
    """NumPy's generator; Core ML's numbers for a seed are not known, so only the distribution agrees."""
    return np.random.default_rng(seed if seed >= 0 else None)


def _random_type(shape: Any, seed: int, **numbers: Any) -> TensorType:
    return TensorType(next((dtype_name(n.dtype) for n in numbers.values() if hasattr(n, "dtype")), "fp32"), shape)


_RANDOM: dict[str, Any] = {"infer": _random_type, "family": "random", "derivative": _NO_OPERAND}


@op("random_uniform", "shape:ints low:number=0.0 high:number=1.0 seed:int=-1", **_RANDOM)
def random_uniform(shape: Any, low: Any, high: Any, seed: int) -> np.ndarray:
    """Numbers from [low, high); reproducible for a seed from 0 on."""
    return _generator(seed).uniform(low, high, shape)


@op("random_normal", "shape:ints mean:number=0.0 stddev:number=1.0 seed:int=-1", **_RANDOM)
def random_normal(shape: Any, mean: Any, stddev: Any, seed: int) -> np.ndarray:
    """Normally distributed numbers."""
    return _generator(seed).normal(mean, stddev, shape)


@op("random_bernoulli", "shape:ints prob:number=0.5 seed:int=-1", **_RANDOM)
def random_bernoulli(shape: Any, prob: Any, seed: int) -> np.ndarray:
    """1 with probability ``prob``, else 0."""
    return (_generator(seed).random(shape) < prob).astype(np.float32)


def _categorical_type(x: TensorType, size: int) -> TensorType:
    if x.rank < 1 or size < 1:
        raise GraphError("random_categorical needs a vector of probabilities and a positive size")
    return x.with_shape((*x.shape[:-1], size))


@op(
    "random_categorical",
    "x:T mode:str='logits' size:int=1 seed:int=-1",
    infer=_categorical_type,
    family="random",
    derivative="a drawn index is constant between its jumps",
    mode=("logits", "probs"),
)
def random_categorical(x: np.ndarray, mode: str, size: int, seed: int) -> np.ndarray:
    """Indices drawn with the probabilities along the last axis."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True)) if mode == "logits" else x
    bounds = np.cumsum(weights / weights.sum(axis=-1, keepdims=True), axis=-1)
    draws = _generator(seed).random((*x.shape[:-1], size))
    index = (draws[..., None] >= bounds[..., None, :]).sum(axis=-1)
    return np.minimum(index, x.shape[-1] - 1).astype(x.dtype)
