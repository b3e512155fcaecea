"""A graph as work: which ops become a pass of the engine, ride along or cost nothing (docs/timing.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from hexane.cost.work import HostOp, Layer, Work
from hexane.graph import Function, Graph, Op, Value
from hexane.graph.macs import macs_of
from hexane.graph.ops.onnx_foreign import FOREIGN, kind_of
from hexane.graph.registry import has, spec_of, values_of
from hexane.graph.traits import CONVOLVES, ELEMENTWISE, POOLS, PRODUCTS
from hexane.graph.types import StateType
from hexane.graph.whole import inner
from hexane.timing.patterns import rms_norms
from hexane.timing.weights import StoredWeights, compiled_bytes, stored_weights

ACTIVATIONS = frozenset(
    (
        "relu relu6 leaky_relu clamped_relu clip prelu elu sigmoid sigmoid_hard tanh gelu silu softplus "
        "softsign thresholded_relu scaled_tanh linear_activation batch_norm"
    ).split()
)
"""Ops that ride along with the pass before them (a layer includes bias and activation, §1)."""
PER_CHANNEL = frozenset(("prelu", "softplus_parametric", "batch_norm"))
"""Functions of one operand with numbers per channel."""
FREE = frozenset(
    (
        "const identity reshape squeeze expand_dims cast quantize dequantize shape flatten2d reshape_like "
        "read_state write_state coreml_update_state concat split stack fill fill_like range_1d"
    ).split()
)
TIMED_MOVES = frozenset(("transpose", "pixel_shuffle"))
IN_STEP = ("binary", "reduce", "pool")
"""Units of the planar engine that Apple's compiler locks to the cores' patches (docs/reference/engine-h13.md 12.1);
tables of one operand are the cores' own work."""
SURFACE_ROW_BYTES = 64
"""Rows of a surface begin at multiples of this (docs/reference/engine-h13.md 6)."""


def work_of(graph: Graph) -> Work:
    """The one program that a graph asks for, layer by layer; linear in the number of ops, no weight is loaded.

    Ops that are neither priced nor free appear as ``move`` layers marked extrapolated.
    """
    launches, _ = split_work_of(graph, lambda op: False)
    return launches[0] if launches else Work(())


def split_work_of(
    graph: Graph, on_host: Callable[[Op], bool], streams: Callable[[Op], bool] | None = None
) -> tuple[tuple[Work, ...], tuple[HostOp, ...]]:
    """The engine programs that a graph asks for when ``on_host`` ops run on the host, and those ops.

    A program ends where a layer needs what the host makes of an earlier layer; independent branches share programs.
    ``streams`` says of which ops the compressed weights are streamed as such; of all where it is left out.
    """
    walk = _Walk(graph.main, on_host, streams)
    for op in graph.main.walk():
        walk.take(op)
    return walk.launches(), tuple(walk.host)


@dataclass
class _Made:
    """Layers as they are found: the layer, the layers whose results it reads, and the program that it runs in."""

    layer: Layer
    reads: set[int]
    launch: int


