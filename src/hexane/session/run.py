"""The main job: a network through the engine. Load, compile, run, compare, look into every layer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hexane import chips
from hexane.chips import Chip
from hexane.codegen.targets import target_of
from hexane.counts import counted
from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.graph import Graph
from hexane.numerics import evaluate
from hexane.numerics.insight import Insight, examine
from hexane.numerics.stored import stored_in_fp16
from hexane.passes.apple_forms import applied
from hexane.program import Program
from hexane.program.attribution import share_text
from hexane.program.run import Device
from hexane.restrictions.remarks import remarks
from hexane.session.agreement import agreements, beside_fp16
from hexane.session.check import check, check_program
from hexane.session.execute import execute
from hexane.session.form import DEFAULT, Form
from hexane.session.network_run import NAMES, NetworkRun, Other
from hexane.session.references import wanted
from hexane.session.scaling import apply_autoscale, finish, gain_of_scaling
from hexane.session.seconds import kernel_seconds, without_kernels
from hexane.session.verdict import CLOSE, SAME, advice_for, storage_loses, unseen, verdict_of, word_for

LEVELS = ("engine", "graph")
SHORT = 5e-3
"""Seconds of a stage that are no time worth a word."""


class Progress(Protocol):
    """Listener to a session's work: a stage by name, with how many steps it has, and each step."""

    def stage(self, name: str, steps: int | None = None) -> None: ...

    def step(self) -> None: ...


class Silent:
    """Progress that nobody watches."""

    def stage(self, name: str, steps: int | None = None) -> None:
        pass

    def step(self) -> None:
        pass


def run_network(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    *,
    name: str,
    chip: str | Chip = "M1",
    level: str = "engine",
    model: Path | None = None,
    compare: str = "auto",
    insight: bool = False,
    autoscale: bool = False,
    notes: Sequence[str] = (),
    progress: Progress | None = None,
    device: Device | None = None,
    form: Form = DEFAULT,
) -> NetworkRun:
    """Take a network through the engine.

    Parameters
    ----------
    graph, inputs : the network and its inputs, by name.
    level : "engine" runs the compiled tasks on the emulator (chips that hexane compiles for), "graph" the engine's
        arithmetic on the network (any chip).
    model : the file, for onnxruntime.
    compare : "auto", "onnxruntime", "reference" or "none".
    device : where level "engine" runs; None is the emulator.
    insight : examine every layer, count the arithmetic's events, place every op, estimate the time; the emulator runs
        the program too, where the device is another.
    autoscale : scale layers by powers of two where products are lost (``hexane.numerics.autoscale``).
    form : the dialect, and what is left out.

    Raises UnsupportedError for level "engine" on a chip without code generation (as Apple's compiler lowers it, level
    "graph" takes its place), UsageError for wrong arguments.
    """
    show = progress or Silent()
    target = chips.get(chip)
    if level not in LEVELS:
        raise UsageError(f"there is no level {level!r}", hint="engine or graph")
    if level == "engine" and form.as_ == "apple" and not _is_written_for(target, form):
        level, notes = "graph", (*notes, f"level graph: no program is written for {target.name}")
    session = NetworkRun(
        name, target, level, graph, dict(inputs), tuple(notes), device.title if device else "emulator", form
    )
    if level == "engine" or _is_written_for(target, form):
        show.stage("compile")
        session.program = _timed(session, "compile", lambda: form.compiled(graph, target))
    if autoscale:
        show.stage("autoscale")
        _timed(session, "autoscale", lambda: apply_autoscale(session))
    _run(session, show, observe=insight, device=device)
    if autoscale:
        finish(session)
    if form.as_ == "apple" or (form == Form() and not autoscale):
        _timed(session, "other answer", lambda: _answer_otherwise(session))
        if session.seconds["other answer"] < SHORT:
            del session.seconds["other answer"]
    if compare != "none":
        show.stage("compare")
        reference = (lambda: session.reference) if insight or autoscale else None
        session.wanted = _timed(session, "compare", lambda: wanted(compare, model, graph, session.inputs, reference))
        assert session.wanted is not None
        session.agreements = agreements(session.outputs, session.wanted.outputs, graph)
        show.stage("compare with fp16 storage")
        fp16_values = _timed(session, "fp16 storage", lambda: _stored(session))
        session.agreements = beside_fp16(session.agreements, fp16_values, session.wanted.outputs, graph)
        if any(cost.error for cost in session.costs):
            show.stage("run the exact form")
            session.exact = _timed(session, "exact form", lambda: _exact(session))
    session.verdict = verdict_of(session.agreements, session.wanted.by) if session.wanted else unseen(session.outputs)
    if session.verdict is not None and not session.verdict.good:
        show.stage("look for the cause")
        _timed(session, "cause", lambda: _look_for_the_cause(session))
    if insight:
        show.stage("examine layers")
        _timed(session, "examine", lambda: _examine(session))
    return session


