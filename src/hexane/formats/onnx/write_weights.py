"""Compressed weights in ONNX: DequantizeLinear with axis or blocks, tables as Gather; masks are written dense."""

from __future__ import annotations

from math import prod

import numpy as np

from hexane.bits import unpack_bits
from hexane.formats.onnx.writing import Writing, refused, writes
from hexane.graph import Op, Value
from hexane.graph.evaluate import Evaluation
from hexane.graph.types import tensor_of

DENSE_MASK = "a mask is written as dense weights with their zeros: ONNX's sparse tensors take 8 bytes for each place"
WIDER_INDEX = "indices of 1 to 3 bits take 4 bits and those of 6 bits 8: ONNX's integers have 4 or 8"
DENSE_VECTORS = (
    "tables of vectors, or several along the inputs, are written as dense weights: no node of ONNX reads them"
)
REPEATED = "scales of blocks along several axes are repeated until they change along one"


def _constant(value: Value | None) -> np.ndarray | None:
    return None if value is None else np.asarray(value.data)


def _inline(w: Writing, op: Op) -> None:
    """The op's values, rounded to its dtype, as an initializer; what feeds it is evaluated too."""
    run = Evaluation(typed=True)

    def fill(value: Value) -> bool:
        if value.is_constant or value in run.environment:
            return True
        maker = value.op
        if maker is None or not maker.type.startswith("constexpr_") or not all(fill(v) for v in maker.operands()):
            return False
        for output, array in zip(maker.outputs, run.op(maker)):
            run.environment[output] = run.settled(maker, output, array)
        return True

    if not fill(op.output):
        raise refused(op, "its operands are computed")
    array = np.asarray(run.environment[op.output]).astype(tensor_of(op.output.type).carrier)
    name = w.constant(array, op.output.dtype, op.output.name)
    w.node("Identity", [name], op.output)


@writes("constexpr_sparse_to_dense", "constexpr_cast")
def sparse(w: Writing, op: Op) -> None:
    if op.type == "constexpr_sparse_to_dense":
        w.note(DENSE_MASK)
    _inline(w, op)


@writes("constexpr_lut_to_sparse", "constexpr_sparse_blockwise_shift_scale")
def halves(w: Writing, op: Op) -> None:
    """Their results are read by ``constexpr_sparse_to_dense`` alone, which is written with its values."""
    if any(user.type != "constexpr_sparse_to_dense" for value in op.outputs for user in value.users):
        raise refused(op, "its result is used by other ops than constexpr_sparse_to_dense")


