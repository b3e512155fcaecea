"""A graph as a ``net.plist`` with its weight file beside it.

A plist's surfaces are N C (D) H W. A tensor of fewer axes takes the first ones: [N, C] is N C 1 1, [N, C, L] is
N C 1 L, one axis is C. What `formats.netplist.layers` reads is written in the spelling of the recorded plists:
weights in float16, steps equal on all axes, gain and offset by channel. Every unit computes in float16, whatever the
graph says.
"""

from __future__ import annotations

import plistlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from math import isfinite, log
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import GraphError, Reason, UnsupportedError
from hexane.files import write_with_weights
from hexane.formats.netplist.fields import DTYPES
from hexane.formats.netplist.layers import AXES, ELEMENTWISE, NEURON_OPS
from hexane.graph.ir import Graph, Op, Value
from hexane.graph.ops.conv import geometry_of
from hexane.graph.ops.pooling import pool_geometry_of
from hexane.graph.ops.slicing import slices_of
from hexane.graph.parts import Names
from hexane.graph.registry import with_trait
from hexane.graph.traits import RESHAPES
from hexane.image.surface import ALIGNMENT
from hexane.isa.numbers import fp16_bits, fp16_value
from hexane.rounding import align

VERSION = "1.0.9"
"""The version that the recorded plists state."""
OUTPUT = "@output"
"""What ends an output's name, which the unit that gives it has without."""
ONE = fp16_bits(1.0)
KINDS = {dtype: kind for kind, dtype in DTYPES.items()} | {"fp32": "Float16"}
"""Float32 is the interface of a model, not of the engine: whoever calls casts, as for the recorded plists."""

Rule = Callable[["PlistUnits", Op], None]


def refused(op: Op, why: str) -> UnsupportedError:
    """Error for an op that a plist does not say."""
    return UnsupportedError(
        f"is not written to net.plist: {why}",
        where=op.describe(),
        hint="write .mil or .mlpackage",
        code=Reason.OPERATION,
    )


