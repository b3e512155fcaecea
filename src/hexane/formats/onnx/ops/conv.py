"""Convolution and pooling. ONNX lists all befores, then all afters; MIL lists pairs per axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.formats.onnx.context import NodeContext, Operand, Refused, type_of
from hexane.formats.onnx.registry import onnx_op


@dataclass(frozen=True)
class SlidingWindow:
    """A sliding window's geometry over the spatial axes; ``pads`` are (before, after) pairs."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    def reach(self, axis: int) -> int:
        """Input positions that one window spans."""
        return self.dilations[axis] * (self.kernel[axis] - 1) + 1

    def outputs(self, extents: tuple[int, ...], ceil: bool = False) -> tuple[int, ...]:
        """Output extents. With ``ceil``, windows that would start behind the input are left out."""
        out = []
        for axis, extent in enumerate(extents):
            room = extent + sum(self.pads[axis]) - self.reach(axis)
            if room < 0:
                raise GraphError(
                    f"a window of {self.reach(axis)} does not fit into {extent} with pads {self.pads[axis]}"
                )
            steps = -(-room // self.strides[axis]) if ceil else room // self.strides[axis]
            if ceil and steps * self.strides[axis] >= extent + self.pads[axis][0]:
                steps -= 1
            out.append(steps + 1)
        return tuple(out)

    @property
    def flat_pads(self) -> np.ndarray:
        return np.array([n for pair in self.pads for n in pair], np.int32)

    def arguments(self, dilated: bool = True) -> dict[str, Any]:
        """MIL's parameters."""
        made: dict[str, Any] = {"strides": np.array(self.strides, np.int32)}
        if dilated:
            made["dilations"] = np.array(self.dilations, np.int32)
        if any(any(pair) for pair in self.pads):
            return {**made, "pad_type": "custom", "pad": self.flat_pads}
        return {**made, "pad_type": "valid"}


def window_of(c: NodeContext, extents: tuple[int, ...], kernel: tuple[int, ...]) -> SlidingWindow:
    """The window that a node's attributes describe over ``extents``."""
    rank = len(extents)
    strides = tuple(c.attr("strides", [1] * rank))
    dilations = tuple(c.attr("dilations", [1] * rank))
    if not len(kernel) == len(strides) == len(dilations) == rank:
        raise GraphError(f"kernel {kernel}, strides {strides}, dilations {dilations} over {rank} spatial axes")
    if min((*kernel, *strides, *dilations), default=1) < 1:
        raise GraphError(f"kernel {kernel}, strides {strides} and dilations {dilations} must be positive")
    auto = c.attr("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        flat = c.attr("pads", [0] * (2 * rank))
        if len(flat) != 2 * rank:
            raise GraphError(f"{len(flat)} pads over {rank} spatial axes")
        pads = tuple((flat[i], flat[i + rank]) for i in range(rank))
        if min(flat, default=0) < 0:
            raise Refused(f"its pads {flat} are negative")
    elif auto == "VALID":
        pads = ((0, 0),) * rank
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        sides = []
        for i in range(rank):
            total = max(
                (-(-extents[i] // strides[i]) - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - extents[i], 0
            )
            small, large = total // 2, total - total // 2
            sides.append((small, large) if auto == "SAME_UPPER" else (large, small))
        pads = tuple(sides)
    else:
        raise GraphError(f"auto_pad {auto!r}")
    return SlidingWindow(kernel, strides, dilations, pads)


def spatial(c: NodeContext, operand: Operand, least: int = 1) -> tuple[int, ...]:
    """The extents behind batch and channels."""
    type_ = type_of(operand)
    if not type_.is_static:
        raise Refused("its input has a shape that depends on data; the graph is static")
    if type_.rank < 2 + least:
        raise GraphError(f"an input of rank {type_.rank}")
    return type_.shape[2:]


def conv_of(c: NodeContext, x: Operand, weight: Operand, bias: Operand | None) -> Operand:
    """``conv`` of any rank that MIL knows, with the node's attributes."""
    extents = spatial(c, x)
    if len(extents) > 3:
        raise Refused(f"it has {len(extents)} spatial axes, MIL's conv at most 3")
    kernel = type_of(weight).shape[2:]
    if len(kernel) != len(extents):
        raise GraphError(f"a weight {type_of(weight).shape} for an input {type_of(x).shape}")
    if c.has_attr("kernel_shape") and tuple(c.attr("kernel_shape")) != kernel:
        raise GraphError(f"kernel_shape {c.attr('kernel_shape')} and a weight {type_of(weight).shape}")
    window = window_of(c, extents, kernel)
    extra = {} if bias is None else {"bias": bias}
    return c.ops.conv(x=x, weight=weight, groups=c.attr("group", 1), **window.arguments(), **extra)


@onnx_op("Conv")
def conv(c: NodeContext) -> Operand:
    return conv_of(c, c.need(0), c.need(1), c[2])


@onnx_op("ConvTranspose")
def conv_transpose(c: NodeContext) -> Operand:
    """MIL's ``conv_transpose`` without pads, then cut or filled to what ONNX's pads and output shape say."""
    x, weight = c.need(0), c.need(1)
    extents = spatial(c, x)
    rank = len(extents)
    if rank > 3:
        raise Refused(f"it has {rank} spatial axes, MIL's conv_transpose at most 3")
    kernel = type_of(weight).shape[2:]
    strides, dilations = c.attr("strides", [1] * rank), c.attr("dilations", [1] * rank)
    more = c.attr("output_padding", [0] * rank)
    whole = [(extents[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 for i in range(rank)]
    pads = _transposed_pads(c, extents, whole, strides, more)
    arguments: dict[str, Any] = {
        "strides": np.array(strides, np.int32),
        "dilations": np.array(dilations, np.int32),
        "groups": c.attr("group", 1),
    }
    bias = {} if c[2] is None else {"bias": c[2]}
    inside = all(before >= 0 and after >= 0 for before, after in pads)
    if inside:
        flat = np.array([n for pair in pads for n in pair], np.int32)
        how = {"pad_type": "custom", "pad": flat} if flat.any() else {"pad_type": "valid"}
        return c.ops.conv_transpose(x=x, weight=weight, **arguments, **how, **bias)
    # An output padding beyond the window adds rows that hold the bias alone.
    y = c.ops.conv_transpose(x=x, weight=weight, pad_type="valid", **arguments)
    from hexane.formats.onnx.ops.shape import padded, window

    y = window(c, y, {2 + i: slice(max(b, 0), whole[i] - max(a, 0)) for i, (b, a) in enumerate(pads) if b > 0 or a > 0})
    flat_pads = [0, 0, *(max(-b, 0) for b, _ in pads), 0, 0, *(max(-a, 0) for _, a in pads)]
    y = padded(c, y, flat_pads, None, "constant", c.like(0, y), type_of(y).shape)
    if c[2] is not None:
        y = c.ops.add(x=y, y=c.reshape(c.need(2), (type_of(c.need(2)).shape[0], *[1] * rank)))
    return y


def _transposed_pads(c: NodeContext, extents: Any, whole: list[int], strides: Any, more: Any) -> list[tuple[int, int]]:
    """Elements to cut at both ends of each axis of the full result (negative: to add)."""
    rank = len(extents)
    auto = c.attr("auto_pad", "NOTSET")
    wanted = c.attr("output_shape")
    if wanted is not None:
        wanted = wanted[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [extents[i] * strides[i] for i in range(rank)]
    if wanted is not None:
        sides = []
        for i in range(rank):
            total = whole[i] + more[i] - wanted[i]
            small, large = total // 2, total - total // 2
            if total < 0:
                sides.append((0, total - more[i]))
                continue
            before, after = (small, large) if auto == "SAME_UPPER" else (large, small)
            sides.append((before, after - more[i]))
        return sides
    flat = [0] * (2 * rank) if auto == "VALID" else c.attr("pads", [0] * (2 * rank))
    return [(flat[i], flat[i + rank] - more[i]) for i in range(rank)]


@onnx_op("AveragePool")
def average_pool(c: NodeContext) -> Operand:
    """MIL's ``avg_pool``; ceiling mode becomes more padding, which an average over real elements does not see."""
    x = c.need(0)
    extents = spatial(c, x)
    window = window_of(c, extents, tuple(c.attr("kernel_shape")))
    count_pad, ceil = bool(c.attr("count_include_pad", 0)), bool(c.attr("ceil_mode", 0))
    out = window.outputs(extents, ceil)
    wider = _stretched(window, extents, out)
    plain = max(window.dilations) == 1 and len(extents) <= 3 and type_of(x).dtype in ("fp16", "fp32")
    if not plain or (count_pad and wider != window):
        return c.ops.op("onnx.AveragePool", x=x, **_host_arguments(window, ceil), count_include_pad=count_pad)
    return c.ops.avg_pool(
        x=x,
        kernel_sizes=np.array(window.kernel, np.int32),
        exclude_padding_from_average=not count_pad,
        ceil_mode=False,
        **wider.arguments(dilated=False),
    )


@onnx_op("MaxPool")
def max_pool(c: NodeContext) -> object:
    x = c.need(0)
    extents = spatial(c, x)
    window = window_of(c, extents, tuple(c.attr("kernel_shape")))
    ceil = bool(c.attr("ceil_mode", 0))
    plain = max(window.dilations) == 1 and len(extents) <= 3 and type_of(x).dtype in ("fp16", "fp32")
    if not plain or c.wants(1):
        column = bool(c.attr("storage_order", 0))
        return c.ops.op("onnx.MaxPool", x=x, **_host_arguments(window, ceil), column_major=column)
    wider = _stretched(window, extents, window.outputs(extents, ceil))
    return c.ops.max_pool(
        x=x, kernel_sizes=np.array(window.kernel, np.int32), ceil_mode=False, **wider.arguments(dilated=False)
    )


@onnx_op("LpPool")
def lp_pool(c: NodeContext) -> Operand:
    x = c.need(0)
    extents = spatial(c, x)
    window = window_of(c, extents, tuple(c.attr("kernel_shape")))
    ceil, p = bool(c.attr("ceil_mode", 0)), c.attr("p", 2)
    plain = p == 2 and max(window.dilations) == 1 and len(extents) <= 2 and type_of(x).dtype in ("fp16", "fp32")
    if not plain:
        return c.ops.op("onnx.LpPool", x=x, **_host_arguments(window, ceil), p=p)
    wider = _stretched(window, extents, window.outputs(extents, ceil))
    return c.ops.l2_pool(
        x=x, kernel_sizes=np.array(window.kernel, np.int32), ceil_mode=False, **wider.arguments(dilated=False)
    )


def _stretched(window: SlidingWindow, extents: tuple[int, ...], out: tuple[int, ...]) -> SlidingWindow:
    """The same window with pads behind that give just ``out`` positions."""
    pads = []
    for axis, extent in enumerate(extents):
        need = (out[axis] - 1) * window.strides[axis] + window.reach(axis)
        before, after = window.pads[axis]
        pads.append((before, max(need - extent - before, after)))
    return SlidingWindow(window.kernel, window.strides, window.dilations, tuple(pads))


def _host_arguments(window: SlidingWindow, ceil: bool) -> dict[str, Any]:
    return {
        "kernel_sizes": np.array(window.kernel, np.int32),
        "strides": np.array(window.strides, np.int32),
        "pad": window.flat_pads,
        "dilations": np.array(window.dilations, np.int32),
        "ceil_mode": ceil,
    }


def _spatial_axes(operand: Operand) -> np.ndarray:
    return np.arange(2, type_of(operand).rank, dtype=np.int32)


@onnx_op("GlobalAveragePool")
def global_average_pool(c: NodeContext) -> Operand:
    x = c.need(0)
    return c.ops.reduce_mean(x=x, axes=_spatial_axes(x), keep_dims=True)


@onnx_op("GlobalMaxPool")
def global_max_pool(c: NodeContext) -> Operand:
    x = c.need(0)
    return c.ops.reduce_max(x=x, axes=_spatial_axes(x), keep_dims=True)


@onnx_op("GlobalLpPool")
def global_lp_pool(c: NodeContext) -> Operand:
    x, p = c.need(0), c.attr("p", 2)
    if p in (1, 2):
        return c.ops.op(f"reduce_l{p}_norm", x=x, axes=_spatial_axes(x), keep_dims=True)
    raised = c.ops.pow(x=c.ops.abs(x=x), y=c.like(p, x))
    total = c.ops.reduce_sum(x=raised, axes=_spatial_axes(x), keep_dims=True)
    return c.ops.pow(x=total, y=c.like(1 / p, x))


@onnx_op("MaxUnpool")
def max_unpool(c: NodeContext) -> Operand:
    x, indices = c.need(0), c.need(1)
    extents = spatial(c, x)
    kernel = c.attr("kernel_shape")
    strides, pads = c.attr("strides", [1] * len(extents)), c.attr("pads", [0] * (2 * len(extents)))
    small = [
        (extent - 1) * strides[i] + kernel[i] - pads[i] - pads[len(extents) + i] for i, extent in enumerate(extents)
    ]
    inner = (*type_of(x).shape[:2], *small)
    if not c.is_constant(2):
        return c.ops.op(
            "onnx.MaxUnpoolAt", x=x, indices=indices, shape=c.need(2), index_shape=np.array(inner, np.int32),
            output_shape=np.array(c.declared_shape("output_shape"), np.int32),
        )  # fmt: skip
    out = tuple(c.ints(2) or inner)
    if any(a > b for a, b in zip(inner, out)):
        raise GraphError(f"output_shape {out} is smaller than {inner}")
    # The flat indices count in the pooled tensor's own shape (operator specification).
    return c.ops.op(
        "onnx.MaxUnpool",
        x=x,
        indices=indices,
        output_shape=np.array(out, np.int32),
        index_shape=np.array(inner, np.int32),
    )


@onnx_op("Col2Im")
def col2im(c: NodeContext) -> Operand:
    x = c.need(0)
    runtime = not (c.is_constant(1) and c.is_constant(2))
    rank = type_of(c.need(1)).shape[0]
    flat = c.attr("pads", [0] * (2 * rank))
    arguments: dict[str, Any] = {
        "strides": np.array(c.attr("strides", [1] * rank), np.int32),
        "pad": np.array([n for i in range(rank) for n in (flat[i], flat[i + rank])], np.int32),
        "dilations": np.array(c.attr("dilations", [1] * rank), np.int32),
    }
    if runtime:
        shape = np.array(c.declared_shape("image_shape"), np.int32)
        return c.ops.op(
            "onnx.Col2ImAt", x=x, image_shape=c.need(1), block_shape=c.need(2), output_shape=shape, **arguments
        )
    image, block = np.array(c.ints(1), np.int32), np.array(c.ints(2), np.int32)
    return c.ops.op("onnx.Col2Im", x=x, image_shape=image, block_shape=block, **arguments)


@onnx_op("DeformConv")
def deform_conv(c: NodeContext) -> Operand:
    x, weight = c.need(0), c.need(1)
    window = window_of(c, spatial(c, x), type_of(weight).shape[2:])
    extra = {name: c.need(index) for index, name in ((3, "bias"), (4, "mask")) if c.has(index)}
    return c.ops.op(
        "onnx.DeformConv",
        x=x,
        weight=weight,
        offset=c.need(2),
        strides=np.array(window.strides, np.int32),
        pad=window.flat_pads,
        dilations=np.array(window.dilations, np.int32),
        groups=c.attr("group", 1),
        offset_groups=c.attr("offset_group", 1),
        **extra,
    )
