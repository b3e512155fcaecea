"""docs/errata.md: what is known to go wrong on which chip, each row with the smallest network that shows it.

A row names a rule (docs/restrictions.md, docs/limits.md), which says what happens, who saw it where, and the remedy;
here stand only the network, the chip and, where numbers decide, the numbers. What the page prints is what
``hexane check`` says of that network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexane import chips
from hexane.graph import Graph, GraphBuilder
from hexane.graph.constants import Constant
from hexane.graph.ir import Op, Value
from hexane.graph.types import TensorType
from hexane.numerics.insight import every_value
from hexane.restrictions.remarks import Remark, remarks

Build = Callable[[GraphBuilder], Value]


@dataclass(frozen=True)
class Erratum:
    """``rule`` on ``op`` of the network that ``build`` makes, on ``chip``; ``inputs``: values that show it."""

    name: str
    rule: str
    op: str
    chip: str
    build: Build
    inputs: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def graph(self) -> Graph:
        """The network."""
        b = GraphBuilder()
        b.output(self.build(b))
        b.graph.metadata.update(self.metadata)
        return b.graph

    def values(self, graph: Graph) -> dict[str, np.ndarray] | None:
        """Its values on the inputs; None where the numbers are not asked."""
        arrays = {name: np.asarray(value, np.float32) for name, value in self.inputs.items()}
        return {**arrays, **every_value(graph, arrays)} if arrays else None

    def remark(self, graph: Graph | None = None) -> Remark:
        """Answer of ``hexane check`` on it; KeyError where it says nothing."""
        graph = graph or self.graph()
        for op, rows in remarks(graph, chips.get(self.chip), self.values(graph)).items():
            for row in rows:
                if row.rule == self.rule and op.type == self.op:
                    return row
        raise KeyError(f"{self.rule} says nothing of {self.op}")


MAP = (1, 8, 16, 32)
ROWS = (1, 64)


def _x(b: GraphBuilder, *shape: int, dtype: str = "fp16", name: str = "x") -> Value:
    return b.input(name, shape or MAP, dtype)


def _one(op: str, *shape: int, **parameters: Any) -> Build:
    return lambda b: b.op(op, x=_x(b, *shape), **parameters)


def _mish(b: GraphBuilder) -> Value:
    x = _x(b)
    return b.mul(x=x, y=b.tanh(x=b.softplus(x=x)))


def _rms(b: GraphBuilder) -> Value:
    x = _x(b)
    mean = b.reduce_mean(x=b.mul(x=x, y=x), axes=[1], keep_dims=True)
    return b.mul(x=x, y=b.rsqrt(x=mean, epsilon=np.float16(1e-3)))


def _rescaled_rms(b: GraphBuilder) -> Value:
    x = _x(b)
    scaled = b.real_div(x=x, y=b.reduce_max(x=b.abs(x=x), axes=[-1], keep_dims=True))
    mean = b.reduce_mean(x=b.square(x=scaled), axes=[-1], keep_dims=True)
    return b.mul(x=scaled, y=b.rsqrt(x=mean, epsilon=np.float16(1e-3)))


def _linear(scale: float) -> Build:
    return lambda b: b.linear(x=_x(b, *ROWS), weight=np.full((8, 64), scale, np.float16))


def _heavy(layers: int) -> Build:
    """Linear layers of 16384 by 16384, 512 MiB each, whose weights nobody looks at."""
    type_ = TensorType("fp16", (16384, 16384))

    def build(b: GraphBuilder) -> Value:
        x = _x(b, 1, 16384)
        for number in range(layers):
            weight = Constant(type_, load=lambda: np.broadcast_to(np.float16(0.01), type_.shape))
            x = b.linear(x=x, weight=b.const(weight, name=f"w{number}"))
        return x

    return build


def _conv(weight: tuple[int, ...], *shape: int, **more: Any) -> Build:
    return lambda b: b.conv(x=_x(b, *shape), weight=np.full(weight, 0.01, np.float16), pad_type="valid", **more)


def _pair(b: GraphBuilder, x: Value, scale: float) -> Value:
    step = np.float16(scale)
    return b.dequantize(input=b.quantize(input=x, scale=step, output_dtype="int8"), scale=step)


def _product_of_codes(b: GraphBuilder) -> Value:
    one, other = b.split(x=_x(b, 1, 32, 1, 64), num_splits=2, axis=1)
    return _pair(b, b.mul(x=one, y=_pair(b, other, 1 / 16)), 1 / 4)


def _nan(b: GraphBuilder) -> Value:
    x = _x(b)
    return b.cast(x=b.not_equal(x=x, y=x), dtype="fp16")


def _attention(b: GraphBuilder) -> Value:
    q, k, v = (b.input(name, (1, 4, 512, 64), "fp16") for name in "qkv")
    return b.scaled_dot_product_attention(query=q, key=k, value=v)


def _int8_weights(b: GraphBuilder) -> Value:
    data = np.ones((64, 64), np.int8)
    weight = b.constexpr_affine_dequantize(quantized_data=data, zero_point=np.int8(0), scale=np.float16(0.01), axis=0)
    return b.linear(x=_x(b, *ROWS), weight=weight)


def _block_weights(b: GraphBuilder) -> Value:
    data, scale = np.ones((64, 64), np.int8), np.linspace(0.01, 0.02, 128).reshape(64, 2).astype(np.float16)
    return b.linear(x=_x(b, *ROWS), weight=b.constexpr_blockwise_shift_scale(data=data, scale=scale))


def _scaled_palette(b: GraphBuilder) -> Value:
    table = b.constexpr_lut_to_dense(indices=np.zeros((64, 64), np.uint8), lut=np.zeros((1, 1, 256, 1), np.float16))
    weight = b.constexpr_blockwise_shift_scale(data=table, scale=np.ones((64, 1), np.float16))
    return b.linear(x=_x(b, *ROWS), weight=weight)


def _flat_hard_swish(b: GraphBuilder) -> Value:
    x = b.linear(x=_x(b, *ROWS), weight=np.full((8, 64), 0.01, np.float16))
    return b.mul(x=x, y=b.sigmoid_hard(x=x, alpha=np.float16(1 / 6), beta=np.float16(0.5)))


def _transposed(**more: Any) -> Build:
    weight = np.ones((8, 8, *more.pop("kernel", (3, 3))), np.float16)
    return lambda b: b.conv_transpose(x=_x(b, 1, 8, 4, 4), weight=weight, **more)


def _mask(hidden: float) -> Build:
    mask = np.triu(np.full((16, 16), hidden, np.float32), 1)
    return lambda b: b.softmax(x=b.add(x=_x(b, 1, 4, 16, 16, dtype="fp32"), y=mask), axis=-1)


def _matmul(m: int, k: int, n: int, dtype: str = "fp16") -> Build:
    return lambda b: b.matmul(x=_x(b, m, k, dtype=dtype), y=_x(b, k, n, dtype=dtype, name="y"))


def _chain(b: GraphBuilder) -> Value:
    x = _x(b)
    for _ in range(256):
        x = b.add(x=b.abs(x=x), y=np.float16(1))
    return x


def _runtime_kernel(b: GraphBuilder) -> Value:
    return b.conv(x=_x(b, 2, 8, 16, 32), weight=_x(b, 8, 8, 1, 1, name="w"), pad_type="valid")


def _state(b: GraphBuilder) -> Value:
    return b.add(x=b.read_state(input=b.state("s", (1, 8, 4, 270))), y=_x(b, 1, 8, 4, 270))


def _two_states(b: GraphBuilder) -> Value:
    x, states = _x(b, 1, 8, 4, 32), [b.state(name, (1, 8, 4, 32)) for name in ("k", "v")]
    for state in states:
        b.write_state(data=b.add(x=b.read_state(input=state), y=x), input=state)
    return b.read_state(input=states[1])


def _shifted_state(b: GraphBuilder) -> Value:
    state = b.state("k", (1, 8, 4, 32))
    rest = b.slice_by_index(x=b.read_state(input=state), begin=[0, 0, 0, 1], end=[1, 8, 4, 32])
    b.write_state(data=b.concat(values=(rest, _x(b, 1, 8, 4, 1)), axis=3), input=state)
    return b.read_state(input=state)


def _written_state(b: GraphBuilder) -> Value:
    state, row = b.state("s", (1, 4, 8, 64)), _x(b, 1, 4, 1, 64, name="row")
    y = b.slice_update(x=b.read_state(input=state), update=row, begin=[0, 0, 2, 0], end=[1, 4, 3, 64])
    b.write_state(data=y, input=state)
    return b.read_state(input=state)


def _loop(b: GraphBuilder) -> Value:
    x, count = _x(b, *ROWS), b.const(np.int32(0))
    turns = {"i": count.type, "v": x.type}
    with b.subblock(turns) as condition:
        condition.set_outputs([b.less(x=condition.inputs[0], y=np.int32(3))])
    with b.subblock(turns) as body:
        i, v = body.inputs
        body.set_outputs([b.add(x=i, y=np.int32(1)), b.relu(x=v)])
    results: Any = b.op("while_loop", loop_vars=(count, x), blocks=(condition, body))
    return results[1]


def _slice_update(b: GraphBuilder) -> Value:
    x, row = _x(b, 1, 4, 8, 64), _x(b, 1, 4, 1, 64, name="row")
    return b.slice_update(x=x, update=row, begin=[0, 0, 2, 0], end=[1, 4, 3, 64])


def _reshape_like(b: GraphBuilder) -> Value:
    x, like = _x(b, *ROWS), _x(b, 8, 8, name="like")
    return b.reshape_like(x=x, ref_tensors=(like,), begins=[0], ends=[2], end_masks=[False])


def _gather(b: GraphBuilder) -> Value:
    return b.gather(x=_x(b, *ROWS), indices=_x(b, 4, dtype="int32", name="i"), axis=1)


LARGE = np.linspace(-15, 15, 8 * 16 * 32).reshape(MAP)
"""Inputs on both sides of most ends of exponentials."""
SMALL = np.full(ROWS, 2.0**-10)

ERRATA: tuple[Erratum, ...] = (
    Erratum("softplus collapses to 0", "O15", "softplus", "M3 Max", _one("softplus"), {"x": LARGE}),
    Erratum("mish collapses with softplus", "O15", "softplus", "M4", _mish, {"x": LARGE}),
    Erratum("exp ends at 11.09", "N1", "exp", "M1", _one("exp"), {"x": LARGE}),
    Erratum("log-sum-exp collapses to 0", "N2", "reduce_log_sum_exp", "M3 Max",
            _one("reduce_log_sum_exp", 1, 32, 8, 8, axes=[1], keep_dims=True), {"x": np.full((1, 32, 8, 8), 7.7)}),
    Erratum("log of softmax has no small shares", "N3", "log", "M4", lambda b: b.log(x=b.softmax(x=_x(b), axis=-1)),
            {"x": 4 * LARGE * (np.arange(32) == 31)}),
    Erratum("rms norm written out overflows", "N4", "reduce_mean", "M4", _rms, {"x": 30 * LARGE}),
    Erratum("sums end at 32768", "N5", "linear", "M1", _linear(8), {"x": np.full(ROWS, 100)}),
    Erratum("small products count as 0", "N6", "linear", "M1", _linear(2.0**-9), {"x": SMALL}),
    Erratum("slices of rows end at 4094", "N7", "slice_by_size", "M1",
            _one("slice_by_size", begin=[0, 0, 0, 4], size=[1, 8, 16, 28]), {"x": 300 * LARGE}),
    Erratum("halves of rows end at 4094", "N7", "split", "M2 Pro",
            lambda b: b.add(**dict(zip("xy", b.split(x=_x(b), num_splits=2, axis=3)))), {"x": 300 * LARGE}),
    Erratum("a quantised product takes one scale", "N8", "mul", "M5 Pro", _product_of_codes),
    Erratum("silu is not 0 at 0", "N9", "silu", "M4", _one("silu"), {"x": 1e-4 * LARGE}),
    Erratum("gelu is not 0 at 0", "N9", "gelu", "M1", _one("gelu", mode="EXACT"), {"x": 1e-5 * LARGE}),
    Erratum("round is off by one", "N10", "round", "M1", _one("round"), {"x": 100 * LARGE}),
    Erratum("no value differs from itself", "N11", "not_equal", "M1", _nan),
    Erratum("long native attention is wrong", "N12", "scaled_dot_product_attention", "M5", _attention),
    Erratum("int8 weights without zero point", "N13", "constexpr_affine_dequantize", "M1", _int8_weights),
    Erratum("scales along the inputs are not kept", "weights_along_inputs", "linear", "M5 Pro", _block_weights),
    Erratum("hard swish behind a flat product", "N15", "mul", "M4", _flat_hard_swish),
    Erratum("coremltools' rms norm inflates epsilon", "N16", "reduce_mean", "M3 Max", _rescaled_rms, {"x": LARGE}),
    Erratum("conv_transpose with output_shape", "N17", "conv_transpose", "M1",
            _transposed(output_shape=[1, 8, 4, 4])),
    Erratum("an epsilon that is 0 in fp16", "N18", "layer_norm", "M4", _one("layer_norm", axes=[-1], epsilon=1e-12)),
    Erratum("logits nearer than fp16 tells", "N19", "softmax", "M4", _one("softmax", 1, 4, axis=-1),
            {"x": [[10, 10.001, 1, 2]]}),
    Erratum("a mask of -3.4e38", "N20", "add", "M4", _mask(-3.4e38)),
    Erratum("a mask of -1e9", "float32_constant", "add", "M4 Pro", _mask(-1e9)),
    Erratum("a mask of -1e9 keeps its addition in float32", "float32_constant", "add", "M1", _mask(-1e9)),
    Erratum("probabilities times values lose digits", "N21", "matmul", "M5 Pro", _matmul(16, 4096, 64),
            {"x": np.full((16, 4096), 2.0**-12), "y": np.random.default_rng(0).standard_normal((4096, 64))}),
    Erratum("a picture of 5568x5568", "C1", "relu", "A17 Pro", _one("relu", 1, 3, 5568, 5568)),
    Erratum("more than 1 GB of weights", "C2", "linear", "A17 Pro", _heavy(2)),
    Erratum("more than 2 GiB of weights", "C2", "linear", "M4", _heavy(5)),
    Erratum("a batch of 8,192 additions", "C15", "add", "M1",
            lambda b: b.add(x=_x(b, 8192, 8, 1, 4), y=_x(b, 8192, 8, 1, 4, name="y"))),
    Erratum("an input with a range of shapes", "C3", "relu", "M1", _one("relu"),
            metadata={"shapes": {"x": {"range": [[1, 4], [8, 8], [16, 16], [32, 32]]}}}),
    Erratum("enumerated shapes beside a norm", "C3", "layer_norm", "M1", _one("layer_norm", axes=[-1]),
            metadata={"shapes": {"x": {"enumerated": [[1, 8, 16, 32], [3, 8, 16, 32]]}}}),
    Erratum("too small to be placed", "C4", "matmul", "M4", _matmul(4, 4, 4)),
    Erratum("512 element-wise ops", "C5", "add", "M6", _chain),
    Erratum("kernels of 16x16", "C6", "conv", "M4", _conv((8, 8, 16, 16), 1, 8, 32, 32)),
    Erratum("computed weights and a batch", "C7", "conv", "M4", _runtime_kernel),
    Erratum("a transposed stride of 16", "C8", "conv_transpose", "A17 Pro",
            _transposed(kernel=(16, 1), strides=(16, 1), pad_type="valid")),
    Erratum("a state of 270 columns", "C9", "read_state", "M4", _state),
    Erratum("two states that are written", "C13", "read_state", "M4", _two_states),
    Erratum("a cache that is shifted", "C14", "concat", "M4", _shifted_state),
    Erratum("a cache that is written at a place", "C16", "slice_update", "M4", _written_state),
    Erratum("a short convolution of 1,024 channels", "C17", "conv", "M4",
            _conv((1024, 1, 1, 3), 1, 1024, 1, 8, groups=1024)),
    Erratum("a product that runs into the time limit", "C10", "matmul", "M1 Max", _matmul(16384, 16384, 16384)),
    Erratum("a palette with scales", "C11", "constexpr_blockwise_shift_scale", "M4", _scaled_palette),
    Erratum("a network in float32", "C12", "matmul", "M4", _matmul(64, 64, 64, "fp32"), metadata={"format": "coreml"}),
    Erratum("a signal of 479,014 samples", "extent", "relu", "M4", _one("relu", 1, 48, 479014)),
    Erratum("the three largest", "topk_count", "topk", "M4", lambda b: b.topk(x=_x(b, *ROWS), k=3, axis=1)[0]),
    Erratum("reflecting pads", "pad_mode", "pad", "M1",
            _one("pad", pad=[1, 1, 1, 1], mode="reflect", constant_val=np.float16(0))),
    Erratum("kernels of 14 columns", "kernel_width", "conv", "M1", _conv((8, 8, 1, 14))),
    Erratum("local response norm over 16 channels", "response_norm_channels", "local_response_norm", "M1",
            _one("local_response_norm", 1, 16, 8, 8, size=3)),
    Erratum("gather by computed indices", "runtime_indices", "gather", "M4", _gather),
    Erratum("sums of 40,000 terms", "contraction", "matmul", "M4", _matmul(1, 40000, 8)),
    Erratum("the largest of 4,096", "sorted_axis", "reduce_argmax", "M4", _one("reduce_argmax", 1, 4096, axis=1)),
    Erratum("three spatial axes", "three_dimensional", "conv", "M1", _conv((8, 8, 3, 3, 3), 1, 8, 8, 8, 8)),
    Erratum("cumulative sums", "operation", "cumsum", "M4", _one("cumsum", *ROWS, axis=1)),
    Erratum("a product by a constant", "P1", "matmul", "M4",
            lambda b: b.matmul(x=_x(b, 64, 64), y=np.full((64, 64), 0.01, np.float16))),
    Erratum("a loop", "control_flow", "while_loop", "M4", _loop),
    Erratum("a shape that depends on data", "static_shape", "non_zero", "M4", _one("non_zero", 4, 4)),
    Erratum("sums of integers", "element_type", "add", "M4",
            lambda b: b.add(x=_x(b, *ROWS, dtype="int32"), y=_x(b, *ROWS, dtype="int32", name="y"))),
    Erratum("sums in double precision", "float_type", "add", "M4",
            lambda b: b.add(x=_x(b, *ROWS, dtype="fp64"), y=_x(b, *ROWS, dtype="fp64", name="y"))),
    Erratum("words", "text", "identity", "M4", lambda b: b.identity(x=_x(b, *ROWS, dtype="string"))),
    Erratum("six axes", "rank", "relu", "M1", _one("relu", 1, 2, 3, 4, 5, 6)),
    Erratum("an update of what is no state", "update_of_no_state", "slice_update", "M4", _slice_update),
    Erratum("an empty tensor", "no_elements", "relu", "M1", _one("relu", 1, 0, 4, 4)),
    Erratum("an op of which no source speaks", "unlisted_operation", "reshape_like", "M4", _reshape_like),
    Erratum("kernels of 30 rows", "kernel_height", "conv", "M1", _conv((8, 8, 30, 1), 1, 8, 64, 32)),
    Erratum("8,192 groups", "group_count", "conv", "M1", _conv((8192, 1, 1, 1), 1, 8192, 1, 4, groups=8192)),
    Erratum("computed weights", "runtime_weight", "conv", "M1",
            lambda b: b.conv(x=_x(b), weight=_x(b, 8, 8, 1, 1, name="w"), pad_type="valid")),
    Erratum("a linear layer with computed weights", "computed_matrix", "linear", "M4",
            lambda b: b.linear(x=_x(b, *ROWS), weight=_x(b, 8, 64, name="w"))),
    Erratum("tables that change along the inputs", "weights_along_inputs", "linear", "M4", _block_weights),
    Erratum("a window of 32 columns", "pool_window", "max_pool", "M4",
            _one("max_pool", 1, 8, 8, 64, kernel_sizes=[1, 32], strides=[1, 32], pad_type="valid")),
    Erratum("a shuffle by 5", "shuffle_factor", "pixel_shuffle", "M4",
            _one("pixel_shuffle", 1, 50, 8, 8, upscale_factor=5)),
)  # fmt: skip

HEAD = """# Errata

