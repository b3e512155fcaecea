"""``hexane verify``: did the engine do it?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexane.cli.options import Bind, Function, Shapes


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def verify(
        model: Annotated[Path, typer.Argument(help="A network.")],
        device: Annotated[str, typer.Option(help="The device, as hexane.devices() names it.")] = "auto",
        chip: Annotated[str, typer.Option(help="The chip; default: the device's, else M1.")] = "",
        inputs: Annotated[
            list[str] | None, typer.Option("--input", metavar="NAME=FILE", help="As for hexane run; others are drawn.")
        ] = None,
        random: Annotated[int, typer.Option(metavar="SEED", help="Draw inputs that have no file.")] = 0,
        calls: Annotated[int, typer.Option(metavar="N", help="Calls that are timed.")] = 20,
        shape: Shapes = None,
        bind: Bind = None,
        function: Function = None,
        json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-verify/1).")] = False,
    ) -> None:
        """Say whether an engine computed a network: bits, time, counters, power rail and plan, where they can be read.

        Exit status 0: the engine did (or the emulator, where a device without an engine was named), 1: it did not, or
        the outputs are wrong, 3: nothing here can tell.
        """
        import hexane
        from hexane.cli.console import print_json, print_rows, title
        from hexane.cli.networks import open_network
        from hexane.cli.progress import Bar
        from hexane.program import input_ports
        from hexane.runtime import device_named
        from hexane.runtime.inputs import gather
        from hexane.studies.verify import SENTENCES
        from hexane.studies.verify import verify as verified

        engine = device_named(device)
        with Bar(quiet=json) as bar:
            bar.stage("load")
            graph = open_network(model, function=function, shapes=shape or (), bind=bind or ())
            given = gather(input_ports(graph), inputs or [], normalize=None, seed=random, graph=graph)
            bar.stage("compile")
            program = hexane.compile(graph, chip=chip or engine.chip or "M1")
            found = verified(program, graph, given.arrays, engine, calls=calls, on_stage=bar.stage)
        if json:
            print_json({**found.as_dict(), "notes": list(given.notes)})
        else:
            title(f"{model.name} for {found.chip}, on {found.device}: {found.word}, {SENTENCES[found.word]}")
            print_rows(
                [[check.name, check.speaks, check.text] for check in found.checks],
                ["what", "for the engine", "found"],
            )
        if found.status:
            raise typer.Exit(found.status)
