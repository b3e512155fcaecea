"""What an order of axes costs a region: elements that copies move, counted once for each copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hexane.graph.ops.conv import conv_geometry
from hexane.lowering.windows import NATIVE_WIDTH, TALLEST
from hexane.passes.layouts.axes import REDUCTIONS, Region, key_of, reduced_axes
from hexane.passes.padding import pad_of
from hexane.passes.reshapes import RESHAPES

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value

GRID = 32
"""Columns of fp16 in 64 bytes: a DMA starts at multiples of them (docs/reference/engine-h13.md 6)."""
TURNS = 2
"""Copies of the whole result for a cut in the middle of a row: turned, and turned back."""
WASTE = 0.25
"""Of a copy for each element by which rows are filled up to 64 bytes."""
LONGEST_STRIDE = 2
CHANNELS, ROWS = 1, 2


@dataclass(frozen=True)
class Order:
    """An order of the axes of a region: the place of each class. ``None`` stands for the order of the network."""

    region: Region
    places: Mapping[int, int] | None

    def perm(self, value: Value, op: Op) -> tuple[int, ...]:
        """Axis ``perm[i]`` of the declared tensor is axis i of the tensor in memory."""
        axes = self.region.classes[key_of(value, op)]
        if self.places is None:
            return tuple(range(len(axes)))
        places = self.places
        return tuple(sorted(range(len(axes)), key=lambda axis: places[axes[axis]]))

    def shape(self, value: Value, op: Op) -> list[int]:
        """The shape in memory."""
        return [value.shape[axis] for axis in self.perm(value, op)]


def move(shape: Sequence[int], perm: Sequence[int]) -> float:
    """Elements that a transposition moves; none where all rows stay."""
    long = [axis for axis in perm if shape[axis] != 1]
    stays = long == sorted(long) and (not shape or shape[-1] == shape[perm[-1]])
    return 0.0 if stays else float(prod(shape))


def cost(order: Order) -> float:
    """Elements moved in a region."""
    region, total = order.region, 0.0
    for value in region.made_outside:
        total += move(value.shape, order.perm(value, _user(region, value)))
    for value in region.used_outside:
        total += move(value.shape, order.perm(value, _user(region, value)))
    for op in region.ops:
        total += conv_axes(order, op)[0] if op.type == "conv" else _of_op(order, op)
    return total


def _user(region: Region, value: Value) -> Op:
    """An op of the region at a value: computed values stand under their own name, so any will do."""
    return value.op if value.op in region.signatures else region.ops[0]


def _of_op(order: Order, op: Op) -> float:
    if op.type == "transpose":
        turn = [axis % len(op.arg("perm")) for axis in op.arg("perm")]
        return move(op.inputs["x"].shape, turn) if order.places is None else 0.0
    if op.type in RESHAPES:
        source, target = order.shape(op.inputs["x"], op), order.shape(op.output, op)
        return 0.0 if source[-1] == target[-1] else float(prod(target))
    total = 0.0
    for value in op.outputs:
        shape = order.shape(value, op)
        rows = prod(shape[:-1])
        total += WASTE * rows * (-shape[-1] % GRID)
        if _cuts_rows(order, op, value):
            total += TURNS * prod(shape)
    if op.type in REDUCTIONS:
        x = op.inputs["x"]
        perm = order.perm(x, op)
        channel = len(perm) - 3
        if channel >= 0 and x.shape[perm[channel]] > 1 and perm[channel] in reduced_axes(op):
            total += prod(x.shape)
    return total


def _cuts_rows(order: Order, op: Op, value: Value) -> bool:
    """Whether an op joins or cuts within rows, at a place that no DMA reaches."""
    last = order.perm(value, op)[-1]
    rank = len(value.shape)
    if op.type == "concat":
        if op.arg("axis") % rank != last:
            return False
        return any(part.shape[last] % GRID for part in op.inputs["values"][:-1])
    if op.type == "pad":
        widths = pad_of(op, rank)
        return widths is not None and widths[last] != (0, 0)
    if op.type == "split":
        return op.arg("axis") % rank == last and any(part.shape[last] % GRID for part in op.outputs[:-1])
    if op.type in ("slice_by_size", "slice_by_index"):
        begin, extent = op.arg("begin")[last], op.inputs["x"].shape[last]
        if value.shape[last] == extent:
            return False
        if op.type == "slice_by_index" and (op.arg("begin_mask") or [False] * rank)[last]:
            begin = 0
        step = (op.arg("stride") or [1] * rank)[last] if op.type == "slice_by_index" else 1
        return bool(begin % extent % GRID or step != 1)
    return False


PLAIN, EXCHANGED = (0, 1, 2, 3), (0, 1, 3, 2)


def conv_axes(order: Order, op: Op) -> tuple[float, tuple[int, ...]]:
    """How a convolution stands in an order: elements moved around it, and its axes, exchanged or not."""
    x, y = op.inputs["x"], op.output
    if order.places is None:
        return 0.0, PLAIN
    ways = [PLAIN, EXCHANGED] if _allows_exchange(op) else [PLAIN]
    prices = [sum(move_between(value.shape, order.perm(value, op), axes) for value in (x, y)) for axes in ways]
    least = min(prices)
    return least, ways[prices.index(least)]


def move_between(shape: Sequence[int], first: Sequence[int], second: Sequence[int]) -> float:
    """Elements moved from one order of a tensor's axes to another."""
    return move([shape[axis] for axis in first], [list(first).index(axis) for axis in second])


def _allows_exchange(op: Op) -> bool:
    """Whether the convolution is within the engine's window the other way round too."""
    weight = op.inputs["weight"]
    strides, dilations, _, _ = conv_geometry(
        op.inputs["x"].shape,
        weight.shape,
        op.arg("strides"),
        op.arg("pad_type"),
        op.arg("pad"),
        op.arg("dilations"),
    )
    height, width = weight.shape[2:]
    return height <= NATIVE_WIDTH and width <= TALLEST and max(strides) <= LONGEST_STRIDE and tuple(dilations) == (1, 1)
