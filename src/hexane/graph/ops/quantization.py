"""Quantised values and packed weights: exact arithmetic (docs/reference/mil.md 6)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.bits import unpack_bits
from hexane.errors import GraphError, UnsupportedError
from hexane.graph.constants import integer_range
from hexane.graph.ops._rules import along, axis_of, fits
from hexane.graph.ops.conv import PAD_TYPES, conv, conv_type
from hexane.graph.registry import op
from hexane.graph.types import ANY, INTS, TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation

_PACKED = "packed weights are constants: differentiate by their unpacked result"


_BYTES = ("int8", "uint8")


def _check_scale(data: TensorType, scale: TensorType, zero_point: TensorType | None, axis: int | None) -> None:
    if scale.rank > 1 or (zero_point is not None and zero_point.rank > 1):
        raise GraphError("scale and zero_point are scalars or vectors")
    for vector, what in ((scale, "scale"), (zero_point, "zero_point")):
        if vector is None or vector.rank == 0:
            continue
        if axis is None:
            raise GraphError(f"a vector {what} needs an axis")
        where = axis_of(axis, data.rank)
        if vector.shape[0] != data.shape[where]:
            raise GraphError(
                f"{what} has {vector.shape[0]} entries, axis {axis} of {data.shape} needs {data.shape[where]}"
            )


def _quantize_type(input: TensorType, scale: TensorType, zero_point: Any, axis: Any, output_dtype: str) -> TensorType:
    _check_scale(input, scale, zero_point, axis)
    return input.with_dtype(output_dtype)


@op(
    "quantize",
    "input:T zero_point:Z? scale:T axis:int? output_dtype:str",
    infer=_quantize_type,
    since=17,
    Z=INTS,
    derivative="whole numbers are constant between their jumps",
    output_dtype=(*_BYTES, "int4", "uint4"),
)
def quantize(input: np.ndarray, scale: np.ndarray, zero_point: Any, axis: Any, output_dtype: str) -> np.ndarray:
    """clip(round(input / scale) + zero_point), ties to even."""
    low, high = integer_range(output_dtype)
    steps = np.rint(input / along(scale, input.ndim, axis))
    if zero_point is not None:
        steps = steps + along(zero_point, input.ndim, axis).astype(steps.dtype)
    return np.clip(np.nan_to_num(steps), low, high).astype("int8" if low < 0 else "uint8")


def _dequantize_type(input: TensorType, scale: TensorType, zero_point: Any, axis: Any) -> TensorType:
    _check_scale(input, scale, zero_point, axis)
    return input.with_dtype(scale.dtype)


def _scale_gradient(d: Derivation) -> Formula:
    """The sum of what the scale multiplies."""

    def along_axis(vector: Formula) -> Formula:
        shape = [1] * d.input.rank
        if vector.rank:
            shape[d.axis or 0] = vector.shape[0]
        return vector.cast(dtype=d.grad.dtype).shaped(shape)

    whole = d.input.cast(dtype=d.grad.dtype)
    steps = whole if d.zero_point is None else whole - along_axis(d.zero_point)
    return (d.grad * steps).summed_to(along_axis(d.scale).shape).shaped(d.scale.shape)


@op(
    "dequantize",
    "input:S zero_point:S? scale:T axis:int?",
    infer=_dequantize_type,
    since=17,
    S=INTS,
    derivative={"scale": _scale_gradient},
)
def dequantize(input: np.ndarray, scale: np.ndarray, zero_point: Any, axis: Any) -> np.ndarray:
    """scale (input - zero_point)."""
    values = input.astype(scale.dtype)
    if zero_point is not None:
        values = values - along(zero_point, input.ndim, axis).astype(scale.dtype)
    return values * along(scale, input.ndim, axis)


def _affine_type(quantized_data: TensorType, zero_point: TensorType, scale: TensorType, axis: int) -> TensorType:
    _check_scale(quantized_data, scale, zero_point, axis)
    return quantized_data.with_dtype(scale.dtype)


@op(
    "constexpr_affine_dequantize",
    "quantized_data:S zero_point:Z scale:T axis:int",
    infer=_affine_type,
    since=16,
    S=INTS,
    Z=ANY,
    derivative=_PACKED,
)
def constexpr_affine_dequantize(
    quantized_data: np.ndarray, zero_point: np.ndarray, scale: np.ndarray, axis: int
) -> np.ndarray:
    """scale (q - zero_point), vectors along the axis."""
    shift = along(zero_point, quantized_data.ndim, axis).astype(scale.dtype)
    return (quantized_data.astype(scale.dtype) - shift) * along(scale, quantized_data.ndim, axis)


def _lut_bits(size: int) -> int:
    bits = max(size.bit_length() - 1, 0)
    if size != 1 << bits or not 1 <= bits <= 8:
        raise GraphError(f"a table of {size} entries", hint="2, 4, 8, 16, 64 or 256 are possible")
    return bits


def _lut16_type(indices: TensorType, lut: TensorType, shape: Any) -> TensorType:
    if lut.rank != 1 or indices.rank != 1:
        raise GraphError("indices and lut are vectors")
    needed = (_lut_bits(lut.shape[0]) * prod(shape) + 7) // 8
    if indices.shape[0] != needed:
        raise GraphError(f"indices has {indices.shape[0]} bytes, {needed} are needed for {tuple(shape)}")
    return TensorType(lut.dtype, tuple(shape))


@op(
    "constexpr_lut_to_dense",
    "indices:S lut:A shape:uints",
    infer=_lut16_type,
    since=16,
    S=("uint8",),
    derivative=_PACKED,
)
def constexpr_lut_to_dense_16(indices: np.ndarray, lut: np.ndarray, shape: Any) -> np.ndarray:
    """lut[index] in row-major order; indices packed least significant bit first."""
    return lut[unpack_bits(indices, _lut_bits(len(lut)), prod(shape))].reshape(shape)


_INDICES = ("uint1", "uint2", "uint3", "uint4", "uint6", "uint8")


def _lut18_type(indices: TensorType, lut: TensorType, vector_axis: int | None) -> TensorType:
    if lut.rank != indices.rank + 2:
        raise GraphError(f"lut has rank {lut.rank}, {indices.rank + 2} is needed")
    _lut_bits(lut.shape[-2])
    if any(g < 1 or n % g for g, n in zip(lut.shape, indices.shape)):
        raise GraphError(f"groups {lut.shape[:-2]} do not divide {indices.shape}")
    shape = list(indices.shape)
    if lut.shape[-1] > 1:
        if vector_axis is None:
            raise GraphError("vector entries need vector_axis")
        shape[axis_of(vector_axis, indices.rank, "vector_axis")] *= lut.shape[-1]
    return TensorType(lut.dtype, tuple(shape))


@op(
    "constexpr_lut_to_dense",
    "indices:S lut:A vector_axis:int?",
    infer=_lut18_type,
    since=18,
    S=_INDICES,
    derivative=_PACKED,
)
def constexpr_lut_to_dense(indices: np.ndarray, lut: np.ndarray, vector_axis: int | None) -> np.ndarray:
    """One table per group; an entry of several numbers fills ``vector_axis``."""
    groups = lut.shape[:-2]
    if indices.size and int(indices.max()) >= lut.shape[-2]:
        raise GraphError(f"index {int(indices.max())} of a table of {lut.shape[-2]} entries")
    where = []
    for axis, (count, extent) in enumerate(zip(groups, indices.shape)):
        where.append(along(np.arange(extent) // (extent // count), indices.ndim, axis))
    entries = lut[(*where, indices)]
    if lut.shape[-1] == 1:
        return entries[..., 0]
    axis = (vector_axis or 0) % indices.ndim
    grown = np.moveaxis(entries, -1, axis + 1)
    shape = list(indices.shape)
    shape[axis] *= lut.shape[-1]
    return grown.reshape(shape)


def _sparse16_type(nonzero_data: TensorType, mask: TensorType, shape: Any) -> TensorType:
    if nonzero_data.rank != 1 or mask.rank != 1 or mask.shape[0] != (prod(shape) + 7) // 8:
        raise GraphError(f"mask {mask.shape} and nonzero_data {nonzero_data.shape} do not go with {tuple(shape)}")
    return TensorType(nonzero_data.dtype, tuple(shape))


@op(
    "constexpr_sparse_to_dense",
    "nonzero_data:A mask:S shape:uints",
    infer=_sparse16_type,
    since=16,
    S=("uint8",),
    derivative=_PACKED,
)
def constexpr_sparse_to_dense_16(nonzero_data: np.ndarray, mask: np.ndarray, shape: Any) -> np.ndarray:
    """Data where a bit of the mask is set, in row-major order, 0 elsewhere."""
    return _filled(unpack_bits(mask, 1, prod(shape)).reshape(shape), nonzero_data)


def _filled(mask: np.ndarray, nonzero: np.ndarray) -> np.ndarray:
    hit = mask != 0
    if int(hit.sum()) != nonzero.size:
        raise GraphError(f"the mask has {int(hit.sum())} bits set, there are {nonzero.size} numbers")
    result = np.zeros(mask.shape, nonzero.dtype)
    result[hit] = nonzero
    return result


def _sparse18_type(nonzero_data: TensorType, mask: TensorType) -> TensorType:
    if nonzero_data.rank != 1 or nonzero_data.shape[0] > mask.count:
        raise GraphError(f"mask {mask.shape} and nonzero_data {nonzero_data.shape} do not go together")
    return TensorType(nonzero_data.dtype, mask.shape)


@op(
    "constexpr_sparse_to_dense",
    "nonzero_data:A mask:S",
    infer=_sparse18_type,
    since=18,
    S=("uint1",),
    derivative=_PACKED,
)
def constexpr_sparse_to_dense(nonzero_data: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Data where the mask is 1, in row-major order, 0 elsewhere."""
    return _filled(mask, nonzero_data)


