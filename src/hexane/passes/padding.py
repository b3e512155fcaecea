"""Padding that the next op can do itself."""

from __future__ import annotations

from typing import Any

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.ops.conv import geometry_of
from hexane.graph.ops.join import pad_widths
from hexane.graph.ops.pooling import pool_geometry_of
from hexane.graph.registry import has
from hexane.graph.traits import NEVER_NEGATIVE
from hexane.isa.numbers import LARGEST_HALF
from hexane.passes.rewriting import known, sweep


def fold_padding(function: Function) -> int:
    """Fold zero padding into the convolution or mean pool behind it: the engine refuses it alone, and pads for free."""
    return sweep(function, {"conv": _fold, "avg_pool": _fold, "max_pool": _fold})


def spatial_pads(op: Op) -> list[tuple[int, int]]:
    """(before, after) per spatial axis that a convolution or pool asks for."""
    return geometry_of(op)[2] if op.type == "conv" else pool_geometry_of(op)[1]


def pad_of(op: Op, rank: int) -> list[tuple[int, int]] | None:
    """(before, after) per axis of a pad op with known widths."""
    widths = op.arg("pad")
    if not known(widths):
        return None
    return pad_widths(rank, widths)


def _fold(op: Op, b: GraphBuilder) -> Value | None:
    x = op.inputs["x"]
    if op.type == "conv" and _too_wide(op, spatial_pads(op)):
        return _unfold(op, b)
    pad = x.op
    if pad is None or pad.type != "pad" or pad.arg("mode") != "constant":
        return None
    rank = len(x.shape)
    widths = pad_of(pad, rank)
    number = pad.arg("constant_val")
    if widths is None or not known(number) or any(w != (0, 0) for w in widths[:2]) or min(map(min, widths)) < 0:
        return None
    own = spatial_pads(op)
    if op.type == "conv" and number != 0.0:
        return None
    if op.type == "avg_pool" and (number != 0.0 or (op.arg("exclude_padding_from_average") and any(map(any, own)))):
        return None
    if op.type == "avg_pool" and (op.arg("exclude_padding_from_average") or op.arg("ceil_mode")):
        return None
    size = op.inputs["weight"].shape[2:] if op.type == "conv" else op.arg("kernel_sizes")
    total = [(a + c, d + e) for (a, d), (c, e) in zip(own, widths[2:])]
    if op.type == "conv" and _too_wide(op, total):
        return None
    if op.type == "avg_pool" and any(max(t) >= k for t, k in zip(total, size)):
        return None
    if op.type == "max_pool":
        harmless = number <= -LARGEST_HALF or (number <= 0.0 and _never_negative(pad.inputs["x"]))
        if not harmless or any(max(t) >= k for t, k in zip(total, size)):
            return None
    operands: dict[str, Any] = {k: v for k, v in op.inputs.items() if k not in ("x", "pad", "pad_type")}
    flat = [w for pair in total for w in pair]
    return b.op(op.type, opset=op.opset, **operands, x=pad.inputs["x"], pad_type="custom", pad=flat)


def _too_wide(op: Op, pads: list[tuple[int, int]]) -> bool:
    """Padding as large as the kernel has no known effect; one column left of a pointwise kernel has been seen."""
    kernel = op.inputs["weight"].shape[2:]
    sizes = [(k - 1) * d + 1 for k, d in zip(kernel, op.arg("dilations") or (1,) * len(kernel))]
    if sizes == [1, 1] and pads == [(0, 0), (1, 0)]:
        return False
    return any(max(pair) >= size and max(pair) > 0 for pair, size in zip(pads, sizes))


def _unfold(op: Op, b: GraphBuilder) -> Value:
    """Wide padding as an op of its own."""
    x = op.inputs["x"]
    flat = [0, 0, 0, 0, *(int(w) for pair in spatial_pads(op) for w in pair)]
    padded = b.pad(x=x, pad=flat, mode="constant", constant_val=0.0)
    operands: dict[str, Any] = {k: v for k, v in op.inputs.items() if k not in ("x", "pad", "pad_type")}
    return b.op(op.type, opset=op.opset, **operands, x=padded, pad_type="valid")


def _never_negative(value: Value) -> bool:
    """Padding with 0 cannot win a maximum against such values."""
    return has(value.op, NEVER_NEGATIVE)
