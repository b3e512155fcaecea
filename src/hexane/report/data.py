"""A session as plain data: what ``report.json`` holds and the page shows (schema ``hexane-report/1``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hexane
from hexane.program.attribution import share_text, value_name
from hexane.report.lanes import rows_of

if TYPE_CHECKING:
    from hexane.session.network_run import NetworkRun

SCHEMA = "hexane-report/1"


def report_data(session: NetworkRun, *, title: str | None = None) -> dict[str, Any]:
    """Everything of a session but its tensors and images (docs/commands/report.md)."""
    placement = session.placement
    return {
        "schema": SCHEMA,
        "hexane": hexane.__version__,
        "title": title or session.name,
        "run": session.summary(),
        "verdict": verdict(session),
        "placement": placement.as_dict() if placement else None,
        "graph": [node.to_dict() for node in rows_of(session.graph)],
        "segments": _segments(session),
        "tasks": _tasks(session),
        "l2": _l2(session),
        "layers": [layer.as_dict() for layer in session.insight.layers] if session.insight else [],
        "first_wrong": session.insight.first_wrong.name if session.insight and session.insight.first_wrong else None,
        "scaling": session.insight.scaling if session.insight else {},
        "estimate": _estimate(session),
        "results": [],
        "files": [],
    }


def verdict(session: NetworkRun) -> str:
    """Result in a sentence or two."""
    parts = []
    if session.verdict is not None:
        parts.append(f"{session.verdict.word.capitalize()}: {session.verdict.far}.")
        if session.verdict.advice:
            parts.append(f"{session.verdict.advice}.")
    if session.other is not None:
        parts.append(f"{session.other.text}.")
    if session.placement is not None:
        totals = session.placement.totals
        host = totals["host_ops"]
        share = f"{share_text(totals)} run on the engine" if totals["macs"] else "There is nothing to multiply"
        stay = f"; {host} of {totals['ops']} ops stay on the host." if host else "; no op stays on the host."
        parts.append(share + stay)
    return " ".join(parts)


def _segments(session: NetworkRun) -> list[dict[str, Any]]:
    if session.program is None:
        return []
    return [
        {
            "kind": segment.kind,
            "ops": len(segment.ops),
            "tasks": len(segment.image.tasks) if segment.image is not None else 0,
            "reason": segment.reason,
            "macs": segment.macs,
            "inputs": [port.name for port in segment.inputs],
            "outputs": [port.name for port in segment.outputs],
            "seconds": round(session.run.seconds[i], 4) if session.run else None,
        }
        for i, segment in enumerate(session.program.segments)
    ]


def _tasks(session: NetworkRun) -> list[dict[str, Any]]:
    """Executed tasks with the compiler's evidence for each; a program's header estimate in microseconds."""
    if session.run is None or session.program is None:
        return []
    rows = []
    for task in session.run.tasks:
        segment = session.program.segments[task.segment]
        row = task.to_dict()
        plan = segment.plans[task.index] if task.index < len(segment.plans) else None
        row["op"] = value_name(task.op) if task.op else ""
        row["rule"] = plan.evidence.value if plan else None
        row["note"] = plan.doubt if plan else ""
        rows.append(row)
    return rows


def _l2(session: NetworkRun) -> list[dict[str, Any]]:
    """The map of L2 of every engine segment; ``task`` is the place of its first task among all tasks."""
    if session.run is None or session.program is None or not session.run.tasks:
        return []
    rows, task = [], 0
    numbers = [i for i, segment in enumerate(session.program.segments) if segment.image is not None]
    for number, chart in zip(numbers, session.program.l2_maps()):
        rows.append({"segment": number, "task": task, **chart.as_dict()})
        task += len(chart.in_use)
    return rows


def _estimate(session: NetworkRun) -> dict[str, Any] | None:
    """The estimate, its tasks under the names of the ops that they belong to."""
    if session.estimate is None:
        return None
    estimate = session.estimate.as_dict()
    estimate.pop("tasks")
    if session.estimate.tasks and session.program is not None:
        segments = [(i, s) for i, s in enumerate(session.program.segments) if s.image is not None]
        plans = [(i, j, plan) for i, s in segments for j, plan in enumerate(s.plans)]
        if len(plans) == len(estimate["ops"]):
            for row, (segment, index, plan) in zip(estimate["ops"], plans):
                row["name"] = f"{value_name(plan.op)} ({segment}.{index})"
    return estimate