class _Walk:
    """One pass over a function in program order."""

    def __init__(self, function: Function, on_host: Callable[[Op], bool], streams: Callable[[Op], bool] | None) -> None:
        self._function, self._on_host, self._streams = function, on_host, streams
        self._sources = _Sources(function.inputs)
        self._made: list[_Made] = []
        self._produced_by: dict[int, int] = {}  # value -> index of the layer whose pass makes it
        self._level: dict[int, int] = {}  # value -> the first program that can use it
        self._entering: dict[int, dict[int, Value]] = defaultdict(dict)
        self._leaving: dict[int, dict[int, Value]] = defaultdict(dict)
        self._users: dict[int, int] = {}
        self._results = {id(value) for value in function.outputs}
        self.host: list[HostOp] = []
        for op in function.walk():
            for value in op.operands():
                self._users[id(value)] = self._users.get(id(value), 0) + 1
        self._norms, self._inside_norms = rms_norms(function)

    def take(self, op: Op) -> None:
        """The next op: part of a layer, a layer of its own, an op of the host, or nothing at all."""
        if op in self._inside_norms:
            return
        operands = [v for v in op.operands() if not v.is_constant and not self._sources.is_constant(v)]
        if not op.outputs or not operands:
            self._sources.constant(op)
            return
        if op in self._norms:
            operands = [self._norms[op]]
        level = max(self._level.get(id(v), 0) for v in operands)
        if op.type in FREE and not self._copies(op, operands):
            self._pass_on(op, operands, level)
        elif self._on_host(op):
            self._leave_to_host(op, operands, level)
        else:
            self._compute(op, operands, level)

    def _copies(self, op: Op, operands: list[Value]) -> bool:
        """True where an op hands on to an output what no layer computed: a copy, which a task makes."""
        is_result = any(id(value) in self._results for value in op.outputs)
        return is_result and not any(id(v) in self._produced_by for v in operands)

    def _pass_on(self, op: Op, operands: list[Value], level: int) -> None:
        makers = {self._produced_by[id(v)] for v in operands if id(v) in self._produced_by}
        for value in op.outputs:
            self._sources.follow(value, operands)
            self._level[id(value)] = level
            if makers:
                self._produced_by[id(value)] = max(makers)
            self._users.setdefault(id(value), 0)

    def _leave_to_host(self, op: Op, operands: list[Value], level: int) -> None:
        made_here = [v for v in operands if id(v) in self._produced_by]
        for value in made_here:
            self._write_out(value)
        level = max([level, *(self._made[self._produced_by[id(v)]].launch + 1 for v in made_here)])
        self.host.append(host_op(op))
        for value in op.outputs:
            self._sources.add(value)
            self._level[id(value)] = level

    def _write_out(self, value: Value) -> None:
        layer = self._made[self._produced_by[id(value)]]
        layer.layer = replace(layer.layer, writes_output=True)
        self._leaving[layer.launch][id(value)] = value

    def _compute(self, op: Op, operands: list[Value], level: int) -> None:
        makers = {self._produced_by[id(v)] for v in operands if id(v) in self._produced_by}
        level = max([level, *(self._made[i].launch for i in makers)])
        rides = None if op in self._norms else _rides_along(op, operands, self._produced_by, self._users)
        if rides is not None and self._made[rides].launch == level:
            index = rides
            self._made[index].layer = replace(self._made[index].layer, out_bytes=2.0 * prod(op.outputs[0].shape))
        else:
            layer = _rms_norm(op, self._norms[op]) if op in self._norms else _layer(op, operands, self._users)
            if layer.weight_format != "fp16" and self._streams is not None and not self._streams(op):
                layer = replace(layer, weight_format="fp16", weight_bytes=layer.dense_bytes, density=1.0)
            self._made.append(_Made(layer, makers, level))
            index = len(self._made) - 1
        for value in operands:
            maker = self._produced_by.get(id(value))
            crosses = maker is not None and self._made[maker].launch < level
            if crosses:
                self._write_out(value)
            if (crosses or self._sources.is_input(value)) and id(value) not in self._entering[level]:
                self._made[index].layer = replace(self._made[index].layer, reads_input=True)
                self._entering[level][id(value)] = value
        for value in op.outputs:
            self._produced_by[id(value)] = index
            self._level[id(value)] = level

    def launches(self) -> tuple[Work, ...]:
        """The engine programs; a single one is given every input of the function, used or not."""
        for value in self._function.outputs:
            if id(value) in self._produced_by:
                self._write_out(value)
        numbers = sorted({entry.launch for entry in self._made})
        if len(numbers) == 1 and not self.host:
            inputs = [value for value in self._function.inputs if not isinstance(value.type, StateType)]
            return (self._work(numbers[0], inputs, list(self._function.outputs)),)
        return tuple(
            self._work(
                number,
                [v for v in self._entering[number].values() if not isinstance(v.type, StateType)],
                list(self._leaving[number].values()),
            )
            for number in numbers
        )

    def _work(self, number: int, operands: list[Value], results: list[Value]) -> Work:
        indices = [i for i, entry in enumerate(self._made) if entry.launch == number]
        place = {index: i for i, index in enumerate(indices)}
        reads = [{place[i] for i in self._made[index].reads if i in place} for index in indices]
        layers = [self._made[index].layer for index in indices]
        layers = [replace(layer, follows=_is_behind_sums(i, layers, reads[i])) for i, layer in enumerate(layers)]
        chain = len(layers) > 1 and all(entry == {i - 1} for i, entry in enumerate(reads) if i > 0)
        convolutions = all(layer.unit == "mac" and layer.op != "linear" for layer in layers)
        chain = chain and (convolutions or all(layer.unit in ("unary", "binary") for layer in layers))
        if chain and all(layer.unit == "unary" for layer in layers):
            layers = _merged_pairs(layers)
        return Work(
            tuple(layers),
            host_in_bytes=sum(_bytes(value) for value in operands),
            host_out_bytes=sum(_bytes(value) for value in results),
            host_in_padded=sum(_bytes(value) for value in operands if _has_padded_rows(value)),
            host_out_padded=sum(_bytes(value) for value in results if _has_padded_rows(value)),
            chain=chain,
            worker=any(layer.unit in ("sdpa", "topk") for layer in layers),
        )


