"""Ops that Apple's compiler takes apart into others whose numbers are known to differ: one table.

Each row belongs to a rule, which has the chips, systems, evidence and sources (docs/restrictions.md). ``rewrite``
writes the op in ops whose arithmetic is known, so that the arithmetic on the graph and the tasks of dialect ``apple``
give what the phone gives. coremltools rewrites a network before that, which a Core ML package has behind it: such rows
are for networks of other files alone. A row that a source contradicts stays in the table and says so by its rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.arithmetic.hypotheses import chosen
from hexane.graph.types import FLOATS
from hexane.restrictions.forms import SLICES, behind_flat_product, hard_swish, is_sixth, product_scales, within_row
from hexane.restrictions.numbers import LOG_SOFTMAX, spelled_log_softmax

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Op, Value

Rewrite = Callable[["Op", "GraphBuilder"], "Value | tuple[Value, ...] | None"]


@dataclass(frozen=True)
class Lowering:
    """``rule``: the restriction that it is the cause of, or none; ``ops``: where it may apply; ``generations``: all if
    empty; ``rewrite``: None where hexane's passes do it in their own way, or its program has the same form.

    ``converter``: the pass of coremltools that does it; ``node``: the node in an ONNX file that it is done to.
    ``hypothesis``: its choice decides (docs/numerics-open.md), since only the size of the error was published.
    """

    rule: str
    does: str
    ops: tuple[str, ...]
    rewrite: Rewrite | None
    generations: tuple[str, ...] = ()
    converter: str = ""
    node: str = ""
    hypothesis: str = ""

    def rewrites(self, chip: Chip, nodes: Mapping[str, tuple[str, str]] | None) -> Rewrite | None:
        """The rewrite, where the chip's compiler, or the converter of a network with these nodes, does it."""
        rewrite = self.rewrite
        if rewrite is None or (self.generations and chip.generation_name not in self.generations):
            return None
        if self.converter and nodes is None:
            return None
        if self.node and nodes:
            return lambda op, b: rewrite(op, b) if nodes.get(op.outputs[0].name, ("", ""))[1] == self.node else None
        return rewrite


def _is_plain(value: Value) -> bool:
    return value.dtype in FLOATS and value.rank > 0 and None not in value.shape


def _softplus(op: Op, b: GraphBuilder) -> Value | None:
    """log(1 + exp(x)) with the sum where products are summed: it ends at 32768, and log of infinity is 0."""
    x = op.arg("x")
    if not _is_plain(x) or x.rank > 4:
        return None
    total = _one_more(b.exp(x=x), b)
    return b.log(x=total)


def _one_more(x: Value, b: GraphBuilder) -> Value:
    """1 + x: a convolution of one tap per channel whose bias is the start of its sum."""
    rows = x if x.rank > 2 else b.reshape(x=x, shape=(1, 1, *((1,) * (2 - x.rank)), *x.shape))
    channels, spatial = rows.shape[1], rows.rank - 2
    dtype = np.float16 if x.dtype == "fp16" else np.float32
    total = b.conv(
        x=rows, weight=np.ones((channels, 1, *(1,) * spatial), dtype), bias=np.ones(channels, dtype),
        strides=(1,) * spatial, dilations=(1,) * spatial, pad_type="valid", groups=channels,
    )  # fmt: skip
    return total if rows is x else b.reshape(x=total, shape=x.shape)


def _log_sum_exp(op: Op, b: GraphBuilder) -> Value | None:
    """log(sum(exp(x))): no maximum is taken out."""
    x, axes = op.arg("x"), op.arg("axes")
    if not _is_plain(x):
        return None
    positions = list(range(x.rank)) if axes is None else list(axes)
    return b.log(x=b.reduce_sum(x=b.exp(x=x), axes=positions, keep_dims=op.arg("keep_dims")))


def _log_softmax(op: Op, b: GraphBuilder) -> Value | None:
    """coremltools writes log_softmax as log(softmax): what a front end wrote as x - log-sum-exp is written back."""
    logits = spelled_log_softmax(op)
    return None if logits is None or not _is_plain(op.arg("x")) else b.log(x=b.softmax(x=logits[0], axis=logits[1]))


def _infinite_mask(op: Op, b: GraphBuilder) -> Value | None:
    """select(mask, -inf, x) with a constant mask is x + (-inf or 0)."""
    mask, filled, x = (op.arg(name) for name in ("cond", "a", "b"))
    if not (mask.is_constant and filled.is_constant) or x.is_constant or not _is_plain(x):
        return None
    added = np.where(mask.data, filled.data, np.zeros((), filled.data.dtype))
    if not np.all(np.isinf(filled.data)) or np.broadcast_shapes(added.shape, x.shape) != tuple(op.outputs[0].shape):
        return None
    return b.add(x=x, y=added)


def _width_slice(op: Op, b: GraphBuilder) -> Value | tuple[Value, ...] | None:
    """The slice is taken from 16 times the tensor and multiplied by 1/16: what was beyond 4094 stays infinite."""
    x = op.arg("x")
    if x.dtype not in ("fp16", "fp32") or not within_row(op) or None in x.shape:
        return None
    arguments = {name: value for name, value in op.inputs.items() if name != "x"}
    make: Any = getattr(b, op.type)
    parts = make(x=b.mul(x=x, y=like(16.0, x)), **arguments)
    divided = [b.real_div(x=part, y=like(16.0, x)) for part in (parts if isinstance(parts, tuple) else (parts,))]
    return tuple(divided) if isinstance(parts, tuple) else divided[0]


