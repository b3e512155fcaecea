"""``hexane estimate``: time, energy and what limits them, for chips that one need not own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexane.cli.options import Bind, Shapes

if TYPE_CHECKING:
    from hexane.timing import Estimate

ENGINE_PROGRAMS = (".hwx", ".anec")


def register(app: typer.Typer) -> None:
    app.command("estimate")(estimate)


def estimate(
    model: Annotated[Path, typer.Argument(help="A network (.onnx, .mil, .mlpackage, .plist) or a compiled program.")],
    chip: Annotated[str, typer.Option(help="Chips, separated by commas, or all.")] = "M1",
    interface: Annotated[
        str, typer.Option(help="A call: evaluate, copies, copies_typical, coreml, linux or task.")
    ] = "evaluate",
    batch: Annotated[int | None, typer.Option(help="What if: this many times the batch.")] = None,
    weights: Annotated[str | None, typer.Option(help="What if: weights as fp16, int8, int4 or sparse.")] = None,
    resolution: Annotated[float | None, typer.Option(help="What if: height and width times this factor.")] = None,
    shape: Shapes = None,
    bind: Bind = None,
    ops: Annotated[bool, typer.Option("--ops", help="One row per layer or task.")] = False,
    coreml: Annotated[bool, typer.Option("--coreml", help="Where Core ML would put each op.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Write a timeline for chrome://tracing or Perfetto.")] = None,
    roofline: Annotated[Path | None, typer.Option(help="Write a roofline plot per chip into this folder.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-estimate/1).")] = False,
) -> None:
    """Estimate time and energy of a network or a compiled program.

    The model is mechanistic and calibrated on published measurements; docs/timing.md says how far to trust it.
    """
    from hexane import chips
    from hexane.cli.console import print_json
    from hexane.timing import estimates

    thing = _load(model, shape or [], bind or [])
    targets = chips.parse_list(chip)
    results = estimates(thing, targets, interface=interface, batch=batch, weights=weights, resolution=resolution)
    if trace is not None:
        _write_trace(results[0], trace)
    if roofline is not None:
        from hexane.report.roofline import save_roofline

        for target in targets:
            save_roofline(thing, target, roofline)
    if json:
        print_json({"schema": "hexane-estimates/1", "estimates": [result.as_dict() for result in results]})
        return
    _print(results)
    if ops:
        _print_ops(results[0])
    if coreml:
        _print_placement(thing, targets[0])


def _load(path: Path, shapes: list[str], bind: list[str]) -> Any:
    import hexane
    from hexane.cli.networks import open_network

    if path.suffix in ENGINE_PROGRAMS:
        return hexane.open_image(path)
    if path.suffix == ".hexane":
        return hexane.load_program(path)
    return open_network(path, shapes=shapes, bind=bind)


def _print(results: list[Estimate]) -> None:
    from hexane.cli.console import print_rows

    head = ["chip", "call us", "range", "engine us", "calls/s", "mJ", "of peak", "limited by"]
    rows = [
        [
            r.chip,
            f"{r.latency_us:.1f}",
            f"{r.latency_range_us[0]:.0f}..{r.latency_range_us[1]:.0f}",
            f"{r.engine_us:.1f}",
            f"{r.calls_per_second:.0f}",
            f"{r.energy_mj:.4f}",
            f"{r.utilisation:.1%}",
            r.bottleneck,
        ]
        for r in results
    ]
    print_rows(rows, head, right=(1, 2, 3, 4, 5, 6))
    for note in dict.fromkeys(f"{r.chip}: {note}" for r in results for note in r.notes):
        typer.echo(f"note: {note}")


def _print_ops(result: Estimate) -> None:
    from hexane.cli.console import print_rows, title

    title(f"layers on {result.chip}")
    rows = [
        [op.name, op.op, f"{op.us:.2f}", f"{op.compute_us:.2f}", f"{op.weights_us:.2f}", f"{op.activations_us:.2f}",
         f"{op.utilisation:.1%}", op.bottleneck + (" (extrapolated)" if op.extrapolated else "")]
        for op in result.ops
    ]  # fmt: skip
    head = ["layer", "op", "us", "compute", "weights", "activations", "of peak", "limited by"]
    print_rows(rows, head, right=(2, 3, 4, 5, 6))


def _print_placement(thing: Any, chip: Any) -> None:
    from hexane.cli.console import print_rows, title
    from hexane.errors import UsageError
    from hexane.timing import place

    if not hasattr(thing, "functions"):
        raise UsageError("Core ML places networks, not compiled programs", hint="give a model file with --coreml")
    placement = place(thing, chip)
    title(f"Core ML on {placement.chip.name}: {placement.engine_ops} of {len(placement.ops)} ops on the engine")
    rows = [
        [p.name, p.op, p.place, "" if p.engine_us is None else f"{p.engine_us:.1f}", f"{p.cpu_us:.1f}", p.reason]
        for p in placement.ops
    ]
    print_rows(rows, ["op", "type", "place", "engine us", "cpu us", "why"], right=(3, 4))


def _write_trace(result: Estimate, path: Path) -> None:
    from hexane.files import write_whole
    from hexane.formats.strict_json import strict_json
    from hexane.timing.trace import chrome_trace

    write_whole(path, strict_json(chrome_trace(result)).encode())
