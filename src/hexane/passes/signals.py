"""Long kernels over one axis: signals and their filters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hexane.graph.builder import builder_before
from hexane.graph.ops.conv import geometry_of
from hexane.graph.registry import has
from hexane.graph.traits import RESHAPES
from hexane.lowering.signals import is_flat, pad_of_signal, slice_of_signal, swaps_rows
from hexane.lowering.windows import NATIVE_WIDTH, TALLEST
from hexane.passes.rewriting import array_of, as_dtype, bias_of, fitted, is_static, sweep
from hexane.rounding import align, ceil_div

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation
    from hexane.lowering.transformations import Transformations

SMALLEST_BLOCK = 64
MOST_CHANNELS = 8


def legalise_signals(function: Function, compilation: Compilation) -> int:
    """A filter of many taps along a signal: blocks of samples become channels, so that few taps over blocks remain."""
    return sweep(function, {"conv": partial(_in_blocks, compilation.on)})


def block_length(step: int, taps: int) -> int:
    """Samples per block: a multiple of the stride, such that at most 7 blocks lie under the kernel."""
    block = step
    while block < SMALLEST_BLOCK or ceil_div(taps + block - step, block) > NATIVE_WIDTH:
        block *= 2
    return block


def _in_blocks(on: Transformations, op: Op, b: GraphBuilder) -> Value | None:
    """y[o, t m + j] = sum over i of w[o, i] x[(t m + j) s + i]: block t of B = m s samples gives m results.

    Weights of channel (o, j) over block q and sample p: w[o, q B + p - j s], zero outside the kernel.
    """
    x, weight_value = op.inputs["x"], op.inputs["weight"]
    if not weight_value.is_constant or not is_static(x) or len(x.shape) != 4 or op.arg("groups") != 1:
        return None
    weight = weight_value.data
    n, cin, h, _ = x.shape
    cout, _, kh, k = weight.shape
    steps, spread, pads, out = geometry_of(op)
    s = steps[1]
    if h != 1 or kh != 1 or any(pads[0]) or k <= TALLEST or spread[1] != 1 or cin > MOST_CHANNELS:
        return None
    block = block_length(s, k)
    per, count = block // s, out[1]
    taps = ceil_div(k + block - s, block)
    results = ceil_div(count, per)
    blocks = results - 1 + taps
    frames = _Frames.of(s, k, count)
    traffic = cin * (block * blocks + (2 * cout * count if per > 1 else 0))
    fetched = cout * per * cin * block * taps
    if n == 1 and on.signal_frames and frames.cost(cin, cout) < traffic + fetched:
        return frames.convolution(op, pads[1][0], b)
    signal = fitted(x, {3: (-pads[1][0], blocks * block)}, b)
    folded = b.transpose(x=b.reshape(x=signal, shape=[n, cin, blocks, block]), perm=[0, 1, 3, 2])
    folded = b.reshape(x=folded, shape=[n, cin * block, 1, blocks])
    kernel = np.zeros((cout, per, cin, taps * block))
    for j in range(per):
        kernel[:, j, :, j * s : j * s + k] = weight[:, :, 0]
    kernel = kernel.reshape(cout, per, cin, taps, block).transpose(0, 1, 2, 4, 3)
    kernel = kernel.reshape(cout * per, cin * block, 1, taps)
    bias = {}
    if "bias" in op.inputs:
        start = array_of(op.inputs["bias"])
        if start is None:
            return None
        bias = {"bias": as_dtype(np.repeat(start.reshape(-1), per), op.inputs["bias"])}
    value = b.conv(x=folded, weight=as_dtype(kernel, op.inputs["weight"]), **bias)
    if per > 1:
        value = b.transpose(x=b.reshape(x=value, shape=[n, cout, per, results]), perm=[0, 1, 3, 2])
        value = b.reshape(x=value, shape=[n, cout, 1, results * per])
    if value.shape[3] != count:
        value = b.slice_by_size(x=value, begin=[0] * 4, size=[n, cout, 1, count])
    return value


@dataclass(frozen=True)
class _Frames:
    """A convolution of step ``s`` and ``k`` taps as one of few taps over windows of the signal.

    The signal is cut in rows of s samples; a window begins at every ``width``-th row, and each of its s columns is a
    channel. So tap i = (width a + q) s + p is tap q of channel (a, p), and there is one column for each result.
    """

    step: int
    taps: int
    count: int
    width: int  # taps that are left
    windows: int

    @classmethod
    def of(cls, step: int, taps: int, count: int) -> _Frames:
        rows = ceil_div(taps, step)
        width = min(range(1, NATIVE_WIDTH + 1), key=lambda w: (align(rows, w) + rows // w, -w))
        return cls(step, taps, count, width, ceil_div(rows, width))

    @property
    def length(self) -> int:
        """Columns of a window."""
        return self.count + self.width - 1

    @property
    def rows(self) -> int:
        return (self.windows - 1) * self.width + self.length

    def cost(self, cin: int, cout: int) -> int:
        """Elements moved and fetched: the signal twice, its windows, the weights."""
        windows = cin * self.windows * self.step
        return 2 * cin * self.rows * self.step + windows * self.length + cout * windows * self.width

    def convolution(self, op: Op, before: int, b: GraphBuilder) -> Value:
        weight = op.inputs["weight"].data
        cout, cin, _, k = weight.shape
        g, s, width = self.windows, self.step, self.width
        signal = fitted(op.inputs["x"], {3: (-before, self.rows * s)}, b)
        rows = b.reshape(x=signal, shape=[cin, self.rows, s])
        windows = b.transpose(x=b.sliding_windows(x=rows, axis=1, size=self.length, stride=width), perm=[0, 1, 3, 2])
        source = b.reshape(x=windows, shape=[1, cin * g * s, 1, self.length])
        kernel = np.zeros((cout, cin, g * width * s))
        kernel[:, :, :k] = weight[:, :, 0]
        kernel = kernel.reshape(cout, cin, g, width, s).transpose(0, 1, 2, 4, 3).reshape(cout, cin * g * s, 1, width)
        value: Value = b.conv(x=source, weight=as_dtype(kernel, op.inputs["weight"]), **bias_of(op))
        return value


# -- chains ------------------------------------------------------------------------------------------------------------


def _links(op: Op) -> bool:
    """True where an op may stand between signals."""
    return has(op, RESHAPES) or op.type in ("slice_by_size", "pad", "transpose")


def own_chains(function: Function, compilation: Compilation) -> int:
    """Give each chain of cuts and paddings of a signal its own beginning, so that it is one piece of work."""
    if not compilation.on.signal_lines:
        return 0
    builder: GraphBuilder | None = None
    count = 0
    for op in reversed(function.ops):
        if op.block is None or not _links(op) or op.blocks or op.output.is_output or not _in_chain(op):
            continue
        users = list(dict.fromkeys(op.output.users))
        if len(users) < 2 or not all(_goes_on(user) for user in users):
            continue
        if builder is None:
            builder = builder_before(op)
        builder.block, builder.before = op.block, op
        for user in users[1:]:
            user.replace_operand(op.output, builder.op(op.type, opset=op.opset, **op.inputs))
            count += 1
    return count


def _in_chain(op: Op) -> bool:
    return is_flat(op.output) or swaps_rows(op)


def _goes_on(op: Op) -> bool:
    """True where an op takes a signal on: cut, padded or regrouped."""
    if op.type in ("slice_by_size", "pad"):
        return slice_of_signal(op) is not None or pad_of_signal(op) is not None
    return _links(op)
