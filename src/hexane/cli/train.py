"""``hexane train``: train a network, its passes as programs of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexane.cli.console import print_json, print_rows, title
from hexane.cli.progress import Steps
from hexane.counts import counted

if TYPE_CHECKING:
    from hexane.train.job import TrainingRun


def command(
    config: Annotated[Path, typer.Argument(help="A TOML file; its keys are in the table below.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint, bit for bit; from the start where none is.")
    ] = False,
    overwrite: Annotated[bool, typer.Option(help="Begin anew though there is a checkpoint.")] = False,
    page: Annotated[
        bool, typer.Option(help="Write index.html: curves, lost products, predicted time and energy.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-train/1).")] = False,
) -> None:
    """Train a network with the engine's arithmetic, float32 beside it: forward and backward pass are engine programs.

    Killed at any moment, the same command with --resume goes on from the last checkpoint and ends with the same bits.
    """
    from hexane.train.job import CHECKPOINT, NETWORK, PAGE, WEIGHTS
    from hexane.train.job import train as run_training
    from hexane.train.settings import read_settings

    with Steps(quiet=json) as steps:
        run = run_training(read_settings(config), resume=resume, overwrite=overwrite, on_progress=steps.hear)
    if page:
        from hexane.report.train_page import write_page

        write_page(run, run.folder / PAGE)
    if json:
        print_json(run.as_dict())
        return
    _print(run)
    names = (CHECKPOINT, WEIGHTS, NETWORK, *((PAGE,) if page else ()))
    typer.echo(f"{run.folder}: {', '.join(names)}")


def _print(run: TrainingRun) -> None:
    trainer, curves = run.trainer, run.curves
    head = ["step", "loss", "float32", "norm", "loss scale", "rate"]
    count = len(curves["loss"])
    steps_listed = sorted({*range(0, count, max(1, count // 10)), count - 1}) if count else []
    rows = [
        [str(n + 1), *(f"{curves[name][n]:.5g}" for name in ("loss", "float32", "norm", "scale", "rate"))]
        for n in steps_listed
    ]
    print_rows(rows, head, right=(0, 1, 2, 3, 4, 5))
    elements = sum(array.size for array in trainer.weights.values())
    typer.echo(
        f"{counted(trainer.step_count, 'step')} on {trainer.chip.name}, level {trainer.level}; "
        f"{counted(len(trainer.weights), 'weight')} with {elements:,} elements; "
        f"{trainer.scale.skipped} steps skipped for infinities"
    )
    if trainer.programs.way:
        predicted = ", ".join(f"{way} {us:.0f} us" for way, us in trainer.programs.predicted.items())
        typer.echo(f"weights renewed by {trainer.programs.way} (predicted for a step: {predicted})")
    for name, figures in run.test.items():
        typer.echo(f"test, {name}: {', '.join(f'{key} {value:.5g}' for key, value in figures.items())}")
    if run.guesses:
        title("loss scales at the first step")
        cells = [
            [f"{row['scale']:g}" + (" (computed)" if row["computed"] else ""), f"{row['lost']:.3%}",
             f"{row['backward']:.3%}", f"{row['headroom_bits']:.1f}"] for row in run.guesses
        ]  # fmt: skip
        print_rows(cells, ["scale", "products lost", "backward", "headroom, bits"], right=(1, 2, 3))
    title("predicted for a step")
    costs = [
        [row.chip, f"{row.forward_us / 1e3:.3f}", f"{row.backward_us / 1e3:.3f}", f"{row.energy_mj:.3f}", row.basis]
        for row in run.costs
    ]
    print_rows(costs, ["chip", "forward, ms", "backward, ms", "energy, mJ", "basis"], right=(1, 2, 3))
