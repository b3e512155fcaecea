"""``hexane doctor``: what this machine has, and what that allows."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def doctor(
        json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-doctor/1).")] = False,
    ) -> None:
        """Say what this machine has: Python, libraries, engine, driver. Reads only; changes nothing.

        Exit status 0: hexane is in order (an engine is not needed), 1: something that it needs is missing.
        """
        from hexane.cli.console import print_json, print_rows, title
        from hexane.runtime.doctor import diagnose

        found = diagnose()
        if json:
            print_json(found.as_dict())
        else:
            for area in dict.fromkeys(finding.area for finding in found.findings):
                title(area)
                print_rows(
                    [
                        [finding.state, finding.question, finding.answer, finding.remedy]
                        for finding in found.findings
                        if finding.area == area
                    ]
                )
            title("programs run on")
            typer.echo(", ".join(found.routes))
        if not found.well:
            raise typer.Exit(1)
