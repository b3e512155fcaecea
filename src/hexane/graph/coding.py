"""Storage of a constant that its file packs: as indices into a palette, as scaled integers, or with a mask.

A coded constant is an ordinary constant: its values are what the ``constexpr`` op gives, and whoever asks for nothing
else computes with those. The coding rides along, through moves of the values and a cast to fp16, so that a compiler can
stream what the file stored. A change of the values drops it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hexane.bits import unpack_bits

Move = Callable[[np.ndarray], np.ndarray]
"""A function that moves elements of an array and changes none: reshape, transpose."""


@dataclass(frozen=True, eq=False)
class Coding:
    """Parts of a constant's elements, each array in the constant's own shape.

    Attributes
    ----------
    form : "palette", "integer" or "sparse".
    bits : of a stored element: index, integer, or what stands behind a mask.
    stored : indices (uint8) of a palette; integers (int8 or uint8); None of a sparse form.
    tables : of a palette, float [g, 2^bits]: one row for each group.
    group : of a palette with several tables, the row of every element (uint16); None for one table.
    scale : what an element is multiplied with, float, broadcast to the shape without a copy; None for 1.
    offset : what is subtracted from an integer before, likewise; None for 0.
    vector : numbers that one index stands for (entries of a palette that are vectors); 1 for scalars.
    masked : the values that are zero are not stored; a mask says where they are.
    what : the form in words, for reports.
    """

    form: str
    bits: int
    stored: np.ndarray | None = None
    tables: np.ndarray | None = None
    group: np.ndarray | None = None
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None
    vector: int = 1
    masked: bool = False
    what: str = ""

    def moved(self, move: Move) -> Coding:
        """The coding of the constant whose elements were moved."""

        def of(array: np.ndarray | None) -> np.ndarray | None:
            return None if array is None else move(array)

        return replace(self, stored=of(self.stored), group=of(self.group), scale=of(self.scale), offset=of(self.offset))

    def scaled(self, factor: np.ndarray) -> Coding:
        """The coding of the constant whose values were multiplied by ``factor``, which broadcasts with them."""
        if self.form == "sparse" or bool((factor == 1).all()):
            return self
        scale = factor if self.scale is None else self.scale.astype(np.float64) * factor
        assert self.stored is not None
        spread = np.broadcast_to(scale.astype(np.float32), self.stored.shape) if self.vector == 1 else scale
        return replace(self, scale=spread)

    def scale_per_output(self, axis: int = 0) -> np.ndarray | None:
        """The scale as one number for each position along an axis; None where it changes along other axes."""
        return _along(self.scale, axis)

    def changes_along_inputs(self, outputs: int = 0) -> bool:
        """True where scales or tables change along another axis than that of the outputs."""
        if self.scale is not None and self.scale_per_output(outputs) is None:
            return True
        return self.group is not None and _along(self.group, outputs) is None


def _along(array: np.ndarray | None, axis: int) -> np.ndarray | None:
    """The numbers along one axis of an array that is constant along the others, else None."""
    if array is None:
        return None
    first = array[tuple(slice(None) if at == axis else slice(0, 1) for at in range(array.ndim))]
    return first.reshape(-1) if bool((array == first).all()) else None


# ---- what an op makes of codings ---

Arrays = Callable[[str], "np.ndarray | None"]
"""An operand's array by parameter name, None where it is not given."""


@dataclass(frozen=True)
class Source:
    """An op on constants: its type, its operands' arrays and codings by parameter name, its results' shapes."""

    type: str
    array: Arrays
    coding: Callable[[str], Coding | None]
    shapes: tuple[tuple[int, ...], ...]


def codings_of(source: Source) -> tuple[Coding | None, ...]:
    """The coding of each result of an op whose operands are constants; None where it has none."""
    maker = _MAKERS.get(source.type)
    if maker is None:
        return (None,) * len(source.shapes)
    result = maker(source)
    return result if isinstance(result, tuple) else (result,)


def _affine(source: Source) -> Coding | None:
    data, axis = source.array("quantized_data"), source.array("axis")
    return _integer(data, source.array("scale"), source.array("zero_point"), None if axis is None else int(axis))


def _dequantize(source: Source) -> Coding | None:
    data, axis = source.array("input"), source.array("axis")
    return _integer(data, source.array("scale"), source.array("zero_point"), None if axis is None else int(axis))


