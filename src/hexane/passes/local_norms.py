"""Local response normalisation: x * (k + alpha / size * the sum of squares over neighbouring channels)^-beta.

The sum over a window of channels is a 1x1 convolution with a band of ones. What stands around it decides how many tasks
run over the map: seven where every step is an op of its own, four where the scale of the squares rides behind the
convolution that makes the map, the logarithm of the sum behind the band, and the scale of the result in the table of
the power.
"""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

import numpy as np

from hexane.lowering.fusion import only_user
from hexane.lowering.transformations import is_on
from hexane.passes.rewriting import as_dtype

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Op, Value

HOMOGENEOUS = ("relu", "max_pool")
"""Ops that commute with a power of two, rounding included."""
MOST_SCALE_LOG2 = 8
MOST_LARGE = 3
"""By 4 to this at most the window's sum is made smaller: below, k is too few steps of the accumulator."""
LARGEST, LARGEST_SUM = 65504.0, 32768.0
"""Of fp16, and of a sum in the accumulator (docs/reference/numerics.md 2)."""
DIRECT = {0.5: "rsqrt", 1.0: "reciprocal"}
"""Exponents whose power is one table."""


def local_response_norm(op: Op, b: GraphBuilder) -> Value | None:
    """Squares, the sum over a window of channels, a power, and the product."""
    if len(op.inputs["x"].shape) != 4 or op.arg("alpha") < 0 or op.arg("k") <= 0:
        return None
    return _short(op, b) if is_on("local-norms") else _plain(op, b)


def _plain(op: Op, b: GraphBuilder) -> Value:
    """Seven tasks. Scaling before squaring keeps the squares inside fp16 and the engine's accumulator."""
    x, share = op.inputs["x"], op.arg("alpha") / op.arg("size")
    squares = b.square(x=b.mul(x=x, y=float(np.sqrt(share))))
    total = _window_sum(op, squares, 1.0, op.arg("k"), b)
    return b.mul(x=x, y=b.pow(x=total, y=-float(op.arg("beta"))))


def _short(op: Op, b: GraphBuilder) -> Value:
    """Four tasks, or five where x is not made by a convolution: all work on 2^-e x.

    The sum is 4^-m of what it stands for, so that it is finite for every x that fp16 holds, or for as many as three
    steps give. 2^-e is at most 2^-m sqrt(alpha / size), so that the squares are finite where their sum is.
    """
    x, beta = op.inputs["x"], float(op.arg("beta"))
    share = op.arg("alpha") / op.arg("size")
    most = float(op.arg("k")) + share * min(op.arg("size"), x.shape[1]) * LARGEST**2
    m = min(max(ceil(log2(most / LARGEST_SUM) / 2), 0), MOST_LARGE)
    while (2 * m * beta) % 1:  # a table's results are scaled by powers of two
        m -= 1
    e = min(max(ceil(-log2(share) / 2), 0) + m, MOST_SCALE_LOG2) if share > 0 else 0
    small = _scaled(x, op, 2.0**-e, b) if e else x
    total = _window_sum(op, b.square(x=small), share * 4.0 ** (e - m), op.arg("k") * 4.0**-m, b)
    scale = 2.0 ** (e - 2 * m * beta)
    if beta in DIRECT:
        power = b.op("engine.table", x=total, function=DIRECT[beta], scale=scale)
    else:
        logarithm = b.op("engine.table", x=total, function="log2")
        power = b.op("engine.table", x=logarithm, function="exp2", scale=scale, factor=-beta)
    return b.mul(x=power, y=small)


def _window_sum(op: Op, squares: Value, weight: float, constant: float, b: GraphBuilder) -> Value:
    """A constant, plus ``weight`` times the sum over the window of channels around each."""
    channels, size = squares.shape[1], op.arg("size")
    before = (size - 1) // 2
    index = np.arange(channels)
    distance = index[None, :] - index[:, None]  # input channel minus output channel
    band = weight * ((distance >= -before) & (distance < size - before))
    kernel = as_dtype(band.reshape(channels, channels, 1, 1), squares)
    return b.conv(x=squares, weight=kernel, bias=as_dtype(np.full(channels, constant), squares))


def _scaled(x: Value, user: Op, factor: float, b: GraphBuilder) -> Value:
    """x times a power of two, behind the convolution that x comes from where only the norm sees the difference."""
    chain: list[Op] = []
    value, reader = x, user
    while value.op is not None and value.op.type in HOMOGENEOUS and only_user(value) is reader:
        chain.append(value.op)
        reader, value = value.op, value.op.inputs["x"]
    if value.op is None or value.op.type != "conv" or only_user(value) is not reader:
        return b.mul(x=x, y=factor)
    made: Value = b.mul(x=value, y=factor)
    for op in reversed(chain):
        made = b.op(op.type, **{**op.inputs, "x": made})
    return made
