"""``hexane emulate``: run an engine program on the emulated engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.console import print_json, print_rows
from hexane.cli.engine_files import FILE_HELP, SegmentNumber, engine_program
from hexane.cli.options import Overwrite, refuse_overwriting
from hexane.errors import UsageError


def command(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=FILE", help="one per input, as in run; the file alone where there is one"
        ),
    ] = None,
    random: Annotated[
        int | None, typer.Option("--random", metavar="SEED", help="draw the inputs that are not given")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="outputs as .npz")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="a row per task, with counters")] = False,
    until: Annotated[int | None, typer.Option("--until", metavar="TASK", help="stop after this task")] = None,
    dump: Annotated[Path | None, typer.Option("--dump", help="with --until: L2 and scratch as .npz")] = None,
    other: Annotated[Path | None, typer.Option("--diff", metavar="OTHER", help="where two programs part")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="inputs and outputs are the surfaces' bytes")] = False,
    sanitize: Annotated[bool, typer.Option(help="refuse reads of undefined bytes and the like")] = True,
    segment: SegmentNumber = None,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> None:
    """Run an engine program on the emulated engine, bit for bit."""
    from hexane.emulator import difference, files, run
    from hexane.emulator.trace import COLUMNS
    from hexane.session.inputs import for_surfaces

    if raw and random is not None:
        raise UsageError("--random draws values, --raw takes bytes", hint="leave one of them out")
    for path in (output, dump):
        refuse_overwriting(path, [file, other, *(inputs or ())], overwrite=overwrite)
    image = engine_program(file, segment)
    if raw:
        arrays = files.read_surfaces(image, inputs or [])
    else:
        gathered = for_surfaces(image, inputs or [], seed=random)
        arrays = gathered.arrays
        for note in gathered.notes:
            typer.echo(note, err=True)
    layout = "raw" if raw else "nchw"
    if other is not None:
        outcome = difference.first_difference(image, engine_program(other), arrays, layout=layout)
        print_json({"schema": "hexane-difference/1", **outcome.to_dict()}) if json else typer.echo(str(outcome))
        raise typer.Exit(0 if outcome.same else 1)
    result = run(image, arrays, layout=layout, sanitize=sanitize, observe=trace or json, until=until)
    if json:
        print_json({"schema": "hexane-emulate/1", **result.report.to_dict()})
    elif trace:
        print_rows([list(row) for row in result.report.rows()], list(COLUMNS), right=(0,))
    if output is not None:
        files.write_npz(output, result.outputs)
    if dump is not None:
        files.write_npz(dump, files.state(result.engine))
    if output is None and not (trace or json or dump):
        for name, array in result.outputs.items():
            typer.echo(f"{name} {array.dtype} {array.shape}: {array.ravel()[:8]}")
