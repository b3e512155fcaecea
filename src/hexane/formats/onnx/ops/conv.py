"""Convolution and pooling. ONNX lists all befores, then all afters; MIL lists pairs per axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hexane.errors import GraphError
from hexane.formats.compositions import MIL_FLOATS, Refused, custom_pad
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.registry import onnx_op
from hexane.formats.operands import Operand, type_of
from hexane.graph.ops.conv import window_pads
from hexane.rounding import ceil_div


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
            if room < 0 and not (ceil and room > -self.strides[axis]):
                raise GraphError(
                    f"a window of {self.reach(axis)} does not fit into {extent} with pads {self.pads[axis]}"
                )
            steps = ceil_div(room, self.strides[axis]) if ceil else room // self.strides[axis]
            if ceil and steps * self.strides[axis] >= extent + self.pads[axis][0]:
                steps -= 1
            out.append(steps + 1)
        return tuple(out)

    @property
    def flat_pads(self) -> list[int]:
        return [n for pair in self.pads for n in pair]

    def arguments(self, dilated: bool = True) -> dict[str, Any]:
        """MIL's parameters."""
        return {"strides": self.strides, **({"dilations": self.dilations} if dilated else {}), **custom_pad(self.pads)}


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
        kind = "same" if auto == "SAME_UPPER" else "same_lower"
        pads = tuple(window_pads(kind, None, extents, kernel, strides, dilations))
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
    return c.conv(x, weight, bias, groups=c.attr("group", 1), **window.arguments())


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
    how = {"strides": strides, "dilations": dilations, "groups": c.attr("group", 1)}
    return c.conv_transpose(x, weight, c[2], pads, **how)


def _transposed_pads(c: NodeContext, extents: Any, whole: list[int], strides: Any, more: Any) -> list[tuple[int, int]]:
    """Elements to cut at both ends of each axis of the full result (negative: to add)."""
    rank = len(extents)
    auto = c.attr("auto_pad", "NOTSET")
    extents_out = c.attr("output_shape")
    if extents_out is not None:
        extents_out = extents_out[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        extents_out = [extents[i] * strides[i] for i in range(rank)]
    if extents_out is not None:
        sides = []
        for i in range(rank):
            total = whole[i] + more[i] - extents_out[i]
            small, large = total // 2, total - total // 2
            if total < 0:
                sides.append((0, total - more[i]))
                continue
            before, after = (small, large) if auto == "SAME_UPPER" else (large, small)
            sides.append((before, after - more[i]))
        return sides
    flat = [0] * (2 * rank) if auto == "VALID" else c.attr("pads", [0] * (2 * rank))
    return [(flat[i], flat[i + rank] - more[i]) for i in range(rank)]


@onnx_op("AveragePool", "MaxPool", "LpPool")
def pool(c: NodeContext) -> object:
    """MIL's pooling where it has one; ceiling mode becomes more padding, which no average over real elements sees."""
    x, kind = c.need(0), c.node.op_type
    extents = spatial(c, x)
    window = window_of(c, extents, tuple(c.attr("kernel_shape")))
    ceil = bool(c.attr("ceil_mode", 0))
    wider = _stretched(window, extents, window.outputs(extents, ceil))
    plain = max(window.dilations) == 1 and len(extents) <= 3 and type_of(x).dtype in MIL_FLOATS
    mil = {"AveragePool": "avg_pool", "MaxPool": "max_pool", "LpPool": "l2_pool"}[kind]
    host: dict[str, Any] = {}
    more: dict[str, Any] = {}
    if kind == "AveragePool":
        host["count_include_pad"] = bool(c.attr("count_include_pad", 0))
        more["exclude_padding_from_average"] = not host["count_include_pad"]
        plain = plain and not (host["count_include_pad"] and wider != window)
    elif kind == "MaxPool":
        host["column_major"] = bool(c.attr("storage_order", 0))
        plain = plain and not c.wants(1)
    else:
        host["p"] = c.attr("p", 2)
        plain = plain and host["p"] == 2 and len(extents) <= 2
    if not plain:
        how = {"strides": window.strides, "dilations": window.dilations, "pad": window.flat_pads, "ceil_mode": ceil}
        return c.ops.op(f"onnx.{kind}", x=x, kernel_sizes=window.kernel, **how, **host)
    return c.ops.op(mil, x=x, kernel_sizes=window.kernel, ceil_mode=False, **wider.arguments(dilated=False), **more)


def _stretched(window: SlidingWindow, extents: tuple[int, ...], out: tuple[int, ...]) -> SlidingWindow:
    """The same window with pads behind that give just ``out`` positions."""
    pads = []
    for axis, extent in enumerate(extents):
        need = (out[axis] - 1) * window.strides[axis] + window.reach(axis)
        before, after = window.pads[axis]
        pads.append((before, max(need - extent - before, after)))
    return SlidingWindow(window.kernel, window.strides, window.dilations, tuple(pads))


@onnx_op("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(c: NodeContext) -> Operand:
    x, kind = c.need(0), c.node.op_type
    axes = range(2, type_of(x).rank)
    if kind == "GlobalLpPool":
        return c.lp_norm(x, c.attr("p", 2), axes, True)
    return c.ops.op("reduce_max" if kind == "GlobalMaxPool" else "reduce_mean", x=x, axes=axes, keep_dims=True)


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
        shapes = {"shape": c.need(2), "index_shape": inner}
        return c.at_run_time("MaxUnpoolAt", "output_shape", x=x, indices=indices, **shapes)
    out = tuple(c.ints(2) or inner)
    if any(a > b for a, b in zip(inner, out)):
        raise GraphError(f"output_shape {out} is smaller than {inner}")
    # The flat indices count in the pooled tensor's own shape (operator specification).
    return c.ops.op("onnx.MaxUnpool", x=x, indices=indices, output_shape=out, index_shape=inner)


@onnx_op("Col2Im")
def col2im(c: NodeContext) -> Operand:
    x = c.need(0)
    runtime = not (c.is_constant(1) and c.is_constant(2))
    rank = type_of(c.need(1)).shape[0]
    flat = c.attr("pads", [0] * (2 * rank))
    arguments: dict[str, Any] = {
        "strides": c.attr("strides", [1] * rank),
        "pad": [n for i in range(rank) for n in (flat[i], flat[i + rank])],
        "dilations": c.attr("dilations", [1] * rank),
    }
    if runtime:
        arguments |= {"image_shape": c.need(1), "block_shape": c.need(2)}
        return c.at_run_time("Col2ImAt", "image_shape", x=x, **arguments)
    image, block = c.ints(1), c.ints(2)
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
        strides=window.strides,
        pad=window.flat_pads,
        dilations=window.dilations,
        groups=c.attr("group", 1),
        offset_groups=c.attr("offset_group", 1),
        **extra,
    )
