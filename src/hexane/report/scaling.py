"""``--autoscale``: find the layers that lose products, compile again with these scaled, and say what it gained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.numerics.insight import examine
from hexane.runtime.agreement import agreement
from hexane.runtime.verdict import percent

if TYPE_CHECKING:
    from hexane.report.session import Session


def apply_autoscale(done: Session) -> None:
    """Scale the session's program (or prepared graph) by what its own inputs show, before it runs.

    ``done.autoscale`` keeps the layers, and the outputs' errors before; ``finish`` adds those after.
    """
    insight = examine(done.parts(), done.inputs, done.reference, done.chip)
    before = [agreement(name, np.asarray(insight.values[name]), done.reference[name]) for name in done.graph.outputs]
    done.autoscale = {
        "layers": insight.scaling,
        "before": {row.name: {"largest": row.largest, "relative": row.relative} for row in before},
        "text": "no layer loses enough to be scaled",
    }
    if not insight.scaling:
        return
    if done.program is not None:
        done.program = done.form.compiled(done.graph, done.chip, insight.scaling)
    else:
        done.prepared = done.form.canonical(done.graph, done.chip, insight.scaling)


def finish(done: Session) -> None:
    """Errors after the scaling, against the same float32 values, and the sentence that reports print."""
    found: dict[str, Any] | None = done.autoscale
    if not found or not found["layers"]:
        return
    after = [agreement(name, np.asarray(array), done.reference[name]) for name, array in done.outputs.items()]
    found["after"] = {row.name: {"largest": row.largest, "relative": row.relative} for row in after}
    bits = list(found["layers"].values())
    gains = ", ".join(
        f"{name} {_percent(row['relative'])} to {_percent(found['after'][name]['relative'])}"
        for name, row in found["before"].items()
    )
    found["text"] = (
        f"{len(bits)} layers scaled by 2^{min(bits)} to 2^{max(bits)}, exactly compensated; "
        f"relative error before and after: {gains}"
    )


def _percent(relative: float | None) -> str:
    return "nothing finite" if relative is None else percent(relative)
