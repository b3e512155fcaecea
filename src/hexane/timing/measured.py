"""Published measurements: what the model predicts for a row, and what the row's time contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hexane import chips
from hexane.chips import Chip
from hexane.chips.measured import values
from hexane.errors import UsageError
from hexane.timing.call import call_us
from hexane.timing.from_graph import work_of
from hexane.timing.model import engines_used, time_work
from hexane.timing.rows import Row, graph_of
from hexane.timing.units import Numbers
from hexane.timing.work import Layer, Work

INCLUDES = {
    "task": "task",
    "submit_to_task_end": "submit",
    "call_copies": "copies",
    "call_eval": "evaluate",
    "call_coreml": "coreml",
    "call_coreml_cpu_awake": "coreml_awake",
    "call_driver": "linux",
}
SLOPES = ("layer_slope", "layer_slope_call")
_SLOPE_DEPTH = 4


@dataclass(frozen=True)
class Case:
    """A row made ready: its work (equal layers counted, not repeated), chip, engines, clock and interface.

    ``interface`` None stands for a slope: the time of one inner layer of a chain.
    """

    work: Work
    chip: Chip
    engines: int
    clock_mhz: float | None
    interface: str | None


def case_of(row: Mapping[str, Any]) -> Case:
    """Read a row with the columns of ``calibration.csv``; UsageError when it names no known network or interface."""
    r = Row(row)
    chip = chips.get(r.text("chip"))
    includes = r.text("includes")
    slope = includes in SLOPES or r.text("layers") == "slope"
    if not slope and includes not in INCLUDES:
        raise UsageError(f"no rule for a time that includes {includes!r}", where=r.text("id") or "row")
    work = work_of(graph_of(r, layers=_SLOPE_DEPTH if slope else None))
    stored = r.number("wbytes_layer")
    if stored:
        layers = tuple(replace(x, weight_bytes=stored) if x.unit == "mac" else x for x in work.layers)
        work = replace(work, layers=layers)
    engines = r.count("engines", 0) or engines_used(work, chip)
    if slope:
        work = replace(work, layers=(work.layers[1],))
    interface = None if slope else INCLUDES[includes]
    if interface == "copies" and not r.text("stat").startswith("min"):
        interface = "copies_typical"
    return Case(compact(work), chip, engines, r.number("clock_mhz"), interface)


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


def predict_case(case: Case, c: Numbers) -> float:
    """Predicted microseconds of a case with the constants ``c``."""
    timed = time_work(case.work, case.chip, c, engines=case.engines, clock_mhz=case.clock_mhz)
    total = sum(item.us for item in timed)
    if case.interface is None:
        return total
    return call_us(total, case.work, case.chip, c, case.interface, case.engines)


def predict(row: Mapping[str, Any]) -> float:
    """The predicted ``fit_us`` of one row with the columns of ``calibration.csv``, in microseconds.

    Builds the row's graph, times it with the shipped constants of the row's chip, and adds what ``includes`` says.
    """
    case = case_of(row)
    return predict_case(case, values(case.chip))
