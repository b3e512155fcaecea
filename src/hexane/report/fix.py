"""``hexane check --fix`` of a network: what the remarks advise is done, and tried as a phone would compute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane import chips
from hexane.codegen.driver import canonical
from hexane.graph.rewrite import remove_dead
from hexane.lowering.compilation import Compilation
from hexane.lowering.transformations import active
from hexane.numerics import evaluate
from hexane.numerics.insight import every_value
from hexane.passes.rewriting import sweep
from hexane.restrictions.remarks import remarks
from hexane.restrictions.remedies import REMEDIES, Rewrite

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph import Graph
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Op, Value


LARGEST_SUM = 32752.0


@dataclass(frozen=True)
class Fixed:
    """The network with remedies, how many ops each rule's took the place of, and the rules that are left.

    ``before`` and ``after``: relative error (root mean square) of the outputs as Apple's compiler lowers them, against
    the network as it was in float32; None where no inputs were given.
    """

    graph: Graph
    done: dict[str, int]
    left: tuple[str, ...]
    before: float | None = None
    after: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, without the network; infinite errors as None."""
        errors = {
            name: error if error is not None and np.isfinite(error) else None
            for name, error in (("before", self.before), ("after", self.after))
        }
        return {"done": self.done, "left": list(self.left), "tried": self.before is not None, **errors}


def fixed(graph: Graph, chip: str | Chip, inputs: Mapping[str, Any] | None = None) -> Fixed:
    """Rewrite every op that a rule with a remedy names; with inputs only those whose numbers are beyond a limit."""
    target = chips.get(chip)
    values_seen = _seen(graph, inputs)
    remarks_by_op = remarks(graph, target, values_seen)
    targets = {(remark.rule, op.outputs[0].name) for op, rows in remarks_by_op.items() for remark in rows}
    rules = {rule for rule, _ in targets}
    new = graph.clone()
    changes: dict[str, int] = {}
    for remedy in REMEDIES:
        if remedy.rule not in rules:
            continue
        names = {name for rule, name in targets if rule == remedy.rule} if remedy.own else None
        if names and values_seen is not None and remedy.grows > 1:
            names = {name for name in names if np.max(np.abs(values_seen[name])) * remedy.grows < LARGEST_SUM}
        count = sweep(new.main, dict.fromkeys(remedy.ops, _of(remedy.rewrite, names)))
        if count:
            changes[remedy.rule] = changes.get(remedy.rule, 0) + count
            remove_dead(new.main)
    remaining = {row.rule for rows in remarks(new, target, _seen(new, inputs)).values() for row in rows}
    if inputs is None:
        return Fixed(new, changes, tuple(sorted(remaining)))
    right = graph.evaluate(inputs)
    before, after = (_error(_as_apple(one, inputs, target), right) for one in (graph, new))
    return Fixed(new, changes, tuple(sorted(remaining)), before, after)


def _of(rewrite: Rewrite, names: set[str] | None) -> Callable[[Op, GraphBuilder], Value | tuple[Value, ...] | None]:
    """The rewrite, of ops with these results only."""
    return lambda op, b: rewrite(op, b) if names is None or op.outputs[0].name in names else None


def _seen(graph: Graph, inputs: Mapping[str, Any] | None) -> dict[str, np.ndarray] | None:
    return None if inputs is None else {**{n: np.asarray(a) for n, a in inputs.items()}, **every_value(graph, inputs)}


def _as_apple(graph: Graph, inputs: Mapping[str, Any], chip: Chip) -> dict[str, np.ndarray]:
    on = active("apple", generation=chip.generation_name)
    return evaluate(canonical(graph, Compilation(chip, on, as_apple=True)), inputs, chip)


def _error(outputs: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> float:
    """The largest relative error of the outputs; infinite where one holds infinities that the right one has not."""
    errors = [0.0]
    for name, expected in right.items():
        if np.asarray(expected).dtype.kind != "f":
            continue
        got, expected = outputs[name].astype(np.float64), np.asarray(expected, np.float64)
        usual = np.isfinite(expected)
        size = float(np.linalg.norm(expected[usual])) or 1.0
        with np.errstate(invalid="ignore"):
            gap = float(np.linalg.norm((got - expected)[usual]))
        errors.append(gap / size if np.isfinite(gap) else np.inf)
    return max(errors)
