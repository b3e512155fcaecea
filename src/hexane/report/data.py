"""A session as plain data: what ``report.json`` holds and the page shows (schema ``hexane-report/1``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hexane
from hexane.program.attribution import value_name
from hexane.report.lanes import rows_of

if TYPE_CHECKING:
    from hexane.report.session import Session

SCHEMA = "hexane-report/1"


def report_data(done: Session, *, title: str | None = None) -> dict[str, Any]:
    """Everything of a session but its tensors and images (docs/commands/report.md)."""
    placement = done.placement
    return {
        "schema": SCHEMA,
        "hexane": hexane.__version__,
        "title": title or done.name,
        "run": done.summary(),
        "verdict": verdict(done),
        "placement": placement.as_dict() if placement else None,
        "graph": [node.to_dict() for node in rows_of(done.graph)],
        "segments": _segments(done),
        "tasks": _tasks(done),
        "l2": _l2(done),
        "layers": [layer.as_dict() for layer in done.insight.layers] if done.insight else [],
        "first_wrong": done.insight.first_wrong.name if done.insight and done.insight.first_wrong else None,
        "scaling": done.insight.scaling if done.insight else {},
        "estimate": _estimate(done),
        "results": [],
        "files": [],
    }


def verdict(done: Session) -> str:
    """What happened, in a sentence or two."""
    parts = []
    if done.verdict is not None:
        parts.append(f"{done.verdict.word.capitalize()}: {done.verdict.far}.")
        if done.verdict.advice:
            parts.append(f"{done.verdict.advice}.")
    if done.other is not None:
        parts.append(f"{done.other.text}.")
    if done.placement is not None:
        totals = done.placement.totals
        host = totals["host_ops"]
        parts.append(
            f"{totals['macs_on_engine']:.1%} of the multiply-accumulates run on the engine"
            + (f"; {host} of {totals['ops']} ops stay on the host." if host else ", and so does every op.")
        )
    return " ".join(parts)


def _segments(done: Session) -> list[dict[str, Any]]:
    if done.program is None:
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
            "seconds": round(done.run.seconds[i], 4) if done.run else None,
        }
        for i, segment in enumerate(done.program.segments)
    ]


def _tasks(done: Session) -> list[dict[str, Any]]:
    """Executed tasks with the compiler's evidence for each; a program's header estimate in microseconds."""
    if done.run is None or done.program is None:
        return []
    found = []
    for task in done.run.tasks:
        segment = done.program.segments[task.segment]
        row = task.to_dict()
        plan = segment.plans[task.index] if task.index < len(segment.plans) else None
        row["op"] = value_name(task.op) if task.op else ""
        row["rule"] = plan.evidence.value if plan else None
        row["note"] = plan.note if plan else ""
        found.append(row)
    return found


def _l2(done: Session) -> list[dict[str, Any]]:
    """The map of L2 of every engine segment; ``task`` is the place of its first task among all tasks."""
    if done.run is None or done.program is None or not done.run.tasks:
        return []
    found, task = [], 0
    numbers = [i for i, segment in enumerate(done.program.segments) if segment.image is not None]
    for number, chart in zip(numbers, done.program.l2_maps()):
        found.append({"segment": number, "task": task, **chart.as_dict()})
        task += len(chart.in_use)
    return found


def _estimate(done: Session) -> dict[str, Any] | None:
    """The estimate, its tasks under the names of the ops that they belong to."""
    if done.estimate is None:
        return None
    found = done.estimate.as_dict()
    found.pop("tasks")
    if done.estimate.tasks and done.program is not None:
        segments = [(i, s) for i, s in enumerate(done.program.segments) if s.image is not None]
        plans = [(i, j, plan) for i, s in segments for j, plan in enumerate(s.plans)]
        if len(plans) == len(found["ops"]):
            for row, (segment, index, plan) in zip(found["ops"], plans):
                row["name"] = f"{value_name(plan.op)} ({segment}.{index})"
    return found
