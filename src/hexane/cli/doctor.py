"""``hexane doctor``: what this machine has, and what that allows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.console import print_json, print_rows, title
from hexane.errors import UsageError
from hexane.files import require_writable


def command(
    attempt: Annotated[
        bool, typer.Option("--try", help="Run one small program on the engine, 20 times, and compare its bits.")
    ] = False,
    entitlement: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the entitlement file of the old direct route; say what it means."),
    ] = None,
    warm: Annotated[
        bool, typer.Option("--warm", help="Compile every kernel of the emulator now, for whoever runs it later.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-doctor/1).")] = False,
) -> None:
    """Say what this machine has: Python, libraries, engine, driver. Reads only; without --warm changes nothing.

    Compiled kernels are kept in the folder HEXANE_CACHE, or beside hexane's sources. A folder that cannot be
    written is read: made while an image is built, used by anybody.

    Exit status 0: hexane is in order (an engine is not needed), 1: something that it needs is missing, or --try
    gave other bits.
    """
    from hexane.runtime.doctor import diagnose

    if entitlement is not None:
        if json or attempt or warm:
            raise UsageError("--entitlement stands alone", hint="hexane doctor --entitlement FILE")
        _explain(entitlement)
        return
    if warm:
        from hexane.runtime.warm import warm as compile_all

        seconds = compile_all()
        if not json:
            typer.echo(f"kernels are ready after {seconds:.1f} s")
    findings = diagnose(attempt=attempt)
    if json:
        print_json(findings.as_dict())
    else:
        for area in dict.fromkeys(finding.area for finding in findings.findings):
            title(area)
            print_rows(
                [
                    [finding.state, finding.question, finding.answer, finding.remedy]
                    for finding in findings.findings
                    if finding.area == area
                ]
            )
        title("programs run on")
        typer.echo(", ".join(findings.routes))
    if not findings.well or any(f.area == "trial" and f.state == "no" for f in findings.findings):
        raise typer.Exit(1)


def _explain(path: Path) -> None:
    from hexane.private_api.entitlement import CHOICES, CONSEQUENCES, STEPS, WAY_BACK, write_entitlements

    require_writable(path)
    write_entitlements(path)
    typer.echo(f"wrote {path}; nothing else was changed, and nothing is signed by hexane.")
    typer.echo("\nWhat the old direct route needs (macOS 11 to 12.4; nobody reported it from 13 on):")
    for number, step in enumerate(STEPS, 1):
        typer.echo(f"  {number}. {step}")
    typer.echo("\nWhat that means:")
    for consequence in CONSEQUENCES:
        typer.echo(f"  - {consequence}")
    typer.echo("\nThe four choices (the first is the one above, for a machine that holds nothing else):")
    for name, cost in CHOICES:
        typer.echo(f"  - {name}: {cost}")
    typer.echo(f"\nThe way back: {WAY_BACK}.")
    typer.echo("--device macos and --device coreml need none of it.")
