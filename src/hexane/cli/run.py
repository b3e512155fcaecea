"""``hexane run``: a network through the engine, compared with float32."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hexane
from hexane.cli.console import print_json, print_rows, title
from hexane.cli.networks import open_network
from hexane.cli.options import (
    Accuracy,
    As,
    Bind,
    Dialect,
    Function,
    OnDevice,
    Overwrite,
    Shapes,
    Without,
    asked_as,
    refuse_overwriting,
)
from hexane.cli.progress import Bar
from hexane.errors import UsageError
from hexane.files import require_makeable, require_writable, write_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hexane.graph import Graph
    from hexane.program.run import Device
    from hexane.session.network_run import NetworkRun

PROGRAMS = (".hexane", ".hwx", ".anec")
WRONG = "wrong"
"""What `--fail-on` calls every verdict that advice begins with WRONG for: changed and broken."""


def command(
    model: Annotated[Path, typer.Argument(help="A network, or a compiled program (.hexane, .hwx, .anec).")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE",
            help=".npy, .npz, .txt, .wav or picture; NAME= may go with one input.",
        ),
    ] = None,
    random: Annotated[int | None, typer.Option(metavar="SEED", help="Draw inputs that have no file.")] = None,
    normalize: Annotated[
        str | None,
        typer.Option(
            help="Of pictures: unit (default), raw, signed, imagenet, or M1,M2,M3/S1,S2,S3; an image "
            "input of a Core ML model needs none."
        ),
    ] = None,
    shape: Shapes = None,
    bind: Bind = None,
    function: Function = None,
    chip: Annotated[str | None, typer.Option(help="The chip; left out: the device's, else M1.")] = None,
    device: OnDevice = "emulator",
    level: Annotated[
        str, typer.Option(help="engine: tasks on the device; graph: the engine's arithmetic, for any chip.")
    ] = "engine",
    dialect: Dialect = "default",
    as_: As = None,
    without: Without = None,
    accuracy: Accuracy = "exact",
    compare: Annotated[str, typer.Option(help="auto, onnxruntime, reference or none.")] = "auto",
    autoscale: Annotated[
        bool, typer.Option("--autoscale", help="Scale layers by powers of two where products are lost.")
    ] = False,
    tolerance: Annotated[
        float | None, typer.Option(metavar="E", help="Exit status 1 for a relative error above E, or a bad value.")
    ] = None,
    fail_on: Annotated[
        str, typer.Option(help="Exit status 1 from this verdict on: close, changed (and wrong) or broken.")
    ] = "changed",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the outputs as .npz.")] = None,
    overwrite: Overwrite = False,
    report: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the report into this folder.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-run/1).")] = False,
) -> None:
    """Run a network on the emulated engine, or on --device, compare with float32, and give a verdict.

    The verdict answers: is it still the same network?

    A Core ML model is run --as apple: with the numbers of Apple's compiler, as far as they are known to differ. Any
    other network is run as hexane compiles it. Where the two answers differ, a line says how.

    Exit status 0: it is the same network, 1: the verdict is --fail-on or a worse one, or the outputs are further
    from float32 than --tolerance allows.
    """
    from hexane import ahead
    from hexane.report.folders import require_replaceable
    from hexane.session.form import Form

    engine = opened(device, level=level)
    own = bool(without) or accuracy != "exact" or autoscale or level != "engine" or engine.name != "emulator"
    dialect = asked_as(as_, model, dialect, own=own)
    require_form(dialect, without or (), accuracy)
    require_choices(level=level, compare=compare, normalize=normalize, tolerance=tolerance, fail_on=fail_on)
    refuse_overwriting(output, [model, *(inputs or ()), *(bind or ())], overwrite=overwrite)
    if output is not None:
        require_writable(output)
    if report is not None:
        require_replaceable(report)
        require_makeable(report)
    if model.suffix.lower() in PROGRAMS:
        for_networks = {
            "--as": as_ is not None,
            "--tolerance": tolerance is not None, "--report": report is not None, "--autoscale": autoscale,
            "--level": level != "engine", "--compare": compare not in ("auto", "none"), "--shape": bool(shape),
            "--bind": bool(bind), "--function": function is not None, "--dialect": dialect != "default",
            "--without": bool(without), "--accuracy": accuracy != "exact",
        }  # fmt: skip
        for option, option_value in for_networks.items():
            if option_value:
                raise UsageError(
                    f"{option} is for networks, and {model.name} is a compiled program",
                    hint=f"leave it out, or run the network itself with {option}",
                )
        _run_program(model, inputs or [], random, normalize, output, json, engine)
        return
    ahead.begin()
    session = _session(
        model, inputs or [], random, normalize,
        lambda sizes: open_network(model, function=function, shapes=(*sizes, *(shape or ())), bind=bind or ()),
        chip=chip or engine.chip or "M1", level=level, compare=compare, autoscale=autoscale,
        insight=report is not None, quiet=json, device=engine, form=Form(dialect, tuple(without or ()), accuracy),
    )  # fmt: skip
    if output is not None:
        write_arrays(output, session.outputs)
    if report is not None:
        from hexane.report.page import write_report

        write_report(session, report)
    if json:
        print_json({**session.summary(), "report": str(report) if report else None}, model)
    else:
        _show(session)
        if output is not None:
            typer.echo(f"outputs: {output}")
        if report is not None:
            typer.echo(f"report: {report / 'index.html'}")
    if beyond(session, tolerance, fail_on):
        raise typer.Exit(1)


def opened(name: str, *, level: str) -> Device:
    """The device of a name; UsageError for a level that is no device's."""
    from hexane.runtime.devices import device_named

    device = device_named(name)
    if device.name != "emulator" and level != "engine":
        raise UsageError(f"--level {level} is computed here, not on a device", hint="leave out --device or --level")
    return device


