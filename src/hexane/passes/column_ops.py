"""What each op becomes where features are channels and tokens lie along W (hexane.passes.columns)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.graph.registry import has, spec_of
from hexane.graph.traits import ELEMENTWISE, REDUCES, RESHAPES, SAME_VALUES, Trait
from hexane.lowering.fusion import factor_of, only_user
from hexane.passes.feature_sums import inverse_root, mean, mean_squares
from hexane.passes.rewriting import array_of, as_dtype, is_static, known

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Op, Value
    from hexane.lowering.compilation import Compilation
    from hexane.passes.attention import Operands

FLOATS = ("fp16", "fp32")
SPLIT_TO_HEADS = (0, 2, 1, 3)


class Kind(Enum):
    """How a value is seen turned.

    ROWS: [.., S, C] as [1, C, B, S]. HEADS: [.., S, D] as [.., D, S]. SPLIT: [1, S, H, D] as [1, H, D, S].
    """

    ROWS = "rows"
    HEADS = "heads"
    SPLIT = "split"


Relation = dict["Value", Kind]


@dataclass
class Seen:
    """What is known of a function: the kind of each value, and of each op the kinds that its turned form goes with."""

    compilation: Compilation
    attention: Operands
    kinds: dict[Value, Kind] = field(default_factory=dict)
    ops: dict[Op, Relation] = field(default_factory=dict)
    scales: dict[Op, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    """Products whose operand still wants a factor and a summand per feature."""
    done: dict[Op, Value] = field(default_factory=dict)
    """Ops that an op in front of them has computed too."""

    def is_turned_already(self, value: Value) -> bool:
        """Whether a value from outside costs no copy: moves cancel, or attention makes it so."""
        if value.shape[-1] == 1 or value in self.attention.results:
            return True
        op = value.op
        if op is None or op.type != "transpose" or not known(op.arg("perm")):
            return False
        return _swaps_last(op) and only_user(value) is not None


def _swaps_last(op: Op) -> bool:
    rank = len(op.output.shape)
    return [p % rank for p in op.arg("perm")] == _last_two_swapped(rank)


def _last_two_swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def images_of(shape: tuple[int, ...]) -> int:
    """How many images of [tokens, features] stand in a shape."""
    return prod(shape[:-2])


# -- which kinds go together -------------------------------------------------------------------------------------------


def relation(op: Op, seen: Seen) -> Relation | None:
    """The kinds of an op's operands and results if it is computed turned; None for an op that has no turned form."""
    rule = _RELATIONS.get(op.type) or next((rule for trait, rule in _BY_TRAIT.items() if has(op, trait)), None)
    if rule is None or op in seen.attention.kept or not op.outputs:
        return None
    computed = [v for v in (*op.operands(), *op.outputs) if not v.is_constant]
    if any(not is_static(v) or v.dtype not in FLOATS or len(v.shape) < 2 for v in computed):
        return None
    return rule(op, seen)


def _kind_of(seen: Seen, *values: Value) -> Kind | None:
    return next((seen.kinds[v] for v in values if v in seen.kinds), None)


def _product(op: Op, _seen: Seen) -> Relation | None:
    x = op.inputs["x"]
    if matrix_of(op) is None or x.is_constant or (x.op is not None and x.op.type == "dequantize"):
        return None
    return {x: Kind.ROWS, op.output: Kind.ROWS}


def matrix_of(op: Op) -> tuple[Value, np.ndarray, np.ndarray | None] | None:
    """(constant, weights [N, K], bias) of a product with a constant matrix that no file has packed."""
    weight, bias = op.inputs["weight" if op.type == "linear" else "y"], op.inputs.get("bias")
    constant = weight.constant
    if constant is None or constant.coding is not None or weight.dtype not in FLOATS or len(weight.shape) < 2:
        return None
    if prod(weight.shape[:-2]) != 1 or (bias is not None and not bias.is_constant):
        return None
    if op.type == "matmul" and op.arg("transpose_x"):
        return None
    values = np.asarray(weight.data).reshape(weight.shape[-2:])
    turned_weights = op.type == "linear" or op.arg("transpose_y")
    return weight, values if turned_weights else values.T, None if bias is None else np.asarray(bias.data).reshape(-1)


