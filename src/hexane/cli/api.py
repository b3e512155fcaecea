"""``hexane api [NAME]``: the map of the private interface."""

from __future__ import annotations

from typing import Annotated

import typer

from hexane.cli.console import print_json, print_rows, title


def command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A class, selector, key, error, kind; or part of its text."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-private-api/1).")] = False,
) -> None:
    """Print what is known of the engine's private interface on macOS, with evidence and systems."""
    from hexane.private_api import KINDS, ROWS, find

    rows = list(ROWS) if name is None else find(name)
    if json:
        print_json({"schema": "hexane-private-api/1", "rows": [row.as_dict() for row in rows]})
        return
    if name is None:
        counts = [[kind, str(sum(row.kind == kind for row in rows)), words] for kind, words in KINDS.items()]
        print_rows(counts, ["kind", "rows", "what"], right=(1,))
        typer.echo("hexane api KIND, or hexane api NAME, prints them; docs/private-api.md has all")
        return
    for row in rows:
        title(f"{f'{row.owner} ' if row.owner else ''}{row.name}")
        typer.echo(f"{row.kind}: {row.text}")
        typer.echo(f"{row.evidence}; {row.systems}; {row.source}")
