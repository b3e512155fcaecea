"""``hexane disasm FILE``: an engine program as assembly text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.console import console, print_json
from hexane.cli.engine_files import FILE_HELP, SegmentNumber, engine_program
from hexane.cli.options import Overwrite, refuse_overwriting
from hexane.files import write_whole


def command(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to a file instead.")] = None,
    comments: Annotated[bool, typer.Option(help="Say in comments what registers and bytes mean.")] = True,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Say of each line which byte of its task it begins at.")
    ] = False,
    segment: SegmentNumber = None,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="Print the tasks' fields as JSON.")] = False,
) -> None:
    """Write an engine program as assembly text; `hexane asm` gives the same bytes again."""
    from hexane.image.text import disassemble_image

    refuse_overwriting(output, [file], overwrite=overwrite)
    image = engine_program(file, segment)
    if json:
        print_json([{"offset": task.offset, "fields": task.fields()} for task in image.tasks])
        return
    text = disassemble_image(image, comments, offsets=offsets)
    if output is None:
        _show(text)
    else:
        write_whole(output, text.encode())


_STYLES = (
    (re.compile(r"^\.\w+", re.MULTILINE), "cyan"),
    (re.compile(r"^task \w+", re.MULTILINE), "bold"),
    (re.compile(r"^ {4}[A-Z]\w*(\.\w+)?(\[[^\]]*\])?", re.MULTILINE), "green"),
    (re.compile(r"(?:^|\s);.*$", re.MULTILINE), "dim"),
)


def _show(text: str) -> None:
    """The text with colour on a terminal, and as it is elsewhere."""
    from rich.text import Text

    out = console()
    if not out.is_terminal:
        typer.echo(text, nl=False)
        return
    styled = Text(text)
    for pattern, style in _STYLES:
        styled.highlight_regex(pattern, style)
    out.print(styled, end="")