def _norm(op: Op, _seen: Seen) -> Relation | None:
    x = op.inputs["x"]
    if (
        not _over(op, -1)
        or x.shape[-1] < 2
        or any(op.inputs.get(name) is not None and not op.inputs[name].is_constant for name in ("gamma", "beta"))
    ):
        return None
    return {x: Kind.ROWS, op.output: Kind.ROWS}


def _over(op: Op, axis: int) -> bool:
    """Whether an op reduces just this axis, counted from the end."""
    axes, rank = op.arg("axes"), len(op.inputs["x"].shape)
    return axes is not None and [a % rank for a in axes] == [rank + axis]


def _reduction(op: Op, seen: Seen) -> Relation | None:
    x = op.inputs["x"]
    if _over(op, -1) and op.arg("keep_dims") and op.type == "reduce_mean" and x.shape[-1] > 1 and _is_square(x):
        return {x: Kind.ROWS, op.output: Kind.ROWS}
    if _over(op, -2) and seen.kinds.get(x) is Kind.ROWS and images_of(x.shape) == 1:
        return {x: Kind.ROWS}
    return None


def _is_square(value: Value) -> bool:
    op = value.op
    if op is None:
        return False
    return op.type == "square" or (op.type == "mul" and op.inputs["x"] is op.inputs["y"])


def _no_epsilon(op: Op) -> bool:
    return not np.float16(op.arg("epsilon"))


def _elementwise(op: Op, seen: Seen) -> Relation | None:
    tensors = spec_of(op).tensors
    if tensors == ("x", "y"):
        return _two_operands(op, seen)
    if tensors != ("x",):
        return None
    x = op.inputs["x"]
    kind = _kind_of(seen, x, op.output)
    if kind is None or x.shape != op.output.shape:
        return None
    return {x: kind, op.output: kind}


def _two_operands(op: Op, seen: Seen) -> Relation | None:
    out = op.output
    operands = [op.inputs["x"], op.inputs["y"]]
    given = [v for v in operands if not v.is_constant]
    kind = _kind_of(seen, out, *given)
    if kind is None or all(v.shape != out.shape for v in given):
        return None
    found = {out: kind}
    for value in operands:
        if value.is_constant:
            if _turned_constant(value, kind, out.shape) is None:
                return None
        elif value.shape != out.shape and value.shape != (*out.shape[:-1], 1):
            return None
        else:
            found[value] = kind
    return found


def _turned_constant(value: Value, kind: Kind, shape: tuple[int, ...]) -> np.ndarray | None:
    """A constant operand of a result of this shape, turned with it; None for one that has no such form."""
    data = np.asarray(value.data)
    if data.dtype.kind != "f" or data.ndim > len(shape):
        return None
    if data.size == 1:
        return data.reshape(())
    data = data.reshape((1,) * (len(shape) - data.ndim) + data.shape)
    if kind is Kind.SPLIT:
        return data.transpose(0, 2, 3, 1)
    if kind is Kind.HEADS:
        return np.swapaxes(data, -1, -2)
    if images_of(data.shape) not in (1, images_of(shape)):
        return None
    return data.reshape(-1, *data.shape[-2:]).transpose(2, 0, 1)[None]


