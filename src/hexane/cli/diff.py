"""``hexane diff A B``: what differs between two engine programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexane.cli.console import console, print_json, printable
from hexane.cli.engine_files import FILE_HELP, engine_program

if TYPE_CHECKING:
    from hexane.image.diff import ImageDifference


def command(
    left: Annotated[Path, typer.Argument(help=FILE_HELP)],
    right: Annotated[Path, typer.Argument(help="Another one.")],
    container: Annotated[
        bool, typer.Option("--container", help="List load commands, symbols and addresses, too.")
    ] = False,
    segments: Annotated[
        tuple[int, int] | None,
        typer.Option("--segments", metavar="N M", help="Of .hexane packages: which segment of each."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two engine programs field by field, task by task. Exit status 0: same, 1: different, 2: trouble."""
    from hexane.image.diff import diff_containers, diff_images

    numbers = segments or (None, None)
    images = engine_program(left, numbers[0]), engine_program(right, numbers[1])
    differences = diff_images(*images)
    if container:
        differences = list(dict.fromkeys((*differences, *diff_containers(*images))))
    if json:
        print_json([{"where": d.where, "left": d.left, "right": d.right, "names": d.names} for d in differences])
    else:
        for difference in differences:
            _show(difference)
    if differences:
        raise typer.Exit(1)


def _show(difference: ImageDifference) -> None:
    from rich.text import Text

    names = difference.names or ("", "")
    line = Text(printable(difference.where), style="bold")
    line.append("  ")
    line.append(printable(_value(difference.left, names[0])), style="red")
    line.append(" -> ")
    line.append(printable(_value(difference.right, names[1])), style="green")
    console().print(line)


def _value(value: Any, name: str) -> str:
    if name:
        return f"{value} {name}"
    return f"{value} ({value:#x})" if isinstance(value, int) and value > 9 else str(value)