def _is_behind_sums(place: int, layers: list[Layer], reads: set[int]) -> bool:
    """True where the planar engine reads what the cores made right before, so that both run patch by patch."""
    before = place - 1
    return layers[place].unit in IN_STEP and before in reads and layers[before].unit in ("mac", "runtime")


def host_op(op: Op) -> HostOp:
    """Work of an op on the host: arithmetic and bytes; constants count as read."""
    op = inner(op)
    traffic = sum(map(_bytes, (*op.operands(), *op.outputs)))
    elements = max((float(prod(extent or 1 for extent in value.shape)) for value in op.outputs), default=0.0)
    return HostOp(op.name or op.type, kind_of(op), max(2.0 * macs_of(op), elements), traffic, op.type == FOREIGN)


def _bytes(value: Value) -> float:
    """Bytes of a value; an extent that depends on data counts once."""
    return 2.0 * prod(extent or 1 for extent in value.shape)


def _has_padded_rows(value: Value) -> bool:
    """True where the rows of a surface of this shape end in padding, so that no copy of it is one run of bytes."""
    rows = value.shape[:-1]
    return None not in value.shape and prod(rows) > 1 and bool(2 * value.shape[-1] % SURFACE_ROW_BYTES)


class _Sources:
    """Values that are program inputs, or follow from constants alone, through ops that cost nothing."""

    def __init__(self, inputs: tuple[Value, ...]) -> None:
        self._inputs = {id(value) for value in inputs}
        self._constants: set[int] = set()

    def is_input(self, value: Value) -> bool:
        return id(value) in self._inputs

    def is_constant(self, value: Value) -> bool:
        return id(value) in self._constants

    def add(self, value: Value) -> None:
        self._inputs.add(id(value))

    def constant(self, op: Op) -> None:
        self._constants.update(id(value) for value in op.outputs)

    def follow(self, value: Value, operands: list[Value]) -> None:
        if any(self.is_input(operand) for operand in operands):
            self._inputs.add(id(value))


def _rides_along(op: Op, operands: list[Value], produced_by: dict[int, int], users: dict[int, int]) -> int | None:
    """The layer that this op is part of: an activation, constant bias or scale behind a pass that only it uses."""
    if len(operands) != 1 or id(operands[0]) not in produced_by or users.get(id(operands[0]), 0) > 1:
        return None
    maker = operands[0].op
    while maker is not None and maker.type in FREE:
        maker = next((v.op for v in maker.operands() if not v.is_constant), None)
    fused = has(maker, PRODUCTS) and (op.type in ACTIVATIONS or op.type in ("add", "sub", "mul"))
    after = maker is not None and has(maker, ELEMENTWISE) and len(spec_of(maker).tensors) > 1 and op.type == "relu"
    return produced_by[id(operands[0])] if fused or after else None


