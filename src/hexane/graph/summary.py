"""What a graph amounts to: operations, parameters, multiply-accumulates, weight statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from hexane.errors import HexaneError
from hexane.graph.ir import Function, Op, Value
from hexane.graph.registry import is_known, spec_of, values_of
from hexane.graph.types import TensorType, tensor_of

SAMPLE = 1 << 20
"""Most elements of one weight that statistics look at (every n-th of a larger one)."""


@dataclass(frozen=True)
class WeightStats:
    """One constant: its range, mean magnitude and share of zeros; None where its data are not at hand."""

    name: str
    type: TensorType
    used_by: str
    low: float | None
    high: float | None
    mean_abs: float | None
    zeros: float | None


@dataclass(frozen=True)
class Summary:
    """Totals of one function; ``parameters`` counts the elements of constant tensors, each datum once."""

    ops: int
    parameters: int
    parameter_bytes: int
    macs: int
    kinds: dict[str, int]
    macs_by_kind: dict[str, int]


def _conv_macs(op: Op) -> int:
    weight = op.inputs["weight"]
    return prod(op.output.shape) * prod(weight.shape[1:])


def _conv_transpose_macs(op: Op) -> int:
    return prod(op.inputs["x"].shape) * prod(op.inputs["weight"].shape[1:])


def _matmul_macs(op: Op) -> int:
    x = op.inputs["x"]
    inner = x.shape[-2] if x.rank > 1 and op.arg("transpose_x") else x.shape[-1]
    return prod(op.output.shape) * inner


def _linear_macs(op: Op) -> int:
    return prod(op.output.shape) * op.inputs["x"].shape[-1]


def _einsum_macs(op: Op) -> int:
    from hexane.graph.ops.linear import parse_equation

    values = op.inputs["values"]
    terms, _ = parse_equation(op.arg("equation"), [value.rank for value in values])
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values):
        for letter, extent in zip(term, value.shape):
            sizes[letter] = max(sizes.get(letter, 1), extent)
    return prod(sizes.values())


def _attention_macs(op: Op) -> int:
    q, k, v = (op.inputs[name] for name in ("query", "key", "value"))
    return prod(op.output.shape[:-2]) * q.shape[-2] * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def _recurrent_macs(op: Op) -> int:
    steps, batch = op.inputs["x"].shape[:2]
    weights = [op.inputs[n] for n in ("weight_ih", "weight_hh", "weight_ih_back", "weight_hh_back") if n in op.inputs]
    return steps * batch * sum(prod(weight.shape) for weight in weights)


_MACS: dict[str, Callable[[Op], int]] = {
    "conv": _conv_macs,
    "conv_quantized": _conv_macs,
    "conv_transpose": _conv_transpose_macs,
    "matmul": _matmul_macs,
    "linear": _linear_macs,
    "einsum": _einsum_macs,
    "scaled_dot_product_attention": _attention_macs,
    "rnn": _recurrent_macs,
    "gru": _recurrent_macs,
    "lstm": _recurrent_macs,
}


def macs_of(op: Op) -> int:
    """Multiply-accumulates of one op; 0 for ops that are no sums of products, and where extents depend on data."""
    rule = _MACS.get(op.type)
    if rule is None:
        return 0
    try:
        return int(rule(op))
    except (HexaneError, KeyError, TypeError):
        return 0


def summarise(function: Function) -> Summary:
    """Totals of a function."""
    kinds: Counter[str] = Counter()
    macs: Counter[str] = Counter()
    for op in function.walk():
        kinds[op.type] += 1
        macs[op.type] += macs_of(op)
    weights = _weights(function)
    return Summary(
        ops=sum(kinds.values()),
        parameters=sum(tensor_of(value.type).count for value in weights),
        parameter_bytes=sum(tensor_of(value.type).nbytes for value in weights),
        macs=sum(macs.values()),
        kinds=dict(kinds.most_common()),
        macs_by_kind={kind: count for kind, count in macs.most_common() if count},
    )


def _weights(function: Function) -> list[Value]:
    """Constants that some op takes as a tensor, each datum once; shapes, axes and the like are no parameters."""
    found: dict[int, Value] = {}
    for op in function.walk():
        kinds = {param.name: param for param in spec_of(op).params} if is_known(op.type) else {}
        for name, operand in op.inputs.items():
            if name in kinds and kinds[name].is_attribute:
                continue
            for value in values_of(operand):
                if value.is_constant and isinstance(value.type, TensorType) and value.rank and value.dtype != "string":
                    found.setdefault(id(value.constant), value)
    return list(found.values())


def weight_stats(function: Function) -> list[WeightStats]:
    """Statistics of the constants that count as parameters, in order of use."""
    rows = []
    for value in _weights(function):
        users = value.users
        used_by = users[0].describe() if users else "output"
        low = high = mean = zeros = None
        try:
            data = value.data.reshape(-1)
            data = data[:: max(1, -(-data.size // SAMPLE))].astype(np.float64)
            low, high = float(data.min()), float(data.max())
            mean, zeros = float(np.abs(data).mean()), float((data == 0).mean())
        except HexaneError:
            pass  # the weight file is not given; the table says so
        rows.append(WeightStats(value.name, tensor_of(value.type), used_by, low, high, mean, zeros))
    return rows