def _answer_otherwise(session: NetworkRun) -> None:
    """The other compiler's answer, by the arithmetic on the graph, where Apple's forms of the network's ops differ."""
    forms = applied(session.graph, session.chip)
    if not forms:
        return
    form = Form() if session.form.as_ == "apple" else Form("apple")
    does = tuple(row.does for row in forms)
    if not _matter(session, {row.rule for row in forms}):
        session.other = Other(form.as_, does, {}, "", 0.0, 0.0, 0)
        return
    try:
        outputs = evaluate(form.canonical(session.graph, session.chip), session.inputs, session.chip)
    except HexaneError as error:
        session.notes = (*session.notes, f"{NAMES[form.as_]}: {error.message}")
        return
    rows = [(name, *_difference(session.outputs[name], array)) for name, array in outputs.items()]
    worst = max(rows, key=lambda row: (row[3], row[1]), default=("", 0.0, 0.0, 0))
    session.other = Other(form.as_, does, outputs, *worst)


BY_VALUES = frozenset(("O15", "N2", "N7"))
"""Rules whose forms give the same numbers while no value is beyond their limit."""


def _matter(session: NetworkRun, rules: set[str]) -> bool:
    """True where a form can change the answer on these inputs: held against the float32 values, which cost little."""
    if not rules <= BY_VALUES:
        return True
    remarks_by_op = remarks(session.graph, session.chip, {**session.inputs, **session.reference})
    return any(remark.rule in rules for rows in remarks_by_op.values() for remark in rows)


def _difference(a: np.ndarray, b: np.ndarray) -> tuple[float, float, int]:
    """(relative difference, largest difference, values that are finite in one alone) of two answers."""
    if a.dtype.kind not in "fiub" or a.shape != b.shape or not a.size:
        return 0.0, 0.0, 0
    one, two = a.astype(np.float64), b.astype(np.float64)
    both = np.isfinite(one) & np.isfinite(two)
    nonfinite = int(np.count_nonzero(np.isfinite(one) != np.isfinite(two)))
    gap, size = np.abs(one[both] - two[both]), max(np.linalg.norm(one[both]), np.linalg.norm(two[both]))
    return float(np.linalg.norm(gap) / size) if size else 0.0, float(gap.max(initial=0.0)), nonfinite


def _stored(session: NetworkRun) -> dict[str, np.ndarray]:
    """The network with every tensor stored in fp16; nothing where the reference cannot compute it."""
    try:
        form = session.program.graph if session.program is not None and session.autoscale is None else None
        if form is None:
            form = session.form.canonical(session.graph, session.chip)
        return stored_in_fp16(form, session.inputs)
    except HexaneError:
        return {}


