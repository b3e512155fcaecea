"""``hexane asm FILE.hxs -o OUT``: assembly text to an engine program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def asm(
        file: Annotated[Path, typer.Argument(help="Assembly text, .hxs.")],
        output: Annotated[Path, typer.Option("-o", "--output", help="The file to write; .anec makes a package.")],
    ) -> None:
        """Assemble a text to an engine program."""
        from hexane.files import read_text
        from hexane.image.text import assemble_image

        assemble_image(read_text(file), str(file)).save(output)
