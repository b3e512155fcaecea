"""Parts of one estimate: the engine programs of a network, a program or an image, and what the host does between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hexane.chips import Chip, of_generation
from hexane.cost.work import HostOp, Job, Work
from hexane.errors import UnsupportedError, UsageError
from hexane.frontends.networks import load
from hexane.graph import Op
from hexane.image.files import open_image
from hexane.program import load_program
from hexane.restrictions.objections import placed_by_apple
from hexane.timing.from_graph import host_op, split_work_of
from hexane.timing.from_tasks import work_of_tasks
from hexane.timing.placement import cpu_us

ALONG_INPUTS = "weights_along_inputs"
ENGINE_PROGRAMS = (".hwx", ".anec")


def opened(x: Any, **binding: Any) -> Any:
    """The network, program or image in a file, by its path (``binding`` as of ``hexane.load``); all else as it is."""
    if not isinstance(x, str | os.PathLike):
        return x
    path = Path(x)
    if path.suffix in ENGINE_PROGRAMS:
        return open_image(path)
    return load_program(path) if path.suffix == ".hexane" else load(path, **binding)


def own_chip(x: Any) -> str:
    """The chip that a program is compiled for, a chip of an image's generation; M1 for a network."""
    generation = _generation(x) if hasattr(x, "tasks") and hasattr(x, "surfaces") else ""
    return of_generation(generation).name if generation else getattr(x, "chip", None) or "M1"


def job_of(x: Any, chip: Chip) -> Job:
    """The job behind a Graph, a Program, an Image or a Work; UsageError for anything else.

    Ops of a network go to the host where Apple's compiler leaves them there (``hexane.restrictions.objections``).
    """
    if isinstance(x, Work):
        return Job("network", (x,))
    if hasattr(x, "main") and hasattr(x, "functions"):
        return _job_of_network(x, chip)
    if hasattr(x, "segments") and hasattr(x, "images"):
        return _job_of_program(x)
    if hasattr(x, "tasks") and hasattr(x, "surfaces"):
        return Job("image", (work_of_tasks(x.tasks),), generation=_generation(x), by_tasks=True)
    raise UsageError(
        f"nothing to time in a {type(x).__name__}", hint="give a graph (hexane.load), a program, an image or a path"
    )


def _job_of_network(graph: Any, chip: Chip) -> Job:
    """The programs of Apple's compiler; UnsupportedError where nothing is known of its placement."""
    reasons: dict[str, int] = {}

    def on_host(op: Op) -> bool:
        place = placed_by_apple(op, chip)
        if place.where == "unknown":
            raise UnsupportedError(f"nothing to estimate from: {place.reason}", hint="A14, M1 and later are known")
        if ALONG_INPUTS in place.rules:
            reasons[place.reason] = reasons.get(place.reason, 0) + 1
        return place.where == "host"

    launches, host = split_work_of(graph, on_host)
    notes = tuple(f"{count} ops on the host for their weights: {reason}" for reason, count in reasons.items())
    return Job("network", launches, host, notes)


def _job_of_program(program: Any) -> Job:
    """The engine programs, read off their tasks, and the host ops of a Program, in order."""
    works: list[Work] = []
    host: list[HostOp] = []
    for segment in program.segments:
        if segment.image is None:
            host += [host_op(op) for op in segment.graph.main.walk() if op.outputs]
        else:
            works.append(work_of_tasks(segment.image.tasks, name=f"image{len(works)}.task"))
    generations = [_generation(image) for image in program.images]
    generation = generations[0] if generations else ""
    return Job("program", tuple(works), tuple(host), generation=generation, by_tasks=True)


def _generation(image: Any) -> str:
    return str(image.tasks[0].generation) if image.tasks else ""


def host_op_us(op: HostOp, chip: Chip) -> float:
    """Microseconds of an op on the host, at the rates that Core ML's segmenter assumes of a CPU (APPLE, not fitted)."""
    return cpu_us(op.op, op.flop, op.bytes, chip)
