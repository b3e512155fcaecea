"""``hexane asm FILE.hxs -o OUT``: assembly text to an engine program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexane.cli.options import Overwrite, refuse_overwriting
from hexane.errors import EmulationError, UnsupportedError, UsageError
from hexane.files import read_text

if TYPE_CHECKING:
    from hexane.image import Image


def command(
    file: Annotated[Path, typer.Argument(help="Assembly text, .hxs.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write; .anec makes a package.")],
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Write tasks also where no engine could read them.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Assemble a text to an engine program.

    Tasks that an engine could not read (blocks missing, links that lead nowhere) are refused.
    """
    from hexane.image.text import assemble_image

    refuse_overwriting(output, [file], overwrite=overwrite)
    image = assemble_image(read_text(file), str(file))
    if not unchecked:
        _require_readable(image, str(file))
    image.save(output)


def _require_readable(image: Image, where: str) -> None:
    """UsageError for tasks that the emulated engine cannot walk through."""
    from hexane.emulator import EmulatedProgram

    try:
        for _ in EmulatedProgram.of(image.to_bytes()).chain():
            pass
    except EmulationError as error:
        raise UsageError(
            f"no engine could read the program: {error}", where=where, hint="--unchecked writes it all the same"
        ) from None
    except UnsupportedError:
        return  # a generation whose tasks nothing here walks through
