"""``hexane run``: a network through the engine, compared with float32."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexane.cli.options import Bind, Function, Shapes
from hexane.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hexane.graph import Graph
    from hexane.report.session import Session

PROGRAMS = (".hexane", ".hwx", ".anec")


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def run(
        model: Annotated[Path, typer.Argument(help="A network, or a compiled program (.hexane, .hwx, .anec).")],
        inputs: Annotated[
            list[str] | None,
            typer.Option("--input", metavar="NAME=FILE", help="An .npy, .npz or picture; NAME= may go with one input."),
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
        chip: Annotated[str, typer.Option(help="The chip.")] = "M1",
        level: Annotated[
            str, typer.Option(help="engine: tasks on the emulator; graph: the engine's arithmetic, for any chip.")
        ] = "engine",
        compare: Annotated[str, typer.Option(help="auto, onnxruntime, reference or none.")] = "auto",
        autoscale: Annotated[
            bool, typer.Option("--autoscale", help="Scale layers by powers of two where products are lost.")
        ] = False,
        tolerance: Annotated[
            float | None, typer.Option(metavar="E", help="Exit status 1 for a relative error above E, or a bad value.")
        ] = None,
        output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the outputs as .npz.")] = None,
        report: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the report into this folder.")] = None,
        json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-run/1).")] = False,
    ) -> None:
        """Run a network on the emulated engine, compare with float32, and give a verdict: is it still the same network?

        Exit status 0: it ran, 1: the outputs are broken, or further from float32 than --tolerance allows.
        """
        from hexane.cli.console import print_json
        from hexane.cli.networks import open_network
        from hexane.runtime.files import require_writable, write_arrays
        from hexane.runtime.folders import require_replaceable

        require_choices(level=level, compare=compare, normalize=normalize, tolerance=tolerance)
        if output is not None:
            require_writable(output)
        if report is not None:
            require_replaceable(report)
            if not report.exists():
                require_writable(report)
        if model.suffix.lower() in PROGRAMS:
            if tolerance is not None:
                raise UsageError(
                    "a compiled program has no float32 network to compare with", hint="leave out --tolerance"
                )
            _run_program(model, inputs or [], random, normalize, output, json)
            return
        done = _session(
            model, inputs or [], random, normalize,
            lambda: open_network(model, function=function, shapes=shape or (), bind=bind or ()),
            chip=chip, level=level, compare=compare, autoscale=autoscale, insight=report is not None, quiet=json,
        )  # fmt: skip
        if output is not None:
            write_arrays(output, done.outputs)
        if report is not None:
            from hexane.report.page import write_report

            write_report(done, report)
        if json:
            print_json({**done.summary(), "report": str(report) if report else None})
        else:
            _show(done)
            if output is not None:
                typer.echo(f"outputs: {output}")
            if report is not None:
                typer.echo(f"report: {report / 'index.html'}")
        if beyond(done, tolerance):
            raise typer.Exit(1)


def require_choices(*, level: str, compare: str, normalize: str | None, tolerance: float | None) -> None:
    """Refuse a word that no option has, before any work."""
    from hexane.report.session import LEVELS
    from hexane.runtime.inputs import normalization
    from hexane.runtime.references import CHOICES

    for option, given, known in (("level", level, LEVELS), ("compare", compare, CHOICES)):
        if given not in known:
            raise UsageError(f"--{option} {given!r} is unknown", hint=f"one of {', '.join(known)}")
    if normalize is not None:
        normalization(normalize)
    if tolerance is not None and not tolerance >= 0:
        raise UsageError(f"--tolerance {tolerance} is no error", hint="a relative error such as 0.01")
    if tolerance is not None and compare == "none":
        raise UsageError("--tolerance needs something to compare with", hint="leave out --compare none")


def beyond(done: Session, tolerance: float | None) -> bool:
    """Whether the outputs are broken, or further from float32 than is allowed."""
    from hexane.runtime.verdict import BROKEN

    if done.verdict is not None and done.verdict.word == BROKEN:
        return True
    if tolerance is None:
        return False
    return any(row.nonfinite or row.relative is None or row.relative > tolerance for row in done.agreements)


def _session(
    model: Path,
    inputs: list[str],
    seed: int | None,
    normalize: str | None,
    opened: Callable[[], Graph],
    *,
    quiet: bool,
    **options: Any,
) -> Session:
    from time import perf_counter

    from hexane.cli.progress import Bar
    from hexane.program import input_ports
    from hexane.report.session import run_network
    from hexane.runtime.inputs import gather

    with Bar(quiet=quiet) as bar:
        bar.stage("load")
        start = perf_counter()
        graph = opened()
        given = gather(input_ports(graph), inputs, normalize=normalize, seed=seed, graph=graph)
        loaded = perf_counter() - start
        notes = (*graph.metadata.get("assumed", ()), *given.notes)
        done = run_network(graph, given.arrays, name=model.name, model=model, notes=notes, progress=bar, **options)
        done.seconds = {"load": loaded, **done.seconds}
        return done


def _run_program(
    path: Path, inputs: list[str], seed: int | None, normalize: str | None, output: Path | None, json: bool
) -> None:
    import hexane
    from hexane.cli.console import print_json
    from hexane.cli.progress import Bar
    from hexane.report.session import output_facts
    from hexane.runtime.execute import execute
    from hexane.runtime.files import write_arrays
    from hexane.runtime.inputs import gather
    from hexane.runtime.verdict import unseen

    program = hexane.load_program(path)
    given = gather(program.inputs, inputs, normalize=normalize, seed=seed)
    with Bar(quiet=json) as bar:
        bar.stage("run on the emulated engine", sum(len(image.tasks) for image in program.images))
        done = execute(program, given.arrays, on_task=lambda _: bar.step())
    verdict = unseen(done.outputs)
    if output is not None:
        write_arrays(output, done.outputs)
    if json:
        print_json({
            "schema": "hexane-run/1",
            "model": path.name,
            "outputs": {name: output_facts(array) for name, array in done.outputs.items()},
            "verdict": verdict.word if verdict else None,
            "verdict_text": verdict.far if verdict else "not compared: the file holds no float32 network",
            "macs_on_engine": program.stats()["macs_on_engine"],
            "tasks": len(done.tasks),
        })  # fmt: skip
        return
    for note in given.notes:
        typer.echo(note)
    for name, array in done.outputs.items():
        typer.echo(f"{name} {array.dtype} {array.shape}: {array.ravel()[:8]}")
    if verdict is not None:
        typer.echo(f"verdict  {verdict.text}")


def _show(done: Session) -> None:
    from hexane.cli.console import print_rows, title

    title(f"{done.name} on {done.chip.name}, level {done.level}")
    rows: list[list[Any]] = []
    if done.verdict is not None:
        rows.append(["verdict", done.verdict.text])
        if done.verdict.advice:
            rows.append(["", done.verdict.advice])
    rows += [["input", note] for note in done.notes]
    if done.program is not None:
        stats = done.program.stats()
        rows.append(["program", f"{stats['tasks']} tasks in {stats['engine_segments']} engine segments, "
                                f"{stats['host_segments']} host segments"])  # fmt: skip
        rows.append(["on the engine", f"{stats['macs_on_engine']:.1%} of {stats['macs']:,} multiply-accumulates"])
    if done.run is not None:
        known = "measured rules only" if not done.run.hypotheses else f"hypotheses: {', '.join(done.run.hypotheses)}"
        rows.append(["arithmetic", known])
    if done.autoscale is not None:
        rows.append(["autoscale", done.autoscale["text"]])
    rows.append(["time", ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in done.seconds.items())])
    print_rows(rows)
    if done.agreements and done.wanted is not None:
        title(f"Against {done.wanted.by} in float32")
        print_rows(
            [
                [a.name, "x".join(map(str, a.shape)), a.infinities, a.nans, _figure(a.largest, ".3g"),
                 _figure(a.mean, ".3g"), _figure(a.relative, ".2e"), _figure(a.cosine, ".6f")]
                for a in done.agreements
            ],
            ["output", "shape", "infinities", "NaN", "largest error", "mean error", "relative (rms)", "cosine"],
            right=(2, 3, 4, 5, 6, 7),
        )  # fmt: skip
        if any(row.nonfinite for row in done.agreements):
            typer.echo("errors and cosine: of the values that are finite in both")


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
