"""The tables of a run and a check, once for the terminal and the notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hexane.runtime.kernels import seconds_text

if TYPE_CHECKING:
    from hexane.report.check import CheckReport
    from hexane.report.session import Session

Rows = list[list[Any]]
AGREEMENT_HEAD = [
    "output", "shape", "infinities", "NaN", "largest error", "mean error", "relative (rms)", "fp16 storage", "cosine",
]  # fmt: skip
AGREEMENT_RIGHT = tuple(range(2, 9))


def run_title(done: Session) -> str:
    """What ran where."""
    place = f", on {done.device}" if done.level == "engine" else ""
    return f"{done.name} on {done.chip.name}, level {done.level}{place}{done.form}"


def run_facts(done: Session) -> Rows:
    """Verdict, inputs, program, arithmetic, times: a name and a text each."""
    rows: Rows = []
    if done.verdict is not None:
        rows.append(["verdict", done.verdict.text])
        if done.verdict.advice:
            rows.append(["", done.verdict.advice])
    if done.other is not None:
        rows.append(["as " + done.other.as_, done.other.text])
    if done.wanted is not None and done.wanted.instead:
        rows.append(["reference", done.wanted.instead])
    rows += [["input", note] for note in done.notes]
    if done.program is not None:
        stats = done.program.stats()
        rows.append(["program", f"{stats['tasks']} tasks in {stats['engine_segments']} engine segments, "
                                f"{stats['host_segments']} host segments"])  # fmt: skip
        rows.append(["on the engine", f"{stats['macs_on_engine']:.1%} of {stats['macs']:,} multiply-accumulates"])
    if done.run is not None:
        names = done.run.hypotheses
        known = "measured rules only" if not names else f"hypotheses: {', '.join(names)}"
        rows.append(["arithmetic", "the device's own" if names is None else known])
    if done.emulator_bits is not None:
        rows.append(["emulator", "the same bits" if done.emulator_bits else "OTHER BITS than the device"])
    if done.autoscale is not None:
        rows.append(["autoscale", done.autoscale["text"]])
    rows.append(["time", seconds_text(done.seconds)])
    return rows


def agreement_rows(done: Session) -> Rows:
    """Every output against float32, under ``AGREEMENT_HEAD``."""
    return [
        [a.name, "x".join(map(str, a.shape)), a.infinities, a.nans, _figure(a.largest, ".3g"),
         _figure(a.mean, ".3g"), _figure(a.relative, ".2e"), _figure(a.fp16_storage, ".2e"),
         _figure(a.cosine, ".6f")]
        for a in done.agreements
    ]  # fmt: skip


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def check_title(report: CheckReport) -> tuple[str, str]:
    """What a chip does of a network, and what each compiler makes of it; the second is empty where nothing is known."""
    totals = report.totals
    how = "as compiled" if report.compiled else "by the limits of its generation"
    ours = "writes no programs for it" if totals["hexane_ops"] is None else f"{totals['hexane_ops']} of {totals['ops']}"
    if not report.known:
        return f"{report.chip} ({report.generation}): not known; {report.rows[0].reason}; hexane {ours}", ""
    macs = f"{totals['macs_on_engine']:.1%} of the multiply-accumulates" if totals["macs"] else "nothing to multiply"
    ops = f"{totals['engine_ops']} of {totals['ops']} ops on the engine"
    apple = f"Apple's compiler: {totals['apple_ops']} of {totals['ops']} ops on the engine; hexane: {ours}"
    return f"{report.chip} ({report.generation}, {how}): {ops}, {macs}", apple


def check_rows(report: CheckReport, *, host_only: bool = False) -> tuple[Sequence[str], Rows]:
    """Head and a row per op; the file's own nodes where it names them."""
    named = any(row.node or row.node_type for row in report.rows)
    rows = [
        [row.name, row.op, *([row.node, row.node_type] if named else []), row.apple, row.hexane, row.evidence,
         row.reason]
        for row in report.rows
        if not host_only or row.place == "host"
    ]  # fmt: skip
    source = ["node", "node type"] if named else []
    return ["op", "type", *source, "Apple's compiler", "hexane", "evidence", "reason"], rows
