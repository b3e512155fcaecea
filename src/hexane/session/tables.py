"""The tables of a run and a check, once for the terminal and the notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.counts import counted
from hexane.program.attribution import share_text
from hexane.session.agreement import nonfinite_counts
from hexane.session.seconds import seconds_text
from hexane.session.verdict import NOT_COMPARED

if TYPE_CHECKING:
    from hexane.session.check import CheckReport
    from hexane.session.network_run import NetworkRun
    from hexane.session.program_run import ProgramRun

Rows = list[list[Any]]
AGREEMENT_HEAD = [
    "output", "shape", "infinities", "NaN", "largest error", "mean error", "relative (rms)", "fp16 storage", "cosine",
]  # fmt: skip
AGREEMENT_RIGHT = tuple(range(2, 9))
OUTPUT_HEAD = ["output", "shape", "dtype", "smallest", "largest", "infinities", "NaN"]
OUTPUT_RIGHT = tuple(range(3, 7))


def run_title(session: NetworkRun) -> str:
    """Placement of the run."""
    place = f", on {session.device}" if session.level == "engine" else ""
    return f"{session.name} on {session.chip.name}, level {session.level}{place}{session.form}"


def run_facts(session: NetworkRun) -> Rows:
    """Verdict, inputs, program, arithmetic, times: a name and a text each."""
    rows: Rows = []
    if session.verdict is not None:
        rows.append(["verdict", session.verdict.text])
        if session.verdict.advice:
            rows.append(["", session.verdict.advice])
    if session.other is not None:
        rows.append(["as " + session.other.as_, session.other.text])
    if session.wanted is not None and session.wanted.instead:
        rows.append(["reference", session.wanted.instead])
    rows += [["input", note] for note in session.notes]
    if session.program is not None:
        stats = session.program.stats()
        rows.append(["program", _segments_text(stats)])
        rows.append(["on the engine", share_text(stats, f"{stats['macs']:,}")])
    if any(cost.error for cost in session.costs):
        rows.append(["accuracy", _accuracy_text(session)])
    if session.run is not None:
        names = session.run.hypotheses
        rules_note = "measured rules only" if not names else f"hypotheses: {', '.join(names)}"
        rows.append(["arithmetic", "the device's own" if names is None else rules_note])
    if session.emulator_bits is not None:
        rows.append(["emulator", "the same bits" if session.emulator_bits else "OTHER BITS than the device"])
    if session.autoscale is not None:
        rows.append(["autoscale", session.autoscale["text"]])
    rows.append(["time", seconds_text(session.seconds)])
    return rows


def program_facts(session: ProgramRun) -> Rows:
    """The same of a compiled program."""
    return [
        ["verdict", session.verdict.text if session.verdict else NOT_COMPARED],
        *(["input", note] for note in session.inputs.notes),
        ["program", _segments_text(session.stats)],
        ["time", seconds_text(session.seconds)],
    ]


def _segments_text(stats: Mapping[str, Any]) -> str:
    engine, host = stats["engine_segments"], stats["host_segments"]
    return f"{counted(stats['tasks'], 'task')} in {counted(engine, 'engine segment')}, {counted(host, 'host segment')}"


def output_rows(session: ProgramRun) -> Rows:
    """Every output of a compiled program, under ``OUTPUT_HEAD``."""
    return [
        [name, "x".join(map(str, a.shape)), a.dtype, *_range(a), *nonfinite_counts(a)]
        for name, a in session.execution.outputs.items()
    ]


def _range(array: np.ndarray) -> tuple[str, str]:
    """Smallest and largest finite value."""
    if array.dtype.kind not in "fiub" or not array.size:
        return "-", "-"
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    return (f"{finite.min():.5g}", f"{finite.max():.5g}") if finite.size else ("-", "-")


def _accuracy_text(session: NetworkRun) -> str:
    """Transformations that cost accuracy, and the error with them and without."""
    dear = ", ".join(str(cost) for cost in session.costs if cost.error)
    errors = [
        f"relative error of {row.name} {_figure(row.relative, '.2e')}, "
        f"{_figure(session.exact[row.name], '.2e')} with accuracy exact"
        for row in session.agreements
        if row.name in session.exact
    ]
    return "; ".join((dear, *errors))


def agreement_rows(session: NetworkRun) -> Rows:
    """Every output against float32, under ``AGREEMENT_HEAD``."""
    return [
        [a.name, "x".join(map(str, a.shape)), a.infinities, a.nans, _figure(a.largest, ".3g"),
         _figure(a.mean, ".3g"), _figure(a.relative, ".2e"), _figure(a.fp16_storage, ".2e"),
         _figure(a.cosine, ".6f")]
        for a in session.agreements
    ]  # fmt: skip


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


WHOSE = {"hexane": "hexane's program", "apple": "Apple's compiler, by its limits"}


def check_title(report: CheckReport) -> tuple[str, str]:
    """Ops on the engine in the program that was asked about, and the other one's count; both one line.

    The second is empty where nothing is known.
    """
    totals = report.totals
    whose = f"{report.chip} ({report.generation}), {WHOSE[report.question]}"
    if not report.known:
        return f"{report.chip} ({report.generation}): not known; {report.rows[0].reason}", ""
    first = f"{whose}: {totals['engine_ops']} of {counted(totals['ops'], 'op')} on the engine, {share_text(totals)}"
    if report.casts and report.question == "hexane":
        first += f"; the host casts {report.casts} more tensors beside the network's own ops"
    other = "apple" if report.question == "hexane" else "hexane"
    count = totals[f"{other}_ops"]
    if count is None:
        return first, f"hexane writes no programs for {report.chip}"
    return first, f"{WHOSE[other]}: {count} of {totals['ops']} (--as {other})"


def check_rows(report: CheckReport, *, host_only: bool = False) -> tuple[Sequence[str], Rows]:
    """Head and a row per op, all of the program that was asked about; the file's own nodes where it names them."""
    has_nodes = any(row.node or row.node_type for row in report.rows)
    rows = [
        [row.name, row.op, *([row.node, row.node_type] if has_nodes else []), row.place, row.evidence, row.reason]
        for row in report.rows
        if not host_only or row.place == "host"
    ]
    source = ["node", "node type"] if has_nodes else []
    return ["op", "type", *source, "place", "evidence", "reason"], rows


def elsewhere_rows(report: CheckReport) -> Rows:
    """Ops that are on the engine and that the other compiler leaves to the host: names, and why."""
    names: dict[str, list[str]] = {}
    for row in report.rows:
        if row.other:
            names.setdefault(row.other, []).append(row.name)
    return [[ops, why] for why, ops in names.items()]
