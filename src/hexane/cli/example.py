"""``hexane example``: a network and a picture to try the commands on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.console import print_json
from hexane.files import plain_errors


def command(
    folder: Annotated[Path, typer.Argument(help="Where to write; made when it is missing.")] = Path("."),
    json: Annotated[bool, typer.Option("--json", help="Print the files as JSON.")] = False,
) -> None:
    """Write a small network (model.onnx), a picture and a few engine programs to try the commands on.

    Every example of the documentation runs in such a folder. The weights are drawn, not trained.
    """
    from hexane.demo.example import make_example

    with plain_errors(folder):
        files = make_example(folder)
    if json:
        print_json({"schema": "hexane-example/1", "files": [str(path) for path in files]})
        return
    for path in files:
        typer.echo(str(path))
