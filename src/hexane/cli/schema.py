"""``hexane schema``: what the JSON answers of the commands look like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hexane.errors import UsageError
from hexane.files import read_json


def command(
    what: Annotated[str, typer.Argument(help="A schema or a command; with FILE: check; none: list them.")] = "",
    file: Annotated[Path | None, typer.Argument(help="A JSON answer to check.")] = None,
    name: Annotated[str, typer.Option(help="The schema of an answer that is a list and names none.")] = "",
) -> None:
    """Print the schema of a JSON answer (JSON Schema), or check an answer against its own.

    Exit status 0: the answer is as its schema says, 1: it is not.
    """
    from hexane.report.schema import check_answer, names
    from hexane.report.schema import schema as schema_of

    if file is None:
        typer.echo("\n".join(names()) if not what else json.dumps(schema_of(what), indent=2))
        return
    if what != "check":
        raise UsageError(f"nothing is known to do with a file and {what!r}", hint="hexane schema check FILE")
    wrong = check_answer(read_json(file), name)
    for line in wrong:
        typer.echo(f"{file}: {line}")
    if wrong:
        raise typer.Exit(1)
    typer.echo(f"{file}: as its schema says")
