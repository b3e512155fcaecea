"""``hexane compare OLD NEW``: two answers of check, estimate or run held against each other."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexane.cli.console import print_json, print_rows, title
from hexane.errors import UsageError

if TYPE_CHECKING:
    from hexane.session.baseline import Comparison, Limits

FORMATS = ("text", "json", "github", "junit")
ANSWER_HELP = "The JSON answer of hexane check, estimate or run, or the folder of a report."


def command(
    old: Annotated[Path, typer.Argument(help=ANSWER_HELP)],
    new: Annotated[Path, typer.Argument(help="The same of the network as it is now.")],
    slower: Annotated[
        float, typer.Option(metavar="SHARE", help="Time and energy may grow by this share of the old.")
    ] = 0.05,
    error: Annotated[float, typer.Option(metavar="SHARE", help="Errors may grow by this share of the old.")] = 0.1,
    layers: Annotated[bool, typer.Option("--layers", help="Count a slower layer, not only a slower call.")] = False,
    by: Annotated[str, typer.Option(help="Whose placement counts: apple, hexane or both.")] = "both",
    format: Annotated[str, typer.Option(help="text, json, github (annotations) or junit.")] = "text",
    json: Annotated[bool, typer.Option("--json", help="As --format json (schema hexane-compare/1).")] = False,
) -> None:
    """Compare two answers: placement, time and error, op by op.

    Exit status 0: nothing is worse, 1: something is, 2: an error.
    """
    from hexane.session.baseline import Limits, compared, read_answer

    form = "json" if json else format
    if form not in FORMATS:
        raise UsageError(f"--format {form!r} is unknown", hint=f"one of {', '.join(FORMATS)}")
    limits = Limits(slower=slower, error=error, layers=layers, by=by)
    if not shown(compared(read_answer(old), read_answer(new), limits), form):
        raise typer.Exit(1)


def against(baseline: Path, answer: Mapping[str, Any], model: Path, limits: Limits | None = None) -> Comparison:
    """An answer on ``model`` that was just made, held against the file of an old one."""
    from hexane.formats.strict_json import plain
    from hexane.report.origin import origin
    from hexane.session.baseline import compared, read_answer

    record = {**answer, "origin": origin(sys.argv[1:], model)}
    return compared(read_answer(baseline), plain(record), limits)


def shown(comparison: Comparison, form: str = "text") -> bool:
    """Print a comparison in one of ``FORMATS``; whether nothing is worse."""
    from hexane.report.annotations import github, junit

    if form == "json":
        print_json(comparison.as_dict())
    elif form == "github":
        typer.echo("\n".join(github(comparison)))
    elif form == "junit":
        typer.echo(junit(comparison))
    else:
        _print(comparison)
    return not comparison.worse


def _print(comparison: Comparison) -> None:
    from hexane.session.baseline import HEAD, RIGHT

    title(comparison.text)
    for note in comparison.notes:
        typer.echo(f"note: {note}")
    if comparison.changes:
        print_rows(comparison.rows(), HEAD, right=RIGHT)
