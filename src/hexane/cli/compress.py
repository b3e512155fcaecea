"""``hexane compress``: a network with compressed weights, and what each format costs on each chip."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph import Graph

TRIED = "palette8,palette6,palette4,palette4:scales,palette2,int8,int4,sparse:0.5"


def register(app: typer.Typer) -> None:
    app.command("compress")(compress)


def compress(
    model: Annotated[Path, typer.Argument(help="A network: .onnx, .mil, .mlpackage ...")],
    weights: Annotated[
        str, typer.Option(help="A format for all layers, or, with --budget, formats to choose from, with commas.")
    ] = "palette4",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write: .mlpackage or .mil. Without: only figures.")
    ] = None,
    chip: Annotated[
        str, typer.Option(help="Chips whose time is predicted, with commas; the first measures errors.")
    ] = "M1",
    budget: Annotated[
        str | None, typer.Option(help="Mixed formats within 50%, 2.5MB, 0.8ms (on the first chip) or error:1%.")
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Figures of many formats instead of one.")] = False,
    calibrate: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Real input for the errors, as run takes it; repeatable. Else drawn."),
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Shape of an input: x=1x3x224x224; repeatable.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-compress/1).")] = False,
) -> None:
    """Compress the weights of a network.

    Error is that of the outputs with the first chip's arithmetic, size that of the weights in a file, time predicted.
    """
    from hexane import chips
    from hexane.cli.console import print_json, print_rows
    from hexane.cli.networks import open_network
    from hexane.errors import UsageError

    if compare and (output is not None or budget is not None):
        raise UsageError("--compare writes nothing and takes no budget")
    if output is not None and output.suffix not in (".mil", ".mlpackage"):
        raise UsageError(f"compressed weights are not written to {output.suffix or output}", hint=".mil or .mlpackage")
    targets = chips.parse_list(chip)
    graph = open_network(model, shapes=shape or ())
    inputs = _inputs(graph, calibrate or [])
    if budget is not None:
        made, rows = _mixed(graph, weights.split(","), budget, inputs, targets)
    elif compare:
        made, rows = None, [_row(graph, form, inputs, targets) for form in ("fp16", *TRIED.split(","))]
    else:
        from hexane.studies import compress as compressed

        made = compressed(graph, weights)
        rows = [_row(graph, "fp16", inputs, targets), _row(graph, weights, inputs, targets)]
    if output is not None and made is not None:
        made.save(output)
    if json:
        print_json({"schema": "hexane-compress/1", "written": str(output) if output else None, "rows": rows})
        return
    heads = ["weights", "bytes", "error", *(f"{target.name} ms" for target in targets)]
    print_rows([heads, *([_cell(row[key]) for key in row if key != "layers"] for row in rows)])
    for row in rows:
        for layer, form in row.get("layers", {}).items():
            typer.echo(f"  {layer}: {form}")
    if output is not None:
        typer.echo(f"{output} written")


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _inputs(graph: Graph, calibrate: list[str]) -> list[dict[str, Any]]:
    from hexane.program import input_ports
    from hexane.runtime.inputs import gather

    return [gather(input_ports(graph), calibrate, seed=0, graph=graph).arrays]


def _row(graph: Graph, form: str, inputs: list[dict[str, Any]], targets: list[Chip]) -> dict[str, Any]:
    from hexane.studies import compress as compressed

    return _figures(form, graph, compressed(graph, form), {}, form, inputs, targets)


def _mixed(
    graph: Graph, formats: list[str], budget: str, inputs: list[dict[str, Any]], targets: list[Chip]
) -> tuple[Graph, list[dict[str, Any]]]:
    from hexane.studies import WeightFormat
    from hexane.studies import compress as compressed
    from hexane.studies.choose import Budget, choices_of, choose
    from hexane.studies.compress import layers_of

    layers = layers_of(graph)
    full = sum(2 * layer.count for layer in layers)
    allowed = Budget.of(budget, full)
    chosen = choose(choices_of(graph, [WeightFormat.of(name) for name in formats], inputs, targets[0]), allowed)
    forms = {name: choice.form for name, choice in chosen.items()}
    made = compressed(graph, forms)
    named = {name: form.name for name, form in forms.items()}
    row = _figures(f"mixed, {budget}", graph, made, named, forms, inputs, targets)
    return made, [_row(graph, "fp16", inputs, targets), row]


def _figures(
    name: str,
    graph: Graph,
    made: Graph,
    layers: dict[str, str],
    forms: Any,
    inputs: list[dict[str, Any]],
    targets: list[Chip],
) -> dict[str, Any]:
    """Bytes, error on the first chip, time on all of them."""
    from hexane.numerics import evaluate
    from hexane.studies import WeightFormat
    from hexane.studies.choose import relative_error
    from hexane.studies.compress import layers_of
    from hexane.timing import estimate

    def form_of(layer: str) -> WeightFormat:
        form = forms.get(layer, "fp16") if isinstance(forms, dict) else forms
        return WeightFormat.of(form) if isinstance(form, str) else form

    size = sum(form_of(layer.name).bytes_of(layer.shape) for layer in layers_of(graph))
    errors = [relative_error(evaluate(made, given, targets[0]), evaluate(graph, given, targets[0])) for given in inputs]
    times = {f"{target.name}_ms": estimate(made, chip=target).latency_us / 1e3 for target in targets}
    found: dict[str, Any] = {"weights": name, "bytes": size, "error": max(errors), **times}
    return {**found, "layers": layers} if layers else found
