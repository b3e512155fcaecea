"""``hexane compress``: a network with compressed weights, and what each format costs on each chip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexane.cli.console import print_json, print_rows
from hexane.cli.networks import open_network
from hexane.cli.options import Overwrite, refuse_overwriting
from hexane.cli.progress import Bar
from hexane.counts import counted
from hexane.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hexane.chips import Chip
    from hexane.cli.progress import Bar
    from hexane.graph import Graph
    from hexane.studies.figures import Figures

TRIED = "palette8,palette6,palette4,palette4:scales,palette2,int8,int4,sparse:0.5"
WRITTEN = (".mlpackage", ".mil", ".onnx")


def command(
    model: Annotated[Path, typer.Argument(help="A network: .onnx, .mil, .mlpackage ...")],
    weights: Annotated[
        str, typer.Option(help="A format for all layers, or, with --budget or --page, several with commas.")
    ] = "palette4",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write: .mlpackage, .mil or .onnx. Else only figures."),
    ] = None,
    chip: Annotated[
        str, typer.Option(help="Chips whose time is predicted, with commas; the first measures errors.")
    ] = "M1",
    budget: Annotated[
        str | None,
        typer.Option(
            help="Mixed formats within 50%, 2.5MB, 0.8ms (on the first chip) or error:1% (beyond that of fp16)."
        ),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Figures of many formats instead of one.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write a page: error, size and time of each format and layer on every chip.")
    ] = None,
    calibrate: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Real input for the errors, as run takes it; repeatable. Else drawn."),
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Shape of an input: x=1x3x224x224; repeatable.")] = None,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-compress/1).")] = False,
) -> None:
    """Compress the weights of a network.

    Error is that of the outputs with the first chip's arithmetic against the float32 network, size that of the weights
    in a file, time predicted.
    """
    from hexane import chips
    from hexane.lowering.formats import WeightFormat
    from hexane.studies.choose import Budget, choose
    from hexane.studies.compress import layers_of
    from hexane.studies.figures import figures_of, study
    from hexane.studies.trials import Trials

    if compare and (output is not None or budget is not None):
        raise UsageError(
            "--compare writes nothing and takes no budget", hint="--page shows all formats beside a budget"
        )
    for path in (output, page):
        refuse_overwriting(path, [model, *(calibrate or ())], overwrite=overwrite)
    if output is not None and output.suffix not in WRITTEN:
        raise UsageError(f"compressed weights are not written to {output.suffix or output}", hint=", ".join(WRITTEN))
    targets = chips.parse_list(chip)
    formats = (TRIED if compare and weights == "palette4" else weights).split(",")
    if len(formats) > 1 and not (compare or budget or page):
        raise UsageError("one format is written", hint="several formats go with --budget, --compare or --page")
    for form in formats:
        WeightFormat.of(form)
    graph = open_network(model, shapes=shape or ())
    allowed = None if budget is None else Budget.of(budget, sum(2 * layer.count for layer in layers_of(graph)))
    trials = Trials(graph, _inputs(graph, calibrate or []), targets[0])
    candidates = (
        list(dict.fromkeys([*TRIED.split(","), *formats])) if page is not None and len(formats) == 1 else formats
    )
    with Bar(quiet=json) as bar:
        result = study(
            trials,
            candidates if page is not None or allowed is None else (),
            targets,
            name=model.name,
            by_layer=candidates if page is not None or allowed is not None else (),
            on_step=_hearing(bar),
        )
    smaller, figures = None, None
    if allowed is not None:
        among = [choice for choice in result.choices if choice.form.name in ("fp16", *formats)]
        forms = {layer: choice.form for layer, choice in choose(among, allowed).items()}
        figures, smaller = figures_of(trials, forms, targets, f"mixed, {budget}")
        result = replace(result, rows=(*result.rows, figures))
    elif output is not None:
        smaller = trials.compressed(formats[0])
    notes = _write(smaller, output) if output is not None and smaller is not None else []
    if allowed is not None and allowed.kind == "error" and figures is not None:
        notes = [*notes, _beyond_fp16(allowed.limit, figures.error, result.rows[0].error)]
    if page is not None:
        from hexane.report.compress_page import write_page

        write_page(result, page, marked=figures)
    rows = [_row(row) for row in result.rows]
    if json:
        print_json(
            {
                "schema": "hexane-compress/1",
                "written": str(output) if output else None,
                "page": str(page) if page else None,
                "notes": notes,
                "rows": rows,
            }
        )
        return
    _print(rows, targets, notes, output, page)


def _beyond_fp16(limit: float, mixed: float, plain: float) -> str:
    """Error that counts against a budget: that of the formats, not the one that the engine makes of fp16 weights."""
    return (
        f"the budget of {limit:.2%} is for what the formats add: fp16 weights alone are off by {plain:.2%}, "
        f"these by {mixed:.2%}"
    )


def _print(
    rows: list[dict[str, Any]], targets: list[Chip], notes: list[str], output: Path | None, page: Path | None
) -> None:
    heads = ["weights", "bytes", "error", *(f"{target.name} ms" for target in targets)]
    columns = ["weights", "bytes", "error", *(f"{target.name}_ms" for target in targets)]
    print_rows([heads, *([_cell(row[key]) for key in columns] for row in rows)])
    for row in rows:
        if "layers" in row:
            typer.echo(f"{row['weights']}, layer by layer:")
        for layer, form in row.get("layers", {}).items():
            typer.echo(f"  {layer}: {form}")
    for target in targets:
        for reason, count in rows[-1]["becomes"][target.name].items():
            typer.echo(f"{target.name}: {counted(count, 'layer')}: {reason}")
    for note in notes:
        typer.echo(f"note: {note}")
    for path in (output, page):
        if path is not None:
            typer.echo(f"{path} written")


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _inputs(graph: Graph, calibrate: list[str]) -> list[dict[str, Any]]:
    from hexane.program import input_ports
    from hexane.session.inputs import gather

    return [gather(input_ports(graph), calibrate, seed=0, graph=graph).arrays]


def _row(row: Figures) -> dict[str, Any]:
    times = {f"{name}_ms": us / 1e3 for name, us in row.us.items()}
    entry: dict[str, Any] = {"weights": row.name, "bytes": row.bytes, "error": row.error, **times}
    layers = {"layers": dict(row.layers)} if row.layers else {}
    return {**entry, **layers, "becomes": {name: dict(kinds) for name, kinds in row.becomes.items()}}


def _hearing(bar: Bar) -> Callable[[str, int, int], None]:
    """Hears what a study is doing, and moves the bar."""
    stage = ""

    def hear(what: str, _count: int, of: int) -> None:
        nonlocal stage
        if what != stage:
            stage = what
            bar.stage(f"measuring {what}", of)
        bar.step()

    return hear


def _write(compressed: Graph, output: Path) -> list[str]:
    """Write the network; what the format cannot hold and is therefore written otherwise, in sentences."""
    if output.suffix == ".onnx":
        from hexane.formats.onnx.writer import save

        return save(compressed, output)
    compressed.save(output)
    return []
