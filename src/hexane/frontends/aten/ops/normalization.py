"""Normalisation."""

from __future__ import annotations

from typing import Any

from hexane.formats.compositions import Refused
from hexane.frontends.aten.node import AtenNode, aten


def _statistics(c: AtenNode) -> None:
    """Mean and deviation, further results, are for derivatives; they are not computed."""
    if c.used(1) or c.used(2):
        raise Refused("its mean and deviation are asked for")


@aten("native_layer_norm.default")
def layer_norm(c: AtenNode) -> tuple[Any, ...]:
    _statistics(c)
    x, weight, bias = c.x("input"), c["weight"], c["bias"]
    axes = range(c.rank(x) - len(c.ints("normalized_shape")), c.rank(x))
    return c.layer_norm(x, axes, weight, bias, c.number("eps")), None, None


@aten("native_group_norm.default")
def group_norm(c: AtenNode) -> tuple[Any, ...]:
    _statistics(c)
    x = c.x("input")
    y = c.group_norm(x, int(c["group"]), c.number("eps"))
    return c.affine(y, c["weight"], c["bias"], c.along_channels(x)), None, None


@aten("_native_batch_norm_legit_no_training.default", "_batch_norm_no_update.default")
def batch_norm(c: AtenNode) -> tuple[Any, ...]:
    """By the means and variances that training kept: one factor and one offset for each channel."""
    statistics = {"mean": c.x("running_mean"), "variance": c.x("running_var"), "gamma": c["weight"], "beta": c["bias"]}
    return (c.batch_norm(c.x("input"), statistics, c.number("eps")), *[None] * (len(c.results) - 1))


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_of_the_batch(c: AtenNode) -> tuple[Any, ...]:
    """By the mean and variance of the batch itself (instance norm comes as this)."""
    _statistics(c)
    x = c.x("input")
    y = c.centre(x, [axis for axis in range(c.rank(x)) if axis != 1], c.number("eps"))[0]
    return c.affine(y, c["weight"], c["bias"], c.along_channels(x)), None, None
