"""``hexane sweep``: networks times chips times formats times options, in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.console import print_json, print_rows
from hexane.cli.evaluate import Memory, Scheduler, Workers, cluster, interruption
from hexane.cli.progress import Steps
from hexane.counts import counted


def command(
    spec: Annotated[Path, typer.Argument(help="A TOML file: models, chips, weights, batch, shapes, options, jobs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results.parquet, page and pieces.")],
    workers: Workers = 0,
    scheduler: Scheduler = None,
    memory: Memory = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-sweep/1).")] = False,
) -> None:
    """Ask the same of many networks, chips, formats and options: a table, and a page that sorts, filters and plots it.

    A sweep that was interrupted goes on where it was; what is finished is never computed again.
    """
    from hexane.report.sweep import PAGE, PIECES, TABLE, run_sweep
    from hexane.studies.sweep import read_spec

    specification = read_spec(spec)
    place = cluster(workers, scheduler, memory)
    with Steps(quiet=json) as steps, interruption(output / PIECES):
        rows = run_sweep(specification, output, place, on_progress=steps.hear)
    counts = place.counts
    failed = sum(row["error"] is not None for row in rows)
    if json:
        print_json(
            {
                "schema": "hexane-sweep/1",
                "results": str(output / TABLE),
                "page": str(output / PAGE),
                "pieces": {"computed": counts.computed, "kept": counts.kept, "again": counts.again},
                "rows": rows,
            }
        )
        return
    names = ["model", "chip", "weights", "batch", "options", "latency_us", "engine", "difference", "error"]
    columns = [name for name in names if any(row.get(name) not in (None, "", 0) for row in rows)]
    print_rows([[_cell(row.get(name)) for name in columns] for row in rows], columns)
    pieces = f"{counted(counts.computed, 'piece')} computed, {counts.kept} were there"
    typer.echo(f"{counted(len(rows), 'point')}, {failed} with errors; {pieces}")
    typer.echo(f"{output / TABLE} and {output / PAGE} written")


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)[:80]
