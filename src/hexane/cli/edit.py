"""``hexane edit FILE --set PATH=VALUE -o OUT``: change fields of an engine program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.engine_files import FILE_HELP, SegmentNumber, engine_program
from hexane.cli.options import Overwrite, refuse_overwriting
from hexane.errors import UsageError


def command(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write; .anec makes a package.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="task[0].Common.InDim.Win=32, surface[x].shape=1x3x8x8, surface[x].name=y, scratch_bytes=0x4000; "
            "may be given several times.",
        ),
    ] = None,
    kernels: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="TASK.PART=FILE",
            help="Other weights in place: task[0].weights=w.npy (OIHW, float16), .bias, .scales, .palette, "
            ".indices, .table; may be given several times.",
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="[TASK=]FUNCTION",
            help="Another function: task[0]=sigmoid, tanh, gelu, silu, exp2, log2, sqrt, rsqrt or recip, with all "
            "that goes with it; may be given several times.",
        ),
    ] = None,
    segment: SegmentNumber = None,
    overwrite: Overwrite = False,
) -> None:
    """Change fields and weights of an engine program and write it back.

    What is written is checked as `hexane emulate` checks it; a warning says what would be refused.
    """
    from hexane.emulator.static import refusal
    from hexane.formats.kernel_files import read_changes
    from hexane.image.edit import edited
    from hexane.image.function_tables import with_tables
    from hexane.image.kernels import with_kernels

    if not settings and not kernels and not tables:
        raise UsageError("nothing is to be changed", hint="--set PATH=VALUE, --kernel TASK.PART=FILE or --table F")
    refuse_overwriting(output, [file, *(kernels or ())], overwrite=overwrite)
    image = engine_program(file, segment)
    if kernels:
        image = with_kernels(image, read_changes(kernels))
    if tables:
        image = with_tables(image, tables)
    result = edited(image, settings or ())
    result.save(output)
    refused = refusal(engine_program(output))
    if refused:
        before = " (so was the program that was read)" if refusal(engine_program(file, segment)) else ""
        typer.echo(f"warning: {output}: the emulator refuses this program{before}: {refused}", err=True)
