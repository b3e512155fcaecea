"""Correspondence of the axes of tensors: regions of ops that work in any order of axes.

An op is *free* when it can take its operands and give its results with the axes in another order, all in the same one:
element-wise ops, concatenations, slices, paddings, reductions, and convolutions as far as rows and columns go. A
transposition between free ops is no work at all, only a name for another order. Free ops that share tensors make a
*region*; its axes fall into classes, and an order of the classes says how each tensor of the region stands in memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hexane.graph.ir import Function, Op, Value
from hexane.graph.registry import has, is_known, spec_of
from hexane.graph.traits import ELEMENTWISE, REDUCES, RESHAPES
from hexane.passes.rewriting import known, reduced_axes

CUTS = ("concat", "split", "slice_by_size", "slice_by_index", "pad")
"""Ops that join or cut along an axis."""

Label = Hashable
Key = Hashable
"""A tensor of a region: a value; a constant counts once for each op that takes it, so that it joins nothing."""


@dataclass(frozen=True)
class AxisSignature:
    """The axes of a free op: a label for each axis of its tensors; equal labels are the same axis."""

    operands: tuple[tuple[str, Value, tuple[Label, ...]], ...]
    results: tuple[tuple[Label, ...], ...]


def signature(op: Op) -> AxisSignature | None:
    """The axes of an op that works in any order of axes; None for all others."""
    if op.blocks or not is_known(op.type) or any(None in v.shape for v in (*op.outputs, *op.operands())):
        return None
    if all(value.constant for value in op.operands()):
        return None
    if has(op, ELEMENTWISE) or op.type == "cast":
        return _elementwise(op, spec_of(op).tensors)
    if op.type == "transpose":
        return _transposed(op)
    if has(op, RESHAPES):
        return _reshaped(op)
    if op.type in CUTS:
        return _cut(op)
    if has(op, REDUCES):
        return _reduced(op)
    return _convolved(op) if op.type == "conv" else None


def _elementwise(op: Op, params: Sequence[str]) -> AxisSignature | None:
    rank = len(op.output.shape)
    operands = []
    for param in params:
        value = op.inputs.get(param)
        if value is None or len(value.shape) > rank:
            return None
        operands.append((param, value, tuple(range(rank - len(value.shape), rank))))
    return AxisSignature(tuple(operands), (tuple(range(rank)),)) if rank else None


def _transposed(op: Op) -> AxisSignature | None:
    perm = op.arg("perm")
    if not known(perm):
        return None
    rank = len(perm)
    return AxisSignature((("x", op.inputs["x"], tuple(range(rank))),), (tuple(p % rank for p in perm),))


def _reshaped(op: Op) -> AxisSignature | None:
    """A reshape that only drops or adds axes of one element."""
    x, y = op.inputs["x"], op.output
    long = [extent for extent in x.shape if extent != 1]
    if long != [extent for extent in y.shape if extent != 1] or not x.shape or not y.shape:
        return None

    def labels(shape: Sequence[int], side: str) -> tuple[Label, ...]:
        at, origins = 0, []
        for axis, extent in enumerate(shape):
            origins.append((side, axis) if extent == 1 else at)
            at += extent != 1
        return tuple(origins)

    return AxisSignature((("x", x, labels(x.shape, "x")),), (labels(y.shape, "y"),))


def _cut(op: Op) -> AxisSignature | None:
    axes = tuple(range(len(op.outputs[0].shape)))
    if op.type == "concat":
        if op.arg("interleave"):
            return None
        return AxisSignature(tuple(("values", value, axes) for value in op.inputs["values"]), (axes,))
    if op.type == "pad" and (op.arg("mode") != "constant" or not known(op.arg("pad"), op.arg("constant_val"))):
        return None
    if op.type == "slice_by_size" and not known(op.arg("begin"), op.arg("size")):
        return None
    if op.type == "slice_by_index":
        names = ("begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask")
        if not known(*(op.arg(name) for name in names)) or any(op.arg("squeeze_mask") or ()):
            return None
    if op.type == "split" and not known(op.arg("axis"), op.arg("split_sizes"), op.arg("num_splits")):
        return None
    return AxisSignature((("x", op.inputs["x"], axes),), (axes,) * len(op.outputs))


def _reduced(op: Op) -> AxisSignature | None:
    rank = len(op.inputs["x"].shape)
    if not known(op.arg("axes"), op.arg("keep_dims")):
        return None
    gone = reduced_axes(op)
    left = tuple(range(rank)) if op.arg("keep_dims") else tuple(axis for axis in range(rank) if axis not in gone)
    if not left or len(left) != len(op.output.shape):  # nothing has an order where no axis is left
        return None
    return AxisSignature((("x", op.inputs["x"], tuple(range(rank))),), (left,))


def _convolved(op: Op) -> AxisSignature | None:
    x, weight = op.inputs["x"], op.inputs["weight"]
    if len(x.shape) != 4 or not weight.is_constant or weight.constant.coding is not None:
        return None
    names = (op.arg(name) for name in ("strides", "pad_type", "pad", "dilations", "groups"))
    if not known(*names):
        return None
    return AxisSignature((("x", x, ("n", "c", "h", "w")),), (("n", "k", "h", "w"),))


# -- regions -----------------------------------------------------------------------------------------------------------


@dataclass
class FreeRegion:
    """Free ops that share tensors.

    ``classes`` has the class of each axis of every tensor, ``extents`` the longest axis of each class. Values that are
    ``made_outside`` or ``used_outside``, by other ops or by the caller, stand there in their declared order.
    """

    ops: list[Op] = field(default_factory=list)
    signatures: dict[Op, AxisSignature] = field(default_factory=dict)
    classes: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    extents: dict[int, int] = field(default_factory=dict)
    made_outside: list[Value] = field(default_factory=list)
    used_outside: list[Value] = field(default_factory=list)

    @property
    def is_consistent(self) -> bool:
        """True where no tensor has one class twice (as in x + transpose(x))."""
        return all(len(set(axes)) == len(axes) for axes in self.classes.values())


def key_of(value: Value, op: Op) -> Key:
    """Under which a tensor of an op stands in ``FreeRegion.classes``."""
    return (value, op) if value.is_constant else value


class _Axes:
    """The axes of tensors, numbered, in disjoint sets of those that are the same axis."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.first: dict[Key, int] = {}  # number of a tensor's first axis

    def number(self, key: Key, rank: int) -> int:
        """Number of a tensor's first axis; the others follow."""
        if key not in self.first:
            self.first[key] = len(self.parents)
            self.parents.extend(range(len(self.parents), len(self.parents) + rank))
        return self.first[key]

    def find(self, axis: int) -> int:
        parents = self.parents
        while parents[axis] != axis:
            parents[axis] = axis = parents[parents[axis]]
        return axis

    def join(self, a: int, b: int) -> None:
        self.parents[self.find(a)] = self.find(b)


