"""Scale layers by powers of two: weights up before the sums, results down behind them, exactly compensated.

A product whose operands are small is dropped, and a sum is kept in units of 2^-16 (docs/reference/numerics.md 3.1,
3.3). Weights
that are larger by a power of two lose less, and the factor that takes it back rides in the same task as its scalar
factor (docs/reference/engine-h13.md 8.1), where it costs nothing. In exact arithmetic the network stays what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, log2

import numpy as np

from hexane.graph import Graph
from hexane.graph.constants import Constant
from hexane.graph.ir import Op, Value
from hexane.graph.types import TensorType
from hexane.lowering.fusion import SUMS, channel_constant, factor_of, sum_run
from hexane.lowering.transformations import carried
from hexane.numerics.losses import operands

SMALLEST_FACTOR = 2.0**-14
LARGEST = 32768.0


def rescaled(graph: Graph, bits: Mapping[str, int]) -> Graph:
    """A copy of a graph in canonical form, its layers scaled.

    Best before the weights are rounded to fp16, since small ones keep more bits then.

    ``bits`` gives the power of two per layer, by the name of the layer's last value as ``Insight.scaling`` lists it.
    A layer is scaled by less, or not at all, where its weights, its bias or the factor would leave fp16.
    """
    result, on = graph.clone(), carried(graph)
    for op in list(result.main.ops):
        if op.type not in SUMS or op.block is None or not operands(op)[1].is_constant:
            continue
        run = sum_run(op, on)
        bits_wanted = bits.get(run[-1].outputs[0].name, 0)
        if bits_wanted and run[-1].type != "exp":
            _scale(op, run, bits_wanted)
    return result


def _scale(head: Op, run: tuple[Op, ...], target_bits: int) -> None:
    weight = operands(head)[1]
    param = "y" if head.type == "matmul" else "weight"
    shifts: list[tuple[Op, str, Value]] = [(head, param, weight)]
    bias = head.inputs.get("bias")
    if isinstance(bias, Value):
        if not bias.is_constant:
            return
        shifts.append((head, "bias", bias))
    last = head
    factor: tuple[Op, str, Value] | None = None
    for op in run[1:]:
        if op.type == "add" and channel_constant(op, head) is not None:
            name = "y" if op.arg("y").is_constant else "x"
            shifts.append((op, name, op.arg(name)))
            last = op
        elif op.type == "mul" and factor_of(op) is not None:
            name = "y" if op.arg("y").is_constant else "x"
            factor = (op, name, op.arg(name))
    count = min([target_bits, *(_room(value) for _, _, value in shifts)])
    if factor is not None:
        size = abs(float(np.asarray(factor[2].data).reshape(-1)[0]))
        count = min(count, floor(log2(size / SMALLEST_FACTOR))) if size else 0
    if count == 0:
        return
    for op, name, value in shifts:
        op.set_input(name, _shifted(value, count))
    if factor is not None:
        op, name, value = factor
        op.set_input(name, _shifted(value, -count))
    else:
        _multiply_behind(last, 2.0**-count)


def _room(value: Value) -> int:
    """By how many bits a constant may grow and still be a finite fp16; one that is not finite is left as it is."""
    top = float(np.max(np.abs(np.asarray(value.data, np.float64)), initial=0.0))
    if not np.isfinite(top):
        return 0
    return floor(log2(LARGEST / top)) if top > 0 else 64


def _shifted(value: Value, count: int) -> Value:
    type_ = TensorType(value.dtype, value.shape)
    scaled = (np.asarray(value.data, np.float32) * np.float32(2.0**count)).astype(type_.carrier)
    return Value(f"{value.name}__by_2_{count}".replace("-", "m"), type_, constant=Constant(type_, scaled))


def _multiply_behind(op: Op, factor: float) -> None:
    """Put a product with a number behind an op; it takes over the name of the result."""
    value = op.output
    before = Value(f"{value.name}__scaled", value.type, op=op)
    op.outputs = (before,)
    type_ = TensorType(value.dtype, ())
    number = Value(f"{value.name}__factor", type_, constant=Constant(type_, np.array(factor, type_.carrier)))
    product = Op("mul", {"x": before, "y": number}, name=value.name)
    product.outputs = (value,)
    value.op = product
    assert op.block is not None
    op.block.add(product, op._next)
