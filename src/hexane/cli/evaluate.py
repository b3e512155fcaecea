"""``hexane evaluate``: what accuracy a network has on the engine, over a data set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hexane
from hexane.cli.console import print_json, print_rows
from hexane.cli.options import (
    Accuracy,
    Bind,
    Dialect,
    Overwrite,
    Shapes,
    Without,
    parse_bindings,
    parse_shapes,
    refuse_overwriting,
)
from hexane.cli.progress import Steps

if TYPE_CHECKING:
    from hexane.studies.evaluation import Assessment, FigureRow, Side

Workers = Annotated[
    int, typer.Option(min=0, help="Processes on this machine; 0 is one for each core, 1 this process, without Dask.")
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler, in place of processes of this command.")
]
Memory = Annotated[str, typer.Option(help="Memory of each process, such as 2GB; beyond it Dask spills and restarts.")]


def command(
    model: Annotated[Path, typer.Argument(help="A network: .onnx, .mil, .mlpackage ...")],
    data: Annotated[Path, typer.Option(help="An .npz file, a folder of files by class, or a .py file with dataset().")],
    metric: Annotated[str, typer.Option(help="top1, iou, cosine, psnr, wer or module:function.")] = "top1",
    chip: Annotated[str, typer.Option(help="Chips, separated by commas, or all.")] = "M1",
    weights: Annotated[str, typer.Option(help="Weight formats, separated by commas (`hexane compress`).")] = "fp16",
    level: Annotated[str, typer.Option(help="engine (compiled tasks) or graph (the arithmetic, any chip).")] = "engine",
    limit: Annotated[int | None, typer.Option(min=1, help="The first samples alone.")] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="WIDTH", help="Stop when the interval is within ± this: 0.1%, or difference:0.1%."),
    ] = None,
    output_name: Annotated[str | None, typer.Option(help="The output that is judged; by default the first.")] = None,
    layers: Annotated[int, typer.Option(min=0, help="Samples whose layers are compared one by one.")] = 16,
    normalize: Annotated[str | None, typer.Option(help="How pixels of pictures become numbers, as for run.")] = None,
    dialect: Dialect = "default",
    without: Without = None,
    accuracy: Accuracy = "exact",
    shape: Shapes = None,
    bind: Bind = None,
    workers: Workers = 1,
    scheduler: Scheduler = None,
    memory: Memory = "auto",
    keep: Annotated[
        Path | None, typer.Option(help="A folder for finished pieces, from which the same command goes on.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write a page: figures, changed samples, layers.")] = None,
    overwrite: Overwrite = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-evaluate/1).")] = False,
) -> None:
    """Evaluate a network over a data set: float32 and the engine side by side, on every chip, with every format.

    The metric has an interval of 95 %; samples whose answer the engine changes are named, worst first.
    """
    refuse_overwriting(page, [model, data], overwrite=overwrite)
    options: dict[str, Any] = {} if dialect == "default" else {"dialect": dialect}
    if without:
        options["without"] = tuple(without)
    if accuracy != "exact":
        options["accuracy"] = accuracy
    place = cluster(workers, scheduler, memory)
    with Steps(quiet=json) as steps, interruption(keep):
        evaluation = hexane.evaluate(
            model, data, metric, chip=chip, weights=weights, level=level, limit=limit, until=until, output=output_name,
            layers=layers, options=options, where=place, keep=keep, on_progress=steps.hear,
            shapes=parse_shapes(shape or ()) or None, bind=parse_bindings(bind or ()) or None, normalize=normalize,
        )  # fmt: skip
    if page is not None:
        from hexane.report.evaluate_page import write_page

        write_page(evaluation, page)
    if json:
        print_json(evaluation.as_dict())
        return
    _print(evaluation)
    if page is not None:
        typer.echo(f"{page} written")


def cluster(workers: int, scheduler: str | None, memory: str) -> Any:
    """Place where pieces are computed, by a command's options."""
    from hexane.studies.pieces import Workers

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Workers(workers or cores, scheduler, memory)


class interruption:
    """Says, where a command is interrupted, what is left of its work and how to go on."""

    def __init__(self, keep: Path | None) -> None:
        self.keep = keep

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not KeyboardInterrupt:
            return
        if self.keep is None:
            typer.echo("nothing was kept: with --keep FOLDER an interrupted evaluation goes on where it was", err=True)
        else:
            typer.echo(f"finished pieces are in {self.keep}: the same command goes on from there", err=True)


def _print(evaluation: Assessment) -> None:
    against = "" if evaluation.against == "label" else ", against float32's own answers: there are no labels"
    typer.echo(
        f"{evaluation.model} over {evaluation.data}: {evaluation.metric} ({evaluation.better} is better){against}"
    )
    rows = [
        [
            "float32",
            "",
            str(evaluation.rows[0].samples),
            _text(evaluation.rows[0].float32),
            "",
            "",
            "",
            "",
            evaluation.by,
        ]
    ]
    rows += [_row(row) for row in evaluation.rows]
    head = ["", "weights", "samples", evaluation.metric, "less float32", "changed", "infinite", "dropped", ""]
    print_rows(rows, head, right=(2, 5, 6, 7))
    typer.echo(f"intervals of 95 %: {evaluation.method}; of differences Student's t")
    for row in evaluation.rows:
        if row.stopped:
            hours = row.saved_seconds / 3600
            typer.echo(
                f"note: {row.chip}, {row.weights}: stopped after {row.samples} of {evaluation.of} samples (--until "
                f"{evaluation.until}): about {hours:.3g} hours of one core saved"
            )
        if row.changed:
            listed = ", ".join(map(str, row.changed[:12])) + (" ..." if len(row.changed) > 12 else "")
            typer.echo(f"{row.chip}, {row.weights}: changed, worst first: {listed}")


def _row(row: FigureRow) -> list[str]:
    dropped = "" if row.dropped is None else f"{row.dropped:.2%}"
    return [
        row.chip, row.weights, str(row.samples), _text(row.engine), _text(row.difference), str(len(row.changed)),
        str(row.nonfinite_samples), dropped, "stopped" if row.stopped else "",
    ]  # fmt: skip


def _text(side: Side) -> str:
    if side.interval is None:
        return f"{side.metric:.5g}"
    return f"{side.metric:.5g} ({side.interval[0]:.5g} to {side.interval[1]:.5g})"
