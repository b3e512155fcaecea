"""Cost of an order of axes for a region: the price of its copies on the chip that is compiled for, in microseconds.

Everything that the cost depends on is read from the ops once (``terms``): numbers, no ops. Pricing an order is then
arithmetic on a few hundred small tuples, since a region has many ops of one kind and shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from hexane.chips import Chip
from hexane.graph.ir import Op, Value
from hexane.graph.ops.conv import geometry_of
from hexane.graph.registry import has
from hexane.graph.traits import REDUCES, RESHAPES
from hexane.lowering.limits import GRID, LONGEST_STRIDE
from hexane.lowering.windows import NATIVE_WIDTH, TALLEST
from hexane.passes.layouts.axes import FreeRegion, key_of
from hexane.passes.padding import pad_of
from hexane.passes.prices import pass_us
from hexane.passes.rewriting import reduced_axes

TURNS = 2
"""Copies of the whole result for a cut in the middle of a row: turned, and turned back."""
WASTE = 0.25
"""Of a copy for each element by which rows are filled up to 64 bytes."""

Shape = tuple[int, ...]
Axes = tuple[int, ...]
Kind = Literal["edge", "turn", "view", "stored", "cut", "channels", "conv"]
PLAIN, EXCHANGED = (0, 1, 2, 3), (0, 1, 3, 2)


@dataclass(frozen=True)
class Term:
    """One thing that may cost something: tensors by their declared shapes and the classes of their axes.

    ``edge``: a tensor that others want in its declared order. ``turn``: a transposition, which costs in the network's
    own order only (``axes`` is its perm). ``view``: a reshape from the first tensor to the second. ``stored``: a result
    with rows to fill up. ``cut``: a join or cut along ``axes`` off the grid. ``channels``: a reduction over ``axes``.
    ``conv``: a convolution from the first to the second, whose rows and columns may change places if ``axes`` says so.
    """

    kind: Kind
    shape: Shape
    classes: Axes
    axes: Axes = ()
    other: Shape = ()
    other_classes: Axes = ()


@dataclass(frozen=True)
class Order:
    """An order of the axes of a region: the place of each class. ``None`` stands for the order of the network."""

    region: FreeRegion
    places: Mapping[int, int] | None
    chip: Chip
    """Whose prices decide."""

    def perm(self, value: Value, op: Op) -> Axes:
        """Axis ``perm[i]`` of the declared tensor is axis i of the tensor in memory."""
        return _perm(self.region.classes[key_of(value, op)], self.places)

    def shape(self, value: Value, op: Op) -> list[int]:
        """The shape in memory."""
        return [value.shape[axis] for axis in self.perm(value, op)]


def _perm(classes: Axes, places: Mapping[int, int] | None) -> Axes:
    if places is None:
        return tuple(range(len(classes)))
    stands = [places[number] for number in classes]
    return tuple(sorted(range(len(classes)), key=stands.__getitem__))


def copied(shape: Sequence[int], chip: Chip) -> float:
    """Microseconds of a copy of a tensor."""
    return pass_us("move", prod(shape), chip)


def move(shape: Sequence[int], perm: Sequence[int], chip: Chip) -> float:
    """Microseconds of a transposition; none where all rows stay."""
    long = [axis for axis in perm if shape[axis] != 1]
    stays = long == sorted(long) and (not shape or shape[-1] == shape[perm[-1]])
    return 0.0 if stays else copied(shape, chip)


def move_between(shape: Sequence[int], first: Sequence[int], second: Sequence[int], chip: Chip) -> float:
    """The same from one order of a tensor's axes to another."""
    return move([shape[axis] for axis in first], [first.index(axis) for axis in second], chip)


# -- terms -------------------------------------------------------------------------------------------------------------


def terms(region: FreeRegion) -> Counter[Term]:
    """Terms that a region's cost depends on, equal ones counted."""
    counts: Counter[Term] = Counter()
    for value in (*region.made_outside, *region.used_outside):
        counts[Term("edge", tuple(value.shape), region.classes[value])] += 1
    for op in region.ops:
        for term in _of_op(region, op):
            counts[term] += 1
    return counts


def _of_op(region: FreeRegion, op: Op) -> list[Term]:
    def tensor(value: Value) -> tuple[Shape, Axes]:
        return tuple(value.shape), region.classes[key_of(value, op)]

    if op.type == "transpose":
        perm = op.arg("perm")
        return [Term("turn", *tensor(op.inputs["x"]), tuple(axis % len(perm) for axis in perm))]
    if has(op, RESHAPES):
        return [Term("view", *tensor(op.inputs["x"]), (), *tensor(op.output))]
    if op.type == "conv":
        free = (1,) if _allows_exchange(op) else ()
        return [Term("conv", *tensor(op.inputs["x"]), free, *tensor(op.output))]
    terms = []
    for value in op.outputs:
        terms.append(Term("stored", *tensor(value)))
        off_grid = tuple(axis for axis in range(len(value.shape)) if _cuts(op, value, axis))
        if off_grid:
            terms.append(Term("cut", *tensor(value), off_grid))
    if has(op, REDUCES):
        terms.append(Term("channels", *tensor(op.inputs["x"]), tuple(reduced_axes(op))))
    return terms