@writes("constexpr_lut_to_dense")
def table(w: Writing, op: Op) -> None:
    """One table: Gather of it by the indices. A table for each group of outputs: indices count on through all."""
    if "shape" in op.inputs:
        _table_16(w, op)
        return
    indices, lut = _constant(op.inputs["indices"]), _constant(op.inputs["lut"])
    assert indices is not None and lut is not None
    groups, entries = lut.shape[:-2], lut.shape[-2]
    if lut.shape[-1] > 1 or any(count > 1 for count in groups[1:]) or prod(groups) * entries > 256:
        w.note(DENSE_VECTORS)
        _inline(w, op)
        return
    places = indices.astype(np.uint8)
    if prod(groups) > 1:
        per_group = indices.shape[0] // groups[0]
        row = (np.arange(indices.shape[0]) // per_group * entries).astype(np.uint8)
        places = places + row.reshape(-1, *(1,) * (indices.ndim - 1))
    _gathered(w, op, places, lut.reshape(-1), entries.bit_length() - 1 if prod(groups) == 1 else 8)


def _table_16(w: Writing, op: Op) -> None:
    packed, lut = _constant(op.inputs["indices"]), _constant(op.inputs["lut"])
    assert packed is not None and lut is not None
    bits, shape = lut.size.bit_length() - 1, op.output.shape
    _gathered(w, op, unpack_bits(packed, bits, prod(shape)).reshape(shape), lut, bits)


def _gathered(w: Writing, op: Op, places: np.ndarray, lut: np.ndarray, bits: int) -> None:
    if bits not in (4, 8):
        w.note(WIDER_INDEX)
    entries = w.constant(lut, op.output.dtype, f"{op.output.name}_table")
    index = w.constant(places, "uint4" if bits <= 4 else "uint8", f"{op.output.name}_indices")
    w.node("Gather", [entries, w.node("Cast", [index], to=w.type_of("int32"))], op.output, axis=0)


@writes("constexpr_affine_dequantize")
def affine(w: Writing, op: Op) -> None:
    data, scale, zero = (op.inputs[name] for name in ("quantized_data", "scale", "zero_point"))
    axis, numbers = int(op.arg("axis")) % max(data.rank, 1), np.asarray(zero.data)
    if not np.array_equal(numbers, numbers.astype(data.type.carrier)):
        raise refused(op, f"a zero point that is no {data.dtype}")
    _dequantized(w, op, data, np.asarray(scale.data), numbers, axis)


@writes("dequantize")
def dequantize(w: Writing, op: Op) -> None:
    data, scale, zero = op.inputs["input"], np.asarray(op.inputs["scale"].data), _constant(op.inputs.get("zero_point"))
    axis = op.arg("axis")
    _dequantized(w, op, data, scale, zero, 0 if axis is None else int(axis) % data.rank)


@writes("quantize")
def quantize(w: Writing, op: Op) -> None:
    dtype = op.output.dtype
    scale, zero = np.asarray(op.inputs["scale"].data), _constant(op.inputs.get("zero_point"))
    axis = op.arg("axis")
    point = np.zeros(scale.shape, DTYPE[dtype]) if zero is None else np.broadcast_to(zero, scale.shape)
    names = [
        w.name(op.inputs["input"]),
        w.constant(scale, op.inputs["scale"].dtype, "scale"),
        w.constant(point, dtype, "zero"),
    ]
    w.node("QuantizeLinear", names, op.output, axis=0 if axis is None else int(axis) % op.output.rank)


DTYPE = {"int8": np.int8, "uint8": np.uint8, "int4": np.int8, "uint4": np.uint8}


def _dequantized(w: Writing, op: Op, data: Value, scale: np.ndarray, zero: np.ndarray | None, axis: int) -> None:
    names = [w.name(data), w.constant(scale, op.output.dtype, "scale")]
    if zero is not None and zero.any():
        names.append(w.constant(np.broadcast_to(zero, scale.shape), data.dtype, "zero"))
    w.node("DequantizeLinear", names, op.output, axis=axis)


@writes("constexpr_blockwise_shift_scale")
def blockwise(w: Writing, op: Op) -> None:
    """DequantizeLinear along an axis or by blocks; of a table's values a product."""
    data, scale, offset = op.inputs["data"], np.asarray(op.inputs["scale"].data), _constant(op.inputs.get("offset"))
    if not data.is_constant:
        factor = w.constant(scale, op.output.dtype, "scale")
        if scale.shape != tuple(1 if n != m else n for n, m in zip(scale.shape, data.shape)):
            raise refused(op, "a table with scales of blocks")
        source = w.name(data)
        if offset is not None and offset.any():
            source = w.node("Sub", [source, w.constant(offset, op.output.dtype, "offset")])
        w.node("Mul", [source, factor], op.output)
        return
    if data.dtype not in ("int8", "uint8", "int4", "uint4"):
        _inline(w, op)
        return
    shape = data.shape
    blocked = [axis for axis, (n, m) in enumerate(zip(scale.shape, shape)) if n not in (1, m)]
    along = [axis for axis, (n, m) in enumerate(zip(scale.shape, shape)) if n == m and m > 1]
    if not blocked and len(along) <= 1:
        axis = along[0] if along else 0
        small = scale.reshape(-1) if along else scale.reshape(())
        _dequantized(w, op, data, small, None if offset is None else offset.reshape(small.shape), axis)
        return
    axis = blocked[0] if blocked else along[-1]
    if len(blocked) > 1:
        w.note(REPEATED)
    wide = [_spread(array, shape, axis) for array in (scale, offset) if array is not None]
    names = [w.name(data), w.constant(wide[0], op.output.dtype, "scale")]
    if offset is not None and offset.any():
        names.append(w.constant(wide[1], data.dtype, "zero"))
    w.node("DequantizeLinear", names, op.output, axis=axis, block_size=shape[axis] // scale.shape[axis])


def _spread(small: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Each number repeated over its block along every axis but one, as DequantizeLinear takes blocks."""
    for at, extent in enumerate(shape):
        if at != axis and small.shape[at] != extent:
            small = np.repeat(small, extent // small.shape[at], at)
    return small
