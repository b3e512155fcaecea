"""``hexane kernels FILE``: the weights and tables of an engine program, out and in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hexane.cli.console import print_json, print_rows
from hexane.cli.engine_files import FILE_HELP, SegmentNumber, engine_program
from hexane.cli.options import Overwrite, refuse_overwriting
from hexane.errors import UsageError


def command(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    extract: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write task_NNNN.npz with weights (OIHW), bias and table.")
    ] = None,
    replace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Put the arrays of a folder back in place.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="With --replace: the file to write.")] = None,
    segment: SegmentNumber = None,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the kernels of an engine program, write them as .npz files, or replace them."""
    from hexane.formats.kernel_files import extract_kernels, replace_kernels
    from hexane.image.kernels import read_kernels

    if extract is not None and replace is not None:
        raise UsageError("--extract and --replace exclude each other")
    if (replace is None) != (output is None):
        raise UsageError("--replace and -o go together")
    refuse_overwriting(output, [file, *(replace.glob("*.npz") if replace else ())], overwrite=overwrite)
    image = engine_program(file, segment)
    if replace is not None and output is not None:
        changed_image, changed = replace_kernels(image, replace)
        changed_image.save(output)
        typer.echo(f"{output}: {len(changed)} of {len(read_kernels(image))} kernels changed")
        return
    readings = extract_kernels(image, extract) if extract is not None else read_kernels(image)
    rows = [_row(reading) for reading in readings]
    if json:
        print_json(rows)
    else:
        print_rows(
            [[f"task {row['task']}", row.get("form", ""), _text(row)] for row in rows]
            or [["no kernels in the constant section"]]
        )


def _row(reading: Any) -> dict[str, Any]:
    parts = {name: {"shape": list(a.shape), "dtype": str(a.dtype)} for name, a in reading.arrays.items()}
    kernel = reading.value
    form = {} if kernel is None else {"form": kernel.layout.form, "bytes": sum(kernel.consumed)}
    return {"task": reading.task, **form, "parts": parts, "problem": str(reading.problem) if reading.problem else None}


def _text(row: dict[str, Any]) -> str:
    if row["problem"]:
        return row["problem"]
    return ", ".join(
        f"{name} {part['dtype']} {'x'.join(map(str, part['shape']))}" for name, part in row["parts"].items()
    )