class PlistUnits:
    """Units and weights of one network, in the order in which they are written."""

    def __init__(self, graph: Graph) -> None:
        self.units: dict[str, dict[str, Any]] = {}
        self.weights = bytearray()
        self.depth = any(value.rank == 5 for value in graph.main.values())
        self.axes = AXES if self.depth else tuple(name for name in AXES if name != "Depth")
        self.name = Names(first=2).unique
        self._units_by_value: dict[Value, str] = {}

    def place(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape as N C H W, or N C D H W where the network has a depth."""
        rank = len(self.axes)
        if len(shape) > rank:
            raise GraphError(f"{len(shape)} axes")
        first = (1, *shape) if len(shape) == 1 else (*shape, 1, 1)[: max(2, len(shape))] if shape else (1, 1)
        return (*first[:2], *(1,) * (rank - len(first)), *first[2:])

    def axis(self, value: Value, axis: int) -> str:
        """The name of a tensor's axis."""
        axis %= value.rank
        position = 1 if value.rank == 1 else axis if axis < 2 else axis - value.rank
        return self.axes[position]

    def bottom(self, op: Op, value: Value) -> str:
        """The unit, or the input, that gives a value."""
        if value.is_constant:
            raise refused(op, "an operand is constant; a plist has kernels, gains and offsets only")
        return self._units_by_value[value]

    def input(self, value: Value) -> tuple[str, dict[str, Any]]:
        """The entry of an input."""
        if value.dtype not in KINDS:
            raise UnsupportedError(f"net.plist has no {value.dtype} values", where=f"input {value.name!r}")
        extents = dict(zip(self.axes, self.place(value.shape)))
        bytes_each = 1 if value.dtype in ("int8", "uint8") else 2
        row = align(extents["Width"] * bytes_each, ALIGNMENT)
        name = self._units_by_value[value] = self.name(value.name)
        return name, {
            "BatchSize": extents.pop("Batch"),
            "InputChannels": extents.pop("Channel"),
            **{f"Input{axis}": extent for axis, extent in extents.items()},
            "InputInterleave": 1,
            "InputPlaneStride": row * extents["Height"],
            "InputRowStride": row,
            "InputType": KINDS[value.dtype],
        }

    def unit(self, kind: str, bottoms: list[str], params: dict[str, Any], result: Value, **more: Any) -> str:
        """One more unit, which gives ``result`` (or what a further unit makes it of)."""
        name = self.name(result.name.removesuffix(OUTPUT))
        self.units[name] = {
            "Bottom": bottoms[0] if len(bottoms) == 1 else bottoms,
            "Name": name,
            "OutputType": "Float16",
            "Params": params,
            "Type": kind,
            "UnescapedBottom": bottoms[0] if len(bottoms) == 1 else bottoms,
            "UnescapedName": name,
            **more,
        }
        self._units_by_value[result] = name
        return name

    def alias(self, value: Value, unit: str) -> None:
        """A value that is another one's, for the engine."""
        self._units_by_value[value] = unit

    def stored(self, op: Op, array: Any) -> int:
        """Numbers in the weight file, as float16; where they begin."""
        with np.errstate(over="ignore"):
            halves = np.asarray(array, np.float64).astype("<f2")
        if not np.isfinite(halves).all():
            raise refused(op, "a weight lies beyond 65504")
        self.weights += bytes(-len(self.weights) % ALIGNMENT)
        start = len(self.weights)
        self.weights += halves.tobytes()
        return start

    def gain(self, op: Op, bottom: str, result: Value, scale: Any = None, bias: Any = None) -> str:
        """Gain and offset: numbers for all, or one for each channel."""
        channels = self.place(result.shape)[1]
        params: dict[str, Any] = {}
        data: dict[str, Any] = {}
        for what, numbers in (("Scale", scale), ("Bias", bias)):
            if numbers is None:
                continue
            values = np.asarray(numbers, np.float64).reshape(-1)
            if values.size == 1:
                params[f"{what}Scalar"] = fp16_bits(values[0])
                if not isfinite(fp16_value(params[f"{what}Scalar"])):
                    raise refused(op, f"{values[0]:g} lies beyond 65504")
            elif values.size == channels:
                start = self.stored(op, values)
                data |= {f"{what}Count": channels, f"{what}Index": 0, f"{what}Offset": start, f"{what}Type": "Float16"}
            else:
                raise refused(op, "a constant that is neither one number nor one for each channel")
        if data:
            params["BiasScaleGroupData"] = data
        return self.unit("GOC", [bottom], params, result)


RULES: dict[str, Rule] = {}


def writes(*types: str) -> Callable[[Rule], Rule]:
    """Declare how ops of these types are written."""

    def declare(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(types, rule))
        return rule

    return declare


def _steps(op: Op, strides: Sequence[int]) -> list[int]:
    if len(set(strides)) > 1 or (len(strides) > 2 and strides[0] != 1):
        raise refused(op, f"strides {tuple(strides)}: a plist's are equal")
    return [strides[-1]] * 2


def _window(op: Op, kernel: Sequence[int], strides: Sequence[int], pads: list[tuple[int, int]]) -> dict[str, Any]:
    """Kernel, step and pads by axis, of the last three axes, two or one."""
    if any(n < 0 for pair in pads for n in pair):
        raise refused(op, "a negative pad")
    window: dict[str, Any] = {"Step": _steps(op, strides)}
    names = (("Depth", "Front", "Back"), ("Height", "Top", "Bot"), ("Width", "Left", "Right"))
    for (axis, before, after), k, pad in zip(reversed(names), reversed(kernel), reversed(pads)):
        window[f"Kernel{axis}"] = k
        window |= {f"Pad{side}": n for side, n in zip((before, after), pad) if n}
    return {"KernelHeight": 1} | window


@writes("conv")
def conv(w: PlistUnits, op: Op) -> None:
    weight, bias = op.arg("weight"), op.arg("bias")
    strides, dilations, pads, _ = geometry_of(op)
    if any(d != 1 for d, k in zip(dilations, weight.shape[2:]) if k > 1):
        raise refused(op, f"dilations {tuple(dilations)}")
    _convolution(w, op, weight, bias, _window(op, weight.shape[2:], strides, pads), int(op.arg("groups")))


@writes("linear")
def linear(w: PlistUnits, op: Op) -> None:
    """A product over channels: the tensor's last axis has to be its channel."""
    if op.arg("x").rank > 2:
        raise refused(op, "its features are no channels; write it as a 1x1 convolution")
    one = {"KernelHeight": 1, "KernelWidth": 1, "Step": [1, 1]}
    _convolution(w, op, op.arg("weight"), op.arg("bias"), one, 1)


def _convolution(w: PlistUnits, op: Op, weight: Value, bias: Value | None, window: dict[str, Any], groups: int) -> None:
    if not weight.is_constant or (bias is not None and not bias.is_constant):
        raise refused(op, "its weights are computed")
    params = {
        **window,
        "KernelGroupReuse": False,
        "KernelIndex": 0,
        "KernelMode": "Dense",
        "KernelOffset": w.stored(op, weight.data),
        "KernelType": "Float16",
        "Type": "Conv",
        **({"KernelGroups": groups} if groups > 1 else {}),
    }
    name = w.unit("Conv", [w.bottom(op, op.arg("x"))], params, op.output, OutputChannels=weight.shape[0])
    if bias is not None and np.any(bias.data):
        w.gain(op, name, op.output, bias=bias.data)


@writes("max_pool", "avg_pool", "l2_pool")
def pool(w: PlistUnits, op: Op) -> None:
    sizes = op.arg("kernel_sizes")
    strides, pads, reach, _ = pool_geometry_of(op)
    if reach != pads:
        raise refused(op, "a window that reaches beyond the padding")
    if op.type == "avg_pool" and op.arg("exclude_padding_from_average") and any(n for pair in pads for n in pair):
        raise refused(op, "an average that leaves out its padding")
    kind = {"max_pool": "Max", "avg_pool": "Avg", "l2_pool": "L2"}[op.type]
    params = {**_window(op, sizes, strides, pads), "Type": kind}
    w.unit("Pool", [w.bottom(op, op.arg("x"))], params, op.output)


@writes(*NEURON_OPS.values())
def neuron(w: PlistUnits, op: Op) -> None:
    kind = next(name for name, type_ in NEURON_OPS.items() if type_ == op.type)
    w.unit("Neuron", [w.bottom(op, op.arg("x"))], {"Type": kind}, op.output)


@writes("log")
def logarithm(w: PlistUnits, op: Op) -> None:
    """Log2 and a gain."""
    name = w.unit("Neuron", [w.bottom(op, op.arg("x"))], {"Type": "Log2"}, op.output)
    w.gain(op, name, op.output, scale=log(2))


@writes("silu")
def silu(w: PlistUnits, op: Op) -> None:
    x = w.bottom(op, op.arg("x"))
    gate = w.unit("Neuron", [x], {"Type": "Sigmoid"}, op.output)
    w.unit("ScaledElementWise", [x, gate], {"Scale": ONE, "Type": "Mult"}, op.output)


@writes("real_div", *ELEMENTWISE.values())
def binary(w: PlistUnits, op: Op) -> None:
    """Two values, or a gain or an offset where one of them is constant."""
    x, y = op.arg("x"), op.arg("y")
    if x.is_constant or y.is_constant:
        _with_constant(w, op, x, y)
        return
    if op.type not in ELEMENTWISE.values():
        raise refused(op, "a quotient of two values")
    rank = op.output.rank
    if any(w.place((1,) * (rank - v.rank) + tuple(v.shape)) != w.place(v.shape) for v in (x, y)):
        raise refused(op, "operands of different ranks")
    kind = next(name for name, type_ in ELEMENTWISE.items() if type_ == op.type)
    bottoms = [w.bottom(op, x), w.bottom(op, y)]
    w.unit("ScaledElementWise", bottoms, {"Scale": ONE, "Type": kind}, op.output)


def _with_constant(w: PlistUnits, op: Op, x: Value, y: Value) -> None:
    constant, value = (x, y) if x.is_constant else (y, x)
    data = np.asarray(constant.data, np.float64)
    if value.is_constant or value.shape != op.output.shape:
        raise refused(op, "the constant enlarges the value")
    placed = w.place((1,) * (value.rank - data.ndim) + data.shape)
    if any(extent != 1 for i, extent in enumerate(placed) if i != 1):
        raise refused(op, "a constant that differs within a channel")
    if data.size == 1:
        data = data.reshape(1)
    bottom = w.bottom(op, value)
    if op.type == "add":
        w.gain(op, bottom, op.output, bias=data)
    elif op.type == "mul":
        w.gain(op, bottom, op.output, scale=data)
    elif op.type == "sub" and constant is y:
        w.gain(op, bottom, op.output, bias=-data)
    elif op.type == "sub":
        w.gain(op, bottom, op.output, scale=-1.0, bias=data)
    elif op.type == "real_div" and constant is y and np.all(data):
        w.gain(op, bottom, op.output, scale=1 / data)
    else:
        raise refused(op, "a constant operand of this operation")


@writes("batch_norm")
def batch_norm(w: PlistUnits, op: Op) -> None:
    """Gain and offset from the constants."""

    def numbers(name: str, default: float) -> np.ndarray:
        part = op.arg(name)
        if part is not None and not part.is_constant:
            raise refused(op, "its constants are computed")
        return np.asarray(default if part is None else part.data, np.float64)

    scale = numbers("gamma", 1.0) / np.sqrt(numbers("variance", 1.0) + float(op.arg("epsilon")))
    bias = numbers("beta", 0.0) - numbers("mean", 0.0) * scale
    w.gain(op, w.bottom(op, op.arg("x")), op.output, scale=scale, bias=bias)


@writes("concat")
def concat(w: PlistUnits, op: Op) -> None:
    if op.arg("interleave"):
        raise refused(op, "interleaved channels")
    bottoms = [w.bottom(op, value) for value in op.arg("values")]
    w.unit("Concat", bottoms, {"Dimension": w.axis(op.output, int(op.arg("axis")))}, op.output)


@writes("tile")
def tile(w: PlistUnits, op: Op) -> None:
    x = op.arg("x")
    repeated = [i for i, (before, after) in enumerate(zip(x.shape, op.output.shape)) if before != after]
    if any(x.shape[i] != 1 for i in repeated):
        raise refused(op, "it repeats an axis of more than one element")
    info = [{"Dimension": w.axis(x, i), "Size": op.output.shape[i]} for i in repeated]
    w.unit("Broadcast", [w.bottom(op, x)], {"BroadcastInfo": info}, op.output)


@writes("slice_by_size", "slice_by_index")
def cut(w: PlistUnits, op: Op) -> None:
    """One view after another, an axis each."""
    x = op.arg("x")
    bottom = w.bottom(op, x)
    for axis, (begin, size, step) in enumerate(_ranges(op)):
        if step != 1:
            raise refused(op, f"a step of {step}")
        if size != x.shape[axis]:
            params = {"Dimension": w.axis(x, axis), "Offset": begin, "Size": size}
            bottom = w.unit("InputView", [bottom], params, op.output)
    _reshaped(w, op, bottom, tuple(size for _, size, _ in _ranges(op)))


def _ranges(op: Op) -> list[tuple[int, int, int]]:
    """First element, number of elements and step of each axis of ``x``."""
    shape = op.arg("x").shape
    if op.type == "slice_by_size":
        starts = [b % extent if b < 0 else b for b, extent in zip(op.arg("begin"), shape)]
        index: Sequence[Any] = [slice(b, b + size) for b, size in zip(starts, op.output.shape)]
    else:
        names = ("begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask")
        index = slices_of(shape, *(op.arg(name) for name in names))
    ranges = []
    for extent, part in zip(shape, index):
        steps = range(extent)[part] if isinstance(part, slice) else range(part % extent, part % extent + 1)
        ranges.append((steps.start, len(steps), steps.step if len(steps) > 1 else 1))
    return ranges


@writes(*with_trait(RESHAPES))
def reshape(w: PlistUnits, op: Op) -> None:
    _reshaped(w, op, w.bottom(op, op.arg("x")), op.arg("x").shape)


def _reshaped(w: PlistUnits, op: Op, bottom: str, shape: Sequence[int]) -> None:
    """Nothing where both shapes have the same place, a unit else."""
    after = w.place(op.output.shape)
    if w.place(shape) == after:
        w.alias(op.output, bottom)
        return
    w.unit("Reshape", [bottom], {f"Reshaped{name}": n for name, n in zip(w.axes, after)}, op.output)


@writes("identity", "cast")
def same(w: PlistUnits, op: Op) -> None:
    if not {op.arg("x").dtype, op.output.dtype} <= {"fp16", "fp32"}:
        raise refused(op, f"a cast from {op.arg('x').dtype} to {op.output.dtype}")
    w.alias(op.output, w.bottom(op, op.arg("x")))


@writes("quantize", "dequantize")
def narrow(w: PlistUnits, op: Op) -> None:
    """A byte is its number: scales of one, no zero point."""
    scale, zero = op.arg("scale"), op.arg("zero_point")
    if not scale.is_constant or np.any(np.asarray(scale.data) != 1) or (zero is not None and np.any(zero.data)):
        raise refused(op, "a scale other than 1 or a zero point")
    bottom = w.bottom(op, op.arg("input"))
    if op.type == "dequantize":
        w.alias(op.output, bottom)
    else:
        name = w.unit("GOC", [bottom], {"ScaleScalar": ONE}, op.output)
        w.units[name]["OutputType"] = KINDS[op.output.dtype]


def _network(graph: Graph) -> tuple[dict[str, Any], bytes]:
    """Inputs, units and outputs, with no weight file named yet; and the weights."""
    function = graph.main
    writing = PlistUnits(graph)
    names = [writing.name(value.name.removesuffix(OUTPUT) + OUTPUT) for value in function.outputs]
    inputs = dict(writing.input(value) for value in function.inputs)
    for op in function.ops:
        rule = RULES.get(op.type)
        if rule is None or op.blocks:
            raise refused(op, f"no unit is known for {op.type}")
        try:
            rule(writing, op)
        except GraphError as error:
            raise refused(op, error.message) from None
    outputs = {}
    for name, value in zip(names, function.outputs):
        if value.is_constant:
            raise UnsupportedError(f"the output {value.name!r} is constant", hint="write .mil or .mlpackage")
        bottom = writing._units_by_value[value]
        kind = writing.units[bottom]["OutputType"] if bottom in writing.units else inputs[bottom]["InputType"]
        outputs[name] = {"Bottom": bottom, "OutputInterleave": 1, "OutputType": kind}
    network = {
        "Inputs": list(inputs),
        "Outputs": list(outputs),
        "Units": list(writing.units),
        "Weights": [],
        **inputs,
        **writing.units,
        **outputs,
    }
    return network, bytes(writing.weights)


def _text(graph: Graph, network: dict[str, Any], weight_paths: list[str]) -> bytes:
    title = str(graph.metadata.get("name", "net")) if graph.metadata.get("format") == "netplist" else "net"
    content = {"Networks": [title], "Version": VERSION, title: network | {"Weights": weight_paths}}
    return plistlib.dumps(content, sort_keys=False)


def save(graph: Graph, path: str | Path) -> None:
    """Write ``NAME.plist`` and, where there are weights, ``NAME-DIGEST.weights`` beside it (`write_with_weights`)."""
    path = Path(path)
    network, weights = _network(graph)
    weight_file = path.with_name(f"{path.stem}-{sha256(weights).hexdigest()[:16]}.weights")
    before: set[Path] = set()
    with suppress(OSError, ValueError):
        names = re.findall(rf">({re.escape(path.stem)}-[0-9a-f]{{16}}\.weights)<", path.read_text("utf-8"))
        before = {path.with_name(name) for name in names}
    text = _text(graph, network, [weight_file.name] if weights else [])
    write_with_weights(path, text, weight_file, weights or None, before)
