"""``--autoscale``: find the layers that lose products, compile again with these scaled, and say what it gained."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.counts import counted
from hexane.numerics import evaluate
from hexane.numerics.insight import examine, states_of
from hexane.session.agreement import Agreement, agreement
from hexane.session.answers import questions_of
from hexane.session.verdict import WORDS, percent, word_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hexane.graph import Graph
    from hexane.numerics.insight import Insight
    from hexane.session.network_run import NetworkRun


HELPS = 0.8
"""A scaling is kept where the error that it leaves is at most this share of the one before."""


def apply_autoscale(session: NetworkRun) -> None:
    """Scale the session's program (or prepared graph) by what its own inputs show, before it runs.

    ``done.autoscale`` keeps the layers, and the outputs' errors before; ``finish`` adds those after. A scaling that
    does not help on these inputs is not kept.
    """
    insight = examine(session.parts(), session.inputs, session.reference, session.chip)
    before = _rows(session, insight.values)
    session.autoscale = {
        "layers": insight.scaling,
        "before": _figures(before),
        "text": "no layer loses enough to be scaled",
    }
    if not insight.scaling:
        return
    parts = _scaled(session, insight)
    if not _helps(before, _rows(session, _values(session, parts))):
        session.autoscale |= {
            "layers": {},
            "text": f"{len(insight.scaling)} layers lose products; scaling them was tried, does not bring the outputs "
            "nearer to float32, and was not kept",
        }
        return
    if session.program is not None:
        session.program = session.form.compiled(session.graph, session.chip, insight.scaling)
    else:
        ((_, session.prepared),) = parts


def gain_of_scaling(session: NetworkRun, insight: Insight) -> str:
    """Effect of ``--autoscale``, tried: words for the advice, empty where it would not help."""
    if not insight.scaling or session.autoscale is not None:
        return ""
    before = _rows(session, insight.values)
    if any(row.relative == inf for row in before):  # float32 gives zeros: there is no error to be lessened
        return ""
    after = _rows(session, _values(session, _scaled(session, insight)))
    if not _helps(before, after):
        return ""
    count = len(insight.scaling)
    worst = max(zip(before, after), key=lambda pair: pair[0].relative or 0.0)
    return (
        f"{counted(count, 'layer')} scaled by powers of two: {worst[0].name} from "
        f"{_percent(worst[0].relative)} to {_percent(worst[1].relative)}"
    )


def _scaled(session: NetworkRun, insight: Insight) -> list[tuple[str, Graph]]:
    """The parts of the network with its layers scaled, as ``NetworkRun.parts`` gives them."""
    if session.program is not None:
        return session.form.parts(session.graph, session.chip, insight.scaling)
    return [("engine", session.form.canonical(session.graph, session.chip, insight.scaling))]


def _values(session: NetworkRun, parts: Sequence[tuple[str, Graph]]) -> dict[str, np.ndarray]:
    """The engine's arithmetic on parts, by name, from the session's inputs on."""
    values = states_of(parts) | dict(session.inputs)
    for kind, graph in parts:
        arrays = {name: values[name] for name in graph.inputs}
        values |= evaluate(graph, arrays, session.chip) if kind == "engine" else graph.evaluate(arrays)
    return values


def _rows(session: NetworkRun, values: Mapping[str, np.ndarray]) -> list[Agreement]:
    questions = questions_of(session.graph)
    names = session.graph.outputs
    return [agreement(n, np.asarray(values[n]), session.reference[n], questions.get(n)) for n in names]


def _helps(before: list[Agreement], after: list[Agreement]) -> bool:
    """True where the worst output is nearer by more than a little, with no verdict worse and no new infinity.

    An error without bound after one without bound is not nearer.
    """
    words = [(WORDS.index(word_for(a)), WORDS.index(word_for(b))) for a, b in zip(before, after)]
    if any(b > a for a, b in words) or sum(r.nonfinite for r in after) > sum(r.nonfinite for r in before):
        return False
    old, new = (max((r.relative or 0.0 for r in rows), default=0.0) for rows in (before, after))
    return (new <= HELPS * old and new < old) or sum(b for _, b in words) < sum(a for a, _ in words)


def _figures(rows: list[Agreement]) -> dict[str, dict[str, float | None]]:
    return {row.name: {"largest": row.largest, "relative": row.relative} for row in rows}


def finish(session: NetworkRun) -> None:
    """Errors after the scaling, against the same float32 values, and the sentence that reports print."""
    scaling: dict[str, Any] | None = session.autoscale
    if not scaling or not scaling["layers"]:
        return
    scaling["after"] = _figures(_rows(session, session.outputs))
    bits = list(scaling["layers"].values())
    gains = ", ".join(
        f"{name} {_percent(row['relative'])} to {_percent(scaling['after'][name]['relative'])}"
        for name, row in scaling["before"].items()
    )
    scaling["text"] = (
        f"{counted(len(bits), 'layer')} scaled by 2^{min(bits)} to 2^{max(bits)}, exactly compensated; "
        f"relative error before and after: {gains}"
    )


def _percent(relative: float | None) -> str:
    return "nothing finite" if relative is None else percent(relative)
