"""``hexane compile``: a network to engine programs."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hexane
from hexane.cli.console import print_json, print_rows, title
from hexane.cli.networks import open_network
from hexane.cli.options import (
    Accuracy,
    As,
    Bind,
    Dialect,
    Function,
    Overwrite,
    Shapes,
    Without,
    ident_options,
    refuse_overwriting,
    weight_files,
)
from hexane.counts import counted
from hexane.errors import UsageError
from hexane.files import plain_errors, require_writable, write_whole

if TYPE_CHECKING:
    from hexane.lowering.accuracy import AccuracyCost


def command(
    model: Annotated[Path, typer.Argument(help="A network: .onnx, .mil, .mlpackage, .mlmodel, net.plist.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write: .hwx, .anec or .hexane.")
    ] = None,
    chip: Annotated[str | None, typer.Option(help="The chip to compile for; M1 where nothing is said.")] = None,
    target_arch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The same by the name that Apple's compiler takes: h13, h13g, h16s ..."),
    ] = None,
    dialect: Dialect = "default",
    as_: As = None,
    without: Without = None,
    accuracy: Accuracy = "exact",
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse inferred rules, and ops that would go to the host.")
    ] = False,
    shape: Shapes = None,
    bind: Bind = None,
    function: Function = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="A weight file that the network names elsewhere; repeatable."),
    ] = None,
    ident: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=TEXT", help="What the program says of itself: input_path, output_path, target; repeatable."
        ),
    ] = None,
    kernel_names: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Names of the kernels, in task order, with commas.")
    ] = None,
    dump_passes: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write MIL after each pass, the tasks and their memory.")
    ] = None,
    dump_graph: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the tasks as a graph (.dot): tiles, layout of the weights, edges."),
    ] = None,
    anec_header: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="Header of an .anec package: 0x1000 (omarchy) or 0x800 (eiln's libane)."),
    ] = None,
    overwrite: Overwrite = False,
    stats: Annotated[bool, typer.Option("--stats", help="Print what the program consists of.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the same as JSON (schema hexane-compile/1).")] = False,
) -> None:
    """Compile a network to an engine program (or a package of several, with what runs on the host)."""
    from hexane import chips
    from hexane.lowering.accuracy import costs
    from hexane.program.anec import written_beside
    from hexane.program.package import require_ending
    from hexane.report.dot import graph_of_tasks
    from hexane.report.dump import Dump
    from hexane.session.weight_notes import weights_summary

    if output is None and not (stats or json or dump_passes or dump_graph):
        raise UsageError("nothing to do", hint="give -o FILE, --stats, --dump-passes DIR or --dump-graph FILE")
    header_bytes = None if anec_header is None else _bytes(anec_header)
    for file in (output, dump_graph):
        refuse_overwriting(file, [model, *(bind or ()), *(weights or ())], overwrite=overwrite)
    if output is not None:
        require_ending(output)
        require_writable(output)
    chip, names = _target(chip, target_arch, ident_options(ident or (), kernel_names))
    files = weight_files(weights or ())
    graph = open_network(model, function=function, shapes=shape or (), bind=bind or (), weights=files)
    dump = None if dump_passes is None else Dump(graph, dump_passes)
    on_pass = None if dump is None else dump.on_pass
    start = perf_counter()
    program = hexane.compile(
        graph,
        chip=chip,
        dialect=dialect,
        strict=strict,
        without=without or (),
        on_pass=on_pass,
        as_=as_ or "",
        accuracy=accuracy,
        ident=names,
    )
    seconds = perf_counter() - start
    if dump is not None:
        dump.finish(program)
    if dump_graph is not None:
        write_whole(dump_graph, graph_of_tasks(program).encode())
    if output is not None:
        with plain_errors(output):
            program.save(output, anec_header=header_bytes)
    package = written_beside(output) if output and output.suffix == ".anec" else {}
    changes = costs(program.graph) if program.graph else ()
    answer = {
        "schema": "hexane-compile/1",
        "model": str(model),
        "output": str(output) if output else None,
        "chip": program.chip,
        "dialect": program.dialect,
        "accuracy": accuracy,
        "transformations": [cost.as_dict() for cost in changes],
        "seconds": round(seconds, 3),
        "segments": [{"kind": s.kind, "ops": len(s.ops), "reason": s.reason} for s in program.segments],
        "surfaces": package.get("surfaces", []),
        "anec_header": package.get("header_bytes"),
        "stats": program.stats(),
        "weights": weights_summary(program.graph.main, chips.get(program.chip).generation) if program.graph else {},
    }
    if json:
        print_json(answer, model)
    else:
        _show(answer, changes, detail=stats)


def _target(chip: str | None, name: str | None, ident: dict[str, Any] | None) -> tuple[str, dict[str, Any] | None]:
    """The chip that is meant, and what the program says of itself; UsageError for a name of no generation."""
    from hexane import chips

    if name is None:
        return chip or "M1", ident
    generation = chips.generation_of_target(name)
    if generation is None:
        raise UsageError(
            f"no engine is called {name!r}",
            hint=f"Apple's compiler would take the host's; known: {chips.target_names()}",
        )
    first = next((c for c in (chips.get("M1"), *chips.CHIPS) if c.generation is generation), None)
    if first is None:
        raise UsageError(f"no chip of {generation.name} is known")
    if chip is not None and chips.get(chip).generation is not generation:
        raise UsageError(f"{chip} is no {name}", hint="leave out --chip")
    return chip or first.name, {"target": name, **(ident or {})}


def _bytes(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise UsageError(f"--anec-header takes a number of bytes, not {text!r}", hint="0x1000 or 0x800") from None


def _show(answer: dict[str, Any], changes: tuple[AccuracyCost, ...], *, detail: bool) -> None:
    from hexane.program.anec import described, described_header
    from hexane.program.attribution import share_text

    numbers = answer["stats"]
    if answer["output"]:
        on_host = sum(numbers["host_ops"].values())
        host = f", {on_host} of {counted(numbers['ops'], 'op')} on the host" if on_host else ""
        took = f"{share_text(numbers)}{host} ({answer['seconds']:.2f} s)"
        typer.echo(f"{answer['output']}: {counted(numbers['tasks'], 'task')} on the engine, {took}")
    if answer["anec_header"]:
        typer.echo(f"  {described_header(answer['anec_header'])}")
    for surface in answer["surfaces"]:
        typer.echo(f"  {described(surface)}")
    for reason, count in answer["weights"].items():
        typer.echo(f"compressed weights of {counted(count, 'layer')}: {reason}")
    for cost in changes:
        if cost.error:
            typer.echo(f"accuracy: {cost}")
    if not detail:
        return
    title(f"{answer['model']} for {answer['chip']}")
    evidence = ", ".join(f"{count} {name}" for name, count in numbers["evidence"].items()) or "none"
    share = f", {numbers['macs_on_engine']:.2%} on the engine" if numbers["macs"] else ""
    rows: list[list[Any]] = [
        ["segments", f"{numbers['engine_segments']} engine, {numbers['host_segments']} host"],
        ["tasks", f"{numbers['tasks']} ({evidence})"],
        ["ops", f"{numbers['ops']}, of which {sum(numbers['host_ops'].values())} on the host"],
        ["multiply-accumulates", f"{numbers['macs']:,}{share}"],
        ["constants", f"{numbers['const_bytes']:,} bytes"],
        ["scratch", f"{numbers['scratch_bytes']:,} bytes"],
        ["compiled in", f"{answer['seconds']:.2f} s"],
    ]
    print_rows(rows)
    if changes:
        title("What changed the network")
        rows = [[cost.name, cost.ops, f"{cost.error:.1e}" if cost.error else "fp16 rounding"] for cost in changes]
        print_rows(rows, ["transformation", "ops", "error that it adds, at most"], right=(1,))
    title("Segments")
    print_rows(
        [[i, s["kind"], s["ops"], s["reason"]] for i, s in enumerate(answer["segments"])],
        ["", "kind", "ops", "reason"],
        right=(0, 2),
    )