def require_form(dialect: str, without: Iterable[str], accuracy: str) -> None:
    """Refuse a dialect, transformation or accuracy that does not exist, before any work."""
    from hexane.lowering.transformations import active

    active(dialect, without, accuracy=accuracy)


def require_choices(
    *, level: str, compare: str, normalize: str | None, tolerance: float | None, fail_on: str = "changed"
) -> None:
    """Refuse a word that no option has, before any work."""
    from hexane.session.inputs import normalization
    from hexane.session.references import CHOICES
    from hexane.session.run import LEVELS
    from hexane.session.verdict import WORDS

    for option, choice, allowed in (
        ("level", level, LEVELS), ("compare", compare, CHOICES), ("fail-on", fail_on, (*WORDS[1:], WRONG)),
    ):  # fmt: skip
        if choice not in allowed:
            raise UsageError(f"--{option} {choice!r} is unknown", hint=f"one of {', '.join(allowed)}")
    if normalize is not None:
        normalization(normalize)
    if tolerance is not None and not tolerance >= 0:
        raise UsageError(f"--tolerance {tolerance} is no error", hint="a relative error such as 0.01")
    if tolerance is not None and compare == "none":
        raise UsageError("--tolerance needs something to compare with", hint="leave out --compare none")


def beyond(session: NetworkRun, tolerance: float | None, fail_on: str = "changed") -> bool:
    """True where the verdict is ``fail_on`` or a worse one, or the outputs are further from float32 than is allowed."""
    from hexane.session.verdict import CHANGED, WORDS

    limit = WORDS.index(CHANGED if fail_on == WRONG else fail_on)
    if session.verdict is not None and WORDS.index(session.verdict.word) >= limit:
        return True
    if tolerance is None:
        return False
    return any(row.nonfinite or row.relative is None or row.relative > tolerance for row in session.agreements)


def _session(
    model: Path,
    inputs: list[str],
    seed: int | None,
    normalize: str | None,
    opened: Callable[[Iterable[str]], Graph],
    *,
    quiet: bool,
    **options: Any,
) -> NetworkRun:
    from hexane.program import input_ports
    from hexane.session.inputs import gather
    from hexane.session.run import run_network

    with Bar(quiet=quiet) as bar:
        bar.stage("load")
        start = perf_counter()
        graph = _opened(opened, inputs)
        arrays_read = gather(input_ports(graph), inputs, normalize=normalize, seed=seed, graph=graph)
        loaded = perf_counter() - start
        notes = (*graph.metadata.get("assumed", ()), *arrays_read.notes)
        session = run_network(
            graph, arrays_read.arrays, name=model.name, model=model, notes=notes, progress=bar, **options
        )
        session.seconds = {"load": loaded, **session.seconds}
        return session


def _opened(opened: Callable[[Iterable[str]], Graph], inputs: list[str]) -> Graph:
    """The network, with the shapes of the arrays that it is given where its own are open."""
    from hexane.session.file_shapes import file_shapes, fitted

    def load(shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        return opened([f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items()])

    return fitted(load, lambda extents: {name: s for name, s in file_shapes(inputs, extents).items() if s})


def _run_program(
    path: Path,
    inputs: list[str],
    seed: int | None,
    normalize: str | None,
    output: Path | None,
    json: bool,
    device: Device,
) -> None:
    from hexane.session.inputs import gather
    from hexane.session.program_run import run_program
    from hexane.session.tables import OUTPUT_HEAD, OUTPUT_RIGHT, output_rows, program_facts

    start = perf_counter()
    program = hexane.load_program(path)
    arrays_read = gather(program.inputs, inputs, normalize=normalize, seed=seed)
    loaded = perf_counter() - start
    with Bar(quiet=json) as bar:
        bar.stage(f"run on {device.title}", sum(len(image.tasks) for image in program.images))
        session = run_program(path.name, program, arrays_read, device, lambda _: bar.step(), loaded)
    if output is not None:
        write_arrays(output, session.execution.outputs)
    if json:
        print_json(session.summary(), path)
    else:
        title(f"{path.name} for {program.chip}, on {device.title}")
        print_rows(program_facts(session))
        title("Outputs")
        print_rows(output_rows(session), OUTPUT_HEAD, right=OUTPUT_RIGHT)
        if output is not None:
            typer.echo(f"outputs: {output}")
    if session.verdict is not None and not session.verdict.good:
        raise typer.Exit(1)


def _show(session: NetworkRun) -> None:
    from hexane.session.tables import AGREEMENT_HEAD, AGREEMENT_RIGHT, agreement_rows, run_facts, run_title

    title(run_title(session))
    print_rows(run_facts(session))
    if session.agreements and session.wanted is not None:
        title(f"Against {session.wanted.by} in float32")
        print_rows(agreement_rows(session), AGREEMENT_HEAD, right=AGREEMENT_RIGHT)
        if any(row.nonfinite for row in session.agreements):
            typer.echo("errors and cosine: of the values that are finite in both")
