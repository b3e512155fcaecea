"""Summary of a graph: operations, parameters, multiply-accumulates, weight statistics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from hexane.errors import HexaneError
from hexane.graph.ir import Function, Value
from hexane.graph.macs import own_macs
from hexane.graph.registry import is_known, spec_of, values_of
from hexane.graph.types import TensorType, tensor_of
from hexane.rounding import ceil_div

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


def summarise(function: Function) -> Summary:
    """Totals of a function."""
    kinds: Counter[str] = Counter()
    macs: Counter[str] = Counter()
    for op in function.walk():
        kinds[op.type] += 1
        macs[op.type] += own_macs(op)
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
    weights: dict[int, Value] = {}
    for op in function.walk():
        kinds = {param.name: param for param in spec_of(op).params} if is_known(op.type) else {}
        for name, operand in op.inputs.items():
            if name in kinds and kinds[name].is_attribute:
                continue
            for value in values_of(operand):
                if value.is_constant and isinstance(value.type, TensorType) and value.rank and value.dtype != "string":
                    weights.setdefault(id(value.constant), value)
    return list(weights.values())


def weight_stats(function: Function) -> list[WeightStats]:
    """Statistics of the constants that count as parameters, in order of use."""
    rows = []
    for value in _weights(function):
        users = value.users
        used_by = users[0].describe() if users else "output"
        low = high = mean = zeros = None
        try:
            data = value.data.reshape(-1)
            data = data[:: max(1, ceil_div(data.size, SAMPLE))].astype(np.float64)
            low, high = float(data.min()), float(data.max())
            mean, zeros = float(np.abs(data).mean()), float((data == 0).mean())
        except HexaneError:
            pass  # the weight file is not given; the table says so
        rows.append(WeightStats(value.name, tensor_of(value.type), used_by, low, high, mean, zeros))
    return rows
