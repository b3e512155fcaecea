"""Local response normalisation: x * (k + alpha / size * the sum of squares over neighbouring channels)^-beta.

The sum over a window of channels is a 1x1 convolution with a band of ones. What stands around it decides how many tasks
run over the map: seven where every step is an op of its own, four where the scale of the squares rides behind the
convolution that makes the map, the logarithm of the sum behind the band, and the scale of the result in the table of
the power.

The accumulator holds sums below 32768 in steps of 2^-16 (docs/reference/numerics.md 3.3). Every form is right for every
finite x of fp16: where one scale of the sum has no room for the squares of 65504 beside k, there are two (`_wide`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2
from typing import TYPE_CHECKING

import numpy as np

from hexane.isa.numbers import LARGEST_HALF
from hexane.passes.rewriting import as_dtype

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Op, Value
    from hexane.lowering.transformations import Transformations

HOMOGENEOUS = ("relu", "max_pool")
"""Ops that commute with a power of two, rounding included."""
MOST_SCALE_LOG2 = 8
"""2^-8 of the largest number of fp16 has a square in fp16."""
LARGEST_SUM = 32768.0
"""Of fp16, and of a sum in the accumulator (docs/reference/numerics.md 2)."""
STEP = 2.0**-16
"""Of the accumulator."""
LEAST_CONSTANT = 2.0**-7
"""k in the accumulator: 512 steps, so that it is right to 2^-10."""
LEAST_POWER = 2.0**-16
"""Below, a power is too few steps of fp16's subnormal numbers."""
ROOT_LOG2 = 14
"""1 / sqrt(sum) stays between 2^-14 and 2^14, normal numbers of fp16."""
DIRECT = {0.5: "rsqrt", 1.0: "reciprocal"}
"""Exponents whose power is one table."""


@dataclass(frozen=True)
class _Norm:
    """The numbers of a norm: ``most`` is the largest sum, with k, that a map of finite fp16 gives."""

    size: int
    share: float
    beta: float
    k: float
    channels: int

    @property
    def window(self) -> int:
        return min(self.size, self.channels)

    @property
    def most(self) -> float:
        return self.k + self.share * self.window * LARGEST_HALF**2

    def scale_log2(self, largest_log2: float) -> tuple[int, float]:
        """(j, t): 2^-t times the largest sum is at most 2^largest_log2, and to the power of -beta it is off by 2^j."""
        j = max(ceil(self.beta * (log2(self.most) - largest_log2)), 0)
        return j, j / self.beta


def local_response_norm(on: Transformations, op: Op, b: GraphBuilder) -> Value | None:
    """Squares, the sum over a window of channels, a power, and the product."""
    x, alpha, beta, k = op.inputs["x"], *(float(op.arg(name)) for name in ("alpha", "beta", "k"))
    if len(x.shape) != 4 or alpha < 0 or beta <= 0 or k <= 0:
        return None
    norm = _Norm(op.arg("size"), alpha / op.arg("size"), beta, k, x.shape[1])
    j, t = norm.scale_log2(log2(LARGEST_SUM))
    if k * 2.0**-t < LEAST_CONSTANT or (norm.most * 2.0**-t) ** -beta < LEAST_POWER:
        return _wide(on, x, norm, b)
    return (_short if on.local_norms else _plain)(op, norm, j, t, b)


def _plain(op: Op, norm: _Norm, j: int, t: float, b: GraphBuilder) -> Value:
    """Seven tasks. Scaling before squaring keeps the squares inside fp16 and the engine's accumulator."""
    small = _scaled(op.inputs["x"], op, 2.0**-j, b) if j else op.inputs["x"]
    squares = b.square(x=b.mul(x=small, y=float(np.sqrt(norm.share * 2.0**-t)) * 2.0**j))
    total = _window_sum(squares, norm, 1.0, norm.k * 2.0**-t, b)
    return b.mul(x=small, y=b.pow(x=total, y=-norm.beta))


