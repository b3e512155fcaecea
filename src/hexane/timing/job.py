"""What one estimate counts: the engine programs of a network, a program or an image, and what the host does between."""

from __future__ import annotations

from typing import Any

from hexane.chips import Chip
from hexane.chips.operations import REFUSED, support
from hexane.errors import UsageError
from hexane.timing.from_graph import host_op, split_work_of
from hexane.timing.from_tasks import work_of_tasks
from hexane.timing.placement import cpu_us
from hexane.timing.work import HostOp, Job, Work


def job_of(x: Any, chip: Chip) -> Job:
    """The job behind a Graph, a Program, an Image or a Work; UsageError for anything else.

    Ops of a network go to the host where the engine of ``chip`` refuses them (``hexane.chips.operations``).
    """
    if isinstance(x, Work):
        return Job("network", (x,))
    if hasattr(x, "main") and hasattr(x, "functions"):
        launches, host = split_work_of(x, lambda op: support(op.type, chip).verdict == REFUSED)
        return Job("network", launches, host)
    if hasattr(x, "segments") and hasattr(x, "images"):
        works = tuple(work_of_tasks(image.tasks, name=f"image{i}.task") for i, image in enumerate(x.images))
        graphs = [segment.graph for segment in x.segments if segment.graph is not None]
        return Job("program", works, tuple(host_op(op) for graph in graphs for op in graph.main.walk() if op.outputs))
    if hasattr(x, "tasks") and hasattr(x, "surfaces"):
        return Job("image", (work_of_tasks(x.tasks),))
    raise UsageError(
        f"nothing to time in a {type(x).__name__}", hint="give a graph (hexane.load), a program or an image"
    )


def host_op_us(op: HostOp, chip: Chip) -> float:
    """Microseconds of an op on the host, at the rates that Core ML's segmenter assumes of a CPU (APPLE, not fitted)."""
    return cpu_us(op.op, op.flop, op.bytes, chip)
