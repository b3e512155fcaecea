"""Published measurements: what the model predicts for a row, and what the row's time contains."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hexane import chips
from hexane.chips import Chip
from hexane.chips.measured import values
from hexane.cost.model import engines_used, time_work
from hexane.cost.units import Numbers, larger
from hexane.cost.work import Layer, Work
from hexane.errors import UsageError
from hexane.graph import Graph
from hexane.timing.call import call_us, host_copies_us, launch_us
from hexane.timing.from_graph import work_of
from hexane.timing.job import host_op_us, job_of
from hexane.timing.ranges import HOST, layer_parts, shipped
from hexane.timing.row_formats import format_of
from hexane.timing.rows import Row, graph_of
from hexane.timing.sensitivity import slopes
from hexane.timing.whatif import changed

INCLUDES = {
    "task": "task",
    "submit_to_task_end": "submit",
    "call_copies": "copies",
    "call_eval": "evaluate",
    "call_coreml": "coreml",
    "call_coreml_cpu_awake": "coreml_awake",
    "call_driver": "linux",
    "call_and_host": "copies_typical",
}
SLOPES = ("layer_slope", "layer_slope_call")
SLOPE_DEPTHS = (16, 32)
"""Depths of the two chains behind a slope where the row does not state them."""
_DEPTHS = re.compile(r"layers (\d+)-(\d+)")
_CALLS = re.compile(r"(?<!of )\b(\d+) (?:x )?(?:dispatches|calls|programs|evaluations)\b")
_SHORT = 4
"""Equal layers of a chain that are built; the rest is counted."""


@dataclass(frozen=True)
class Case:
    """A row made ready: its work (equal layers counted, not repeated), chip, engines, clock and interface.

    ``calls``: how many calls of the work the time holds. A slope has a ``shallow`` chain besides and is the difference
    of the two calls over ``further`` layers. ``host_us`` are ops on the host before and behind.
    """

    work: Work
    chip: Chip
    engines: int
    clock_mhz: float | None
    interface: str
    calls: int = 1
    shallow: Work | None = None
    further: int = 1
    origin: str = ""
    host_us: float = 0.0


def case_of(row: Mapping[str, Any], network: Graph | None = None) -> Case:
    """Read a row with the columns of ``calibration.csv``; UsageError when it names no known network or interface.

    ``network``: the graph of a row whose columns only name it; the row's weight format and activations apply to it.
    """
    r = Row(row)
    chip = chips.get(r.text("chip"))
    includes = r.text("includes")
    slope = includes in SLOPES or r.text("layers") == "slope"
    if not slope and includes not in INCLUDES:
        raise UsageError(f"no rule for a time that includes {includes!r}", where=r.text("id") or "row")
    interface = _slope_interface(r) if slope else INCLUDES[includes]
    if interface == "copies" and not r.text("stat").startswith("min"):
        interface = "copies_typical"
    if network is not None:
        job = job_of(network, chip)
        if len(job.launches) != 1:
            raise UsageError("the network is not one program of the engine", where=r.text("id") or "row")
        activations = "int8" if r.text("dtype") == "int8" else None
        (work,) = changed(job, weights=format_of(r.text("wfmt")).name, activations=activations).launches
        work, engines = compact(work), r.count("engines", 0) or engines_used(work.layers, chip)
        host = sum(host_op_us(op, chip) for op in job.host)
        return Case(work, chip, engines, r.number("clock_mhz"), interface, origin=r.text("kind"), host_us=host)
    calls = 1 if slope else _calls(r)
    shallow, further = None, 1
    if slope:
        few, many = _depths(r)
        shallow, further = _work(r, few), many - few
        work = _work(r, many)
    else:
        work = _work(r, 1 if calls > 1 else r.count("layers", 1))
    engines = r.count("engines", 0) or engines_used(work.layers, chip)
    return Case(work, chip, engines, r.number("clock_mhz"), interface, calls, shallow, further, r.text("kind"))


def _slope_interface(r: Row) -> str:
    """Meaning of the two times behind a slope: tasks, unless the row says calls."""
    if r.text("includes") != "layer_slope_call":
        return INCLUDES.get(r.text("includes"), "task")
    return "evaluate" if "valuate" in r.text("api") else "coreml"


def _depths(r: Row) -> tuple[int, int]:
    match = _DEPTHS.search(r.text("note"))
    few, many = (int(match.group(1)), int(match.group(2))) if match else SLOPE_DEPTHS
    return (few, many) if 0 < few < many else SLOPE_DEPTHS


def _calls(r: Row) -> int:
    """Calls that a row's time holds: N dispatches are N calls of one small program."""
    if r.text("kind") != "dispatch":
        return 1
    match = _CALLS.search(r.text("workload"))
    if match:
        return max(int(match.group(1)), 1)
    return max(r.count("layers", 1), 1) if r.text("op") in ("", "copy", "dispatch", "call") else 1


