"""Losses of a training step on the engine: products that vanish, sums that overflow; a scale that avoids both.

A backward pass is linear in its seed: scaled by 2^k, each value that depends on the seed is scaled by 2^k. So one pass
in float32 tells for every scale which products the multiplier drops (exponents that add up to less than -16), and how
far the largest sum stays below the accumulator's 2^15 (docs/reference/numerics.md 3.1, 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import floor, inf, log2
from typing import Any

import numpy as np

from hexane.graph.evaluate import Evaluation
from hexane.graph.ir import Graph, Op, Value
from hexane.lowering.fusion import SUMS
from hexane.numerics.losses import LIMIT, by_term, dropped_share, operands
from hexane.train.stage import evaluated

MARGIN_BITS = 3
"""Factors of two that a computed scale leaves below the limits: later batches have larger gradients."""
MOST_BITS = 24
LEAST_LAYER_BITS, MOST_LAYER_BITS = 4, 14
"""Exponents of the scale of a single sum: fewer are not worth two ops; 2^-14 is the last normal number of fp16."""
LARGEST_HALF = float(np.finfo(np.float16).max)
GUESSES = (1.0, 256.0, 65536.0)
"""Loss scales that public projects use (docs/training.md), shown beside the computed one."""


@dataclass(frozen=True)
class Lost:
    """A sum of products of a step: how many products have no factor of zero, the share of these that vanish (a factor
    is zero in fp16, or the multiplier drops them), and the bits between the largest sum and the limit."""

    name: str
    op: str
    stage: str
    products: float
    dropped: float
    headroom_bits: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _Sum:
    op: Op
    stage: str
    operands: tuple[np.ndarray, np.ndarray]
    scaled: tuple[bool, bool]
    peak: float


class FloatStep:
    """A step in float32 whose sums are remembered, part by part; ``seed`` is the name of the backward pass's seed."""

    def __init__(self, seed: str) -> None:
        self.sums: list[_Sum] = []
        self.peak = 0.0
        self._scaled = {seed}

    def run(self, stage: str, graph: Graph, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Result of a part of the step, from what the parts before it gave."""
        depends = {value for value in graph.main.inputs if value.name in self._scaled}
        self.peak = max([self.peak, *(_peak(values[value.name]) for value in depends)])
        results = evaluated(graph, values, lambda run, op, new: self._observe(run, op, new, stage, depends))
        self._scaled |= {value.name for value in graph.main.outputs if value in depends}
        return results

    def _observe(self, run: Evaluation, op: Op, results: Any, stage: str, depends: set[Value]) -> None:
        grows = any(operand in depends for operand in op.operands())
        if grows:
            depends.update(op.outputs)
            self.peak = max([self.peak, *map(_peak, results)])
        if op.type in SUMS:
            pair = operands(op)
            arrays = tuple(np.asarray(run.array(value), np.float32) for value in pair)
            self.sums.append(
                _Sum(op, stage, (arrays[0], arrays[1]), (pair[0] in depends, pair[1] in depends), _peak(results[0]))
            )

    def lost(self, scale: float) -> list[Lost]:
        """Every sum at a scale of the seed."""
        rows = []
        for item in self.sums:
            wide = by_term(item.op, *item.operands)
            with np.errstate(over="ignore"):
                x, w = (
                    (array * np.float32(scale if by else 1)).astype(np.float16) for array, by in zip(wide, item.scaled)
                )
            products, rest = _products(*wide), _products(x, w) * (1 - dropped_share(x, w))
            share = 1 - rest / products if products else 0.0
            peak = item.peak * (scale if any(item.scaled) else 1.0)
            bits = log2(LIMIT / peak) if 0 < peak < inf else (inf if peak == 0 else -inf)
            rows.append(Lost(item.op.output.name, item.op.type, item.stage, products, share, bits))
        return rows

    def scale(self) -> float:
        """The largest power of two by which no sum and no value of the backward pass comes within a factor of 8 of its
        limit: more would lose nothing less, and be nearer to an infinity."""
        sums = max((item.peak for item in self.sums if any(item.scaled)), default=0.0)
        rooms = [log2(limit / peak) for limit, peak in ((LIMIT, sums), (LARGEST_HALF, self.peak)) if 0 < peak < inf]
        if not rooms:
            return 1.0
        return 2.0 ** max(-MOST_BITS, min(floor(min(rooms)) - MARGIN_BITS, MOST_BITS))

    def layer_scales(self, scale: float) -> dict[str, int]:
        """Exponents of two by which sums of the backward pass may be larger still, at a scale of the seed, before they
        or their operand come within a factor of 8 of a limit; those from 4 on, by the name of the sum's result."""
        bits = {}
        for item in self.sums:
            if not any(item.scaled):
                continue
            operand = _peak(item.operands[item.scaled.index(True)])
            rooms = [log2(limit / (peak * scale)) for limit, peak in ((LIMIT, item.peak), (LARGEST_HALF, operand))
                     if 0 < peak < inf]  # fmt: skip
            power = min(floor(min(rooms, default=0)) - MARGIN_BITS, MOST_LAYER_BITS)
            if power >= LEAST_LAYER_BITS:
                bits[item.op.output.name] = power
        return bits


def share(rows: Sequence[Lost], stage: str | None = None) -> float:
    """The share of all products of the rows that vanish; of a stage alone where one is named."""
    chosen_rows = [row for row in rows if stage in (None, row.stage)]
    total = sum(row.products for row in chosen_rows)
    return sum(row.products * row.dropped for row in chosen_rows) / total if total else 0.0


def _products(x: np.ndarray, w: np.ndarray) -> float:
    """Number of products of row t with row t that have no factor of zero."""
    return float((np.count_nonzero(x, 1).astype(float) * np.count_nonzero(w, 1)).sum())


def _peak(array: Any) -> float:
    array = np.asarray(array)
    if array.dtype.kind != "f" or not array.size:
        return 0.0
    return max(abs(float(array.max())), abs(float(array.min())))
