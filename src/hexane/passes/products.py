"""Linear layers on flattened maps."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hexane.graph.registry import has, with_trait
from hexane.graph.traits import ELEMENTWISE, RESHAPES
from hexane.lowering.windows import NATIVE_WIDTH, TALLEST
from hexane.passes.rewriting import as_dtype, is_static, sweep

if TYPE_CHECKING:
    import numpy as np

    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation


def legalise_products(function: Function) -> int:
    """Write a linear layer on a flattened map as a convolution that covers the map: no flattening, no long rows."""
    rules = {"linear": _linear, "matmul": _matmul} | dict.fromkeys(with_trait(ELEMENTWISE, 1), _sink)
    return sweep(function, rules)


def rows_in_parts(function: Function, compilation: Compilation) -> int:
    """Group the rows of a product with a constant matrix where they are more than an axis of a tensor may have."""

    def in_parts(op: Op, b: GraphBuilder) -> Value | None:
        x, most = op.inputs["x"], compilation.chip.generation.max_height
        matrix = op.inputs["weight" if op.type == "linear" else "y"]
        if not is_static(x) or len(x.shape) < 2 or not matrix.is_constant or len(matrix.shape) != 2:
            return None
        if op.type == "matmul" and op.arg("transpose_x"):
            return None
        rows, k = x.shape[-2:]
        height = next((rows // count for count in range(2, rows) if rows % count == 0 and rows // count <= most), 0)
        if rows <= most or not height:
            return None
        parts = b.reshape(x=x, shape=[prod(x.shape[:-1]) // height, height, k])
        product = b.op(op.type, opset=op.opset, **{**op.inputs, "x": parts})
        return b.reshape(x=product, shape=list(op.output.shape))

    return sweep(function, dict.fromkeys(("linear", "matmul"), in_parts))


def _flattened(value: Value) -> Value | None:
    """The map [1, C, H, W] of which a vector [1, C H W] is a reshape."""
    op = value.op
    if op is None or not has(op, RESHAPES):
        return None
    source = op.inputs["x"]
    if not is_static(source) or len(source.shape) != 4 or source.shape[0] != 1:
        return None
    if not value.shape or value.shape[-1] != prod(source.shape) or prod(value.shape) != value.shape[-1]:
        return None
    return source


def _covering(x: Value, weight: Value, data: np.ndarray, bias: Value | None, op: Op, b: GraphBuilder) -> Value | None:
    source = _flattened(x)
    if source is None or source.shape[2] > TALLEST or source.shape[3] > NATIVE_WIDTH:
        return None
    kernel = as_dtype(data.reshape(-1, *source.shape[1:]), weight)
    operands = {} if bias is None else {"bias": as_dtype(bias.data.reshape(-1), weight)}
    result = b.conv(x=source, weight=kernel, **operands)
    return b.reshape(x=result, shape=list(op.output.shape))


def _linear(op: Op, b: GraphBuilder) -> Value | None:
    weight, bias = op.inputs["weight"], op.inputs.get("bias")
    if not weight.is_constant or (bias is not None and (not bias.is_constant or bias.shape != weight.shape[:1])):
        return None
    return _covering(op.inputs["x"], weight, weight.data, bias, op, b)


def _matmul(op: Op, b: GraphBuilder) -> Value | None:
    """A product with a constant matrix on the right; vectors become matrices of one row or column."""
    x, y = op.inputs["x"], op.inputs["y"]
    if 1 in (len(x.shape), len(y.shape)):
        return _of_vectors(op, b)
    if not y.is_constant or len(y.shape) != 2 or x.is_constant or op.arg("transpose_x"):
        return None
    return _covering(x, y, y.data if op.arg("transpose_y") else y.data.T, None, op, b)


def _of_vectors(op: Op, b: GraphBuilder) -> Value:
    x, y = op.inputs["x"], op.inputs["y"]
    left = b.expand_dims(x=x, axes=[0]) if len(x.shape) == 1 else x
    right = b.expand_dims(x=y, axes=[1]) if len(y.shape) == 1 else y
    flags = {"transpose_x": x, "transpose_y": y}  # which mean nothing for vectors
    rest = {name: op.inputs[name] for name, side in flags.items() if name in op.inputs and len(side.shape) > 1}
    return b.reshape(x=b.matmul(x=left, y=right, **rest), shape=list(op.output.shape))


def _sink(op: Op, b: GraphBuilder) -> Value | None:
    """f(reshape(x)) = reshape(f(x)): so that the next layer sees the map again."""
    x = op.inputs["x"]
    source = _flattened(x)
    if source is None or x.only_user is not op or x.shape != op.output.shape:
        return None
    rest = {name: value for name, value in op.inputs.items() if name != "x"}
    return b.reshape(x=b.op(op.type, opset=op.opset, **rest, x=source), shape=list(op.output.shape))
