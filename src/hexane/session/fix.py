"""``hexane check --fix`` of a network: what the remarks advise is done, and tried as a phone would compute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane import chips
from hexane.chips import Chip
from hexane.codegen.driver import canonical
from hexane.graph import Graph
from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Op, Value
from hexane.graph.rewrite import remove_dead
from hexane.lowering.compilation import Compilation
from hexane.lowering.transformations import active
from hexane.numerics import evaluate
from hexane.numerics.insight import every_value
from hexane.passes.rewriting import sweep
from hexane.restrictions import RULES
from hexane.restrictions.bounds import LARGEST_HALF, LARGEST_SUM
from hexane.restrictions.remarks import remarks
from hexane.restrictions.remedies import REMEDIES, Rewrite

WORTH = 1.01
"""How many times larger the error has to be without a rule's remedy, for that to be kept."""
ROUNDING = 2.0**-10
"""Relative error of an op that is computed in fp16 again."""


@dataclass(frozen=True)
class Fixed:
    """The network with remedies, how many ops each rule's took the place of, and the rules that are left.

    ``idle``: rules whose remedy was tried with the inputs and given up, since the outputs are as right without it.
    ``before`` and ``after``: relative error (root mean square) of the outputs as Apple's compiler lowers them, against
    the network as it was in float32; None where no inputs were given.
    """

    graph: Graph
    done: dict[str, int]
    left: tuple[str, ...]
    before: float | None = None
    after: float | None = None
    idle: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data, without the network; infinite errors as None."""
        errors = {
            name: error if error is not None and np.isfinite(error) else None
            for name, error in (("before", self.before), ("after", self.after))
        }
        lists = {"left": list(self.left), "idle": list(self.idle)}
        return {"done": self.done, **lists, "tried": self.before is not None, **errors}


def fixed(graph: Graph, chip: str | Chip, inputs: Mapping[str, Any] | None = None) -> Fixed:
    """Rewrite every op that a rule with a remedy names; with inputs only those whose numbers are beyond a limit.

    With inputs a rule's remedy is kept only where the outputs, as Apple's compiler lowers them, are worse without it;
    that of a limit, which brings an op back to the engine, where they lose no more than fp16 rounds.
    """
    target = chips.get(chip)
    values_seen = _seen(graph, inputs)
    ops_of: dict[str, set[str]] = {}
    for op, rows in remarks(graph, target, values_seen).items():
        for remark in rows:
            ops_of.setdefault(remark.rule, set()).add(op.outputs[0].name)
    new, changes = _rewritten(graph, ops_of, values_seen)
    if inputs is None:
        return Fixed(new, changes, _rules_of(new, target, None))
    right = graph.evaluate(inputs)
    before, after = (_error(_as_apple(one, inputs, target), right) for one in (graph, new))
    idle = []
    for rule in tuple(changes):
        rest = {name: ops for name, ops in ops_of.items() if name != rule}
        other, fewer = _rewritten(graph, rest, values_seen)
        if sum(fewer.values()) == sum(changes.values()):  # another rule has the same remedy
            continue
        error = _error(_as_apple(other, inputs, target), right)
        is_number = RULES[rule].op_test is None  # else a limit: an op comes back to the engine, and rounds to fp16
        helps = error > after * WORTH if is_number else after <= error + ROUNDING
        if not helps:
            new, changes, after, ops_of = other, fewer, error, rest
            idle.append(rule)
    return Fixed(new, changes, _rules_of(new, target, inputs), before, after, tuple(idle))


def _rewritten(
    graph: Graph, ops_of: Mapping[str, set[str]], values_seen: Mapping[str, np.ndarray] | None
) -> tuple[Graph, dict[str, int]]:
    """The network with the remedies of rules for the ops (by result) that each names, and how many took place."""
    new = graph.clone()
    changes: dict[str, int] = {}
    for remedy in REMEDIES:
        names = ops_of.get(remedy.rule)
        if names is None:
            continue
        if values_seen is not None and remedy.grows > 1:
            names = {name for name in names if np.max(np.abs(values_seen[name])) * remedy.grows < LARGEST_SUM}
        count = sweep(new.main, dict.fromkeys(remedy.ops, _of(remedy.rewrite, names if remedy.own else None)))
        if count:
            changes[remedy.rule] = changes.get(remedy.rule, 0) + count
            remove_dead(new.main)
            nodes = new.metadata.get("nodes", {})  # an op that is written anew is no longer the one node of its file
            new.metadata["nodes"] = {name: node for name, node in nodes.items() if name not in (names or ())}
    return new, changes


def _rules_of(graph: Graph, chip: Chip, inputs: Mapping[str, Any] | None) -> tuple[str, ...]:
    return tuple(sorted({row.rule for rows in remarks(graph, chip, _seen(graph, inputs)).values() for row in rows}))


def _of(rewrite: Rewrite, names: set[str] | None) -> Callable[[Op, GraphBuilder], Value | tuple[Value, ...] | None]:
    """The rewrite, of ops with these results only."""
    return lambda op, b: rewrite(op, b) if names is None or op.outputs[0].name in names else None


def _seen(graph: Graph, inputs: Mapping[str, Any] | None) -> dict[str, np.ndarray] | None:
    return None if inputs is None else {**{n: np.asarray(a) for n, a in inputs.items()}, **every_value(graph, inputs)}


def _as_apple(graph: Graph, inputs: Mapping[str, Any], chip: Chip) -> dict[str, np.ndarray]:
    on = active("apple", generation=chip.generation_name)
    return evaluate(canonical(graph, Compilation(chip, on, as_apple=True)), inputs, chip)


def _error(outputs: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> float:
    """The largest relative error of the outputs, of numbers that fp16 holds; infinite where one of them is none."""
    errors = [0.0]
    for name, expected in right.items():
        if np.asarray(expected).dtype.kind != "f":
            continue
        got, expected = outputs[name].astype(np.float64), np.asarray(expected, np.float64)
        usual = np.abs(expected) <= LARGEST_HALF
        size = float(np.linalg.norm(expected[usual])) or 1.0
        with np.errstate(invalid="ignore"):
            gap = float(np.linalg.norm((got - expected)[usual]))
        errors.append(gap / size if np.isfinite(gap) else np.inf)
    return max(errors)
