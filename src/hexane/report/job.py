"""``hexane.run`` and ``hexane.compare``: the main job without a shell, for notebooks and scripts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hexane.chips import Chip
from hexane.codegen.driver import dialect_as
from hexane.errors import UsageError
from hexane.formats.strict_json import plain
from hexane.frontends.networks import network_of
from hexane.graph import Graph
from hexane.program import input_ports
from hexane.program.run import Device
from hexane.report.folders import require_replaceable
from hexane.report.page import write_report
from hexane.session.baseline import Comparison, Limits, compared, read_answer
from hexane.session.form import Form
from hexane.session.inputs import gather
from hexane.session.network_run import NetworkRun
from hexane.session.run import Progress, run_network

CORE_ML = (".mlpackage", ".mlmodel", ".mlmodelc")
"""Models of which people ask what Apple's own program gives."""


def run(
    model: Graph | str | os.PathLike[str],
    inputs: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    chip: str | Chip = "",
    device: str | Device = "emulator",
    level: str = "engine",
    compare: str = "auto",
    autoscale: bool = False,
    dialect: str = "default",
    without: Iterable[str] = (),
    accuracy: str = "exact",
    as_: str = "",
    report: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> NetworkRun:
    """Take a network through the engine, compare it with float32 and give a verdict, as ``hexane run`` does.

    ``inputs`` are arrays or files by name; what is missing is drawn from ``seed``. ``chip`` left out is the device's,
    else M1. ``as_`` left out is "apple" for a Core ML model on the emulator and hexane's own program for others.
    ``report`` names a folder for the page of ``hexane run --report``, ``progress`` is told the stages
    (`hexane.session.run.Progress`). The other options are those of `hexane.session.run.run_network`. The
    result has ``outputs``, ``verdict``, ``agreements``, ``seconds`` and ``summary()``, and shows itself in a notebook.

    Raises UsageError for inputs that do not fit, and what `hexane.load` and `hexane.compile` raise.
    """
    from hexane.runtime.devices import device_named

    path = Path(model) if isinstance(model, str | os.PathLike) else None
    folder = None if report is None else Path(report)
    if folder is not None:
        require_replaceable(folder)
    engine = device_named(device) if isinstance(device, str) else device
    left_out = tuple(without)
    form = Form(dialect, left_out, accuracy)
    usual = form == Form() and not autoscale and level == "engine" and engine.name == "emulator"
    if not as_ and usual and path is not None and path.suffix.lower() in CORE_ML:
        as_ = "apple"
    graph = network_of(model)
    arrays, notes = _given(graph, inputs or {}, seed)
    session = run_network(
        graph, arrays, name=path.name if path else "network", chip=chip or engine.chip or "M1", level=level, model=path,
        compare=compare, insight=folder is not None, autoscale=autoscale,
        notes=(*graph.metadata.get("assumed", ()), *notes), progress=progress, device=engine,
        form=replace(form, dialect=dialect_as(as_, dialect)),
    )  # fmt: skip
    if folder is not None:
        write_report(session, folder)
    return session


def _given(graph: Graph, inputs: Mapping[str, Any], seed: int) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Arrays of every input, and what was chosen: those given, files read, the others drawn."""
    ports = input_ports(graph)
    unknown = sorted(set(inputs) - {port.name for port in ports})
    if unknown:
        names = ", ".join(port.name for port in ports) or "none"
        raise UsageError(f"the network has no input {unknown[0]!r}", hint=f"its inputs: {names}")
    files = [f"{name}={value}" for name, value in inputs.items() if isinstance(value, str | os.PathLike)]
    rest = [port for port in ports if port.name not in inputs or isinstance(inputs[port.name], str | os.PathLike)]
    gathered = gather(rest, files, seed=seed, graph=graph)
    arrays = {name: np.asarray(value) for name, value in inputs.items() if not isinstance(value, str | os.PathLike)}
    return {**arrays, **gathered.arrays}, gathered.notes


def compare(old: Any, new: Any, limits: Limits | None = None) -> Comparison:
    """Differences between two answers, and those that are worse: placement, time and error, op by op.

    Each is what `hexane.check`, `hexane.estimate` or `hexane.run` gave, its JSON form (a dict, or the path of a file
    or report folder): both of one kind. UsageError for others.
    """
    return compared(_answer(old), _answer(new), limits)


def _answer(answer: Any) -> Mapping[str, Any]:
    if isinstance(answer, str | os.PathLike):
        return read_answer(Path(answer))
    form = getattr(answer, "as_dict", None) or getattr(answer, "summary", None)
    data = plain(form()) if form is not None else answer
    if not isinstance(data, Mapping) or "schema" not in data:
        raise UsageError(
            f"a {type(answer).__name__} is no answer to compare",
            hint="give what hexane.check, hexane.estimate or hexane.run returns, or a file of --json",
        )
    return data