def _exact(session: NetworkRun) -> dict[str, float | None]:
    """The relative error of every output with accuracy "exact", by the arithmetic on the graph."""
    assert session.wanted is not None
    graph = replace(session.form, accuracy="exact").canonical(session.graph, session.chip)
    outputs = evaluate(graph, session.inputs, session.chip)
    return {row.name: row.relative for row in agreements(outputs, session.wanted.outputs, session.graph)}


def _is_written_for(chip: Chip, form: Form) -> bool:
    try:
        target_of(chip, form.dialect)
    except UnsupportedError:
        return False
    return True


def _timed(session: NetworkRun, stage: str, work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = work()
    session.seconds[stage] = time.perf_counter() - start
    return result


def _first_answer(session: NetworkRun, program: Program) -> str:
    """Facts of a program before it has run: how much of it the engine does, and how long that would take."""
    stats = program.stats()
    if not stats["tasks"]:
        return "nothing of it is for the engine"
    summary = f"{counted(stats['tasks'], 'task')} on the engine, {share_text(stats)}"
    return f"{summary}, {session.timed.latency_us / 1e3:.2f} ms a call predicted on {program.chip}"


def _run(session: NetworkRun, show: Progress, *, observe: bool, device: Device | None) -> None:
    if session.level == "engine":
        assert session.program is not None
        program = session.program
        tasks = sum(len(image.tasks) for image in program.images)
        steps = tasks + sum(s.image is None for s in program.segments)
        show.stage(f"run on {session.device} ({_first_answer(session, program)})", steps)
        with kernel_seconds() as compiled:
            session.run = _timed(
                session, "run",
                lambda: execute(program, session.inputs, on_task=lambda _: show.step(), observe=observe, device=device),
            )  # fmt: skip
            session.outputs = session.run.outputs
            if observe and not session.run.observed:
                show.stage("run on the emulator", tasks)
                session.run = _timed(
                    session, "emulator",
                    lambda: execute(program, session.inputs, on_task=lambda _: show.step(), observe=True),
                )  # fmt: skip
                session.emulator_bits = _same_bits(session.outputs, session.run.outputs)
        session.seconds = without_kernels(session.seconds, compiled())
        return
    show.stage("run with the engine's arithmetic")
    program_or_none = session.program
    if program_or_none is not None:
        session.outputs = _timed(session, "run", lambda: program_or_none.run(session.inputs, level="graph"))
    else:
        (part,) = session.parts()
        session.outputs = _timed(session, "run", lambda: evaluate(part[1], session.inputs, session.chip))


def _same_bits(outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    return outputs.keys() == expected.keys() and all(
        outputs[name].tobytes() == expected[name].tobytes() for name in expected
    )


def _look_for_the_cause(session: NetworkRun) -> None:
    """Complete a bad verdict with one line of what to do, from the error of every layer."""
    assert session.verdict is not None
    wrong = [row for row in session.agreements if word_for(row) not in (SAME, CLOSE)]
    if session.wanted is not None and all(row.is_of_reference for row in wrong):
        line = "WRONG: float32 itself gives NaN or infinities: the fault is in the network or its inputs"
    else:
        insight = _insight(session)
        first = insight.first_wrong
        line = advice_for(
            session.verdict.word, scaling=gain_of_scaling(session, insight),
            first_wrong=first.name if first else "", overflows=bool(first and first.nonfinite),
            storage=storage_loses(session.agreements),
        )  # fmt: skip
    session.verdict = replace(session.verdict, advice=line)


def _insight(session: NetworkRun) -> Insight:
    if session.insight is None:
        results = session.run.convolutions if session.run is not None else None
        session.insight = examine(session.parts(), session.inputs, session.reference, session.chip, results)
        if session.run is not None:
            session.run.convolutions = None
    return session.insight


def _examine(session: NetworkRun) -> None:
    session.placement = (
        check_program(session.graph, session.program) if session.program else check(session.graph, session.chip)
    )
    _insight(session)
    try:
        session.estimate = session.timed
    except HexaneError as error:
        session.notes = (*session.notes, f"no estimate: {error.message}")