def _reshape(op: Op, seen: Seen) -> Relation | None:
    x, out = op.inputs["x"], op.output
    before, after = seen.kinds.get(x), seen.kinds.get(out)
    if x.shape[-2:] == out.shape[-2:]:
        kind = before or after
        return None if kind in (None, Kind.SPLIT) else {x: kind, out: kind}
    for (rows, _), (split, _), forwards in (((x, out), (out, x), True), ((out, x), (x, out), False)):
        if len(split.shape) != 4 or images_of(rows.shape) != 1 or split.shape[0] != 1:
            continue
        tokens, heads, dims = split.shape[1:]
        if rows.shape[-2:] != (tokens, heads * dims):
            continue
        kinds = (before, after) if forwards else (after, before)
        if kinds[0] is Kind.ROWS or kinds[1] is Kind.SPLIT:
            return {rows: Kind.ROWS, split: Kind.SPLIT}
    return None


def _transpose(op: Op, seen: Seen) -> Relation | None:
    x, out = op.inputs["x"], op.output
    if not known(op.arg("perm")):
        return None
    rank = len(x.shape)
    perm = tuple(p % rank for p in op.arg("perm"))
    before, after = seen.kinds.get(x), seen.kinds.get(out)
    if perm == SPLIT_TO_HEADS and x.shape[0] == 1:
        if before is Kind.SPLIT or after is Kind.HEADS:
            return {x: Kind.SPLIT, out: Kind.HEADS}
        if before is Kind.HEADS or after is Kind.SPLIT:
            return {x: Kind.HEADS, out: Kind.SPLIT}
    if perm == (0, 2, 3, 1) and before is Kind.SPLIT:
        return {x: Kind.SPLIT}
    if _swaps_last(op) and before is not None and before is not Kind.SPLIT and images_of(x.shape) == 1:
        return {x: before}
    return None


def _slice(op: Op, seen: Seen) -> Relation | None:
    x, out = op.inputs["x"], op.output
    kind = _kind_of(seen, x, out)
    if kind is None or kind is Kind.SPLIT or not known(op.arg("begin")):
        return None
    if kind is Kind.ROWS and x.shape[:-2] != out.shape[:-2]:
        return None
    return {x: kind, out: kind}


def _pieces(op: Op, seen: Seen) -> Relation | None:
    """concat and split: along features or tokens, heads along any axis."""
    values = (*op.inputs["values"], op.output) if op.type == "concat" else (op.inputs["x"], *op.outputs)
    kind = _kind_of(seen, *values)
    rank = len(values[0].shape)
    if kind is None or kind is Kind.SPLIT or any(v.is_constant for v in values):
        return None
    if op.type == "concat" and (op.arg("interleave") or len(set(values)) < len(values)):
        return None
    if kind is Kind.ROWS and op.arg("axis") % rank < rank - 2:
        return None
    return dict.fromkeys(values, kind)


def _pad(op: Op, seen: Seen) -> Relation | None:
    """Tokens behind the last one."""
    x, out = op.inputs["x"], op.output
    kind, pad = _kind_of(seen, x, out), op.arg("pad")
    if kind is None or kind is Kind.SPLIT or not known(pad) or op.arg("mode") != "constant":
        return None
    return {x: kind, out: kind} if x.shape[:-2] == out.shape[:-2] and x.shape[-1] == out.shape[-1] else None


def _tile(op: Op, seen: Seen) -> Relation | None:
    x, reps = op.inputs["x"], op.arg("reps")
    kind = _kind_of(seen, x, op.output)
    if kind is not Kind.HEADS or not known(reps) or any(r != 1 for r in list(reps)[-2:]):
        return None
    return {x: kind, op.output: kind}


_RELATIONS: Mapping[str, Callable[[Op, Seen], Relation | None]] = {
    "linear": _product,
    "matmul": _product,
    "layer_norm": _norm,
    "transpose": _transpose,
    "slice_by_size": _slice,
    "concat": _pieces,
    "split": _pieces,
    "tile": _tile,
    "pad": _pad,
}
_BY_TRAIT: Mapping[Trait, Callable[[Op, Seen], Relation | None]] = {
    ELEMENTWISE | SAME_VALUES: _elementwise,
    REDUCES: _reduction,
    RESHAPES: _reshape,
}


