"""Layers of each kind of unit, in MIL's operations.

Tensors are N C H W, or N C D H W in a network where a depth above 1 occurs. The formulas of Conv, Neuron, GOC,
ScaledElementWise and Concat are those of the early programs (docs/reference/engine-h13.md 4.11); the other names speak
for themselves and no program of theirs is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hexane.errors import FormatError, UnsupportedError
from hexane.formats.netplist.fields import Fields, NetplistWeights
from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Value

AXES = ("Batch", "Channel", "Depth", "Height", "Width")


class NetplistLayer:
    """One unit on its way into the graph: its parameters, operands, the builder and the weight files."""

    def __init__(
        self, fields: Fields, operands: list[Value], builder: GraphBuilder, weights: NetplistWeights, rank: int
    ):
        self.fields = fields
        self.params = fields.inner("Params")
        self.operands = operands
        self.b = builder
        self.weights = weights
        self.rank = rank

    @property
    def x(self) -> Value:
        """The only operand."""
        if len(self.operands) != 1:
            raise FormatError(f"{len(self.operands)} operands, one is needed", where=self.fields.where)
        return self.operands[0]

    def axis(self, name: str) -> int:
        """Axis of a dimension's name in this network's layout."""
        if name not in AXES:
            raise FormatError(f"{name!r} is no dimension", where=self.params.where, hint=", ".join(AXES))
        if self.rank == 5:
            return AXES.index(name)
        if name == "Depth":
            raise UnsupportedError("Depth in a network without depth", where=self.params.where)
        return ("Batch", "Channel", "Height", "Width").index(name)

    def spatial(self, depth: Any, height: Any, width: Any) -> list[Any]:
        return [depth, height, width] if self.rank == 5 else [height, width]


def _window(layer: NetplistLayer) -> tuple[list[int], list[int], list[int]]:
    """Kernel, strides and pads of a Conv or Pool."""
    p = layer.params
    depth = p.count("KernelDepth", 1)
    if depth != 1 and layer.rank == 4:
        raise UnsupportedError("a kernel with depth in a network without", where=p.where)
    kernel = layer.spatial(depth, p.count("KernelHeight"), p.count("KernelWidth"))
    step = p.get("Step", list, [1, 1])
    if not all(isinstance(s, int) and not isinstance(s, bool) and 1 <= s <= 1 << 16 for s in step) or len(step) != 2:
        raise FormatError(f"Step is {step}", where=p.where, hint="two whole numbers from 1 on")
    if step[0] != step[1]:
        raise UnsupportedError("two different steps: which of them is the width's is not known", where=p.where)
    pads = [(p.count(a, 0, 0), p.count(b, 0, 0)) for a, b in (("PadTop", "PadBot"), ("PadLeft", "PadRight"))]
    front = (p.count("PadFront", 0, 0), p.count("PadBack", 0, 0))
    if layer.rank == 4 and any(front):
        raise UnsupportedError("padding of the depth in a network without depth", where=p.where)
    flat = [n for pair in layer.spatial(front, *pads) for n in pair]
    return kernel, layer.spatial(1, step[0], step[1]), flat


def conv(layer: NetplistLayer) -> Value:
    """Convolution with a dense kernel [Cout, Cin, (KD,) KH, KW] from a weight file."""
    p = layer.params
    kernel, strides, pads = _window(layer)
    mode = p.get("KernelMode", str, "Dense")
    if mode != "Dense":
        raise UnsupportedError(f"KernelMode {mode!r}", where=p.where, hint="Dense kernels are read")
    groups = p.count("KernelGroups", 1)
    p.ignore("Type", "KernelGroupReuse")
    cin, cout = layer.x.shape[1], layer.fields.count("OutputChannels")
    if cin % groups or cout % groups:
        raise FormatError(f"{groups} groups of {cin} and {cout} channels", where=p.where)
    shape = (cout, cin // groups, *kernel)
    constant = layer.weights.constant(
        p.count("KernelIndex", 0, 0), p.get("KernelOffset", int, 0), p.get("KernelType", str), shape, layer.fields.where
    )
    weight = layer.b.const(constant, name="weight")
    return layer.b.conv(x=layer.x, weight=weight, strides=strides, pad_type="custom", pad=pads, groups=groups)


def pool(layer: NetplistLayer) -> Value:
    """Pooling; padding counts for an average."""
    kernel, strides, pads = _window(layer)
    kind = layer.params.get("Type", str)
    ops = {"Max": "max_pool", "Avg": "avg_pool", "Average": "avg_pool", "L2": "l2_pool"}
    if kind not in ops:
        raise UnsupportedError(f"pooling of type {kind!r}", where=layer.params.where, hint=", ".join(ops))
    return layer.b.op(ops[kind], x=layer.x, kernel_sizes=kernel, strides=strides, pad_type="custom", pad=pads)


NEURON_OPS = {
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Sign": "sign",
    "Exp2": "exp2",
    "Abs": "abs",
    "Square": "square",
    "Sqrt": "sqrt",
    "Erf": "erf",
    "Floor": "floor",
    "Ceil": "ceil",
}
"""Functions of a name that says all, and their ops; one with parameters needs a program to learn them from."""


def neuron(layer: NetplistLayer) -> Value:
    """A function of each element."""
    kind = layer.params.get("Type", str)
    if kind == "Log2":
        return layer.b.mul(x=layer.b.log(x=layer.x, epsilon=0.0), y=1 / math.log(2))
    if kind not in NEURON_OPS:
        hint = f"known: Log2, {', '.join(NEURON_OPS)}"
        raise UnsupportedError(f"the function {kind!r}", where=layer.params.where, hint=hint)
    return layer.b.op(NEURON_OPS[kind], x=layer.x)


def goc(layer: NetplistLayer) -> Value:
    """Gain and offset: scale x + bias, one number (bits of a float16) or one per channel from a weight file."""
    p, b, x = layer.params, layer.b, layer.x
    data = p.inner("BiasScaleGroupData")
    channels = x.shape[1]

    def vector(what: str) -> Value | None:
        if f"{what}Count" not in data and f"{what}Index" not in data:
            return None
        count = data.count(f"{what}Count")
        if count not in (1, channels):
            raise FormatError(f"{what}Count {count} for {channels} channels", where=data.where)
        constant = layer.weights.constant(
            data.count(f"{what}Index", 0, 0),
            data.get(f"{what}Offset", int, 0),
            data.get(f"{what}Type", str),
            (count, *(1,) * (layer.rank - 2)),
            layer.fields.where,
        )
        return b.const(constant, name=what.lower())

    scale, bias = vector("Scale"), vector("Bias")
    data.done()
    single_scale, single_bias = p.half("ScaleScalar", 1.0), p.half("BiasScalar", 0.0)
    p.ignore("ScaleScalar", "BiasScalar", "Type")
    if scale is not None or "ScaleScalar" in p:
        x = b.mul(x=x, y=scale if scale is not None else single_scale)
    if bias is not None or "BiasScalar" in p:
        x = b.add(x=x, y=bias if bias is not None else single_bias)
    return x if x is not layer.x else b.identity(x=x)


ELEMENTWISE = {"Add": "add", "Sub": "sub", "Mult": "mul", "Mul": "mul", "Min": "minimum", "Max": "maximum"}


def elementwise(layer: NetplistLayer) -> Value:
    """Two operands of one shape, or that broadcast."""
    p = layer.params
    kind = p.get("Type", str)
    if kind not in ELEMENTWISE:
        raise UnsupportedError(f"the operation {kind!r}", where=p.where, hint=f"known: {', '.join(ELEMENTWISE)}")
    scale = p.half("Scale", 1.0)
    p.ignore("Scale")
    if scale != 1.0:
        raise UnsupportedError(f"Scale {scale}: to what it applies is not known", where=p.where, hint="15360 is 1.0")
    if len(layer.operands) < 2:
        raise FormatError("an element-wise unit needs two operands", where=layer.fields.where)
    result = layer.operands[0]
    for operand in layer.operands[1:]:
        result = layer.b.op(ELEMENTWISE[kind], x=result, y=operand)
    return result


def concat(layer: NetplistLayer) -> Value:
    """One after the other, on channels unless Dimension says otherwise."""
    axis = layer.axis(layer.params.get("Dimension", str, "Channel"))
    layer.params.ignore("Type")
    return layer.b.concat(values=tuple(layer.operands), axis=axis, interleave=False)


def broadcast(layer: NetplistLayer) -> Value:
    """Repeat extents of 1."""
    entries = layer.params.get("BroadcastInfo", list)
    reps = [1] * layer.rank
    for entry in entries:
        info = Fields(entry, layer.params.where)
        name, size = info.get("Dimension", str), info.count("Size")
        info.done()
        if name == "Depth" and layer.rank == 4 and size == 1:
            continue
        axis = layer.axis(name)
        extent = layer.x.shape[axis]
        if extent not in (1, size):
            raise FormatError(f"{name} of extent {extent} cannot become {size}", where=layer.params.where)
        reps[axis] = size // extent
    layer.params.ignore("Type")
    return layer.b.tile(x=layer.x, reps=reps)


def reshape(layer: NetplistLayer) -> Value:
    """The same elements in another shape."""
    p = layer.params
    extents = [p.count(f"Reshaped{name}", 1) for name in AXES]
    p.ignore("Type")
    if layer.rank == 4:
        if extents[2] != 1:
            raise UnsupportedError("a depth in a network without depth", where=p.where)
        del extents[2]
    return layer.b.reshape(x=layer.x, shape=extents)


def input_view(layer: NetplistLayer) -> Value:
    """A range of one dimension."""
    p = layer.params
    axis = layer.axis(p.get("Dimension", str))
    offset, size = p.count("Offset", 0, 0), p.count("Size")
    step = p.count("Step", 1)
    p.ignore("Type")
    if step != 1:
        raise UnsupportedError(f"an InputView with Step {step}", where=p.where)
    if offset + size > layer.x.shape[axis]:
        raise FormatError(f"{size} from {offset} on of {layer.x.shape[axis]}", where=p.where)
    begin, sizes = [0] * layer.rank, list(layer.x.shape)
    begin[axis], sizes[axis] = offset, size
    return layer.b.slice_by_size(x=layer.x, begin=begin, size=sizes)


LAYERS: dict[str, Callable[[NetplistLayer], Value]] = {
    "Conv": conv,
    "Neuron": neuron,
    "GOC": goc,
    "ElementWise": elementwise,
    "ScaledElementWise": elementwise,
    "Concat": concat,
    "Broadcast": broadcast,
    "Reshape": reshape,
    "InputView": input_view,
    "Pool": pool,
    "Pooling": pool,
}
