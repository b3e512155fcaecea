"""Element-wise arithmetic, comparison, logic, bits and casts."""

from __future__ import annotations

import numpy as np

from hexane.errors import GraphError
from hexane.formats.compositions import Refused
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.registry import one_op, onnx_op
from hexane.formats.onnx.same import BINARY, UNARY
from hexane.formats.operands import Operand, known, type_of
from hexane.graph.types import DTYPES, FLOATS, TensorType, dtype_name

_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


for _name, _op in UNARY.items():
    one_op(_name, _op, "x")
one_op("BitShift", "onnx.BitShift", "x y", direction="")
one_op("IsInf", "onnx.IsInf", "x", detect_positive=True, detect_negative=True)
one_op("Where", "select", "cond a b")


@onnx_op(*BINARY)
def binary(c: NodeContext) -> Operand:
    """ONNX broadcasts as NumPy does from op set 7 on."""
    x, y = c.need(0), c.need(1)
    op = BINARY[c.node.op_type]
    if op == "equal" and "string" in (type_of(x).dtype, type_of(y).dtype):
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
            return np.equal(x, y)
        raise Refused("it compares strings")
    return c.ops.op(op, x=x, y=y)


@onnx_op(*_VARIADIC)
def variadic(c: NodeContext) -> Operand:
    return c.fold(_VARIADIC[c.node.op_type], c.inputs())


@onnx_op("Mean")
def mean(c: NodeContext) -> Operand:
    return c.ops.real_div(x=c.fold("add", c.inputs()), y=c.like(len(c), c.need(0)))


@onnx_op("Neg")
def neg(c: NodeContext) -> Operand:
    return c.scale(c.need(0), -1)


@onnx_op("Reciprocal", "Log")
def inverse(c: NodeContext) -> Operand:
    return c.ops.op("log" if c.node.op_type == "Log" else "inverse", x=c.need(0), epsilon=0.0)


@onnx_op("Pow")
def power(c: NodeContext) -> Operand:
    x, y = c.need(0), c.need(1)
    if type_of(x).dtype != type_of(y).dtype:
        if isinstance(y, np.ndarray) and (type_of(x).dtype in FLOATS or (y == np.trunc(y)).all()):
            y = c.cast(y, type_of(x).dtype)
        else:
            return c.ops.op("onnx.Pow", x=x, y=y)
    return c.ops.pow(x=x, y=y)


@onnx_op("Mod")
def mod(c: NodeContext) -> Operand:
    x, y = c.need(0), c.need(1)
    if c.attr("fmod", 0):
        return c.ops.op("onnx.Mod", x=x, y=y, fmod=True)
    if type_of(x).dtype in FLOATS and c.version < 28:
        raise GraphError("Mod of floats needs fmod = 1")
    return c.ops.mod(x=x, y=y)


@onnx_op("Identity")
def identity(c: NodeContext) -> object:
    return c[0]


@onnx_op("Dropout")
def dropout(c: NodeContext) -> object:
    """The identity at inference; the mask, where it is asked for, is all true.

    In training it draws with its seed, as ONNX's reference does; without a seed nobody could say what it gives.
    """
    x = c.need(0)
    trains = c.version >= 12 and c.has(2) and not (c.is_constant(2) and not c.need_constant(2).reshape(()))
    drops = not (c.has(1) and c.is_constant(1) and float(c.need_constant(1).reshape(())) == 0)
    if not trains or not drops:
        return x, np.ones(type_of(x).shape, bool) if c.wants(1) else None
    if not c.has_attr("seed"):
        raise Refused("it drops at random (training_mode), and has no seed")
    ratio = c.reshape(c.need(1), ()) if c.has(1) else np.array(0.5, np.float32)
    training = c.reshape(c.need(2), ())
    return c.ops.op("onnx.Dropout", x=x, ratio=ratio, training=training, seed=int(c.attr("seed")))