def regions(function: Function) -> list[FreeRegion]:
    """The regions of a function that have a transposition; time near-linear in the number of their ops."""
    signatures: dict[Op, AxisSignature] = {}
    shared = _Axes()  # here a tensor, of whatever rank, is one number: those of an op are in one set
    for op in function.ops:
        free = signature(op)
        if free is not None:
            signatures[op] = free
            first = shared.number(op.outputs[0], 1)
            for value in (*(value for _, value, _ in free.operands if not value.is_constant), *op.outputs[1:]):
                shared.join(first, shared.number(value, 1))
    groups: dict[int, list[Op]] = {}
    for op in signatures:
        groups.setdefault(shared.find(shared.first[op.outputs[0]]), []).append(op)
    return [_region(ops, signatures) for ops in groups.values() if any(op.type == "transpose" for op in ops)]


def _region(ops: list[Op], signatures: Mapping[Op, AxisSignature]) -> FreeRegion:
    region = FreeRegion(ops)
    axes = _Axes()
    tensors: dict[Key, Value] = {}
    for op in ops:
        free = region.signatures[op] = signatures[op]
        first: dict[Label, int] = {}
        values = [(value, labels) for _, value, labels in free.operands]
        for value, labels in (*values, *zip(op.outputs, free.results)):
            key = key_of(value, op)
            tensors.setdefault(key, value)
            number = axes.number(key, len(labels))
            for axis, label in enumerate(labels, number):
                axes.join(axis, first.setdefault(label, axis))
    numbers: dict[int, int] = {}
    for key, value in tensors.items():
        at = axes.first[key]
        region.classes[key] = tuple(
            numbers.setdefault(axes.find(axis), len(numbers)) for axis in range(at, at + len(value.shape))
        )
        for number, extent in zip(region.classes[key], value.shape):
            region.extents[number] = max(extent, region.extents.get(number, 1))
        if value.is_constant:
            continue
        if value.op not in region.signatures:
            region.made_outside.append(value)
        if value.is_output or any(_takes_otherwise(region, user, value) for user in value.users):
            region.used_outside.append(value)
    return region


def _takes_otherwise(region: FreeRegion, user: Op, value: Value) -> bool:
    """True where an op needs a value in its declared order."""
    free = region.signatures.get(user)
    return free is None or sum(value is operand for _, operand, _ in free.operands) != _count(user.operands(), value)


def _count(values: Iterable[Value], one: Value) -> int:
    return sum(value is one for value in values)