def _short(op: Op, norm: _Norm, j: int, t: float, b: GraphBuilder) -> Value:
    """Four tasks, or five where x is not made by a convolution: all work on 2^-e x.

    The sum is 2^-t of what it stands for. 2^-e is at most 2^-t/2 sqrt(alpha / size), so that the squares are finite
    where their sum is.
    """
    share = norm.share * 2.0**-t
    e = min(max(ceil(-log2(share) / 2), 0), MOST_SCALE_LOG2) if share > 0 else 0
    small = _scaled(op.inputs["x"], op, 2.0**-e, b) if e else op.inputs["x"]
    total = _window_sum(b.square(x=small), norm, share * 4.0**e, norm.k * 2.0**-t, b)
    scale = 2.0 ** (e - j)
    if norm.beta in DIRECT:
        power = b.op("engine.table", x=total, function=DIRECT[norm.beta], scale=scale)
    else:
        logarithm = b.op("engine.table", x=total, function="log2")
        power = b.op("engine.table", x=logarithm, function="exp2", scale=scale, factor=-norm.beta)
    return b.mul(x=power, y=small)


def _wide(on: Transformations, x: Value, norm: _Norm, b: GraphBuilder) -> Value | None:
    """Two sums, one that counts k in steps fine enough and one that is finite for every map; x s^-1/2 s^(1/2 - beta).

    The reciprocal root of a sum that has left the accumulator is 0, and the second sum is too large by what rounding
    may have taken from it, so that the larger of the roots is the right one.
    """
    j, t = norm.scale_log2(2 * ROOT_LOG2)
    share, k = norm.share * 2.0**-t, norm.k * 2.0**-t
    if not (k > 0 and share > 0):  # a power so small that no scale brings the sum into fp16
        return None
    fine = ceil(-log2(k) / 2) - 3  # 4^fine k is 1/64 to 1/16
    coarse = floor(log2(LARGEST_SUM / (norm.most * 2.0**-t)) / 2 - 2.0**-8)
    e = MOST_SCALE_LOG2
    if norm.share * norm.window * norm.beta > norm.k:  # steps of small squares would show beside k
        e = min(max(ceil(-log2(2 * share) / 2) - fine, 0), e)
    lost = (2 * norm.window + 1) * STEP
    weights = share * 4.0 ** (e + fine), share * 4.0 ** (MOST_SCALE_LOG2 + coarse)
    if k < 4.0**-ROOT_LOG2 or LARGEST_SUM * 4.0 ** (coarse - fine) < 2**8 * lost or max(weights) > LARGEST_HALF:
        return None
    squares = b.square(x=b.mul(x=x, y=2.0**-e) if e else x)
    fine_sum = _window_sum(squares, norm, weights[0], k * 4.0**fine, b)
    if e != MOST_SCALE_LOG2:
        squares = b.square(x=b.mul(x=x, y=2.0**-MOST_SCALE_LOG2))
    coarse_sum = _window_sum(squares, norm, weights[1], k * 4.0**coarse + lost, b)
    root = b.maximum(x=_root(on, fine_sum, 2.0**fine, b), y=_root(on, coarse_sum, 2.0**coarse, b))
    result = b.mul(x=x, y=root)
    rest = None if norm.beta == 0.5 else b.pow(x=root, y=2 * norm.beta - 1)
    if j:
        rest = b.mul(x=result if rest is None else rest, y=2.0**-j)
        if norm.beta == 0.5:
            return rest
    return result if rest is None else b.mul(x=result, y=rest)


def _root(on: Transformations, total: Value, scale: float, b: GraphBuilder) -> Value:
    """scale / sqrt(total), in one table where tables may have scales."""
    if on.local_norms:
        return b.op("engine.table", x=total, function="rsqrt", scale=scale)
    return b.mul(x=b.rsqrt(x=total, epsilon=0.0), y=scale)


def _window_sum(squares: Value, norm: _Norm, weight: float, constant: float, b: GraphBuilder) -> Value:
    """A constant, plus ``weight`` times the sum over the window of channels around each."""
    channels, size = norm.channels, norm.size
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
    while value.op is not None and value.op.type in HOMOGENEOUS and value.only_user is reader:
        chain.append(value.op)
        reader, value = value.op, value.op.inputs["x"]
    if value.op is None or value.op.type != "conv" or value.only_user is not reader:
        return b.mul(x=x, y=factor)
    result: Value = b.mul(x=value, y=factor)
    for op in reversed(chain):
        result = b.op(op.type, **{**op.inputs, "x": result})
    return result