# -- what is written ---------------------------------------------------------------------------------------------------


def turned(value: Value, kind: Kind, b: GraphBuilder) -> Value:
    """A value as it is seen turned."""
    shape, rank = value.shape, len(value.shape)
    if kind is Kind.SPLIT:
        return b.transpose(x=value, perm=[0, 2, 3, 1])
    swapped = _last_two_swapped(rank)
    if kind is Kind.HEADS:
        return b.transpose(x=value, perm=swapped)
    tokens, features, images = shape[-2], shape[-1], images_of(shape)
    made = value
    if images > 1:
        made = b.transpose(x=b.reshape(x=value, shape=[images, tokens, features]), perm=[2, 0, 1])
    elif features > 1:
        made = b.transpose(x=value, perm=swapped)
    return b.reshape(x=made, shape=[1, features, images, tokens])


def back(value: Value, twin: Value, kind: Kind, b: GraphBuilder) -> Value:
    """The value itself from how it is seen turned."""
    shape, rank = value.shape, len(value.shape)
    if kind is Kind.SPLIT:
        return b.transpose(x=twin, perm=[0, 3, 1, 2])
    swapped = _last_two_swapped(rank)
    if kind is Kind.HEADS:
        return b.transpose(x=twin, perm=swapped)
    tokens, features, images = shape[-2], shape[-1], images_of(shape)
    if images > 1:
        made = b.transpose(x=b.reshape(x=twin, shape=[features, images, tokens]), perm=[1, 2, 0])
        return b.reshape(x=made, shape=list(shape))
    if features == 1:
        return b.reshape(x=twin, shape=list(shape))
    return b.transpose(x=b.reshape(x=twin, shape=[*shape[:-2], features, tokens]), perm=swapped)


