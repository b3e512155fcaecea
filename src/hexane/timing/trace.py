"""A timeline of tasks in the trace-event format that Chrome and Perfetto open."""

from __future__ import annotations

from typing import Any

from hexane.timing.estimate import Estimate


def chrome_trace(result: Estimate) -> dict[str, Any]:
    """Trace events of one call: the call, below it every layer on the unit that limits it; microseconds."""
    start = max(result.latency_us - result.engine_us, 0.0) / 2
    events: list[dict[str, Any]] = [
        _event("call", "host", 0.0, result.latency_us, {"interface": result.interface}),
        _event("task", "engine", start, result.engine_us, {"chip": result.chip}),
    ]
    now = start + max(result.engine_us - sum(op.us for op in result.ops), 0.0)
    for op in result.ops:
        detail = {
            "op": op.op,
            "compute_us": round(op.compute_us, 3),
            "weights_us": round(op.weights_us, 3),
            "activations_us": round(op.activations_us, 3),
            "utilisation": round(op.utilisation, 3),
        }
        events.append(_event(op.name, op.bottleneck, now, op.us, detail))
        now += op.us
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _event(name: str, lane: str, start: float, length: float, detail: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": "hexane", "tid": lane, "ts": start, "dur": length, "args": detail}
