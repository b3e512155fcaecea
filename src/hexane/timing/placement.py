"""Placement of each op by Core ML: the segmenter's cost model (docs/reference/limits.md 11.2), solved exactly along
the program."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hexane import chips
from hexane.chips import Chip, Evidence
from hexane.graph import Graph, Op
from hexane.graph.registry import has
from hexane.graph.traits import CONVOLVES, PRODUCTS
from hexane.passes.apple_places import apple_places
from hexane.restrictions import objections
from hexane.restrictions.objections import placed_by_apple

ENGINE, CPU = "engine", "cpu"
LAUNCH_US = SWITCH_US = OUTPUT_US = 125.0
"""Launch of an engine segment, change of back end, result produced on the engine.

Source: docs/reference/limits.md 11.2, APPLE.
"""
GIB = 1024**3 / 1e6  # bytes per microsecond
MEMORY_BOUND_RATE = 100e3  # bytes per microsecond, the same on every back end: relu and element-wise ops

ENGINE_GIBS, CPU_GIBS = 68.0, 56.67
"""Bandwidths that the segmenter assumes on every generation."""

_MEMORY_BOUND = frozenset(
    (
        "add sub mul real_div maximum minimum pow abs square sqrt rsqrt inverse relu relu6 leaky_relu clip "
        "sigmoid tanh gelu silu exp exp2 log erf sign floor ceil round select equal less greater"
    ).split()
)
_NOTHING = frozenset(("const reshape squeeze expand_dims identity cast").split())


@dataclass(frozen=True)
class Placed:
    """One op: where Core ML would run it, and the segmenter's own estimates of both back ends, microseconds."""

    name: str
    op: str
    place: str
    engine_us: float | None
    cpu_us: float
    reason: str


@dataclass(frozen=True)
class Placement:
    """All ops of a program in order, with the cost of the choice and of staying on the CPU, microseconds."""

    chip: Chip
    ops: tuple[Placed, ...]
    total_us: float
    cpu_only_us: float
    evidence: Evidence

    @property
    def engine_ops(self) -> int:
        return sum(op.place == ENGINE for op in self.ops)


def op_cost(op: Op, chip: Chip, *, able: bool) -> tuple[float | None, float]:
    """The segmenter's estimate of an op on the engine (None where it is not ``able``) and on the CPU, microseconds."""
    operands = list(op.operands())
    traffic = sum(2.0 * prod(v.shape) for v in operands if len(v.shape) or not v.is_constant)
    traffic += sum(2.0 * prod(v.shape) for v in op.outputs)
    if op.type in _NOTHING:
        return (0.0 if able else None), 0.0
    if op.type in _MEMORY_BOUND:
        us = traffic / MEMORY_BOUND_RATE
        return (us if able else None), us
    gflop = _flop(op) / 1e9
    rates = zip(chip.generation.placement_rates, (ENGINE_GIBS, CPU_GIBS))
    both = [max(gflop / rate * 1e6, traffic / (bandwidth * GIB)) for rate, bandwidth in rates]
    return (both[0] if able else None), both[1]


def cpu_us(op_type: str, flop: float, traffic: float, chip: Chip) -> float:
    """The segmenter's estimate of an op on the CPU: arithmetic or bytes, whichever is longer, microseconds."""
    if op_type in _NOTHING:
        return 0.0
    if op_type in _MEMORY_BOUND:
        return traffic / MEMORY_BOUND_RATE
    return max(flop / chip.generation.placement_rates[1] / 1e3, traffic / (CPU_GIBS * GIB))


def _flop(op: Op) -> float:
    out = prod(op.outputs[0].shape) if op.outputs else 0
    if has(op, CONVOLVES):
        weight = op.arg("weight").shape
        pixels = prod(op.arg("x").shape[2:]) * op.arg("x").shape[0] if op.type == "conv_transpose" else out / weight[0]
        return 2.0 * pixels * prod(weight)
    if has(op, PRODUCTS):
        x = op.arg("x").shape
        inner = x[-2] if op.type == "matmul" and op.arg("transpose_x") else x[-1]
        return 2.0 * out * inner
    return float(out)


def place(graph: Graph, chip: str | Chip = "M1") -> Placement:
    """Predict Core ML's placement of every op of ``graph``; linear in the number of ops.

    Two running totals are kept along the program, one for each place of the latest op; a change of place pays the
    switch, and an engine segment its launch. Branches are taken in program order, as the segmenter's greedy merge does.
    Evidence: the constants are those of the 2026 segmenter on M4-class chips (APPLE, 440 of 482 choices reproduced by
    them in the study); other chips are INFERRED.
    """
    target = chips.get(chip)
    answers = apple_places(graph, target)
    ops = [op for op in graph.main.walk() if op.outputs]
    places = [answers.get(op.outputs[0].name) or placed_by_apple(op, target) for op in ops]
    rows = [(op, *op_cost(op, target, able=it.where == ENGINE)) for op, it in zip(ops, places)]
    best = {CPU: 0.0, ENGINE: float("inf")}
    back: list[dict[str, str]] = []
    for _, engine, cpu in rows:
        stay, leave = best[CPU], best[ENGINE] + SWITCH_US
        enter = best[CPU] + LAUNCH_US + (SWITCH_US if back else 0.0)
        keep = best[ENGINE]
        back.append({CPU: CPU if stay <= leave else ENGINE, ENGINE: ENGINE if keep <= enter else CPU})
        best = {CPU: min(stay, leave) + cpu, ENGINE: min(keep, enter) + engine if engine is not None else float("inf")}
    totals = {CPU: best[CPU], ENGINE: best[ENGINE] + OUTPUT_US}
    here = CPU if totals[CPU] <= totals[ENGINE] else ENGINE
    total = totals[here]
    path: list[str] = []
    for step in reversed(back):
        path.append(here)
        here = step[here]
    path.reverse()
    placed = tuple(
        Placed(op.name or op.type, op.type, where, engine, cpu, _reason(it, where, engine, cpu))
        for (op, engine, cpu), it, where in zip(rows, places, path)
    )
    return Placement(target, placed, total, sum(cpu for _, _, cpu in rows), target.generation.placement_evidence)


def _reason(place: objections.OpPlacement, where: str, engine: float | None, cpu: float) -> str:
    if engine is None:
        return place.reason
    if where == ENGINE:
        return f"{cpu - engine:.1f} us saved, within a segment that pays for its launch"
    return f"the engine would save {max(cpu - engine, 0):.1f} us here, less than entering and leaving it costs"