def _work(r: Row, depth: int) -> Work:
    """The row's work; chains of equal convolutions are built short and counted to their depth."""
    equal = r.text("kind") == "conv_chain" and depth > _SHORT and r.text("cin") == r.text("cout") != ""
    work = compact(_stored(r, work_of(graph_of(r, layers=_SHORT if equal else depth))))
    if not equal:
        return work
    if len(work.layers) == 3:
        first, inner, last = work.layers
        return replace(work, layers=(first, replace(inner, count=inner.count + depth - _SHORT), last))
    return compact(_stored(r, work_of(graph_of(r, layers=depth))))


def _stored(r: Row, work: Work) -> Work:
    """The stored size that a row publishes stands for the one that its format implies."""
    size = r.number("wbytes_layer")
    if not size:
        return work
    layers = tuple(replace(x, weight_bytes=size) if x.unit == "mac" else x for x in work.layers)
    return replace(work, layers=layers)


def compact(work: Work) -> Work:
    """The same work with equal neighbours counted instead of repeated."""
    packed: list[Layer] = []
    for layer in work.layers:
        bare = replace(layer, name="")
        if packed and replace(packed[-1], count=1) == bare:
            packed[-1] = replace(packed[-1], count=packed[-1].count + 1)
        else:
            packed.append(bare)
    return replace(work, layers=tuple(packed))


def predict_case(case: Case, c: Numbers) -> Any:
    """Predicted microseconds of a case with the constants ``c`` (an array where they are arrays)."""
    deep = case.calls * _call(case, case.work, c) + case.host_us
    if case.shallow is None:
        return deep
    return larger((deep - _call(case, case.shallow, c)) / case.further, 1e-3)


def _call(case: Case, work: Work, c: Numbers) -> Any:
    timed = time_work(work, case.chip, c, engines=case.engines, clock_mhz=case.clock_mhz)
    total = sum(item.us for item in timed)
    return call_us(total, work, case.chip, c, case.interface, case.engines)


def case_parts(case: Case, c: Numbers) -> dict[str, float]:
    """The parts of a case's time in microseconds, as ``hexane.timing.ranges`` names them; a slope has no call."""
    timed = time_work(case.work, case.chip, c, engines=case.engines, clock_mhz=case.clock_mhz)
    parts = layer_parts(timed, case.chip, case.engines)
    if case.shallow is None:
        layers = sum(item.us for item in timed)
        parts[f"call {case.interface}"] = launch_us(layers, case.work, case.chip, c, case.interface, case.engines)
        parts["copies"] = host_copies_us(case.work, case.chip, c, case.interface)
    if case.host_us:
        parts[HOST] = case.host_us
    return dict(parts)


def predict(row: Mapping[str, Any]) -> float:
    """The predicted ``fit_us`` of one row with the columns of ``calibration.csv``, in microseconds.

    Builds the row's graph, times it with the shipped constants of the row's chip, and adds what ``includes`` says.
    """
    case = case_of(row)
    return float(predict_case(case, values(case.chip)))


def predict_range(row: Mapping[str, Any], sigmas: float = 1.0) -> tuple[float, float, float]:
    """The predicted ``fit_us`` of a row and how far the measurement may lie from it, low and high, microseconds.

    ``sigmas`` standard deviations either way, of the constants, of the model and of a measurement of the row's
    ``trust`` (of an average one where the row says nothing); wider where no row of its ``source`` was fitted.
    """
    case, r = case_of(row), Row(row)
    numbers = values(case.chip)
    us = float(predict_case(case, numbers))
    gradient = slopes(partial(predict_case, case), numbers)
    sigma = shipped().sigma(case.chip, gradient, case_parts(case, numbers), r.text("trust") or None, r.text("source"))
    return us, us * math.exp(-sigmas * sigma), us * math.exp(sigmas * sigma)
