"""``python tools/fuzz gradients``: derivatives of random networks against differences along a random direction, in
float64."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import hexane
from fuzz import ops, shapes
from fuzz.sketch import Data, Sketch
from hexane.errors import HexaneError, UnsupportedError
from hexane.graph.ir import Graph

KINDS = {"ops": ops.network, "shapes": shapes.network}
NARROW = ("fp16", "bf16", "fp32")
STEPS = (1e-5, 3e-6, 1e-6)
"""Lengths of steps; where their slopes disagree, forwards and backwards, the network has a kink or a jump there."""
MOST = 1 << 20


def wide(sketch: Sketch) -> Sketch:
    """The same network with every float in 64 bits."""

    def of(operand: Any) -> Any:
        if isinstance(operand, tuple):
            return tuple(map(of, operand))
        if isinstance(operand, Data) and operand.dtype in NARROW:
            return replace(operand, dtype="fp64")
        return "fp64" if isinstance(operand, str) and operand in NARROW else operand

    inputs = tuple(replace(i, dtype="fp64") if i.dtype in NARROW else i for i in sketch.inputs)
    steps = tuple(replace(s, operands={name: of(o) for name, o in s.operands.items()}) for s in sketch.steps)
    return replace(sketch, inputs=inputs, steps=steps, outputs=tuple(map(of, sketch.outputs)), values={})


def slopes(graph: Graph, inputs: dict, of: str, direction: dict, seed: np.ndarray) -> list[float]:
    """Differences of sum(seed * of) along a direction, forwards and backwards, for each step."""

    def at(step: float) -> float:
        there = {name: x + step * direction[name] if name in direction else x for name, x in inputs.items()}
        return float(np.sum(seed * graph.evaluate(there)[of]))

    here = at(0)
    return [slope for step in STEPS for slope in ((at(step) - here) / step, (here - at(-step)) / step)]


def outcome(sketch: Sketch) -> str:
    """ "right" or "wrong", or why nothing can be said."""
    sketch = wide(sketch)
    try:
        graph = sketch.graph()
        inputs = {n: x.astype(np.float64) if x.dtype.kind == "f" else x for n, x in sketch.numbers().items()}
        result = graph.evaluate(inputs)
    except HexaneError:
        return "not in float64"
    wrt = [name for name in inputs if graph.inputs[name].dtype == "fp64"]
    floats = [n for n, t in graph.outputs.items() if t.dtype == "fp64" and t.is_static and 0 < t.count < MOST]
    if not wrt or not floats:
        return "no floats"
    of = floats[-1]
    try:
        gradients = hexane.grad(graph, of=of, wrt=wrt).verify()
    except UnsupportedError as error:
        return "refused" if error.where else "refused without a place: wrong"
    rng = np.random.default_rng(sketch.seed)
    seed = rng.normal(size=result[of].shape)
    results = gradients.evaluate({**inputs, list(gradients.inputs)[-1]: seed})
    mine = dict(zip(wrt, list(results.values())[-len(wrt) :]))
    direction = {name: rng.normal(size=inputs[name].shape) for name in wrt}
    try:
        truths = slopes(graph, inputs, of, direction, seed)
    except HexaneError:
        return "leaves the domain"
    size = max(map(abs, truths))
    if not np.isfinite(truths).all() or not np.isfinite(result[of]).all():
        return "not finite"
    if max(truths) - min(truths) > 1e-3 * size + 1e-4:
        return "not smooth"
    slope = float(sum(np.sum(mine[name] * direction[name]) for name in wrt))
    return "right" if np.isclose(slope, (truths[2] + truths[3]) / 2, rtol=2e-3, atol=2e-4 * max(1, size)) else "wrong"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python tools/fuzz gradients", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="ops")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="index of the first network of the seed")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for index in range(options.first, options.first + options.count):
        sketch = KINDS[options.kind](options.seed, index)
        try:
            verdict = outcome(sketch)
        except Exception as error:
            verdict = f"wrong: {type(error).__name__}: {error}"
        if "wrong" in verdict:
            print(f"--kind {options.kind} --seed {options.seed} --first {index}: {verdict}")
            print("   ", ", ".join(step.op for step in sketch.steps))
            verdict = "wrong"
        counts[verdict] += 1
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return 1 if counts["wrong"] else 0
