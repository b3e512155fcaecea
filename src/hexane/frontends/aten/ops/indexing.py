"""Gathering and scattering by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.formats.compositions import Refused
from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, aten


@aten("embedding.default")
def embedding(c: AtenNode) -> Operand:
    weight, indices = c.x("weight"), c.x("indices")
    return c.ops.gather(x=weight, indices=c.index32(indices, c.shape(weight)[0]), axis=0)


@aten("index_select.default")
def index_select(c: AtenNode) -> Operand:
    x = c.x()
    if c.rank(x) == 0:
        return x
    axis = c.axis(x)
    result = c.ops.gather(x=x, indices=c.index32(c.x("index"), c.shape(x)[axis]), axis=axis)
    return c.reshape(result, c.out().shape)


@aten("gather.default")
def gather(c: AtenNode) -> Operand:
    x, index = c.x(), c.x("index")
    if c.rank(x) == 0 or c.rank(index) == 0:
        return c.reshape(x, c.out().shape)
    axis = c.axis(x)
    return c.gather_elements(x, c.index32(index, c.shape(x)[axis]), axis)


def _indices(c: AtenNode, x: Operand) -> tuple[list[int], list[Operand]]:
    """Indexed axes and their indices, 32 bits and counted from the start."""
    entries = list(c.arguments["indices"])
    axes = [axis for axis, one in enumerate(entries) if one is not None]
    indices = []
    for axis in axes:
        index = c._operand(entries[axis])
        if c.dtype(index) in ("bool", "uint8"):
            raise Refused("a mask as an index: how many elements it takes is known at run time only")
        indices.append(c.index32(index, c.shape(x)[axis]))
    return axes, indices


def _stacked(c: AtenNode, indices: list[Operand]) -> Operand:
    """Index vectors along a new last axis."""
    shape = np.broadcast_shapes(*(c.shape(one) for one in indices))
    return c.stack([c.broadcast(one, shape) for one in indices], len(shape))


@aten("index.Tensor")
def index(c: AtenNode) -> Operand:
    x = c.x()
    axes, indices = _indices(c, x)
    if len(axes) == 1:
        return c.ops.gather(x=x, indices=indices[0], axis=axes[0])
    rest = [axis for axis in range(c.rank(x)) if axis not in axes]
    operand = c.ops.gather_nd(x=c.transpose(x, [*axes, *rest]), indices=_stacked(c, indices))
    if axes == list(range(axes[0], axes[0] + len(axes))) and axes[0] > 0:  # adjacent: the result stands in their place
        count = c.rank(operand) - len(rest)
        order = list(range(c.rank(operand)))
        lead = order[count : count + axes[0]]
        operand = c.transpose(operand, [*lead, *order[:count], *order[count + axes[0] :]])
    return operand


@aten("index_put.default")
def index_put(c: AtenNode) -> Operand:
    x = c.x()
    axes, indices = _indices(c, x)
    rest = [axis for axis in range(c.rank(x)) if axis not in axes]
    if axes != list(range(len(axes))):
        raise Refused("elements replaced along other axes than the first ones")
    where = _stacked(c, indices)
    shape = (*c.shape(where)[:-1], *(c.shape(x)[axis] for axis in rest))
    values = c.broadcast(c.cast(c.x("values"), c.out().dtype), shape)
    mode = "add" if c["accumulate"] else "update"
    return c.ops.scatter_nd(data=x, indices=where, updates=values, mode=mode)


def _scatter(c: AtenNode, updates: Any, mode: str) -> Operand:
    x, index = c.x(), c.x("index")
    if c.rank(x) == 0:
        raise Refused("a scatter into one number")
    axis = c.axis(x)
    shape, extents = c.shape(x), c.shape(index)
    if any(extents[other] != shape[other] for other in range(len(shape)) if other != axis):
        raise Refused("a scatter of fewer rows than the tensor has")
    if isinstance(updates, int | float):
        updates = c.full(updates, c.out().dtype, extents)
    updates = c.cast(updates, c.out().dtype)
    updates = c.window(updates, {other: slice(0, extent) for other, extent in enumerate(extents)})
    where = c.index32(index, shape[axis])
    return c.ops.scatter_along_axis(data=x, indices=where, updates=updates, axis=axis, mode=mode)


@aten("scatter.src", "scatter.value")
def scatter(c: AtenNode) -> Operand:
    return _scatter(c, c["src"] if "src" in c.arguments else c["value"], "update")


@aten("scatter_add.default")
def scatter_add(c: AtenNode) -> Operand:
    return _scatter(c, c.x("src"), "add")


@aten("scatter_reduce.two")
def scatter_reduce(c: AtenNode) -> Operand:
    modes = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if c["reduce"] not in modes or not c["include_self"]:
        raise Refused(f"a scatter that reduces by {c['reduce']} without what was there")
    return _scatter(c, c.x("src"), modes[c["reduce"]])
