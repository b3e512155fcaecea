"""``hexane check``: what of a network runs on the engine, what does not, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexane.cli.compare import against, shown
from hexane.cli.console import print_json, print_rows, title
from hexane.cli.networks import open_network
from hexane.cli.options import AsOrBy, Baseline, Bind, Function, Shapes
from hexane.counts import counted
from hexane.errors import UsageError

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph import Graph
    from hexane.runtime.core_ml.plan import Compared
    from hexane.session.check import CheckReport


MOST_NAMES = 3
"""Ops of one remark that are listed by name."""


def command(
    model: Annotated[Path, typer.Argument(help="A network: .onnx, .mil, .mlpackage, .mlmodel, net.plist.")],
    chip: Annotated[str, typer.Option(help='Chips, separated by commas (M1,M4,"A17 Pro"), or all.')] = "M1",
    shape: Shapes = None,
    bind: Bind = None,
    function: Function = None,
    coreml: Annotated[
        bool, typer.Option("--coreml", help="Where Core ML would put each op; on a Mac, beside its own plan.")
    ] = False,
    as_: AsOrBy = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=FILE", help="Inputs whose ranges are held against every limit."),
    ] = None,
    random: Annotated[int | None, typer.Option(metavar="SEED", help="The same with inputs that are drawn.")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The same over a folder: every file is one set of inputs.")
    ] = None,
    host: Annotated[bool, typer.Option("--host", help="List only ops that stay on the host.")] = False,
    os: Annotated[str, typer.Option(help='The system a MIL text is for: "macOS 15", 26.3.1.')] = "",
    interface: Annotated[str, typer.Option(help="What takes a MIL text: in-memory, client, mle5.")] = "in-memory",
    surfaces: Annotated[str, typer.Option(help="Its surfaces: own_size, uniform_largest, unknown.")] = "own_size",
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Rewrite what a rule has a mechanical way out for, and try it with the inputs."),
    ] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The file that --fix writes.")] = None,
    baseline: Baseline = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-checks/1).")] = False,
) -> None:
    """Say for every op whether the engine runs it, and why; of a MIL text, every restriction that it breaks.

    Exit status 0: all fits in the program asked about (--as), 1: something does not; with --baseline 0: nothing is
    worse, 1: something is.
    """
    if model.suffix == ".mil":
        from hexane.cli.mil_text import Asked, check_text

        asked = Asked(model, chip, os, interface, surfaces, json)
        if fix:
            asked.fix(output)
            return
        findings, readable = check_text(asked)
        if not readable:
            raise typer.Exit(1)
    else:
        findings = None
    refused = any(finding.spoils for finding in findings or ())
    from hexane import chips
    from hexane.runtime.core_ml.plan import asked_here
    from hexane.session.check import check as checked
    from hexane.timing import place

    graph = open_network(model, function=function, shapes=shape or (), bind=bind or ())
    if fix:
        _fix(graph, model, chips.parse_list(chip), _given(graph, inputs or [], random), output, json)
        return
    values = seen_values(graph, inputs or [], random) if data is None else seen_over(graph, data)
    targets = chips.parse_list(chip)
    question = one_question(as_, targets)
    reports = [checked(graph, target, question, values) for target in targets]
    placements = [place(graph, report.chip) if coreml else None for report in reports]
    plans = [asked_here(graph, placement) if placement is not None else None for placement in placements]
    answer = _answer(model, reports, placements, plans, findings)
    compared = None if baseline is None else against(baseline, answer, model)
    if json:
        print_json({**answer, **({} if compared is None else {"baseline": compared.as_dict()})}, model)
    else:
        for report in reports:
            _show(report, host_only=host)
        for placement, plan in zip(placements, plans):
            if placement is not None and plan is not None:
                _show_placement(placement)
                _show_plan(*plan)
        if compared is not None:
            shown(compared)
    if compared is not None:
        raise typer.Exit(1 if compared.worse else 0)
    if refused or not all(report.fits for report in reports):
        raise typer.Exit(1)


def one_question(as_: str | None, targets: Sequence[Chip]) -> str:
    """Whose program one call is about: of chips that are treated differently Apple's."""
    from hexane.codegen.driver import GENERATION

    kinds = {target.generation_name == GENERATION for target in targets}
    return as_ or ("apple" if len(kinds) > 1 else "")


def _answer(
    model: Path,
    reports: Sequence[CheckReport],
    placements: Sequence[Any],
    plans: Sequence[Any],
    findings: Sequence[Any] | None,
) -> dict[str, Any]:
    """Plain data of all reports, schema ``hexane-checks/1``."""
    entries = []
    for report, placement, plan in zip(reports, placements, plans):
        entry = report.as_dict()
        if placement is not None:
            entry["coreml"] = [
                {"name": p.name, "op": p.op, "place": p.place, "reason": p.reason} for p in placement.ops
            ]
        if plan is not None:
            entry["coreml_plan"] = [asdict(row) | {"agrees": row.agrees} for row in plan[0]]
            entry["coreml_plan_missing"] = plan[1] or None
        entries.append(entry)
    answer: dict[str, Any] = {"schema": "hexane-checks/1", "model": str(model), "reports": entries}
    if findings is not None:
        answer["findings"] = [finding.as_dict() for finding in findings]
    return answer


def seen_values(graph: Graph, inputs: list[str], seed: int | None) -> dict[str, Any] | None:
    """Every value of a network in float32 on the inputs of the command; None where it has none."""
    from hexane.numerics.insight import every_value

    arrays = _given(graph, inputs, seed)
    return None if arrays is None else {**arrays, **every_value(graph, arrays)}