def element_type(c: NodeContext, code: int) -> str:
    """MIL's name of an ONNX element type; Refused for strings and types below a byte."""
    import onnx

    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(code)
    except (KeyError, TypeError, ValueError):
        raise GraphError(f"unknown element type {code}") from None
    name = onnx.TensorProto.DataType.Name(code)
    if name == "BFLOAT16":
        raise Refused("it converts to bfloat16, whose rounding the graph does not carry")
    if dtype.kind not in "fiub" or dtype.name.startswith("float8"):
        raise Refused(f"it makes {name}")
    return dtype_name(dtype)


@onnx_op("Cast")
def cast(c: NodeContext) -> Operand:
    return _cast(c, element_type(c, c.attr("to", 0)))


@onnx_op("CastLike")
def cast_like(c: NodeContext) -> Operand:
    name = c.input_name(1)
    graph = c.importer.model.graph
    for value in [*graph.input, *graph.value_info]:
        if value.name == name and value.type.tensor_type.elem_type in _NARROW:
            raise Refused("it makes a number of 8 bits or less, which the graph carries wider")
    return _cast(c, type_of(c.need(1)).dtype)


_NARROW = frozenset(range(17, 27))
"""ONNX's codes of float8, float4 and whole numbers below a byte."""


def _cast(c: NodeContext, dtype: str) -> Operand:
    x = c.need(0)
    if type_of(x).dtype == "string":
        raise Refused("it reads numbers from strings")
    return x if type_of(x).dtype == dtype else c.ops.cast(x=x, dtype=dtype)


@onnx_op("BitCast")
def bit_cast(c: NodeContext) -> Operand:
    x = c.need(0)
    dtype = element_type(c, c.attr("to", 0))
    source = type_of(x).dtype
    if DTYPES[source].bits != DTYPES[dtype].bits:
        raise GraphError(f"BitCast from {source} to {dtype} changes the width")
    return c.ops.op("onnx.BitCast", x=x, source=source, dtype=dtype)


@onnx_op("Constant")
def constant(c: NodeContext) -> Operand:
    for name, make in (
        ("value", lambda v: v),
        ("value_float", np.float32),
        ("value_int", np.int64),
        ("value_floats", lambda v: np.array(v, np.float32)),
        ("value_ints", lambda v: np.array(v, np.int64)),
        ("value_string", lambda v: np.array(v)),
        ("value_strings", lambda v: np.array(v, dtype=str)),
    ):
        if c.has_attr(name):
            return known(np.asarray(make(c.attr(name))))
    raise Refused("its value is sparse, or missing")


@onnx_op("ConstantOfShape")
def constant_of_shape(c: NodeContext) -> Operand:
    value = c.attr("value", np.zeros(1, np.float32)).reshape(())
    if not c.is_constant(0):
        return c.at_run_time("ConstantOfShape", "the input", x=value, shape=c.need(0))
    return filled(c, c.ints(0) or [], value)


def filled(c: NodeContext, shape: list[int], value: np.ndarray) -> Operand:
    """A constant of one value, without the memory: a broadcast view."""
    if any(extent < 0 for extent in shape):
        raise GraphError(f"a shape {shape} with a negative extent")
    TensorType(dtype_name(value.dtype), tuple(shape))
    return np.broadcast_to(value, tuple(shape))


@onnx_op("EyeLike")
def eye_like(c: NodeContext) -> Operand:
    x = type_of(c.need(0))
    if x.rank != 2 or not x.is_static:
        raise GraphError(f"EyeLike takes a matrix, not {x}")
    dtype = element_type(c, c.attr("dtype")) if c.has_attr("dtype") else x.dtype
    rows, columns = x.shape
    return np.eye(rows, columns, k=c.attr("k", 0), dtype=DTYPES[dtype].carrier)


@onnx_op("Range")
def arange(c: NodeContext) -> Operand:
    if all(c.is_constant(i) for i in range(3)):
        start, limit, delta = (c.need_constant(i).reshape(()) for i in range(3))
        if delta == 0:
            raise GraphError("a range with step 0")
        count = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
        if count > 1 << 26:
            raise GraphError(f"a range of {count} numbers")
        return (start + np.arange(count).astype(start.dtype) * delta).astype(start.dtype)
    x, limit, delta = (c.reshape(c.need(i), ()) for i in range(3))
    return c.at_run_time("Range", "its inputs", x=x, limit=limit, delta=delta)
