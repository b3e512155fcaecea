"""Normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, Refused, aten
from hexane.frontends.aten.ops.reduction import variance


def _statistics(c: AtenNode) -> None:
    """Mean and deviation, further results, are for derivatives; they are not computed."""
    if c.used(1) or c.used(2):
        raise Refused("its mean and deviation are asked for")


def _scaled(c: AtenNode, x: Operand, weight: Any, bias: Any, shape: tuple[int, ...]) -> Operand:
    if weight is not None:
        x = c.ops.mul(x=x, y=c.cast(c.reshape(weight, shape), c.dtype(x)))
    if bias is not None:
        x = c.ops.add(x=x, y=c.cast(c.reshape(bias, shape), c.dtype(x)))
    return x


@aten("native_layer_norm.default")
def layer_norm(c: AtenNode) -> tuple[Any, ...]:
    _statistics(c)
    x, weight, bias = c.x("input"), c["weight"], c["bias"]
    count = len(c.ints("normalized_shape"))
    axes = np.arange(c.rank(x) - count, c.rank(x), dtype=np.int32)
    constant = all(one is None or isinstance(one, np.ndarray) for one in (weight, bias))
    more = {}
    if constant:
        more = {name: one for name, one in (("gamma", weight), ("beta", bias)) if one is not None}
        more = {name: c.cast(np.ascontiguousarray(one), c.dtype(x)) for name, one in more.items()}
    made = c.ops.layer_norm(x=x, axes=axes, epsilon=c.number("eps"), **more)
    if not constant:
        made = _scaled(c, made, weight, bias, c.shape(x)[-count:])
    return made, None, None


@aten("native_group_norm.default")
def group_norm(c: AtenNode) -> tuple[Any, ...]:
    """Each group of channels of each image by its own mean and variance."""
    _statistics(c)
    x, groups = c.x("input"), int(c["group"])
    shape = c.shape(x)
    flat = c.reshape(x, (shape[0], groups, int(np.prod(shape[1:])) // groups))
    made = c.reshape(c.ops.layer_norm(x=flat, axes=np.array([2], np.int32), epsilon=c.number("eps")), shape)
    return _scaled(c, made, c["weight"], c["bias"], (1, shape[1], *[1] * (len(shape) - 2))), None, None


@aten("_native_batch_norm_legit_no_training.default", "_batch_norm_no_update.default")
def batch_norm(c: AtenNode) -> tuple[Any, ...]:
    """By the means and variances that training kept: one factor and one offset for each channel."""
    results = len(c.results)
    x = c.x("input")
    mean, var = c.x("running_mean"), c.x("running_var")
    weight, bias, epsilon = c["weight"], c["bias"], c.number("eps")
    given = (mean, var, weight, bias)
    shape = (1, c.shape(x)[1], *[1] * (c.rank(x) - 2))
    if all(one is None or isinstance(one, np.ndarray) for one in given) and c.rank(x) in (3, 4, 5):
        names = zip(("mean", "variance", "gamma", "beta"), given)
        made = c.ops.batch_norm(
            x=x,
            epsilon=epsilon,
            **{name: c.cast(np.ascontiguousarray(one), c.dtype(x)) for name, one in names if one is not None},
        )
        return (made, *[None] * (results - 1))
    low = c.ops.sub(x=x, y=c.cast(c.reshape(mean, shape), c.dtype(x)))
    spread = c.cast(c.reshape(var, shape), c.dtype(x))
    factor = c.ops.rsqrt(x=c.ops.add(x=spread, y=c.like(epsilon, x)), epsilon=0.0)
    return (_scaled(c, c.ops.mul(x=low, y=factor), weight, bias, shape), *[None] * (results - 1))


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_of_the_batch(c: AtenNode) -> tuple[Any, ...]:
    """By the mean and variance of the batch itself (instance norm comes as this)."""
    _statistics(c)
    x = c.x("input")
    axes = np.array([axis for axis in range(c.rank(x)) if axis != 1], np.int32)
    square, mean = variance(c, x, axes, 0)
    factor = c.ops.rsqrt(x=c.ops.add(x=square, y=c.like(c.number("eps"), x)), epsilon=0.0)
    made = c.ops.mul(x=c.ops.sub(x=x, y=mean), y=factor)
    return _scaled(c, made, c["weight"], c["bias"], (1, c.shape(x)[1], *[1] * (c.rank(x) - 2))), None, None