def _blockwise_type(data: TensorType, scale: TensorType, offset: TensorType | None) -> TensorType:
    if scale.rank != data.rank or any(s < 1 or n % s for n, s in zip(data.shape, scale.shape)):
        raise GraphError(f"scale {scale.shape} does not divide data {data.shape}")
    if offset is not None and offset.shape != scale.shape:
        raise GraphError(f"offset has shape {offset.shape}, scale {scale.shape}")
    return data.with_dtype(scale.dtype)


def _blocks(small: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Each entry repeated over its block."""
    for axis, extent in enumerate(shape):
        if small.shape[axis] not in (1, extent):
            small = np.repeat(small, extent // small.shape[axis], axis)
    return small


@op(
    "constexpr_blockwise_shift_scale",
    "data:S scale:T offset:Z?",
    infer=_blockwise_type,
    since=18,
    S=ANY,
    Z=ANY,
    derivative=_PACKED,
)
def constexpr_blockwise_shift_scale(data: np.ndarray, scale: np.ndarray, offset: Any) -> np.ndarray:
    """scale (data - offset), one scale and offset per block."""
    values = data.astype(scale.dtype)
    if offset is not None:
        values = values - _blocks(offset, data.shape).astype(scale.dtype)
    return values * _blocks(scale, data.shape)


def _lut_to_sparse_type(
    indices_mask: TensorType, indices_nonzero_data: TensorType, lut: TensorType, vector_axis: int | None
) -> tuple[TensorType, TensorType]:
    dense = _lut18_type(indices_mask, lut, vector_axis)
    if indices_nonzero_data.rank != 1:
        raise GraphError(f"indices_nonzero_data has rank {indices_nonzero_data.rank}, a vector is needed")
    count = indices_nonzero_data.shape[0] * lut.shape[-1]
    return TensorType("uint1", dense.shape), TensorType(lut.dtype, (count,))


@op(
    "constexpr_lut_to_sparse",
    "indices_mask:S indices_nonzero_data:I lut:A vector_axis:int?",
    infer=_lut_to_sparse_type,
    since=18,
    S=("uint1",),
    derivative=_PACKED,
)
def constexpr_lut_to_sparse(
    indices_mask: np.ndarray, indices_nonzero_data: np.ndarray, lut: np.ndarray, vector_axis: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The mask, and the table's values of the part that is not zero."""
    dense = constexpr_lut_to_dense(_filled(indices_mask, indices_nonzero_data), lut, vector_axis)
    mask = indices_mask
    if lut.shape[-1] > 1:
        mask = np.repeat(mask, lut.shape[-1], axis=vector_axis)
    return mask, dense[mask != 0]


def _sparse_blockwise_type(
    data_mask: TensorType, nonzero_data: TensorType, scale: TensorType, offset: TensorType | None
) -> tuple[TensorType, TensorType]:
    _blockwise_type(data_mask, scale, offset)
    return data_mask, TensorType(scale.dtype, nonzero_data.shape)


@op(
    "constexpr_sparse_blockwise_shift_scale",
    "data_mask:M nonzero_data:S scale:T offset:Z?",
    infer=_sparse_blockwise_type,
    since=18,
    M=("uint1",),
    S=ANY,
    Z=ANY,
    derivative=_PACKED,
)
def constexpr_sparse_blockwise_shift_scale(
    data_mask: np.ndarray, nonzero_data: np.ndarray, scale: np.ndarray, offset: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The mask, and the values of the part that is not zero."""
    dense = constexpr_blockwise_shift_scale(_filled(data_mask, nonzero_data), scale, offset)
    return data_mask, dense[data_mask != 0]


def _constexpr_cast_type(source_val: TensorType, output_dtype: str) -> TensorType:
    return source_val.with_dtype(output_dtype)


@op(
    "constexpr_cast",
    "source_val:T output_dtype:str",
    infer=_constexpr_cast_type,
    output_dtype=("fp32", "fp16"),
    since=16,
    derivative=_PACKED,
)
def constexpr_cast(source_val: np.ndarray, output_dtype: str) -> np.ndarray:
    """The same numbers in another float dtype."""
    return source_val.astype(np.float16) if output_dtype == "fp16" else source_val


def _conv_quantized_type(
    weight: TensorType, quantization_type: str, nbits: int, quant_scale: TensorType, quant_bias: TensorType, **rest: Any
) -> TensorType:
    if quantization_type != "linear" or nbits != 8:
        raise UnsupportedError("conv_quantized with a table or with fewer than 8 bits is not read")
    for vector, what in ((quant_scale, "quant_scale"), (quant_bias, "quant_bias")):
        fits(vector, (1,) * vector.rank if prod(vector.shape) == 1 else weight.shape[:1], what)
    return conv_type(weight=weight, **rest)


@op(
    "conv_quantized",
    "x:T weight:S bias:T? quantization_type:str nbits:int=8 quant_scale:T quant_bias:T strides:ints? "
    "pad_type:str='valid' pad:ints? dilations:ints? groups:int=1",
    infer=_conv_quantized_type,
    S=INTS,
    derivative=_PACKED,
    pad_type=PAD_TYPES,
    quantization_type=("linear", "lut"),
)
def conv_quantized(
    x: np.ndarray, weight: np.ndarray, quant_scale: np.ndarray, quant_bias: np.ndarray, **rest: Any
) -> np.ndarray:
    """``conv`` with the weight q scale + bias (scalars, or one per output channel)."""
    rank = weight.ndim
    full = weight.astype(x.dtype) * along(quant_scale.reshape(-1), rank, 0) + along(quant_bias.reshape(-1), rank, 0)
    window = {name: content for name, content in rest.items() if name not in ("quantization_type", "nbits")}
    return conv(x=x, weight=full, **window)
