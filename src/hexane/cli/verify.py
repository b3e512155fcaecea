"""``hexane verify``: did the engine do it?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import hexane
from hexane.cli.console import print_json, print_rows, title
from hexane.cli.networks import open_network
from hexane.cli.options import Bind, Function, Overwrite, Shapes, refuse_overwriting
from hexane.cli.progress import Bar
from hexane.counts import counted
from hexane.errors import HexaneError, UsageError


def command(
    model: Annotated[Path | None, typer.Argument(help="A network; none with --claims and --pack.")] = None,
    device: Annotated[str, typer.Option(help="The device, as hexane.devices() names it.")] = "auto",
    chip: Annotated[str, typer.Option(help="The chip; default: the device's, else M1; with --pack several.")] = "",
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="NAME=FILE", help="As for hexane run; others are drawn.")
    ] = None,
    random: Annotated[int, typer.Option(metavar="SEED", help="Draw inputs that have no file.")] = 0,
    calls: Annotated[int, typer.Option(metavar="N", help="Calls that are timed.")] = 20,
    shape: Shapes = None,
    bind: Bind = None,
    function: Function = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.zip", help="Write program, inputs, both outputs, driver and machine."),
    ] = None,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-verify/1).")] = False,
    claims: Annotated[
        bool, typer.Option("--claims", help="Recompute the numbers that README and docs state; in a checkout.")
    ] = False,
    pack: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the open questions for a Mac without hexane: DIR/run.py."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="With --claims: those that take minutes, too.")] = False,
) -> None:
    """Say whether an engine computed a network: bits, time, counters, power rail and plan, where they can be read.

    Exit status 0: the engine did (or the emulator, where a device without an engine was named), 1: it did not, or
    the outputs are wrong, 3: nothing here can tell.
    """
    if claims:
        raise typer.Exit(_claims(every, json))
    if pack is not None:
        if model is not None:
            raise UsageError("a pack takes no network", hint="hexane verify --pack DIR --chip M1,M4")
        _pack(pack, chip, json=json)
        return
    if model is None:
        raise UsageError("no network is given", hint="hexane verify MODEL, or hexane verify --claims")
    from hexane.program import input_ports
    from hexane.report.origin import origin
    from hexane.runtime.devices import device_named
    from hexane.session.inputs import gather
    from hexane.studies.mismatch import write_report
    from hexane.studies.verify import SENTENCES
    from hexane.studies.verify import verify as verified

    refuse_overwriting(report, [model, *(inputs or ()), *(bind or ())], overwrite=overwrite)
    engine = device_named(device)
    with Bar(quiet=json) as bar:
        bar.stage("load")
        graph = open_network(model, function=function, shapes=shape or (), bind=bind or ())
        gathered = gather(input_ports(graph), inputs or [], normalize=None, seed=random, graph=graph)
        bar.stage("compile")
        program = hexane.compile(graph, chip=chip or engine.chip or "M1")
        try:
            result = verified(program, graph, gathered.arrays, engine, calls=calls, on_stage=bar.stage)
        except HexaneError as error:
            if report is not None:
                write_report(report, program, gathered.arrays, error, gathered.notes, origin(sys.argv[1:], model))
            raise
    if report is not None:
        write_report(report, program, gathered.arrays, result, gathered.notes, origin(sys.argv[1:], model))
    if json:
        print_json({**result.as_dict(), "notes": list(gathered.notes)})
    else:
        title(f"{model.name} for {result.chip}, on {result.device}: {result.word}, {SENTENCES[result.word]}")
        print_rows(
            [[check.name, check.speaks, check.text] for check in result.checks],
            ["what", "for the engine", "found"],
        )
    if result.status:
        raise typer.Exit(result.status)


def _pack(folder: Path, chip: str, *, json: bool) -> None:
    """Write a pack, and say what is in it."""
    from hexane import chips
    from hexane.studies.probe.pack import CHIPS, write_pack

    names = [one.name for one in chips.parse_list(chip)] if chip else CHIPS
    with Bar(quiet=json) as bar:
        bar.stage("networks", None)
        data = write_pack(folder, names, lambda *_: bar.step())
    choices = sum(len(rows) for network in data["networks"] for rows in network["expected"].values())
    if json:
        counts = {"networks": len(data["networks"]), "choices": choices, "left_out": data["left_out"]}
        print_json({"schema": "hexane-pack/1", "folder": str(folder), "chips": data["chips"], **counts})
        return
    if data["left_out"]:
        print_rows([list(row) for row in data["left_out"].items()], ["left out", "why"])
    typer.echo(
        f"{counted(len(data['networks']), 'network')} with the bits of {choices} choices for {', '.join(data['chips'])}"
    )
    typer.echo(f"on a Mac: pip install coremltools numpy; python3 {folder}/run.py -o answers.json")
    typer.echo("read the answers with: hexane probe --read answers.json")


def _claims(every: bool, json: bool) -> int:
    """The exit status of ``tools/claims.py`` of the checkout that this package stands in."""
    root = Path(__file__).resolve().parents[3]
    script = root / "tools" / "claims.py"
    if not (script.is_file() and (root / "tests" / "data").is_dir()):
        raise UsageError(
            "--claims needs the checkout of hexane's repository: its documents, and the data in tests/data",
            hint="clone the repository and run `make claims` there",
        )
    options = [*(["--all"] if every else []), *(["--json"] if json else [])]
    return subprocess.run([sys.executable, str(script), *options]).returncode
