"""``hexane probe``: ask a device the open questions, and read what its answers say of our hypotheses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexane.cli.console import print_json, print_rows, title
from hexane.cli.engine_files import SegmentNumber, engine_program
from hexane.cli.progress import Bar
from hexane.errors import UsageError
from hexane.files import require_writable

if TYPE_CHECKING:
    from hexane.studies.probe.read import ProbeReport


def command(
    program: Annotated[
        Path | None, typer.Argument(metavar="[PROGRAM]", help="With --sweep: an engine program (.hwx, .anec).")
    ] = None,
    device: Annotated[str, typer.Option(help="The device to ask, as hexane.devices() names it.")] = "",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The file of answers to write.")] = None,
    read: Annotated[Path | None, typer.Option("--read", metavar="FILE", help="Read a file of answers.")] = None,
    chip: Annotated[str, typer.Option(help="The chip that the device is; default: what the machine says.")] = "",
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Ask this question only; repeat.")] = None,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="TASK.FIELD", help="Run PROGRAM with other values of a field: task[0].PE.Cfg.OpMode."),
    ] = None,
    values: Annotated[
        str, typer.Option(help="The values: 1,2,0x10, 0..7, names, or all; an error lists what the field takes.")
    ] = "all",
    random: Annotated[int, typer.Option(metavar="SEED", help="What the inputs of a sweep are drawn from.")] = 1,
    segment: SegmentNumber = None,
    listed: Annotated[bool, typer.Option("--list", help="List the questions and ask nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-probe-reading/1).")] = False,
) -> None:
    """Run small programs on a device, one per open question; read which hypotheses their bits leave standing.

    Exit status 0: asked (or nothing contradicts what hexane assumes), 1: a program did not run (or a rule is
    refuted).

    --sweep never sends a device what the emulator refuses, runs the program as it was after each value, and stops
    at the first sign that the engine is not as before.
    """
    if sweep is not None or program is not None:
        if sweep is None or program is None or output or read or only or listed:
            raise UsageError("a sweep takes a program and a field", hint="hexane probe PROGRAM --sweep TASK.FIELD")
        _sweep(program, segment, sweep, values, device or "emulator", random, json=json)
        return
    if sum((bool(device), read is not None, listed)) != 1:
        raise UsageError("ask or read", hint="--device D -o FILE, or --read FILE, or --list")
    if listed:
        _list(chip or "M1", json=json)
    elif read is not None:
        if output is not None or only or chip:
            raise UsageError("-o, --chip and --only are for asking", hint="hexane probe --read FILE")
        _read(read, json=json)
    else:
        if output is None:
            raise UsageError("the answers need a file", hint="-o FILE")
        _ask(device, chip, output, only or [], json=json)


def _sweep(path: Path, segment: int | None, field: str, values: str, device: str, seed: int, *, json: bool) -> None:
    from hexane.emulator.files import drawn_inputs
    from hexane.studies.probe.sweep import NOT_ASKED, OTHER, sweep_field, values_of

    image = engine_program(path, segment)
    numbers = values_of(image, field, values)
    with Bar(quiet=json) as bar:
        bar.stage("values", len(numbers))
        result = sweep_field(image, field, numbers, drawn_inputs(image, seed), device, on_row=lambda _: bar.step())
    if json:
        print_json(result.as_dict(), path)
    else:
        title(f"{result.field} on {result.device}, {result.before} before")
        rows = [
            [row.value, row.name, row.state, row.why or (f"{row.differ} of {row.of}" if row.state == OTHER else "")]
            for row in result.rows
            if row.state != NOT_ASKED
        ]
        print_rows(rows, ["value", "", "bits", "why, or how many differ"], right=(0,))
        if result.stopped:
            typer.echo(f"stopped {result.stopped}; {sum(r.state == NOT_ASKED for r in result.rows)} values not asked")
    if result.stopped:
        raise typer.Exit(1)


def _list(chip: str, *, json: bool) -> None:
    from hexane.studies.probe.questions import not_asked, questions

    known_questions = questions(chip)
    if json:
        entries = [{"name": q.name, "kind": q.kind, "asks": list(q.asks), "about": q.about} for q in known_questions]
        silent = not_asked(chip)
        print_json({"schema": "hexane-probe-questions/1", "chip": chip, "questions": entries, "not_asked": silent})
        return
    print_rows(
        [[q.name, q.kind, ", ".join(q.asks), q.about] for q in known_questions], ["question", "kind", "asks", "about"]
    )


def _ask(device: str, chip: str, output: Path, only: list[str], *, json: bool) -> None:
    from hexane.runtime.devices import device_named
    from hexane.runtime.own_chip import chip_of
    from hexane.studies.probe.ask import NOT_ASKED, ask

    require_writable(output)
    device_named(device)  # before any work
    with Bar(quiet=json) as bar:
        bar.stage("questions", None)
        answers = ask(device, chip or chip_of(device), only=only, on_answer=lambda *_: bar.step())
    answers.save(output)
    silent = [answer for answer in answers.answers if answer.error]
    failed = [answer for answer in silent if not answer.error.startswith(NOT_ASKED)]
    if json:
        rows = [{"question": a.question, "error": a.error, "seconds": a.seconds} for a in answers.answers]
        print_json({"schema": "hexane-probe-asked/1", "device": device, "chip": answers.chip, "answers": rows})
    else:
        if silent:
            print_rows([[a.question, a.error] for a in silent], ["no answer", "why"])
        typer.echo(f"{len(answers.answers) - len(silent)} of {len(answers.answers)} questions answered: {output}")
        typer.echo(f"read them with: hexane probe --read {output}")
    if failed:
        raise typer.Exit(1)


def _read(path: Path, *, json: bool) -> None:
    from hexane.studies.probe.answers import load
    from hexane.studies.probe.read import read

    report = read(load(path))
    if json:
        print_json(report.as_dict())
    else:
        _show(report)
    if not report.good:
        raise typer.Exit(1)


def _show(report: ProbeReport) -> None:
    answers = report.answers
    title(f"Answers of {answers.device} ({answers.chip}), asked by hexane {answers.version} on {answers.system}")
    if report.note:
        typer.echo(report.note)
    print_rows([[v.hypothesis, v.word, v.reason] for v in report.verdicts], ["hypothesis", "verdict", "why"])
    recipes: list[list[Any]] = [
        [r.question.name, "as predicted" if r.as_predicted else r.why or f"{r.differs} of {r.of} values differ"]
        for r in report.recipes
    ]
    if recipes:
        title("Recipes that rest on inference")
        print_rows(recipes, ["recipe", "the device's bits"])
