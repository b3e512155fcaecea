"""The turned forms of ops whose features are channels and whose tokens lie along W (hexane.passes.columns)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Op, Value
from hexane.graph.registry import has
from hexane.graph.traits import ELEMENTWISE, REDUCES, RESHAPES
from hexane.lowering.fusion import factor_of
from hexane.passes.column_relations import (
    Analysis,
    Kind,
    has_no_epsilon,
    images_of,
    last_two_swapped,
    matrix_of,
    runs_over,
    turned_constant,
)
from hexane.passes.feature_sums import inverse_root, mean, mean_squares
from hexane.passes.rewriting import array_of, as_dtype


def turned(value: Value, kind: Kind, b: GraphBuilder) -> Value:
    """A value as it is seen turned."""
    shape, rank = value.shape, len(value.shape)
    if kind is Kind.SPLIT:
        return b.transpose(x=value, perm=[0, 2, 3, 1])
    swapped = last_two_swapped(rank)
    if kind is Kind.HEADS:
        return b.transpose(x=value, perm=swapped)
    tokens, features, images = shape[-2], shape[-1], images_of(shape)
    result = value
    if images > 1:
        result = b.transpose(x=b.reshape(x=value, shape=[images, tokens, features]), perm=[2, 0, 1])
    elif features > 1:
        result = b.transpose(x=value, perm=swapped)
    return b.reshape(x=result, shape=[1, features, images, tokens])


def back(value: Value, twin: Value, kind: Kind, b: GraphBuilder) -> Value:
    """The value itself from how it is seen turned."""
    shape, rank = value.shape, len(value.shape)
    if kind is Kind.SPLIT:
        return b.transpose(x=twin, perm=[0, 3, 1, 2])
    swapped = last_two_swapped(rank)
    if kind is Kind.HEADS:
        return b.transpose(x=twin, perm=swapped)
    tokens, features, images = shape[-2], shape[-1], images_of(shape)
    if images > 1:
        result = b.transpose(x=b.reshape(x=twin, shape=[features, images, tokens]), perm=[1, 2, 0])
        return b.reshape(x=result, shape=list(shape))
    if features == 1:
        return b.reshape(x=twin, shape=list(shape))
    return b.transpose(x=b.reshape(x=twin, shape=[*shape[:-2], features, tokens]), perm=swapped)


class ColumnWriter:
    """Writes the turned forms of the chosen ops, one after the other."""

    def __init__(self, analysis: Analysis, choice: set[Op], b: GraphBuilder) -> None:
        self.analysis, self.chosen, self.b = analysis, choice, b
        self.twins: dict[Value, Value] = {}

    def operand(self, value: Value) -> Value:
        """View of an operand that is transposed; one that comes from outside is transposed once."""
        if value not in self.twins:
            self.twins[value] = turned(value, self.analysis.kinds[value], self.b)
        return self.twins[value]

    def results(self, op: Op) -> tuple[Value, ...]:
        """The results of an op as they are seen turned; of an op that ends the turned part, the results themselves."""
        if op in self.analysis.done:
            return (self.analysis.done[op],)
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
        matrix = matrix_of(op)
        assert matrix is not None  # it has a relation
        weight, values, bias = matrix
        if op in self.analysis.scales:
            scale, shift = self.analysis.scales[op]
            values = np.asarray(values, np.float64)
            offset = values @ shift
            if offset.any() or bias is not None:
                bias = offset if bias is None else bias + offset
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
        product = self.b.matmul(x=flat, y=as_dtype(values, weight), transpose_x=True, transpose_y=True)
        if bias is not None:
            product = self.b.add(x=product, y=as_dtype(bias, weight))
        return product if product.shape == out.shape else self.b.reshape(x=product, shape=list(out.shape))

    def _norm(self, op: Op) -> Value:
        b, x, epsilon = self.b, self.operand(op.inputs["x"]), op.arg("epsilon")

        def written(x: Value) -> Value:
            centred = b.sub(x=x, y=mean(x, b))
            result: Value = b.mul(x=centred, y=inverse_root(b.square(x=centred), epsilon, b))
            return result

        norm = b.again(("layer_norm", epsilon), x, written)
        gamma, beta = (array_of(op.inputs.get(name)) for name in ("gamma", "beta"))
        features = x.shape[1]
        scale = np.ones(features) if gamma is None else gamma.reshape(-1)
        shift = np.zeros(features) if beta is None else beta.reshape(-1)
        if self._folded(op, scale, shift):
            return norm
        if gamma is not None and beta is not None and self.analysis.compilation.on.affine_maps:
            weight = as_dtype(scale.reshape(-1, 1, 1, 1), x)
            return b.conv(x=norm, weight=weight, bias=as_dtype(shift, x), groups=features)
        if gamma is not None:
            norm = b.mul(x=norm, y=as_dtype(scale.reshape(1, -1, 1, 1), x))
        return norm if beta is None else b.add(x=norm, y=as_dtype(shift.reshape(1, -1, 1, 1), x))

    def _folded(self, op: Op, scale: np.ndarray, shift: np.ndarray) -> bool:
        """Leave a factor and a summand per feature to the weights of the products behind, if only products are."""
        products = self._products_behind(op.output)
        if products is None:
            return False
        if not shift.any() and (scale == 1).all():
            return True
        for product in products:
            self.analysis.scales[product] = scale, shift
        return True

    def _products_behind(self, value: Value) -> list[Op] | None:
        products: list[Op] = []
        if value.is_output:
            return None
        for user in value.users:
            if user not in self.chosen:
                return None
            if user.type in ("linear", "matmul"):
                products.append(user)
                continue
            goes_on = has(user, RESHAPES) and self.analysis.kinds.get(user.output) is Kind.ROWS
            behind = self._products_behind(user.output) if goes_on else None
            if behind is None:
                return None
            products += behind
        return products

    def _reduction(self, op: Op) -> Value:
        b, x = self.b, self.operand(op.inputs["x"])
        if not runs_over(op, -1):
            result = b.op(op.type, x=x, axes=[3], keep_dims=True)
            return b.reshape(x=result, shape=list(op.output.shape))
        root = self._root_behind(op)
        if root is not None:
            added, last = root
            number = 0.0 if added is None else factor_of(added)
            assert number is not None  # _root_behind asked
            result = b.again(("inverse_root", number), x, lambda x: inverse_root(x, number, b))
            value: Value | None = op.output
            while value is not None and value.op is not last:
                user = value.only_user
                assert user is not None  # one behind the other
                self.analysis.done[user] = result
                value = user.output
            return result
        reduction, *others = mean_squares(x, 0.0, b)
        for other in others:
            reduction = b.minimum(x=reduction, y=other)
        return reduction

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
            return (added, user) if user is not None and user.type == "inverse" and has_no_epsilon(user) else None
        return (added, user) if user is not None and user.type == "rsqrt" and has_no_epsilon(user) else None

    def _next(self, op: Op) -> Op | None:
        user = op.output.only_user
        return user if user in self.chosen else None

    def _binary(self, op: Op) -> Value:
        kind, out = self.analysis.kinds[op.output], op.output
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
                constant = turned_constant(value, kind, out.shape)
                assert constant is not None  # it has a relation
                values[name] = as_dtype(constant, value).reshape(constant.shape)
            else:
                values[name] = self.operand(value)
        return self.b.op(op.type, opset=op.opset, **values)

    def _move(self, op: Op) -> Value:
        x, out, kinds = op.inputs["x"], op.output, self.analysis.kinds
        twin, kind = self.operand(x), kinds[x]
        after = kinds.get(out) if out in self.analysis.ops[op] else None
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
        kind, rank = self.analysis.kinds[op.outputs[0]], len(op.outputs[0].shape)
        if op.type == "slice_by_size":
            x, begin, size = op.inputs["x"], list(op.arg("begin")), list(op.output.shape)
            if kind is Kind.ROWS:
                begin = [0, begin[-1], 0, begin[-2]]
                size = [1, size[-1], images_of(x.shape), size[-2]]
            else:
                begin[-2:], size[-2:] = begin[:-3:-1], size[:-3:-1]
            return (self.b.slice_by_size(x=self.operand(x), begin=begin, size=size),)
        axis = op.arg("axis") % rank - rank
        place = {-1: 1, -2: 3}[axis] if kind is Kind.ROWS else {-1: rank - 2, -2: rank - 1}.get(axis, axis)
        if op.type == "concat":
            return (self.b.concat(values=tuple(map(self.operand, op.inputs["values"])), axis=place),)
        rest = {name: value for name, value in op.inputs.items() if name not in ("x", "axis")}
        parts = self.b.split(x=self.operand(op.inputs["x"]), axis=place, **rest)
        return parts if isinstance(parts, tuple) else (parts,)