MOST_SETS, MOST_ELEMENTS = 64, 1 << 28
"""Sets of inputs of a folder that are looked at, and numbers that are kept of them in all."""


def seen_over(graph: Graph, folder: Path) -> dict[str, Any]:
    """Every value over the files of a folder, each one set of inputs, one behind another."""
    import numpy as np

    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    if not files:
        raise UsageError(
            "--data wants a folder of inputs", where=str(folder), hint="one .npz (or .npy, picture) per set"
        )
    sets: list[dict[str, Any]] = []
    for path in files[:MOST_SETS]:
        sets.append(seen_values(graph, [str(path)], None) or {})
        if sum(array.size for array in sets[-1].values()) * (len(sets) + 1) > MOST_ELEMENTS:
            break
    if len(sets) < len(files):
        typer.echo(f"{len(sets)} of {len(files)} sets of inputs are looked at", err=True)
    stacked = {name: [np.atleast_1d(one[name]) for one in sets] for name in sets[0]}
    return {name: np.concatenate(arrays) for name, arrays in stacked.items()}


def _given(graph: Graph, inputs: list[str], seed: int | None) -> dict[str, Any] | None:
    from hexane.program import input_ports
    from hexane.session.inputs import gather

    if not inputs and seed is None:
        return None
    return gather(input_ports(graph), inputs, normalize=None, seed=seed, graph=graph).arrays


def _fix(
    graph: Graph, model: Path, targets: Sequence[Chip], arrays: dict[str, Any] | None, output: Path | None, json: bool
) -> None:
    """Write the network with every remedy done, for the first chip, and say what it is worth there."""
    from hexane.session.fix import fixed

    target = output or model.with_name(f"{model.stem}.fixed{model.suffix}")
    if target.absolute() == model.absolute():
        raise UsageError("--fix writes a new file", hint="name another one with -o")
    result = fixed(graph, targets[0], arrays)
    if result.done:
        result.graph.save(target)
    if json:
        answer = {"schema": "hexane-fix/1", "model": str(model), "chip": targets[0].name}
        print_json({**answer, "output": str(target) if result.done else None, **result.as_dict()})
        return
    rules = ", ".join(f"{rule} {count}x" for rule, count in result.done.items())
    typer.echo(f"{target}: {rules}" if rules else "nothing has a mechanical fix; no file is written")
    if result.idle:
        typer.echo(f"given up, since it helps no output: {', '.join(result.idle)}")
    if result.left:
        typer.echo(f"left: {', '.join(result.left)} (docs/errata.md)")
    if result.before is not None and result.after is not None:
        typer.echo(
            f"as Apple's compiler lowers it on {targets[0].name}, off by {result.before:.2g}, fixed {result.after:.2g}"
        )
    else:
        typer.echo("not tried: give --input NAME=FILE or --random SEED")


def _show(report: CheckReport, *, host_only: bool) -> None:
    from hexane.session.tables import check_rows, check_title, elsewhere_rows

    first, second = check_title(report)
    title(first)
    if not second:
        return
    typer.echo(second)
    head, rows = check_rows(report, host_only=host_only)
    print_rows(rows, list(head))
    if report.advice:
        title("What would bring more onto the engine (`hexane estimate` says what it would save)")
        print_rows(
            [[f"{len(item['ops'])} x {item['op']}", item["advice"]] for item in report.advice], ["ops", "change"]
        )

    elsewhere = elsewhere_rows(report)
    if elsewhere:
        title("On the engine here, and not there")
        print_rows([[_names(names), why] for names, why in elsewhere], ["ops", "why"])
    _show_remarks(report)
    if report.ranges:
        title("Right for these numbers only; `hexane run` on your own inputs compares with float32")
        print_rows([[_names(names), numbers] for numbers, names in report.ranges.items()], ["ops", "numbers"])


def _show_remarks(report: CheckReport) -> None:
    """Published failures of ops that are on the engine, each rule once."""
    rows: dict[tuple[str, str], list[Any]] = {}
    for row in report.rows:
        for remark in row.remarks:
            if remark.effect != "on the host":
                rows.setdefault((remark.rule, remark.says), [remark, []])[1].append(row.name)
    if rows:
        title("What a phone is known to make of it (docs/errata.md)")
        print_rows(
            [[r.rule, _names(names), f"{r.effect} ({r.status})", r.says, str(r.found), r.remedy]
             for r, names in rows.values()],
            ["rule", "ops", "effect", "what", "here", "remedy"],
        )  # fmt: skip


def _names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:MOST_NAMES])
    return listed if len(names) <= MOST_NAMES else f"{listed} and {len(names) - MOST_NAMES} more"


def _show_placement(placement: object) -> None:
    ops = placement.ops  # type: ignore[attr-defined]
    title(f"Core ML on {placement.chip.name}: {placement.engine_ops} of {counted(len(ops), 'op')} on the engine")  # type: ignore[attr-defined]
    print_rows([[p.name, p.op, p.place, p.reason] for p in ops], ["op", "type", "place", "why"])


def _show_plan(rows: Sequence[Compared], missing: str) -> None:
    if missing:
        typer.echo(f"predicted; Core ML itself was not asked: {missing}")
        return
    agree = sum(row.agrees for row in rows)
    title(f"Core ML's own plan on this Mac: {agree} of {counted(len(rows), 'op')} placed as predicted")
    print_rows(
        [
            [row.name, row.op, row.predicted, row.planned, ", ".join(row.supported),
             "-" if row.cost is None else f"{row.cost:.1%}"]
            for row in rows
        ],
        ["op", "type", "predicted", "planned", "could", "share of the cost"], right=(5,),
    )  # fmt: skip