Generated from `hexane.report.errata` (`make docs`): what is published to go wrong on a phone or Mac, with the smallest
network that shows it, and what `hexane check NETWORK --chip CHIP --as apple` says of it. Ids with a number are rules of
[restrictions](restrictions.md), names those of [limits](limits.md). Nothing here was tried on an engine by us, and a
chip here is one to show it for: who saw it on which one stands under *source*. `hexane run --as apple` gives the wrong
numbers of those that are marked *computed*.

`confirmed`: somebody saw it on a chip of this generation, or did not say on which. `disputed`: sources contradict each
other. `inferred`: seen on another generation, or read off the tables of Apple's compiler.

| | what | rule | shown for | status | computed |
|---|---|---|---|---|---|
"""


def errata_page() -> str:
    """The page as Markdown."""
    from hexane.passes.apple_forms import applied

    rows, sections = [], []
    for number, row in enumerate(ERRATA, 1):
        graph = row.graph()
        remark = row.remark(graph)
        computed = any(form.rule == row.rule for form in applied(graph, chips.get(row.chip)))
        rows.append(
            f"| {number} | [{row.name}](#{number}-{_anchor(row.name)}) | {row.rule} | {row.chip} | {remark.status} | "
            f"{'yes' if computed else ''} |"
        )
        sections += [f"## {number} {row.name}", "", f"`{_written(graph)}` on {row.chip}", "", *_said(remark), ""]
    return HEAD + "\n".join([*rows, "", *sections]).rstrip() + "\n"


def _anchor(name: str) -> str:
    letters = "".join(c for c in name.lower() if c.isalnum() or c in " -_")
    return letters.replace(" ", "-")


def _said(remark: Remark) -> list[str]:
    return [
        f"> {remark.says}",
        "",
        f"* effect: {remark.effect}, {remark.status}",
        f"* limit: {remark.limit}; here: {remark.found}",
        f"* remedy: {remark.remedy}",
        f"* source: {remark.source}",
    ]


MOST_OPS = 6


def _written(graph: Graph) -> str:
    """The network in a line."""
    ops = list(graph.main.ops)
    calls = "; ".join(map(_call, ops[:MOST_OPS]))
    return calls if len(ops) <= MOST_OPS else f"{calls}; ... {len(ops)} ops"


def _call(op: Op) -> str:
    results = ", ".join(v.name for v in op.outputs)
    operands = [v for v in op.operands() if not v.is_constant or getattr(v.type, "rank", 0) > 1]
    arguments = ", ".join(f"{'' if v.op else _extents(v)}{'constant' if v.is_constant else v.name}" for v in operands)
    return f"{results} = {op.type}({arguments})"


def _extents(value: Value) -> str:
    return f"{'x'.join(map(str, getattr(value.type, 'shape', ())))} "
