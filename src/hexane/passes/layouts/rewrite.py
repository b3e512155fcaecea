"""Give regions the order of axes in which least has to be moved."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ops.conv import geometry_of
from hexane.graph.registry import has, spec_of
from hexane.graph.rewrite import replace_uses
from hexane.graph.traits import ELEMENTWISE, REDUCES, RESHAPES
from hexane.passes.layouts.axes import FreeRegion, regions
from hexane.passes.layouts.cost import EXCHANGED, PLAIN, Costs, Order, conv_axes, terms
from hexane.passes.padding import pad_of
from hexane.passes.rewriting import hand_down, reduced_axes

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation

MOST_CANDIDATES = 24
GAP_BITS = 128
LEAST_GAIN = 0.08  # of what copies in the region cost now

Answers = dict[tuple[Any, ...], dict[int, int] | None]


def choose_layouts(function: Function, compilation: Compilation) -> int:
    """Give element-wise ops, cuts, reductions and convolutions between transpositions one order of axes: the
    transpositions among them vanish, and joins and paddings within rows become ones of whole rows."""
    if not compilation.on.layouts:
        return 0
    total = 0
    answers: Answers = {}
    for region in regions(function):
        order = best(region, compilation.chip, answers)
        if order is not None:
            total += _Rewriting(function, order).run()
    return total


def best(region: FreeRegion, chip: Chip, answers: Answers) -> Order | None:
    """The order in which a region moves least, None where that is how it stands.

    ``answers``: places of classes by all that they follow from; equal blocks of a network have equal regions.
    """
    if len(region.ops) == 1 or not region.is_consistent:
        return None
    counts, wishes = terms(region), _wishes(region)
    form = *counts.items(), *wishes, *region.extents.items(), frozenset(region.classes.values())
    if form not in answers:
        costs = Costs(counts, chip)
        answers[form], least = None, costs.declared() * (1 - LEAST_GAIN)
        for places in candidates(region, wishes):
            price = costs.moved(places, least)
            if price < least:
                answers[form], least = places, price
    cheapest = answers[form]
    return None if cheapest is None else Order(region, cheapest, chip)


# -- candidates --------------------------------------------------------------------------------------------------------


def candidates(region: FreeRegion, wishes: Sequence[tuple[int, ...]]) -> Iterator[dict[int, int]]:
    """Orders that some op of the region or around it asks for, continued over all classes; one of those that differ
    only in classes that no tensor has together."""
    extents = region.extents
    together = _together(region)
    wishes = [tuple(number for number in wish if extents[number] > 1) for wish in wishes]
    forms = set()
    for first in wishes[:MOST_CANDIDATES]:
        chain = GrowingOrder(first)
        useless: set[tuple[int, ...]] = set()  # add nothing to the chain as it is
        for wish in wishes:
            if wish in useless or not 0 < sum(map(chain.labels.__contains__, wish)) < len(wish):
                continue
            if chain.merge(wish):
                useless.clear()
            else:
                useless.add(wish)
        rest = [number for number, extent in extents.items() if extent > 1 and number not in chain.labels]
        single = [number for number, extent in extents.items() if extent == 1]
        for order in ([*single, *rest, *chain.numbers], [*single, *chain.numbers, *rest]):
            places = {number: at for at, number in enumerate(order)}
            form = tuple(places[a] < places[b] for a, b in together)
            if form not in forms:
                forms.add(form)
                yield places


def _together(region: FreeRegion) -> list[tuple[int, int]]:
    """Pairs of classes that some tensor has both of, those of one element aside: they stand in front in any order."""
    pairs: dict[tuple[int, int], None] = {}
    for classes in set(region.classes.values()):
        long = sorted(number for number in classes if region.extents[number] > 1)
        pairs.update(dict.fromkeys(combinations(long, 2)))
    return list(pairs)


def _wishes(region: FreeRegion) -> list[tuple[int, ...]]:
    """Orders that tensors have at the region's edge and at convolutions, the largest tensors first."""
    wishes: dict[tuple[int, ...], float] = {}

    def wish(value: Value, axes: Sequence[int]) -> None:
        classes = tuple(region.classes[value][axis] for axis in axes)
        wishes[classes] = wishes.get(classes, 0.0) + prod(value.shape)

    for value in (*region.made_outside, *region.used_outside):
        wish(value, range(len(value.shape)))
    for op in region.ops:
        if op.type == "conv":
            for value in (op.inputs["x"], op.output):
                if not value.is_constant:
                    wish(value, (0, 1, 2, 3))
                    wish(value, (0, 1, 3, 2))
    return sorted(wishes, key=lambda axes: -wishes[axes])


