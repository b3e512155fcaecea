"""``hexane estimate``: time, energy and what limits them, for chips that one need not own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexane.cli.compare import against, shown
from hexane.cli.console import print_json, print_rows, title
from hexane.cli.options import As, Baseline, Bind, Overwrite, Shapes, parse_bindings, parse_shapes, refuse_overwriting
from hexane.counts import counted
from hexane.errors import UsageError
from hexane.files import write_whole

if TYPE_CHECKING:
    from hexane.session.baseline import Comparison
    from hexane.session.how_long import HowLong
    from hexane.timing import Estimate


def command(
    model: Annotated[Path, typer.Argument(help="A network (.onnx, .mil, .mlpackage, .plist) or a compiled program.")],
    chip: Annotated[
        str | None, typer.Option(help="Chips, separated by commas, or all; left out: a program's own, else M1.")
    ] = None,
    interface: Annotated[
        str, typer.Option(help="A call: evaluate, copies, copies_typical, coreml, linux or task.")
    ] = "evaluate",
    path: Annotated[
        bool,
        typer.Option("--path", help="The call by every dispatch path: task, submit, evaluate, copies, coreml, linux."),
    ] = False,
    batch: Annotated[int | None, typer.Option(help="What if: this many times the batch.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="What if: weights as palette4, int8, int4, sparse:0.5 ... (`hexane compress`).")
    ] = None,
    resolution: Annotated[float | None, typer.Option(help="What if: height and width times this factor.")] = None,
    shape: Shapes = None,
    bind: Bind = None,
    as_: As = None,
    ops: Annotated[bool, typer.Option("--ops", help="One row per layer or task.")] = False,
    coreml: Annotated[bool, typer.Option("--coreml", help="Where Core ML would put each op.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Write a timeline for chrome://tracing or Perfetto.")] = None,
    roofline: Annotated[Path | None, typer.Option(help="Write a roofline plot per chip into this folder.")] = None,
    overwrite: Overwrite = False,
    baseline: Baseline = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-estimate/1).")] = False,
) -> None:
    """Estimate time and energy of a network or a compiled program: one answer, with its parts.

    Of a network both what Apple's compiler would reach and what hexane's own program takes, and why they differ; with
    --as that of one of the two.

    The model is mechanistic and calibrated on published measurements; docs/timing.md says how far to trust it.
    """
    from hexane import chips
    from hexane.timing import estimates
    from hexane.timing.job import opened, own_chip

    refuse_overwriting(trace, [model, *(bind or ())], overwrite=overwrite)
    thing = opened(model, shapes=parse_shapes(shape or ()) or None, bind=parse_bindings(bind or ()) or None)
    targets = chips.parse_list(chip or own_chip(thing))
    options: dict[str, Any] = {"batch": batch, "weights": weights, "resolution": resolution, "as_": as_ or ""}
    results = estimates(thing, targets, interface=interface, **options)
    if trace is not None:
        _write_trace(results[0], trace)
    if roofline is not None:
        from hexane.report.roofline import save_roofline

        for target in targets:
            save_roofline(thing, target, roofline)
    changed = batch is not None or weights is not None or resolution is not None
    whole = hasattr(thing, "functions") and not changed and as_ is None
    both = _both(thing, results, targets, interface) if whole else []
    answer: dict[str, Any] = {"schema": "hexane-estimates/1", "as": as_}
    answer["estimates"] = [result.as_dict() for result in results]
    answer["how_long"] = [one.as_dict() for one in both]
    by_path = _paths(thing, targets, options) if path else []
    if path:
        members = ("chip", "interface", "latency_us", "latency_range_us", "parts")
        answer["paths"] = [{key: result.as_dict()[key] for key in members} for result in by_path]
    compared = None if baseline is None else against(baseline, answer, model)
    if json:
        print_json({**answer, **({} if compared is None else {"baseline": compared.as_dict()})}, model)
        _end(compared)
        return
    _print(results, both, changed)
    if path:
        _print_paths(by_path)
    if ops:
        _print_ops(results[0])
    if coreml:
        _print_placement(thing, targets[0])
    if compared is not None:
        shown(compared)
    _end(compared)


def _paths(thing: Any, targets: list[Any], options: dict[str, Any]) -> list[Estimate]:
    """The same network by every interface."""
    from hexane.timing import estimates
    from hexane.timing.call import INTERFACES

    return [result for interface in INTERFACES for result in estimates(thing, targets, interface=interface, **options)]


def _print_paths(results: list[Estimate]) -> None:
    from hexane.timing.call import INTERFACES
    from hexane.timing.tables import HEAD, RIGHT, parts_row

    title("Dispatch paths")
    print_rows([parts_row(result.interface, result) for result in results], [HEAD[0], "path", *HEAD[2:]], right=RIGHT)
    for interface, text in INTERFACES.items():
        typer.echo(f"{interface}: {text}")


def _end(compared: Comparison | None) -> None:
    """Exit status 1 where a baseline was given and this answer is worse."""
    if compared is not None and compared.worse:
        raise typer.Exit(1)


def _both(graph: Any, results: list[Estimate], targets: list[Any], interface: str) -> list[HowLong]:
    from hexane.session.how_long import how_long

    return [how_long(graph, result, target, interface) for result, target in zip(results, targets)]


def _print(results: list[Estimate], both: list[HowLong], changed: bool) -> None:
    from hexane.session.how_long import APPLE, HEXANE
    from hexane.timing.tables import HEAD, RIGHT, parts_row

    rows = []
    for number, result in enumerate(results):
        network = result.basis == "network"
        rows.append(parts_row(APPLE if network else HEXANE if result.basis == "program" else "the file", result))
        program = both[number].program if both else None
        if program is not None:
            rows.append(parts_row(HEXANE, program))
    for one in both:
        typer.echo(one.answer)
    print_rows(rows, HEAD, right=RIGHT)
    if changed:
        typer.echo("note: what-if changes apply to the network; no program was compiled for them")
    programs = [one.program for one in both if one.program is not None]
    said_of: dict[str, list[str]] = {}  # note -> chips that it holds for: one line per note, not one per chip
    for r in [*results, *programs]:
        for note in r.notes:
            said_of.setdefault(note, []).append(r.chip)
    for note, names in said_of.items():
        typer.echo(f"note: {', '.join(dict.fromkeys(names))}: {note}")


def _print_ops(result: Estimate) -> None:
    from hexane.timing.tables import LAYER_HEAD, LAYER_RIGHT, layer_rows

    title(f"layers on {result.chip}")
    print_rows(layer_rows(result), LAYER_HEAD, right=LAYER_RIGHT)


def _print_placement(thing: Any, chip: Any) -> None:
    from hexane.timing import place

    if not hasattr(thing, "functions"):
        raise UsageError("Core ML places networks, not compiled programs", hint="give a model file with --coreml")
    placement = place(thing, chip)
    title(
        f"Core ML on {placement.chip.name}: {placement.engine_ops} of {counted(len(placement.ops), 'op')} on the engine"
    )
    rows = [
        [p.name, p.op, p.place, "" if p.engine_us is None else f"{p.engine_us:.1f}", f"{p.cpu_us:.1f}", p.reason]
        for p in placement.ops
    ]
    print_rows(rows, ["op", "type", "place", "engine us", "cpu us", "why"], right=(3, 4))


def _write_trace(result: Estimate, path: Path) -> None:
    from hexane.formats.strict_json import strict_json
    from hexane.timing.trace import chrome_trace

    write_whole(path, strict_json(chrome_trace(result)).encode())
