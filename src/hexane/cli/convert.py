"""``hexane convert``: a network from one file format to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.console import print_json
from hexane.cli.networks import network_json, open_network
from hexane.cli.options import Bind, Function, Overwrite, Shapes, refuse_overwriting
from hexane.counts import counted


def command(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A network: .onnx, .mil, .mlpackage, net.plist ...")],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="Where to write it: .mil, .mlpackage, .onnx or net.plist.")
    ],
    outputs: Annotated[str | None, typer.Option(help="Cut the network at these values: names, with commas.")] = None,
    function: Function = None,
    shape: Shapes = None,
    bind: Bind = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Convert a network to another file format; weights go into a file beside it."""
    refuse_overwriting(target, [source, *(bind or ())], overwrite=overwrite)
    graph = open_network(source, outputs=outputs, function=function, shapes=shape or (), bind=bind or ())
    graph.save(target)
    if as_json:
        print_json({"schema": "hexane-convert/1", "path": str(target), **network_json(graph)})
    else:
        typer.echo(f"{target}: {counted(len(graph.ops), 'operation')}")