def _integer(
    data: np.ndarray | None, scale: np.ndarray | None, offset: np.ndarray | None, axis: int | None
) -> Coding | None:
    if data is None or scale is None or data.dtype not in (np.int8, np.uint8):
        return None

    def spread(vector: np.ndarray | None) -> np.ndarray | None:
        if vector is None or not vector.any():
            return None
        shape = [1] * data.ndim
        if vector.ndim:
            shape[axis or 0] = -1
        return np.broadcast_to(vector.reshape(shape), data.shape)

    bits = _integer_bits(data)
    return Coding("integer", bits, data, scale=spread(scale), offset=spread(offset), what=f"int{bits} with scales")


def _integer_bits(data: np.ndarray) -> int:
    """4 where sixteen neighbouring integers hold all of them: files widen what has 4 bits."""
    return 4 if data.size and data.min() >= -8 and data.max() <= 15 and int(data.max()) - int(data.min()) <= 15 else 8


def _blocks(small: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
    """Each number repeated over its block; without a copy where a block is a whole axis."""
    if small is None or not small.any():
        return None
    for axis, extent in enumerate(shape):
        if small.shape[axis] not in (1, extent):
            small = np.repeat(small, extent // small.shape[axis], axis)
    return np.broadcast_to(small, shape)


def _scales(small: np.ndarray | None, shape: tuple[int, ...]) -> str:
    """Scales of a constant, in words."""
    extents = () if small is None else small.shape
    axes = [axis for axis, extent in enumerate(extents) if extent > 1]
    if not axes:
        return "one scale"
    whole = len(axes) == 1 and extents[axes[0]] == shape[axes[0]]
    return f"a scale for each place of axis {axes[0]}" if whole else "scales by block"


def _blockwise(source: Source) -> Coding | None:
    data, inner = source.array("data"), source.coding("data")
    scale = _blocks(source.array("scale"), source.shapes[0])
    offset = _blocks(source.array("offset"), source.shapes[0])
    if inner is not None and inner.form == "palette" and inner.scale is None:
        return replace(inner, scale=scale, offset=offset, what=f"{inner.what}, scales")
    if data is None or data.dtype not in (np.int8, np.uint8):
        return None
    bits = _integer_bits(data)
    return Coding(
        "integer",
        bits,
        data,
        scale=scale,
        offset=offset,
        what=f"int{bits}, {_scales(source.array('scale'), data.shape)}",
    )


def _lut_16(source: Source) -> Coding | None:
    packed, lut = source.array("indices"), source.array("lut")
    if packed is None or lut is None:
        return None
    if source.array("shape") is None:
        return _lut_18(packed, lut, source.array("vector_axis"))
    bits = lut.size.bit_length() - 1
    shape = source.shapes[0]
    indices = unpack_bits(packed, bits, int(np.prod(shape, dtype=np.int64))).reshape(shape)
    return Coding("palette", bits, indices, lut.reshape(1, -1), what=f"palette of {bits} bits")


def _lut_18(indices: np.ndarray, lut: np.ndarray, vector_axis: np.ndarray | None) -> Coding:
    bits, vector = lut.shape[-2].bit_length() - 1, lut.shape[-1]
    groups = lut.shape[:-2]
    what = f"palette of {bits} bits"
    if vector > 1:
        axis = 0 if vector_axis is None else int(vector_axis)
        what += f", entries of {vector} numbers along axis {axis}"
    rows = lut.reshape(-1, lut.shape[-2] * vector)
    group = None
    if rows.shape[0] > 1:
        place = np.zeros((1,) * indices.ndim, np.int64)
        for axis, (count, extent) in enumerate(zip(groups, indices.shape)):
            shape = [1] * indices.ndim
            shape[axis] = extent
            place = place * count + (np.arange(extent) // (extent // count)).reshape(shape)
        group = np.broadcast_to(place.astype(np.uint16), indices.shape)
        axes = " and ".join(str(axis) for axis, count in enumerate(groups) if count > 1)
        what += f", {rows.shape[0]} tables along axis {axes}"
    return Coding("palette", bits, indices, rows, group, vector=vector, what=what)


def _sparse(source: Source) -> Coding | None:
    mask, inner = source.array("mask"), source.coding("nonzero_data")
    if mask is None:
        return None
    if source.array("shape") is not None:
        shape = source.shapes[0]
        mask = unpack_bits(mask, 1, int(np.prod(shape, dtype=np.int64))).reshape(shape)
    if inner is None:
        return Coding("sparse", 16, masked=True, what="mask and values")

    def filled(array: np.ndarray) -> np.ndarray:
        if array.shape == mask.shape:  # scales stand in the whole shape already
            return array
        full = np.zeros(mask.shape, array.dtype)
        full[mask != 0] = array
        return full

    return replace(inner.moved(filled), masked=True, what=f"mask, {inner.what}")


def _lut_to_sparse(source: Source) -> tuple[Coding | None, ...]:
    mask, indices, lut = (source.array(name) for name in ("indices_mask", "indices_nonzero_data", "lut"))
    if mask is None or indices is None or lut is None or lut.shape[-1] > 1:
        return (None, None)
    dense = np.zeros(mask.shape, np.uint8)
    dense[mask != 0] = indices
    coding = _lut_18(dense, lut, None)
    return (None, coding.moved(lambda array: array[mask != 0]))


def _sparse_blockwise(source: Source) -> tuple[Coding | None, ...]:
    mask, data = source.array("data_mask"), source.array("nonzero_data")
    if mask is None or data is None or data.dtype not in (np.int8, np.uint8):
        return (None, None)
    scale, offset = (_blocks(source.array(name), mask.shape) for name in ("scale", "offset"))
    return (
        None,
        Coding(
            "integer", 8, data, scale=scale, offset=offset, what=f"int8, {_scales(source.array('scale'), mask.shape)}"
        ),
    )


def _moved(param: str, move: Callable[[Source, np.ndarray], np.ndarray]) -> Callable[[Source], Coding | None]:
    def make(source: Source) -> Coding | None:
        coding = source.coding(param)
        return None if coding is None else coding.moved(lambda array: move(source, array))

    return make


def _reshaped(source: Source) -> Coding | None:
    """Of entries of several numbers only where axes of one element come or go: one of the others is shorter."""
    coding, before, shape = source.coding("x"), source.array("x"), source.shapes[0]
    if coding is None or before is None:
        return None
    wide = [axis for axis, extent in enumerate(before.shape) if extent > 1]
    if coding.vector > 1 and [before.shape[axis] for axis in wide] != [extent for extent in shape if extent > 1]:
        return None

    def move(array: np.ndarray) -> np.ndarray:
        axes = iter(wide)
        if array.size == before.size:
            return array.reshape(shape)
        return array.reshape([array.shape[next(axes)] if extent > 1 else 1 for extent in shape])

    return coding.moved(move)


def _transposed(source: Source, array: np.ndarray) -> np.ndarray:
    order = source.array("perm")
    return np.transpose(array, None if order is None else tuple(int(axis) for axis in order))


def _product(source: Source) -> Coding | None:
    """A palette times numbers: its scales, as ONNX writes them. Scales upon scales are a change of the values."""
    for param, other in (("x", "y"), ("y", "x")):
        coding, factor = source.coding(param), source.array(other)
        if coding is None or factor is None or source.coding(other) is not None:
            continue
        shape = source.shapes[0]
        plain = coding.form == "palette" and coding.scale is None and coding.vector == 1 and not coding.masked
        if not plain or coding.stored is None or coding.stored.shape != shape or factor.dtype.kind != "f":
            return None
        return replace(coding, scale=np.broadcast_to(factor, shape), what=f"{coding.what}, scales")
    return None


_MAKERS: dict[str, Callable[[Source], Coding | tuple[Coding | None, ...] | None]] = {
    "constexpr_affine_dequantize": _affine,
    "dequantize": _dequantize,
    "constexpr_blockwise_shift_scale": _blockwise,
    "constexpr_lut_to_dense": _lut_16,
    "constexpr_sparse_to_dense": _sparse,
    "constexpr_lut_to_sparse": _lut_to_sparse,
    "constexpr_sparse_blockwise_shift_scale": _sparse_blockwise,
    "mul": _product,
    "constexpr_cast": _moved("source_val", lambda source, array: array),
    "cast": _moved("x", lambda source, array: array),
    "identity": _moved("x", lambda source, array: array),
    "reshape": _reshaped,
    "expand_dims": _reshaped,
    "squeeze": _reshaped,
    "transpose": _moved("x", _transposed),
}
