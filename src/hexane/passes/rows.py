"""Rows as channels: a convolution of few output channels gives several rows of each at once.

The cores take one output channel each (docs/reference/engine-h13.md 9.2), so a convolution of 8 channels leaves half of
them idle. Seen with r rows as channels, a map has r times the channels and one r-th of the rows; a convolution over it
has r times the outputs, about one r-th of the kernel's height, and one r-th of the pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.graph.ops.conv import geometry_of
from hexane.lowering.fusion import is_epilogue
from hexane.lowering.windows import LARGEST_PAD, TALLEST
from hexane.passes.rewriting import as_dtype, is_static, known, sweep
from hexane.rounding import ceil_div

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation

TURN = (0, 2, 1, 3)


@dataclass(frozen=True)
class Geometry:
    """A convolution over rows in groups of ``r``: its taps by groups run from ``first`` to ``last``."""

    r: int
    height: int
    rows: int
    rows_out: int
    pad: int  # zeros above the map
    sides: tuple[int, int]

    @classmethod
    def of(cls, op: Op, r: int, cores: int) -> Geometry | None:
        """None where the convolution has no such form."""
        x, weight = op.inputs["x"], op.inputs["weight"]
        if not weight.is_constant or weight.constant.coding is not None or not is_static(x) or len(x.shape) != 4:
            return None
        if x.shape[0] != 1 or op.arg("groups") != 1:
            return None
        steps, spread, pads, out = geometry_of(op)
        if tuple(steps) != (1, 1) or tuple(spread) != (1, 1) or x.shape[2] % r or out[0] % r:
            return None
        sides = (int(pads[1][0]), int(pads[1][1]))
        geometry = cls(r, weight.shape[2], x.shape[2] // r, out[0] // r, int(pads[0][0]), sides)
        fits = geometry.taps <= TALLEST and 0 <= geometry.above <= LARGEST_PAD and 0 <= geometry.below <= LARGEST_PAD
        return geometry if fits and weight.shape[0] * r <= cores else None

    @property
    def above(self) -> int:
        return ceil_div(self.pad, self.r)

    @property
    def last(self) -> int:
        return (self.r + self.height - 2 - self.pad) // self.r

    @property
    def taps(self) -> int:
        return self.last + self.above + 1

    @property
    def below(self) -> int:
        return self.rows_out + self.last - self.rows

    def kernel(self, weight: np.ndarray) -> np.ndarray:
        """Result row j of a group takes row p of the group q further by tap r q + p - j of the kernel."""
        cout, cin, height, width = weight.shape
        r = self.r
        blocks = np.zeros((cout, r, cin, r, self.taps, width), weight.dtype)
        for j in range(r):
            for p in range(r):
                for tap in range(self.taps):
                    k = r * (tap - self.above) + p - j + self.pad
                    if 0 <= k < height:
                        blocks[:, j, :, p, tap] = weight[:, :, k]
        return blocks.reshape(cout * r, cin * r, self.taps, width)


def convolution(op: Op, g: Geometry, source: Value, b: GraphBuilder) -> Value:
    """The convolution of a map that stands with its rows as channels; its result as an ordinary map."""
    weight = op.inputs["weight"]
    cout = weight.shape[0]
    operands: dict[str, Any] = {}
    if "bias" in op.inputs:
        operands["bias"] = as_dtype(np.repeat(np.asarray(op.inputs["bias"].data).reshape(-1), g.r), op.inputs["bias"])
    result = b.conv(
        x=source,
        weight=as_dtype(g.kernel(np.asarray(weight.data)), weight),
        **operands,
        pad_type="custom",
        pad=[g.above, g.below, *g.sides],
    )
    rows, width = result.shape[2:]
    apart = b.transpose(x=b.reshape(x=result, shape=[cout, g.r, rows, width]), perm=list(TURN))
    whole: Value = b.reshape(x=apart, shape=[1, cout, g.r * rows, width])
    return whole


def folded(x: Value, r: int, b: GraphBuilder) -> Value:
    """A map with ``r`` rows as channels."""
    _, channels, height, width = x.shape
    rows = b.transpose(x=b.reshape(x=x, shape=[channels, height // r, r, width]), perm=list(TURN))
    value: Value = b.reshape(x=rows, shape=[1, channels * r, height // r, width])
    return value


def instead_of_parts(compilation: Compilation, op: Op, b: GraphBuilder) -> Value | None:
    """A kernel too tall for the engine, of few outputs: rows as channels, not shifted copies side by side."""
    height = op.inputs["weight"].shape[2]
    if not compilation.on.rows_as_channels or height <= TALLEST:
        return None
    cores = compilation.limits.cores
    for r in range(2, cores + 1):
        g = Geometry.of(op, r, cores)
        if g is not None:
            return convolution(op, g, folded(op.inputs["x"], r, b), b)
    return None


def keep_rows_as_channels(function: Function, compilation: Compilation) -> int:
    """Convolve maps whose rows are channels as they stand, where the outputs find cores: they need not be put back."""
    return (
        sweep(function, {"conv": partial(_kept, cores=compilation.limits.cores)})
        if compilation.on.rows_as_channels
        else 0
    )


def _kept(op: Op, b: GraphBuilder, cores: int) -> Value | None:
    x = op.inputs["x"]
    behind = x.op if is_epilogue(x.op) and x.only_user is op else None
    whole = x if behind is None else behind.inputs["x"]
    user = op if behind is None else behind
    pair = _rows_as_channels(whole) if whole.only_user is user else None
    if pair is None:
        return None
    source, r = pair
    g = Geometry.of(op, r, cores)
    if g is None:
        return None
    if behind is not None:
        source = b.op(behind.type, opset=behind.opset, **{**behind.inputs, "x": source})
    return convolution(op, g, source, b)


def _rows_as_channels(x: Value) -> tuple[Value, int] | None:
    """(the map with rows as channels, how many) behind a map that was put together from it."""
    whole = x.op
    turn = whole.inputs["x"].op if whole is not None and whole.type == "reshape" else None
    if turn is None or turn.type != "transpose" or not known(turn.arg("perm")) or tuple(turn.arg("perm")) != TURN:
        return None
    apart = turn.inputs["x"].op
    if apart is None or apart.type != "reshape" or apart.output.only_user is not turn:
        return None
    source = apart.inputs["x"]
    channels, r, rows, width = apart.output.shape
    as_channels, as_rows = [1, channels * r, rows, width], [1, channels, r * rows, width]
    if list(source.shape) != as_channels or list(x.shape) != as_rows:
        return None
    return source, r