class GrowingOrder:
    """Classes in an order that grows in its middle, none of them twice.

    ``labels`` grow along ``numbers`` with gaps between them: two classes are compared, and the place of one is found,
    without counting those before it.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = list(numbers)
        self._label()

    def _label(self) -> None:
        self._along = [at << GAP_BITS for at in range(len(self.numbers))]
        self.labels = dict(zip(self.numbers, self._along))

    def merge(self, wish: Sequence[int]) -> bool:
        """Take in the classes that only the wish has, unless the wish has another order for the rest.

        There are classes of both kinds.
        """
        common = [self.labels[number] for number in wish if number in self.labels]
        if any(a >= b for a, b in pairwise(common)):
            return False
        at = bisect_left(self._along, common[0])
        for number in wish:
            if number in self.labels:
                at = bisect_left(self._along, self.labels[number])
            else:
                self._insert(number, at)
            at += 1
        return True

    def _insert(self, number: int, at: int) -> None:
        before = self._along[at - 1] if at else self._along[0] - (2 << GAP_BITS)
        behind = self._along[at] if at < len(self._along) else before + (2 << GAP_BITS)
        label = (before + behind) // 2
        self.numbers.insert(at, number)
        self._along.insert(at, label)
        self.labels[number] = label
        if behind - before < 2:
            self._label()


# -- rewriting ---------------------------------------------------------------------------------------------------------


def _each(operand: Any) -> tuple[Value, ...]:
    return operand if isinstance(operand, tuple) else (operand,)


class _Rewriting:
    """The ops of a region made anew in another order of axes."""

    def __init__(self, function: Function, order: Order) -> None:
        self.order, self.region = order, order.region
        self.builder = GraphBuilder(function=function, opset=function.opset)
        self.outside = set(self.region.used_outside)
        self.stored: dict[Value, Value] = {}  # declared tensor -> tensor in memory

    def run(self) -> int:
        """Number of ops made anew. Old ones go at the end: one whose result is only seen as it stands in memory has
        it in its declared order until then, and nothing in between has to turn it back."""
        old = []
        for op in self.region.ops:
            if self._stays(op):
                continue
            b = self.builder
            assert op.block is not None
            b.block, b.before = op.block, op
            behind = op._previous
            outcomes = self._made(op)
            results = tuple(self._result(value, result, op) for value, result in zip(op.outputs, outcomes))
            hand_down(op, results, behind)
            for value, result in zip(op.outputs, results):
                replace_uses(value, result)
            old.append(op)
        for op in reversed(old):
            assert op.block is not None
            op.block.remove(op)
        return len(old)

    def _result(self, value: Value, result: Value, op: Op) -> Value:
        """Operand for its users in place of an op's result; itself where all of them look for what is stored."""
        is_permuted = self.order.perm(value, op) != tuple(range(len(value.shape)))
        if is_permuted and value not in self.outside:
            self.stored[value] = result
            return value
        back = self._declared(value, result, op)
        self.stored[back] = result
        self.region.classes[back] = self.region.classes[value]  # it stands in for the op's result
        return back

    def _stays(self, op: Op) -> bool:
        """True where all tensors of an op stand in their declared order: then it is fine as it is."""
        operands = [
            operand for param, _, _ in self.region.signatures[op].operands for operand in _each(op.inputs[param])
        ]
        for value in (*operands, *op.outputs):
            perm = self.order.perm(value, op)
            if list(perm) != sorted(perm) or self.stored.get(value, value) is not value:
                return False
        return op.type != "conv" or conv_axes(self.order, op) == PLAIN

    def _operand(self, value: Value, op: Op) -> Value:
        """An operand as it stands in memory."""
        perm = self.order.perm(value, op)
        if value.is_constant:
            if list(perm) == sorted(perm):
                return value
            return self.builder.const(np.ascontiguousarray(value.data.transpose(perm)), value.dtype)
        if value not in self.stored:
            self.stored[value] = self._moved(value, perm)
        return self.stored[value]

    def _moved(self, value: Value, perm: Sequence[int]) -> Value:
        """A transposition, as a reshape where only axes of one element move."""
        if list(perm) == sorted(perm):
            return value
        long = [axis for axis in perm if value.shape[axis] != 1]
        if long == sorted(long):
            return self._shaped(value, [value.shape[axis] for axis in perm])
        permuted: Value = self.builder.transpose(x=value, perm=list(perm))
        return permuted

    def _shaped(self, value: Value, shape: Sequence[int]) -> Value:
        if list(value.shape) == list(shape):
            return value
        shaped: Value = self.builder.reshape(x=value, shape=list(shape))
        return shaped

    def _declared(self, value: Value, result: Value, op: Op) -> Value:
        perm = self.order.perm(value, op)
        return self._moved(result, [perm.index(axis) for axis in range(len(perm))])

    def _made(self, op: Op) -> tuple[Value, ...]:
        if has(op, ELEMENTWISE):
            return (self._elementwise(op),)
        if op.type == "concat":
            axis = self._place(op.output, op.arg("axis"), op)
            values = tuple(self._operand(value, op) for value in op.inputs["values"])
            return (self._op(op, values=values, axis=axis),)
        if op.type == "conv":
            return (self._conv(op),)
        x = self._operand(op.inputs["x"], op)
        if op.type == "transpose":
            return (x,)  # both sides stand in one order
        if has(op, RESHAPES):
            return (self._shaped(x, self.order.shape(op.output, op)),)
        if op.type == "split":
            result = self._op(op, x=x, axis=self._place(op.inputs["x"], op.arg("axis"), op))
            return result if isinstance(result, tuple) else (result,)
        return (self._op(op, x=x, **self._arguments(op)),)

    def _op(self, op: Op, **changed: Any) -> Any:
        return self.builder.op(op.type, opset=op.opset, **{**op.inputs, **changed})

    def _place(self, value: Value, axis: int, op: Op) -> int:
        """Place of an axis in memory."""
        return self.order.perm(value, op).index(axis % len(value.shape))

    def _arguments(self, op: Op) -> dict[str, Any]:
        """Parameters by axis, in the new order."""
        x = op.inputs["x"]
        perm = self.order.perm(x, op)
        if op.type == "pad":
            widths = pad_of(op, len(perm))
            assert widths is not None
            return {"pad": [width for axis in perm for width in widths[axis]]}
        if has(op, REDUCES):
            return {"axes": sorted(perm.index(axis) for axis in reduced_axes(op))}
        if op.type in ("slice_by_size", "slice_by_index"):
            names = [n for n in ("begin", "end", "size", "stride", "begin_mask", "end_mask") if n in op.inputs]
            return {name: [op.arg(name)[axis] for axis in perm] for name in names if op.arg(name) is not None}
        return {}

    def _elementwise(self, op: Op) -> Value:
        """Operands of lower rank get axes of one element where the result has more."""
        operands: dict[str, Any] = {}
        rank = len(op.output.shape)
        result = self.order.perm(op.output, op)
        for param in spec_of(op).tensors:
            value = op.inputs[param]
            x = self._operand(value, op)
            if len(value.shape) != rank and value.shape:
                full = [1] * (rank - len(value.shape)) + list(value.shape)
                x = self._shaped(x, [full[axis] for axis in result])
            operands[param] = x
        value_out: Value = self._op(op, **operands)
        return value_out

    def _conv(self, op: Op) -> Value:
        x, weight, y = op.inputs["x"], op.inputs["weight"], op.output
        axes = conv_axes(self.order, op)
        changed: dict[str, Any] = {"x": self._turned(self._operand(x, op), self.order.perm(x, op), axes)}
        if axes == EXCHANGED:
            strides, dilations, pads, _ = geometry_of(op)
            changed |= {
                "weight": np.ascontiguousarray(weight.data.transpose(axes)),
                "strides": [int(step) for step in strides[::-1]],
                "dilations": [int(step) for step in dilations[::-1]],
                "pad_type": "custom",
                "pad": [int(width) for pair in pads[::-1] for width in pair],
            }
        return self._turned(self._op(op, **changed), axes, self.order.perm(y, op))

    def _turned(self, value: Value, first: Sequence[int], second: Sequence[int]) -> Value:
        """A tensor whose axes stand in one order, in another."""
        return self._moved(value, [list(first).index(axis) for axis in second])
