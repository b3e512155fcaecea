"""``hexane edit FILE --set PATH=VALUE -o OUT``: change fields of an engine program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def edit(
        file: Annotated[Path, typer.Argument(help="An engine program, .hwx or .anec.")],
        settings: Annotated[
            list[str],
            typer.Option(
                "--set",
                metavar="PATH=VALUE",
                help="task[0].Common.InDim.Win=32, surface[x].shape=1x3x8x8, surface[x].name=y, scratch_bytes=0x4000; "
                "may be given several times.",
            ),
        ],
        output: Annotated[Path, typer.Option("-o", "--output", help="The file to write; .anec makes a package.")],
    ) -> None:
        """Change fields of an engine program by name and write it back."""
        from hexane.image.edit import edited
        from hexane.image.files import open_image

        edited(open_image(file), settings).save(output)