def _cuts(op: Op, value: Value, axis: int) -> bool:
    """True where an op joins or cuts along an axis at a place that no DMA reaches within rows."""
    rank = len(value.shape)
    if op.type == "concat":
        return op.arg("axis") % rank == axis and any(part.shape[axis] % GRID for part in op.inputs["values"][:-1])
    if op.type == "pad":
        widths = pad_of(op, rank)
        return widths is not None and widths[axis] != (0, 0)
    if op.type == "split":
        return op.arg("axis") % rank == axis and any(part.shape[axis] % GRID for part in op.outputs[:-1])
    if op.type in ("slice_by_size", "slice_by_index"):
        begin, extent = op.arg("begin")[axis], op.inputs["x"].shape[axis]
        if value.shape[axis] == extent:
            return False
        if op.type == "slice_by_size":
            return bool(begin % extent % GRID)
        if (op.arg("begin_mask") or [False] * rank)[axis]:
            begin = 0
        return bool(begin % extent % GRID or (op.arg("stride") or [1] * rank)[axis] != 1)
    return False


def _allows_exchange(op: Op) -> bool:
    """True where the convolution is within the engine's window the other way round too."""
    weight = op.inputs["weight"]
    strides, dilations, _, _ = geometry_of(op)
    height, width = weight.shape[2:]
    return height <= NATIVE_WIDTH and width <= TALLEST and max(strides) <= LONGEST_STRIDE and tuple(dilations) == (1, 1)


# -- prices ------------------------------------------------------------------------------------------------------------


class Costs:
    """The cost of a region in many orders: terms that stand in a way that was priced before are not priced again.

    A term depends on no more than the order of its own axes, and terms of equal classes stand in equal orders.
    """

    def __init__(self, counted: Mapping[Term, int], chip: Chip) -> None:
        self.chip = chip
        self.groups: dict[tuple[Axes, Axes], list[tuple[Term, int]]] = {}
        for term, count in counted.items():
            self.groups.setdefault((term.classes, term.other_classes), []).append((term, count))
        self._prices: dict[tuple[Axes, Axes, Axes, Axes], float] = {}

    def declared(self) -> float:
        """Microseconds of the copies in the order of the network."""
        return sum(
            count * _PRICES[term.kind](term, None, self.chip) for group in self.groups.values() for term, count in group
        )

    def moved(self, places: Mapping[int, int], most: float = float("inf")) -> float:
        """Microseconds of the copies in an order; any number above ``most`` where it is more than that."""
        perms: dict[Axes, Axes] = {}
        total = 0.0
        for classes, group in self.groups.items():
            for each in classes:
                if each not in perms:
                    perms[each] = _perm(each, places)
            key = (*classes, perms[classes[0]], perms[classes[1]])
            if key not in self._prices:
                self._prices[key] = sum(count * _PRICES[term.kind](term, places, self.chip) for term, count in group)
            total += self._prices[key]
            if total > most:
                break
        return total


def _edge(term: Term, places: Mapping[int, int] | None, chip: Chip) -> float:
    return move(term.shape, _perm(term.classes, places), chip)


def _turn(term: Term, places: Mapping[int, int] | None, chip: Chip) -> float:
    return move(term.shape, term.axes, chip) if places is None else 0.0


def _view(term: Term, places: Mapping[int, int] | None, chip: Chip) -> float:
    first, second = _perm(term.classes, places), _perm(term.other_classes, places)
    return 0.0 if term.shape[first[-1]] == term.other[second[-1]] else copied(term.other, chip)


def _stored(term: Term, places: Mapping[int, int] | None, chip: Chip) -> float:
    row = term.shape[_perm(term.classes, places)[-1]]
    filled = int(WASTE * (prod(term.shape) // max(row, 1)) * (-row % GRID))
    return pass_us("move", filled, chip) - pass_us("move", 0, chip) if filled else 0.0


def _cut(term: Term, places: Mapping[int, int] | None, chip: Chip) -> float:
    return TURNS * copied(term.shape, chip) if _perm(term.classes, places)[-1] in term.axes else 0.0


def _channels(term: Term, places: Mapping[int, int] | None, chip: Chip) -> float:
    perm = _perm(term.classes, places)
    if len(perm) < 3 or term.shape[perm[-3]] == 1 or perm[-3] not in term.axes:
        return 0.0
    return copied(term.shape, chip)


def _conv(term: Term, places: Mapping[int, int] | None, chip: Chip) -> float:
    return 0.0 if places is None else _conv_axes(term, places, chip)[0]


_PRICES = {
    "edge": _edge,
    "turn": _turn,
    "view": _view,
    "stored": _stored,
    "cut": _cut,
    "channels": _channels,
    "conv": _conv,
}


def _conv_axes(term: Term, places: Mapping[int, int], chip: Chip) -> tuple[float, Axes]:
    stands = [(term.shape, _perm(term.classes, places)), (term.other, _perm(term.other_classes, places))]
    ways = (PLAIN, EXCHANGED) if term.axes else (PLAIN,)
    prices = [sum(_seen(shape, perm, axes, chip) for shape, perm in stands) for axes in ways]
    least = min(prices)
    return least, ways[prices.index(least)]


def _seen(shape: Shape, perm: Axes, axes: Axes, chip: Chip) -> float:
    """Microseconds to see a map of a convolution in its axes: a copy, or, where rows stay, the planar task beside it,
    which is in no locked pair with a sum of other axes (hexane.codegen.memory.pipelining)."""
    copy = move_between(shape, perm, axes, chip)
    return copy or (0.0 if perm == axes else pass_us("unary", prod(shape), chip))


def conv_axes(order: Order, op: Op) -> Axes:
    """The axes in which a convolution stands in an order: rows and columns exchanged or not."""
    assert order.places is not None
    (term,) = _of_op(order.region, op)
    return _conv_axes(term, order.places, order.chip)[1]