def like(number: float, x: Value) -> np.ndarray:
    """A number as fp16 where a value is, else fp32."""
    return np.array(number, np.float16 if x.dtype == "fp16" else np.float32)


def _quantised_product(op: Op, b: GraphBuilder) -> Value | None:
    """A branch's codes are taken by the scale of the result."""
    scales = product_scales(op)
    if scales is None:
        return None
    operands = {}
    for name in ("x", "y"):
        value = op.arg(name)
        maker = value.op
        if maker is not None and maker.type == "dequantize":
            arguments = {key: operand for key, operand in maker.inputs.items() if key != "scale"}
            value = b.dequantize(**arguments, scale=like(scales[1], value))
        operands[name] = value
    return b.mul(**operands)


def _flat_hard_swish(op: Op, b: GraphBuilder) -> Value | None:
    """Behind a product of fewer than four axes hard swish is something else (hypothesis ``flat-hard-swish``)."""
    x, choice = behind_flat_product(op), chosen("flat-hard-swish")
    if x is None or choice == "product" or not _is_plain(x):
        return None
    if choice == "silu":
        return b.silu(x=x)
    return b.mul(x=x, y=b.sigmoid_hard(x=x, alpha=like(0.2, x), beta=like(0.5, x)))


def _hard_swish(op: Op, b: GraphBuilder) -> Value | None:
    """With four axes it is a product, or a table (hypothesis ``hard-swish``)."""
    gate = hard_swish(op) if chosen("hard-swish") == "table" else None
    if gate is None or gate[0].type != "sigmoid_hard" or not _is_plain(gate[1]):
        return None
    return b.op("engine.table", x=gate[1], function="hard_swish") if is_sixth(gate[0]) else None


def _hard_sigmoid(op: Op, b: GraphBuilder) -> Value | None:
    """A line with two limits, or three ops (hypothesis ``hard-sigmoid``)."""
    x = op.arg("x")
    if chosen("hard-sigmoid") == "clamp" or not _is_plain(x):
        return None
    line = b.add(x=b.mul(x=x, y=like(op.arg("alpha"), x)), y=like(op.arg("beta"), x))
    return b.clip(x=line, alpha=like(0.0, x), beta=like(1.0, x))


LOWERINGS: tuple[Lowering, ...] = (
    Lowering("O15", "softplus is log(1 + exp(x)); mish stands on it", ("softplus",), _softplus),
    Lowering("N2", "log-sum-exp is log(sum(exp(x)))", ("reduce_log_sum_exp",), _log_sum_exp),
    Lowering("N3", "log_softmax is log(softmax(x))", ("sub",), _log_softmax, converter="log_softmax of its front end",
             node=LOG_SOFTMAX),
    Lowering("N7", "a slice within rows is taken from 16 times the tensor",
             SLICES, _width_slice, ("h13", "h14")),
    Lowering("N8", "a product of quantised branches takes one scale", ("mul",), _quantised_product),
    Lowering("N15", "hard swish behind a product of fewer than four axes is silu (a hypothesis: flat-hard-swish)",
             ("mul",), _flat_hard_swish, hypothesis="flat-hard-swish"),
    Lowering("", "hard swish of a map is a product (a hypothesis: hard-swish); so in hexane's program",
             ("mul",), _hard_swish, hypothesis="hard-swish"),
    Lowering("", "hard sigmoid is a line with two limits (a hypothesis: hard-sigmoid); so in hexane's program",
             ("sigmoid_hard",), _hard_sigmoid, hypothesis="hard-sigmoid"),
    Lowering("N9", "silu and gelu are a fitted table each, not 0 at 0; so in hexane's program", ("silu", "gelu"), None),
    Lowering("N4", "a norm that is spelled out stays so, and its squares are stored", ("reduce_mean",), None),
    Lowering("N9", "x * sigmoid(x) is silu; so in hexane's program", ("mul",), None, converter="fuse_activation_silu"),
    Lowering("N9", "gelu spelled out by erf or tanh is gelu; so in hexane's program", ("mul",), None,
             converter="fuse_gelu_exact, fuse_gelu_tanh_approximation"),
    Lowering("", "a division by a constant is a product; so in hexane's program", ("real_div",), None,
             converter="divide_to_multiply"),
    Lowering("N18", "constants that are 0 in fp16 are 2^-24 of their sign (not epsilon of rsqrt and inverse); so in "
             "hexane's program", ("add", "mul", "layer_norm", "conv"), None, converter="add_fp16_cast"),
    Lowering("", "a product with one number behind a convolution goes into its weights before they are rounded",
             ("mul",), None, converter="fuse_conv_scale"),
    Lowering("", "select(mask, -inf, x) with a constant mask is x + (-inf or 0)", ("select",), _infinite_mask,
             converter="select_optimization"),
)  # fmt: skip
"""The first rewrite that applies to an op is done.

A constant beyond fp16 leaves its op in float32: ``objections.float32_constant``."""


def lowered(chip: Chip, nodes: Mapping[str, tuple[str, str]] | None = None) -> dict[str, Rewrite]:
    """The rewrites of a chip's compiler by op type; with ``nodes`` (:func:`unconverted`) those of the converter too."""
    rewrites: dict[str, list[Rewrite]] = {}
    for row in LOWERINGS:
        rewrite = row.rewrites(chip, nodes)
        if rewrite is not None:
            for op in row.ops:
                rewrites.setdefault(op, []).append(rewrite)
    return {op: _first(tuple(several)) for op, several in rewrites.items()}


def _first(rewrites: tuple[Rewrite, ...]) -> Rewrite:
    return lambda op, b: next((new for rewrite in rewrites if (new := rewrite(op, b)) is not None), None)
