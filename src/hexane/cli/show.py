"""``hexane show``: what a network is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.console import print_json
from hexane.cli.networks import network_json, open_network, open_shapes_json, print_network, print_open_shapes
from hexane.cli.options import Bind, Function, Shapes


def command(
    model: Annotated[Path, typer.Argument(help="A network: .onnx, .mil, .mlpackage, .mlmodel, net.plist.")],
    mil: Annotated[bool, typer.Option("--mil", help="Print the network as MIL text.")] = False,
    ops: Annotated[bool, typer.Option("--ops", help="List every operation.")] = False,
    weights: Annotated[bool, typer.Option("--weights", help="List every weight with its statistics.")] = False,
    outputs: Annotated[str | None, typer.Option(help="Cut the network at these values: names, with commas.")] = None,
    function: Function = None,
    shape: Shapes = None,
    bind: Bind = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a network: inputs, outputs, operations, parameters, multiply-accumulates, weights."""
    from hexane.formats.open_shapes import OpenShapes

    try:
        graph = open_network(model, outputs=outputs, function=function, shapes=shape or (), bind=bind or ())
    except OpenShapes as error:
        if mil or ops or weights or outputs:
            raise
        if as_json:
            print_json({"schema": "hexane-show-open/1", **open_shapes_json(error)})
        else:
            print_open_shapes(error, str(model))
        return
    if mil:
        from hexane.formats.mil import WeightCollector, to_text

        typer.echo(to_text(graph, weights=WeightCollector()), nl=False)
    elif as_json:
        print_json({"schema": "hexane-show/1", **network_json(graph, ops=ops, weights=weights)})
    else:
        print_network(graph, str(model), ops=ops, weights=weights)
