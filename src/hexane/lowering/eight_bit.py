"""Products of 8-bit activations with 8-bit weights: which convolutions sum integers, and what stands at their edges.

A network says it with pairs: ``quantize`` makes bytes, ``dequantize`` numbers of them again. Both are tasks of the
planar engine; a convolution whose operand is dequantised and whose weights stream as integers reads the bytes
themselves, sums integers exactly and scales the sums (docs/reference/compressed.md 4). Whatever does not meet the rule
computes in fp16 behind the dequantised map. No program of Apple's compiler shows any of it: INFERRED.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from hexane.chips import Generation
from hexane.errors import UnsupportedError
from hexane.graph import Op, Value
from hexane.lowering.affine import BYTES, affine_of
from hexane.lowering.weights import Stream, stream_of
from hexane.lowering.windows import NATIVE_WIDTH, window_of

SCALE_ERROR = 2.0**-9
"""Most that fp16 may change a scale of the sums, relative (half of a step of 127); beyond, products are of fp16."""
MOST_COLUMN = 8
"""Rows of a map one pixel wide from which a convolution may be turned, which moves fp16 alone."""


@dataclass(frozen=True, eq=False)
class ByteProduct:
    """A convolution that reads bytes: the quantised map, and its weights with scales for the sums of both."""

    bytes: Value
    stream: Stream


def byte_product(op: Op, generation: Generation) -> ByteProduct | None:
    """Way in which a convolution sums integers on a generation, None where it computes in fp16.

    The map is of bytes with zero point 0 (padding is zero, and Apple's compiler fuses no other), the weights stream as
    int8, the kernel is dense at stride 1, and fp16 holds the scales of the sums.
    """
    source = op.arg("x").op if op.type == "conv" else None
    if source is None or source.type != "dequantize" or source.inputs["input"].dtype not in BYTES:
        return None
    if source.output.only_user is not op:
        return None  # the pass `bytes_of_convolutions` gives every convolution a dequantised map of its own
    if source.inputs["input"].is_constant or op.output.dtype != "fp16" or not _plain(op):
        return None
    try:
        affine = affine_of(source)
    except UnsupportedError:
        return None
    stream = stream_of(op, generation)
    if affine.zero or stream is None or stream.form != "integer" or stream.scales is None:
        return None
    exact = stream.scales.astype(np.float64) * affine.scale
    scales = stream.scaled_by(affine.scale)
    assert scales.scales is not None
    if not bool((np.abs(scales.scales.astype(np.float64) - exact) <= SCALE_ERROR * np.abs(exact)).all()):
        return None
    return ByteProduct(source.inputs["input"], scales)


def _plain(op: Op) -> bool:
    """A convolution of a map that one task reads as it lies in memory."""
    x, weight = op.arg("x").shape, op.arg("weight").shape
    if len(x) != 4 or op.arg("groups") != 1 or weight[-1] > NATIVE_WIDTH:
        return False
    try:
        window = window_of(op)
    except UnsupportedError:
        return False
    if set(window.strides) != {1} or (set(window.dilations) != {1} and prod(weight[2:]) > 1) or min(window.pads) < 0:
        return False
    return not (prod(weight[2:]) == 1 and x[3] == 1 and x[2] > MOST_COLUMN)