class Writer:
    """Writes the turned forms of the chosen ops, one after the other."""

    def __init__(self, seen: Seen, chosen: set[Op], b: GraphBuilder) -> None:
        self.seen, self.chosen, self.b = seen, chosen, b
        self.twins: dict[Value, Value] = {}

    def operand(self, value: Value) -> Value:
        """How an operand is seen turned; what comes from outside is turned once."""
        if value not in self.twins:
            self.twins[value] = turned(value, self.seen.kinds[value], self.b)
        return self.twins[value]

    def results(self, op: Op) -> tuple[Value, ...]:
        """The results of an op as they are seen turned; of an op that ends the turned part, the results themselves."""
        if op in self.seen.done:
            return (self.seen.done[op],)
        if op.type in ("linear", "matmul"):
            return (self._product(op),)
        if op.type == "layer_norm":
            return (self._norm(op),)
        if has(op, REDUCES):
            return (self._reduction(op),)
        if has(op, ELEMENTWISE) and "y" in op.inputs:
            return (self._binary(op),)
        if has(op, RESHAPES) or op.type == "transpose":
            return (self._move(op),)
        if op.type == "pad":
            pad = [int(n) for n in op.arg("pad")[-4:-2]] if len(op.arg("pad")) > 2 else [0, 0]
            value = float(op.arg("constant_val"))
            x = self.operand(op.inputs["x"])
            return (self.b.pad(x=x, pad=pad, mode="constant", constant_val=value),)
        if op.type in ("concat", "split", "slice_by_size"):
            return self._part(op)
        return (self._again(op),)

    def _again(self, op: Op) -> Value:
        """The same op on the turned operand."""
        return self.b.op(op.type, opset=op.opset, **{**op.inputs, "x": self.operand(op.inputs["x"])})

    def parameters(self, op: Op) -> tuple[Value, np.ndarray, np.ndarray | None]:
        """(constant, weights [N, K], bias) with what a norm in front left to them."""
        found = matrix_of(op)
        assert found is not None  # it has a relation
        weight, values, bias = found
        if op in self.seen.scales:
            scale, shift = self.seen.scales[op]
            values = np.asarray(values, np.float64)
            moved = values @ shift
            if moved.any() or bias is not None:
                bias = moved if bias is None else bias + moved
            values = values * scale
        return weight, values, bias

    def _product(self, op: Op) -> Value:
        weight, values, bias = self.parameters(op)
        kernel = as_dtype(values[:, :, None, None], weight)
        operands = {} if bias is None else {"bias": as_dtype(bias, weight)}
        return self.b.conv(x=self.operand(op.inputs["x"]), weight=kernel, **operands)

    def rows(self, op: Op) -> Value:
        """A product whose result nobody wants turned: the task turns it as it writes."""
        weight, values, bias = self.parameters(op)
        x, out = op.inputs["x"], op.output
        flat = self.b.reshape(x=self.operand(x), shape=[x.shape[-1], x.shape[-2]])
        made = self.b.matmul(x=flat, y=as_dtype(values, weight), transpose_x=True, transpose_y=True)
        if bias is not None:
            made = self.b.add(x=made, y=as_dtype(bias, weight))
        return made if made.shape == out.shape else self.b.reshape(x=made, shape=list(out.shape))

    def _norm(self, op: Op) -> Value:
        b, x = self.b, self.operand(op.inputs["x"])
        centred = b.sub(x=x, y=mean(x, b))
        made = b.mul(x=centred, y=inverse_root(b.square(x=centred), op.arg("epsilon"), b))
        gamma, beta = (array_of(op.inputs.get(name)) for name in ("gamma", "beta"))
        features = x.shape[1]
        scale = np.ones(features) if gamma is None else gamma.reshape(-1)
        shift = np.zeros(features) if beta is None else beta.reshape(-1)
        if self._folded(op, scale, shift):
            return made
        if gamma is not None and beta is not None and self.seen.compilation.on.affine_maps:
            weight = as_dtype(scale.reshape(-1, 1, 1, 1), x)
            return b.conv(x=made, weight=weight, bias=as_dtype(shift, x), groups=features)
        if gamma is not None:
            made = b.mul(x=made, y=as_dtype(scale.reshape(1, -1, 1, 1), x))
        return made if beta is None else b.add(x=made, y=as_dtype(shift.reshape(1, -1, 1, 1), x))

    def _folded(self, op: Op, scale: np.ndarray, shift: np.ndarray) -> bool:
        """Leave a factor and a summand per feature to the weights of the products behind, if only products are."""
        products = self._products_behind(op.output)
        if products is None:
            return False
        for product in products:
            self.seen.scales[product] = scale, shift
        return True

    def _products_behind(self, value: Value) -> list[Op] | None:
        found: list[Op] = []
        if value.is_output:
            return None
        for user in value.users:
            if user not in self.chosen:
                return None
            if user.type in ("linear", "matmul"):
                found.append(user)
                continue
            kept = has(user, RESHAPES) and self.seen.kinds.get(user.output) is Kind.ROWS
            behind = self._products_behind(user.output) if kept else None
            if behind is None:
                return None
            found += behind
        return found

    def _reduction(self, op: Op) -> Value:
        b, x = self.b, self.operand(op.inputs["x"])
        if not _over(op, -1):
            made = b.op(op.type, x=x, axes=[3], keep_dims=True)
            return b.reshape(x=made, shape=list(op.output.shape))
        root = self._root_behind(op)
        if root is not None:
            added, last = root
            number = 0.0 if added is None else factor_of(added)
            assert number is not None  # _root_behind asked
            made = inverse_root(x, number, b)
            value: Value | None = op.output
            while value is not None and value.op is not last:
                user = only_user(value)
                assert user is not None  # one behind the other
                self.seen.done[user] = made
                value = user.output
            return made
        found, *others = mean_squares(x, 0.0, b)
        for other in others:
            found = b.minimum(x=found, y=other)
        return found

    def _root_behind(self, op: Op) -> tuple[Op | None, Op] | None:
        """(the sum with a number, the last op) of an inverse root behind a mean, as roots and inverses spell it."""
        added, user = None, self._next(op)
        if user is not None and user.type == "add":
            number = factor_of(user)
            if number is None or not 0 <= number < 1:
                return None
            added, user = user, self._next(user)
        if user is not None and user.type == "sqrt":
            user = self._next(user)
            return (added, user) if user is not None and user.type == "inverse" and _no_epsilon(user) else None
        return (added, user) if user is not None and user.type == "rsqrt" and _no_epsilon(user) else None

    def _next(self, op: Op) -> Op | None:
        user = only_user(op.output)
        return user if user in self.chosen else None

    def _binary(self, op: Op) -> Value:
        kind, out = self.seen.kinds[op.output], op.output
        data = next((array_of(v) for v in (op.inputs["x"], op.inputs["y"]) if v.is_constant), None)
        rest = next(v for v in (op.inputs["x"], op.inputs["y"]) if not v.is_constant)
        features = out.shape[-1]
        per_feature = data is not None and data.size == features > 1 and data.shape[-1] == features
        if per_feature and kind is Kind.ROWS and op.type in ("mul", "add") and rest.shape == out.shape:
            assert data is not None
            numbers, ones = data.reshape(-1), np.ones(features)
            both = (numbers, 0 * ones) if op.type == "mul" else (ones, numbers)
            if self._folded(op, *both):
                return self.operand(rest)
        values: dict[str, Any] = {}
        for name in ("x", "y"):
            value = op.inputs[name]
            if value.is_constant:
                constant = _turned_constant(value, kind, out.shape)
                assert constant is not None  # it has a relation
                values[name] = as_dtype(constant, value).reshape(constant.shape)
            else:
                values[name] = self.operand(value)
        return self.b.op(op.type, opset=op.opset, **values)

    def _move(self, op: Op) -> Value:
        x, out, kinds = op.inputs["x"], op.output, self.seen.kinds
        twin, kind = self.operand(x), kinds[x]
        after = kinds.get(out) if out in self.seen.ops[op] else None
        if after is None:  # a transposition that undoes the turning
            return twin if twin.shape == out.shape else self.b.reshape(x=twin, shape=list(out.shape))
        if op.type == "transpose" or kind is after is Kind.ROWS:
            return twin
        if kind is after:
            shape = [*out.shape[:-2], out.shape[-1], out.shape[-2]]
        elif kind is Kind.ROWS:
            shape = [1, *out.shape[2:], out.shape[1]]
        else:
            shape = [1, out.shape[-1], 1, out.shape[-2]]
        return self.b.reshape(x=twin, shape=shape)

    def _part(self, op: Op) -> tuple[Value, ...]:
        kind, rank = self.seen.kinds[op.outputs[0]], len(op.outputs[0].shape)
        if op.type == "slice_by_size":
            x, begin, size = op.inputs["x"], list(op.arg("begin")), list(op.output.shape)
            if kind is Kind.ROWS:
                begin = [0, begin[-1], 0, begin[-2]]
                size = [1, size[-1], images_of(x.shape), size[-2]]
            else:
                begin[-2:], size[-2:] = begin[:-3:-1], size[:-3:-1]
            return (self.b.slice_by_size(x=self.operand(x), begin=begin, size=size),)
        axis = op.arg("axis") % rank - rank
        moved = {-1: 1, -2: 3}[axis] if kind is Kind.ROWS else {-1: rank - 2, -2: rank - 1}.get(axis, axis)
        if op.type == "concat":
            return (self.b.concat(values=tuple(map(self.operand, op.inputs["values"])), axis=moved),)
        rest = {name: value for name, value in op.inputs.items() if name not in ("x", "axis")}
        found = self.b.split(x=self.operand(op.inputs["x"]), axis=moved, **rest)
        return found if isinstance(found, tuple) else (found,)
