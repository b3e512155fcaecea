"""``hexane report``: a report in words, or two side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.console import print_json, print_rows, title
from hexane.errors import UsageError


def command(
    left: Annotated[Path, typer.Argument(metavar="A", help="A report folder of `hexane run --report`.")],
    right: Annotated[Path | None, typer.Argument(metavar="[B]", help="Another one.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="With B: write a page with both.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the figures of a report, or of two side by side."""
    from hexane.report.compare import compare, figures, read_report, write_comparison

    first = read_report(left)
    if right is None:
        if output is not None:
            raise UsageError("-o needs a second report")
        if json:
            print_json(first)
            return
        title(first["title"])
        typer.echo(first["verdict"])
        print_rows([[name, value] for name, value in figures(first).items()])
        return
    second = read_report(right)
    comparison = compare(first, second)
    titles = (left.name, right.name)
    if output is not None:
        write_comparison(comparison, titles, output)
    if json:
        print_json(comparison)
        return
    print_rows([[row["name"], row["left"], row["right"]] for row in comparison["figures"]], ["", *titles])
    if comparison["moved"]:
        title("Ops that changed place")
        print_rows(
            [[row["op"], row["type"], row["left"], row["right"], row["reason"]] for row in comparison["moved"]],
            ["op", "type", *titles, "reason for the host"],
        )
    if comparison["layers"]:
        title("Layers whose error differs most")
        print_rows(
            [[row["layer"], f"{row['left']:.2e}", f"{row['right']:.2e}"] for row in comparison["layers"][:10]],
            ["layer", *titles], right=(1, 2),
        )  # fmt: skip
    if output is not None:
        typer.echo(f"page: {output / 'index.html'}")