def _merged_pairs(layers: list[Layer]) -> list[Layer]:
    """One-input ops in a row run two to a task."""
    last = layers[-1]
    merged = layers[: (len(layers) + 1) // 2]
    merged[-1] = replace(merged[-1], writes_output=last.writes_output)
    return merged


def _layer(op: Op, operands: list[Value], uses: dict[int, int]) -> Layer:
    name = op.name or op.outputs[0].name
    out = op.outputs[0]
    in_elements = float(sum(prod(value.shape) for value in operands))
    common: dict[str, Any] = dict(name=name, op=op.type, in_bytes=2.0 * in_elements, out_bytes=2.0 * prod(out.shape))
    if has(op, CONVOLVES):
        return _conv(op, operands, common, uses)
    if has(op, PRODUCTS):
        return _linear(op, operands, common, uses)
    if op.type == "einsum" and macs_of(op):
        return _einsum(op, common, uses)
    if op.type == "scaled_dot_product_attention":
        query = op.arg("query").shape
        return Layer(**common, unit="sdpa", elements=float(prod(query[:-1])))
    elements = float(prod(operands[0].shape))
    if op.type.startswith("reduce_arg") or op.type in ("topk", "argsort"):
        return Layer(**common, unit="topk", elements=elements, extrapolated=elements > 65536)
    if op.type.startswith("reduce_"):
        return Layer(**common, unit="reduce", elements=elements)
    if op.type == "softmax":
        return Layer(**common, unit="softmax", elements=elements, axis=int(operands[0].shape[op.arg("axis")]))
    if op.type == "layer_norm" and len(op.arg("axes") or ()) > 1:
        return Layer(**common, unit="group_norm", elements=elements)
    if op.type in ("layer_norm", "l2_norm"):
        (reduced,) = (op.arg("axes") if op.type == "layer_norm" else None) or (-1,)
        axis = int(operands[0].shape[reduced]) if operands[0].rank else 1
        rows = 1 if op.type == "l2_norm" else _items(operands[0])
        return Layer(**common, unit="norm", elements=elements, axis=axis, batches=rows)
    if op.type in ("instance_norm", "local_response_norm"):
        return Layer(**common, unit="group_norm", elements=elements, extrapolated=True)
    if has(op, POOLS):
        return Layer(**common, unit="pool", elements=elements)
    if has(op, ELEMENTWISE) and len(operands) > 1:
        elements = max(elements, float(prod(out.shape)))
        return Layer(**common, unit="binary", elements=elements, operands=len(operands))
    if has(op, ELEMENTWISE) or op.type in PER_CHANNEL or op.type == "cumsum":
        return Layer(**common, unit="unary", elements=max(elements, float(prod(out.shape))))
    return Layer(**common, unit="move", elements=elements, extrapolated=op.type not in TIMED_MOVES)


def _rms_norm(op: Op, x: Value) -> Layer:
    elements = float(prod(x.shape))
    return Layer(op.name or op.type, "rms_norm", "norm", in_bytes=2 * elements, out_bytes=2 * elements,
                 elements=elements, batches=_items(x))  # fmt: skip


def _items(x: Value) -> int:
    """Rows of a matrix, items of a batch to a norm; 0 for every other tensor: one map, whichever axis is reduced."""
    return prod(x.shape[:-1]) if x.rank <= 2 else 0


def _int8(value: Value) -> bool:
    return value.op is not None and value.op.type == "dequantize"


def _conv(op: Op, operands: list[Value], common: dict[str, Any], uses: dict[int, int]) -> Layer:
    weight = op.arg("weight")
    groups = op.arg("groups")
    shape = weight.shape
    transposed = op.type == "conv_transpose"
    cin, cout = (shape[0], shape[1] * groups) if transposed else (shape[1] * groups, shape[0])
    window = (1, *shape[2:]) if len(shape) == 3 else shape[2:]
    spatial = operands[0].shape if transposed else op.outputs[0].shape
    strides, dilations = op.arg("strides") or (1,), op.arg("dilations") or (1,)
    weights_stored = stored_weights(weight)
    if max(*strides, *dilations) > 1 and weights_stored.format in ("palette", "int8") and not _int8(operands[0]):
        weights_stored = StoredWeights(
            "fp16", weights_stored.count, 2.0 * weights_stored.count
        )  # these are streams of fp16, whatever a file holds
    int8 = _int8(operands[0]) and weights_stored.format in ("int8", "palette")
    if int8:
        common = {**common, "in_bytes": common["in_bytes"] / 2, "out_bytes": common["out_bytes"] / 2}
    runtime = weights_stored.runtime
    depth = prod(window[:-2]) if len(window) > 2 else 1
    return Layer(
        **common,
        unit="runtime" if runtime else "mac",
        pixels=int(spatial[0] * prod(spatial[2:])) * depth,
        cin=cin,
        cout=cout,
        kh=int(window[-2]),
        kw=int(window[-1]),
        stride=max(strides),
        dilation=max(dilations),
        groups=groups,
        int8=int8,
        extrapolated=transposed or groups > 1 or len(shape) > 4,
        **_weight_fields(
            weights_stored, weight, uses, int8, (cout, cin, int(window[-2]), int(window[-1]) * depth, groups)
        ),
    )


def _linear(op: Op, operands: list[Value], common: dict[str, Any], uses: dict[int, int]) -> Layer:
    x, w = (op.arg("x"), op.arg("weight")) if op.type == "linear" else (op.arg("x"), op.arg("y"))
    out = op.outputs[0].shape
    transpose_x = op.type == "matmul" and op.arg("transpose_x")
    inner = x.shape[-2] if transpose_x and x.rank > 1 else x.shape[-1]
    transposed = op.type == "matmul" and not op.arg("transpose_y") and w.rank == 2
    weights_stored = stored_weights(w, 1 if transposed else 0)
    if op.type == "matmul" and not stored_weights(x).runtime:  # a constant first operand is the kernel
        weights_stored, w = stored_weights(x), x
    pixels, cout = int(prod(out[:-1])), int(out[-1]) if out else 1
    if weights_stored.runtime:
        batches = int(prod(out[:-2]))
        return Layer(**common, unit="runtime", pixels=pixels, cin=inner, cout=cout, batches=batches)
    return Layer(
        **common,
        unit="mac",
        pixels=pixels,
        cin=inner,
        cout=cout,
        **_weight_fields(weights_stored, w, uses, False, (cout, inner, 1, 1, 1)),
    )


def _einsum(op: Op, common: dict[str, Any], uses: dict[int, int]) -> Layer:
    """A sum of products as the matrix product that it is: its last axis the outputs, what is summed the inputs."""
    out = op.outputs[0].shape
    elements = prod(out)
    cout = int(out[-1]) if out else 1
    shape: dict[str, Any] = dict(pixels=elements // cout, cin=round(macs_of(op) / elements), cout=cout)
    kernels = [
        (v, weights_stored) for v in values_of(op.inputs["values"]) if not (weights_stored := stored_weights(v)).runtime
    ]
    if not kernels:
        return Layer(**common, unit="runtime", batches=prod(out[:-2]), **shape)
    value, weights_stored = kernels[0]
    return Layer(
        **common,
        unit="mac",
        **shape,
        **_weight_fields(weights_stored, value, uses, False, (cout, shape["cin"], 1, 1, 1)),
    )


def _weight_fields(
    stored: StoredWeights, weight: Value, uses: dict[int, int], int8: bool, kernel: tuple[int, int, int, int, int]
) -> dict[str, Any]:
    """``kernel``: outputs, inputs, height, width, groups."""
    whole = stored.count == kernel[0] * kernel[1] // kernel[4] * kernel[2] * kernel[3]
    return dict(
        weight_bytes=compiled_bytes(stored, *kernel) if whole and kernel[3] <= 32 else stored.bytes,
        dense_bytes=float(stored.count) * (1 if int8 else 2),
        density=stored.density,
        weight_format=stored.format,
        tables=stored.tables if stored.format == "palette" else 1,
        weight_key=weight.name if uses.get(id(weight), 0) > 1 else None,
    )
