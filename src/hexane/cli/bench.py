"""``hexane bench``: how long a network takes on a device, beside what the timing model predicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hexane
from hexane.cli.console import print_json, print_rows, title
from hexane.cli.networks import open_network
from hexane.cli.options import Bind, Function, OnDevice, Shapes
from hexane.cli.progress import Bar
from hexane.counts import counted
from hexane.files import require_writable

if TYPE_CHECKING:
    from hexane.graph import Graph
    from hexane.program import Program
    from hexane.session.bench import Bench

PROGRAMS = (".hexane", ".hwx", ".anec")


def command(
    model: Annotated[Path, typer.Argument(help="A network, or a compiled program (.hexane, .hwx, .anec).")],
    device: OnDevice = "auto",
    chip: Annotated[str | None, typer.Option(help="The chip; left out: the device's, else M1.")] = None,
    calls: Annotated[int, typer.Option(metavar="N", help="Calls that are measured.")] = 50,
    warmup: Annotated[int, typer.Option(metavar="N", help="Calls before, beside the first one.")] = 3,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="NAME=FILE", help="As for hexane run; others are drawn.")
    ] = None,
    random: Annotated[int, typer.Option(metavar="SEED", help="Draw inputs that have no file.")] = 0,
    shape: Shapes = None,
    bind: Bind = None,
    function: Function = None,
    row: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add a row in the format of the timing data to this file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-bench/1).")] = False,
) -> None:
    """Time calls of a network on a device that keeps it loaded, beside the time that the model predicts.

    Only an engine's times are measurements; those of the emulator and of virtual devices are marked. Exit status 0:
    it ran, 2: an error.
    """
    from hexane.program import input_ports
    from hexane.runtime.devices import device_named
    from hexane.session.bench import append_row, require_counts
    from hexane.session.bench import bench as measure
    from hexane.session.inputs import gather

    require_counts(calls, warmup)
    if row is not None:
        require_writable(row)
    engine = device_named(device)
    with Bar(quiet=json) as bar:
        bar.stage("load")
        graph: Graph | None = None
        program: Program
        if model.suffix.lower() in PROGRAMS:
            program = hexane.load_program(model)
            inputs_read = gather(program.inputs, inputs or [], normalize=None, seed=random)
        else:
            graph = open_network(model, function=function, shapes=shape or (), bind=bind or ())
            inputs_read = gather(input_ports(graph), inputs or [], normalize=None, seed=random, graph=graph)
            bar.stage("compile")
            program = hexane.compile(graph, chip=chip or engine.chip or "M1")
        bar.stage(f"run on {engine.title}", calls)
        measurement = measure(
            program, inputs_read.arrays, engine, model=model.stem, graph=graph, calls=calls, warmup=warmup,
            on_call=bar.step,
        )  # fmt: skip
    if row is not None:
        append_row(measurement, row)
    if json:
        print_json({**measurement.as_dict(), "notes": list(inputs_read.notes), "row_file": str(row) if row else None})
    else:
        _show(measurement)
        if row is not None:
            typer.echo(f"row: {row}")


def _show(measurement: Bench) -> None:
    from hexane.session.bench import NO_ENGINE

    calls, predicted = measurement.calls, measurement.predicted
    title(f"{measurement.model} for {measurement.chip}, on {measurement.device}")
    rows: list[list[Any]] = []
    if not measurement.engine:
        rows.append(["note", NO_ENGINE])
    rows.append(["measured", f"{calls.median_us:.1f} us a call (mean {calls.mean_us:.1f}, "
                             f"{counted(len(calls.us), 'call')}); the first, with loading, "
                             f"{calls.first_us:.0f}"])  # fmt: skip
    host = f"; {counted(measurement.host_ops, 'op')} run on the host" if measurement.host_ops else ""
    rows.append(["the device's part", f"{calls.device_us:.1f} us (p10 {calls.p10_us:.1f}){host}"])
    if calls.busy_us is not None:
        kind = "the driver counts" if measurement.engine else "modelled"
        rows.append(["engine busy", f"{calls.busy_us:.1f} us a call ({kind})"])
    if predicted is None:
        rows.append(["predicted", f"nothing: {measurement.missing}"])
    else:
        low, high = predicted.latency_range_us
        wait = f"; the driver waits {measurement.settle_us:.0f} more" if measurement.settle_us else ""
        call = f"{predicted.latency_us:.1f} us a call ({low:.0f} to {high:.0f}), engine {predicted.engine_us:.1f}"
        rows.append(["predicted", f"{call}; interface {measurement.interface}{wait}"])
    if predicted is not None and measurement.engine:  # how fast this machine computes says nothing of the prediction
        rows.append(["ratio", f"{measurement.ratio:.3f} measured over predicted, of the device's part"])
    print_rows(rows)
