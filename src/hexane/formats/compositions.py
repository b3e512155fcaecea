"""Compositions of ops that several front ends write; the context of a node, operator or layer inherits them.

Operands are Values, or arrays that are still constant: what is constant is computed at once. A result has the element
type of its first operand, and its shape where a docstring names no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hexane.errors import GraphError, UnsupportedError
from hexane.formats.operands import Folder, Operand, transposed, type_of
from hexane.graph.types import FLOATS, TensorType

MIL_FLOATS = ("fp16", "fp32")
"""Element types that MIL's layers take."""


class Refused(UnsupportedError):
    """One node, operator or layer that cannot be taken, and why."""


def axis_in(axis: int, rank: int) -> int:
    """A non-negative axis, 0 for a scalar; GraphError outside the rank."""
    if not -rank <= axis < max(rank, 1):
        raise GraphError(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank if rank else 0


def reshape(ops: Folder, operand: Operand, shape: Sequence[int]) -> Operand:
    """Reshape to a known shape; nothing where it has that shape already. Constants become views."""
    shape, old = tuple(int(extent) for extent in shape), type_of(operand).shape
    if old == shape:
        return operand
    if isinstance(operand, np.ndarray):
        return operand.reshape(shape)
    if 0 in shape:  # in MIL's reshape a 0 copies an extent; an empty tensor has nothing to keep but its type
        return np.zeros(shape, type_of(operand).carrier)
    if not shape:
        return ops.squeeze(x=operand, axes=range(len(old)))
    if not old:
        return ops.expand_dims(x=operand, axes=range(len(shape)))
    return ops.reshape(x=operand, shape=shape)


def all_constant(*operands: Operand | None) -> bool:
    """True where all operands are left out or constant."""
    return all(operand is None or isinstance(operand, np.ndarray) for operand in operands)


def custom_pad(pads: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """MIL's parameters for (before, after) of each axis of space."""
    flat = [width for pair in pads for width in pair]
    return {"pad_type": "custom", "pad": flat} if any(flat) else {"pad_type": "valid"}


class Composer:
    """A writer of ops, ``ops``, and compositions of them."""

    ops: Folder

    # ------------------------------------------------------------------------------------------ types and constants

    def rank(self, operand: Operand) -> int:
        return type_of(operand).rank

    def shape(self, operand: Operand) -> tuple[int, ...]:
        return tuple(type_of(operand).shape)

    def dtype(self, operand: Operand) -> str:
        return type_of(operand).dtype

    def like(self, value: Any, operand: Operand) -> np.ndarray:
        """A constant scalar of the operand's element type."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(value).astype(type_of(operand).carrier)

    def cast(self, operand: Operand, dtype: str) -> Operand:
        """Conversion to a MIL dtype; nothing where it has that dtype already."""
        return operand if type_of(operand).dtype == dtype else self.ops.cast(x=operand, dtype=dtype)

    def scale(self, operand: Operand, factor: float) -> Operand:
        """The operand times a number; nothing for 1."""
        return operand if factor == 1 else self.ops.mul(x=operand, y=self.like(factor, operand))

    def weighted(self, alpha: float, y: Operand, beta: float, bias: Operand | None) -> Operand:
        """``alpha y + beta bias``, without what is multiplied by 0 or 1."""
        y = self.scale(y, alpha)
        return y if bias is None or beta == 0 else self.ops.add(x=y, y=self.scale(bias, beta))

    # ---------------------------------------------------------------------------------------------- shape and order

    def reshape(self, operand: Operand, shape: Sequence[int]) -> Operand:
        """Reshape to a known shape; nothing where it has that shape already. Constants become views."""
        return reshape(self.ops, operand, shape)

    def scalar(self, operand: Operand) -> Operand:
        """A vector of one element as a scalar; anything else as it is."""
        return self.reshape(operand, ()) if self.shape(operand) == (1,) else operand

    def transpose(self, operand: Operand, perm: Sequence[int]) -> Operand:
        """Transposition; nothing where the order stays. Constants become views."""
        return transposed(self.ops, operand, perm)

    def swap(self, operand: Operand) -> Operand:
        """The last two axes exchanged."""
        rank = self.rank(operand)
        return self.transpose(operand, [*range(rank - 2), rank - 1, rank - 2])

    def broadcast(self, operand: Operand, shape: Sequence[int]) -> Operand:
        """Broadcast to a shape, as tiles (MIL has no broadcast of its own); constants become views.

        GraphError where the operand does not broadcast to it.
        """
        old, shape = type_of(operand).shape, tuple(int(extent) for extent in shape)
        aligned = (1,) * (len(shape) - len(old)) + tuple(old)
        if (
            len(aligned) != len(shape)
            or min(shape, default=0) < 0
            or any(have not in (1, want) for have, want in zip(aligned, shape))
        ):
            raise GraphError(f"{old} does not broadcast to {shape}")
        if isinstance(operand, np.ndarray):
            TensorType(type_of(operand).dtype, shape)  # refuses more elements than a tensor may have
            return np.broadcast_to(operand, shape)
        if 0 in shape:
            return np.zeros(shape, type_of(operand).carrier)
        operand = self.reshape(operand, aligned)
        if aligned == shape:
            return operand
        return self.ops.tile(x=operand, reps=[new // extent for new, extent in zip(shape, aligned)])

    def window(self, x: Operand, cuts: Mapping[int, slice]) -> Operand:
        """Basic slicing; ``cuts`` by axis, negative steps allowed."""
        old = type_of(x).shape
        picks = tuple(cuts.get(axis, slice(None)) for axis in range(len(old)))
        if isinstance(x, np.ndarray):
            return x[picks]
        ranges = [range(*pick.indices(extent)) for pick, extent in zip(picks, old)]
        extents = [len(places) for places in ranges]
        if 0 in extents:
            return np.zeros(extents, type_of(x).carrier)
        if all(places == range(extent) for places, extent in zip(ranges, old)):
            return x
        if all(places.step == 1 for places in ranges):
            return self.ops.slice_by_size(x=x, begin=[places.start for places in ranges], size=extents)
        return self.ops.slice_by_index(
            x=x,
            begin=[places.start for places in ranges],
            end=[max(places.stop, 0) for places in ranges],
            stride=[places.step for places in ranges],
            begin_mask=[False] * len(old),
            end_mask=[places.stop < 0 for places in ranges],
            squeeze_mask=[False] * len(old),
        )

    def pick(self, x: Operand, axis: int, at: int) -> Operand:
        """One place along an axis, without the axis."""
        shape = type_of(x).shape
        return self.reshape(self.window(x, {axis: slice(at, at + 1)}), (*shape[:axis], *shape[axis + 1 :]))

    def join(self, parts: Sequence[Operand], axis: int) -> Operand:
        """Parts along an axis; a single one as it is."""
        return parts[0] if len(parts) == 1 else self.ops.concat(values=tuple(parts), axis=axis, interleave=False)

    def stack(self, parts: Sequence[Operand], axis: int) -> Operand:
        """Parts along a new axis."""
        axis = axis_in(axis, self.rank(parts[0]) + 1)
        shapes = [self.shape(part) for part in parts]
        return self.join([self.reshape(p, (*s[:axis], 1, *s[axis:])) for p, s in zip(parts, shapes)], axis)

    def pad(self, x: Operand, widths: Sequence[tuple[int, int]], mode: str = "constant", value: float = 0) -> Operand:
        """(before, after) of each of the last axes; negative widths cut.

        ``mode`` is "constant", "reflect", "replicate" or "wrap"; truth is padded as numbers of half precision.
        """
        first = self.rank(x) - len(widths)
        cuts = {
            axis: slice(max(-before, 0), type_of(x).shape[axis] + min(after, 0))
            for axis, (before, after) in enumerate(widths, first)
            if min(before, after) < 0
        }
        x = self.window(x, cuts)
        whole = [(max(before, 0), max(after, 0)) for before, after in widths]
        while whole and not any(whole[0]):
            del whole[0]
        if not whole:
            return x
        if mode == "wrap":
            for axis, (before, after) in enumerate(whole, self.rank(x) - len(whole)):
                extent = type_of(x).shape[axis]
                places = np.arange(-before, extent + after) % extent
                x = self.ops.gather(x=x, indices=places.astype(np.int32), axis=axis) if before or after else x
            return x
        dtype = self.dtype(x)
        x = self.cast(x, "fp16") if dtype == "bool" else x
        flat = [width for pair in whole for width in pair]
        return self.cast(self.ops.pad(x=x, pad=flat, mode=mode, constant_val=float(value)), dtype)

    def triangle(self, x: Operand, k: int, upper: bool) -> Operand:
        """The last two axes on and above (below) diagonal ``k``, zeros elsewhere."""
        rows, columns = np.ogrid[: type_of(x).shape[-2], : type_of(x).shape[-1]]
        keep = columns >= rows + k if upper else columns <= rows + k
        if isinstance(x, np.ndarray):
            return np.where(keep, x, self.like(0, x))
        return x if 0 in type_of(x).shape else self.ops.select(cond=keep, a=x, b=self.like(0, x))

    def gather_elements(self, x: Operand, indices: Operand, axis: int) -> Operand:
        """``gather_along_axis`` with indices that may be fewer than the elements along the other axes."""
        have, wanted = type_of(x).shape, type_of(indices).shape
        if len(wanted) == len(have) and all(isinstance(extent, int) for extent in (*have, *wanted)):
            pairs = enumerate(zip(wanted, have))
            x = self.window(x, {i: slice(0, part) for i, (part, whole) in pairs if i != axis and part < whole})
        return self.ops.gather_along_axis(x=x, indices=indices, axis=axis)

    # ------------------------------------------------------------------------------------------------- element-wise

    def elu(self, x: Operand, alpha: float, scale: float = 1, inner: float = 1) -> Operand:
        """``scale x`` from 0 on, ``scale alpha (exp(inner x) - 1)`` below; ``inner`` is positive."""
        return self.scale(self.ops.elu(x=self.scale(x, inner), alpha=alpha * inner), scale / inner)

    def swish(self, x: Operand, alpha: float = 1) -> Operand:
        """``x sigmoid(alpha x)``."""
        return self.ops.silu(x=x) if alpha == 1 else self.ops.mul(x=x, y=self.ops.sigmoid(x=self.scale(x, alpha)))

    def mish(self, x: Operand) -> Operand:
        """``x tanh(softplus(x))``."""
        return self.ops.mul(x=x, y=self.ops.tanh(x=self.ops.softplus(x=x)))

    def hard_swish(self, x: Operand) -> Operand:
        """``x min(max(x / 6 + 1 / 2, 0), 1)``."""
        return self.ops.mul(x=x, y=self.ops.sigmoid_hard(x=x, alpha=1 / 6, beta=0.5))

    def clamp(self, x: Operand, low: float, high: float) -> Operand:
        """``min(max(x, low), high)``."""
        return self.ops.minimum(x=self.ops.maximum(x=x, y=self.like(low, x)), y=self.like(high, x))

    def fold(self, op: str, operands: Sequence[Operand]) -> Operand:
        """An op of two operands over any number of them, from the left."""
        total, *rest = operands
        for other in rest:
            total = self.ops.op(op, x=total, y=other)
        return total if rest else self.ops.identity(x=total)

    # ------------------------------------------------------------------------------------- reductions, normalisation

    def log_softmax(self, x: Operand, axis: int) -> Operand:
        """``x - max - log(sum(exp(x - max)))``: exact where softmax underflows."""
        low = self.ops.sub(x=x, y=self.ops.reduce_max(x=x, axes=[axis], keep_dims=True))
        total = self.ops.reduce_sum(x=self.ops.exp(x=low), axes=[axis], keep_dims=True)
        return self.ops.sub(x=low, y=self.ops.log(x=total, epsilon=0.0))

    def lp_norm(self, x: Operand, p: float, axes: Sequence[int], keep_dims: bool) -> Operand:
        """``(sum |x|^p)^(1 / p)`` over axes."""
        if p in (1, 2):
            return self.ops.op(f"reduce_l{int(p)}_norm", x=x, axes=axes, keep_dims=keep_dims)
        powers = self.ops.pow(x=self.ops.abs(x=x), y=self.like(p, x))
        total = self.ops.reduce_sum(x=powers, axes=axes, keep_dims=keep_dims)
        return self.ops.pow(x=total, y=self.like(1 / p, x))

    def moments(self, x: Operand, axes: Sequence[int]) -> tuple[Operand, Operand, Operand]:
        """``x - mean``, the mean and the variance over axes, which stay with one element."""
        mean = self.ops.reduce_mean(x=x, axes=axes, keep_dims=True)
        away = self.ops.sub(x=x, y=mean)
        return away, mean, self.ops.reduce_mean(x=self.ops.mul(x=away, y=away), axes=axes, keep_dims=True)

    def centre(self, x: Operand, axes: Sequence[int], epsilon: float) -> tuple[Operand, Operand, Operand]:
        """``(x - mean) / sqrt(variance + epsilon)`` over axes, with the mean and the inverse deviation."""
        away, mean, variance = self.moments(x, axes)
        inverse = self.ops.rsqrt(x=variance, epsilon=epsilon)
        return self.ops.mul(x=away, y=inverse), mean, inverse

    def affine(
        self, x: Operand, scale: Operand | None, bias: Operand | None, shape: Sequence[int] | None = None
    ) -> Operand:
        """``x scale + bias``, both in a shape that broadcasts with x (their own for None); None is left out."""
        for op, operand in (("mul", scale), ("add", bias)):
            if operand is not None:
                operand = self.cast(operand if shape is None else self.reshape(operand, shape), self.dtype(x))
                x = self.ops.op(op, x=x, y=operand)
        return x

    def along_channels(self, x: Operand) -> tuple[int, ...]:
        """The shape in which a vector of x's channels, axis 1, broadcasts with x."""
        return (type_of(x).shape[1], *[1] * (self.rank(x) - 2))

    def layer_norm(
        self, x: Operand, axes: Sequence[int], scale: Operand | None, bias: Operand | None, epsilon: float
    ) -> Operand:
        """``layer_norm`` over the last axes; scale and bias as its own where they are constants of the axes' shape."""
        span = tuple(type_of(x).shape[axis] for axis in axes)
        constant = all_constant(scale, bias) and not isinstance(x, np.ndarray)
        if constant and all(one is None or one.shape == span for one in (scale, bias)):
            return self.ops.layer_norm(x=x, axes=axes, epsilon=epsilon, **self.constants(x, gamma=scale, beta=bias))
        y = self.ops.layer_norm(x=x, axes=axes, epsilon=epsilon)
        return self.affine(y, scale, bias)

    def constants(self, x: Operand, **given: np.ndarray | None) -> dict[str, np.ndarray]:
        """Constants in x's element type, without those left out."""
        dtype = self.dtype(x)
        return {name: np.ascontiguousarray(self.cast(one, dtype)) for name, one in given.items() if one is not None}

    def group_norm(self, x: Operand, groups: int, epsilon: float) -> Operand:
        """Each group of channels of each image by its own mean and variance."""
        shape = self.shape(x)
        if shape[1] % groups:
            raise GraphError(f"{shape[1]} channels in {groups} groups")
        flat = self.reshape(x, (shape[0], groups, prod(shape[1:]) // groups))
        return self.reshape(self.ops.layer_norm(x=flat, axes=[2], epsilon=epsilon), shape)

    def batch_norm(self, x: Operand, statistics: Mapping[str, Operand | None], epsilon: float) -> Operand:
        """By each channel's mean, variance, gamma and beta (the last two may be None): MIL's op for constants."""
        if all_constant(*statistics.values()) and 3 <= self.rank(x) <= 5 and self.dtype(x) in MIL_FLOATS:
            return self.ops.batch_norm(x=x, epsilon=epsilon, **self.constants(x, **statistics))
        shape, dtype = self.along_channels(x), self.dtype(x)
        factor = self.ops.rsqrt(x=self.cast(statistics["variance"], dtype), epsilon=epsilon)
        away = self.ops.sub(x=x, y=self.reshape(self.cast(statistics["mean"], dtype), shape))
        gamma = statistics.get("gamma")
        factor = factor if gamma is None else self.ops.mul(x=self.cast(gamma, dtype), y=factor)
        return self.affine(away, factor, statistics.get("beta"), shape)

    # ----------------------------------------------------------------------------------------------------- products

    def linear(self, x: Operand, weight: Operand, bias: Operand | None) -> Operand:
        """``x weight^T + bias``; the op ``linear`` where the weight is a constant matrix (a view stays one)."""
        dtypes = {self.dtype(x), self.dtype(weight)}
        matrix = isinstance(weight, np.ndarray) and weight.ndim == 2 and not isinstance(x, np.ndarray)
        if not matrix or self.rank(x) < 2 or len(dtypes) > 1 or not dtypes <= FLOATS:
            y = self.ops.matmul(x=x, y=self.swap(weight))
        elif isinstance(bias, np.ndarray) and bias.shape == weight.shape[:1]:
            return self.ops.linear(x=x, weight=weight, bias=np.ascontiguousarray(bias))
        else:
            y = self.ops.linear(x=x, weight=weight)
        return y if bias is None else self.ops.add(x=y, y=bias)

    def conv(self, x: Operand, weight: Operand, bias: Operand | None, op: str = "conv", **how: Any) -> Operand:
        """``conv`` (or ``conv_transpose``); a bias that is no constant is added behind it."""
        inside = {"bias": np.ascontiguousarray(bias)} if isinstance(bias, np.ndarray) else {}
        y = self.ops.op(op, x=x, weight=weight, **how, **inside)
        return y if inside else self.affine(y, None, bias, self.along_channels(y))

    def conv_transpose(
        self, x: Operand, weight: Operand, bias: Operand | None, cut: Sequence[tuple[int, int]], **how: Any
    ) -> Operand:
        """``conv_transpose`` whose whole result loses (before, after) along each axis of space.

        Negative widths add rows, which hold the bias alone.
        """
        if min((width for pair in cut for width in pair), default=0) >= 0:
            how |= custom_pad(cut)
            return self.conv(x, weight, bias, "conv_transpose", **how)
        y = self.ops.conv_transpose(x=x, weight=weight, pad_type="valid", **how)
        y = self.pad(y, [(-before, -after) for before, after in cut])
        return self.affine(y, None, bias, self.along_channels(y))
