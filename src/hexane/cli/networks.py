"""Parts that commands on networks share: opening one by the command's options, and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hexane
from hexane.cli.console import print_rows, title
from hexane.cli.options import parse_bindings, parse_shapes

if TYPE_CHECKING:
    from hexane.formats.open_shapes import OpenShapes
    from hexane.graph import Graph


def open_network(
    path: Path,
    *,
    outputs: str | None = None,
    function: str | None = None,
    shapes: Iterable[str] = (),
    bind: Iterable[str] = (),
    weights: Mapping[str, Path] | None = None,
) -> Graph:
    """Load a network by the options of a command, and cut it where asked."""
    shapes_by_name, values = parse_shapes(shapes) or None, parse_bindings(bind) or None
    graph = hexane.load(path, shapes=shapes_by_name, function=function, bind=values, weights=weights)
    return graph.cut([name.strip() for name in outputs.split(",")]) if outputs else graph


def open_shapes_json(error: OpenShapes) -> dict[str, Any]:
    """Facts known of a network whose shapes are open, as data."""
    rows = lambda shapes: [{"name": n, "shape": list(extents)} for n, extents in shapes.items()]  # noqa: E731
    return {
        "open": True,
        "inputs": rows(error.inputs),
        "outputs": rows(error.outputs),
        "kinds": error.kinds,
        "bind": list(error.options),
    }


def print_open_shapes(error: OpenShapes, name: str) -> None:
    """The same as tables."""
    from hexane.formats.open_shapes import shape_text

    title(f"{name} (open shapes)")
    rows = [["input", key, shape_text(extents)] for key, extents in error.inputs.items()]
    rows += [["output", key, shape_text(extents)] for key, extents in error.outputs.items()]
    print_rows([*rows, ["bind with", " ".join(error.options), ""]])
    if error.kinds:
        title("Operations, as the file has them")
        ordered = sorted(error.kinds.items(), key=lambda item: (-item[1], item[0]))
        print_rows([[kind, str(count)] for kind, count in ordered], ["operation", "count"], right=(1,))


def count_text(number: float) -> str:
    """1234567 as 1.23 M."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:g}"


def type_text(type_: Any) -> str:
    """``1x3x8x8 fp16``."""
    extents = "x".join("?" if extent is None else str(extent) for extent in type_.shape) or "scalar"
    return f"{extents} {type_.dtype}"


def network_json(graph: Graph, *, ops: bool = False, weights: bool = False) -> dict[str, Any]:
    """A network as data: what ``hexane show --json`` prints."""
    from hexane.graph.macs import macs_of
    from hexane.graph.summary import summarise, weight_stats

    function = graph.main
    summary = summarise(function)
    answer: dict[str, Any] = {
        "format": graph.metadata.get("format"),
        "function": function.name,
        "functions": list(graph.functions),
        "opset": function.opset,
        "inputs": [{"name": n, "dtype": t.dtype, "shape": list(t.shape)} for n, t in graph.inputs.items()],
        "outputs": [{"name": n, "dtype": t.dtype, "shape": list(t.shape)} for n, t in graph.outputs.items()],
        "ops": summary.ops,
        "parameters": summary.parameters,
        "parameter_bytes": summary.parameter_bytes,
        "macs": summary.macs,
        "kinds": summary.kinds,
        "macs_by_kind": summary.macs_by_kind,
        "assumed": graph.metadata.get("assumed", []),
        "allowed_shapes": graph.metadata.get("shapes", {}),
        "problems": [repr(problem) for problem in graph.problems],
    }
    if ops:
        answer["operations"] = [
            {
                "type": op.type,
                "name": op.name,
                "outputs": [{"name": v.name, "dtype": v.dtype, "shape": list(v.type.shape)} for v in op.outputs],
                "inputs": {p: [v.name for v in o] if isinstance(o, tuple) else o.name for p, o in op.inputs.items()},
                "macs": macs_of(op),
            }
            for op in function.walk()
        ]
    if weights:
        answer["weights"] = [
            {
                "name": row.name,
                "dtype": row.type.dtype,
                "shape": list(row.type.shape),
                "used_by": row.used_by,
                "min": row.low,
                "max": row.high,
                "mean_abs": row.mean_abs,
                "zeros": row.zeros,
            }
            for row in weight_stats(function)
        ]
    return answer


def allowed_text(allowed: dict[str, Any]) -> str:
    """The shapes that a flexible Core ML input allows."""
    from hexane.formats.open_shapes import allowed_shapes_text

    return allowed_shapes_text(allowed)


def print_network(graph: Graph, name: str, *, ops: bool = False, weights: bool = False) -> None:
    """A network as tables."""
    from hexane.graph.macs import macs_of
    from hexane.graph.summary import summarise, weight_stats

    function = graph.main
    summary = summarise(function)
    title(name)
    rows = [["input", key, type_text(type_)] for key, type_ in graph.inputs.items()]
    rows += [["output", key, type_text(type_)] for key, type_ in graph.outputs.items()]
    if len(graph.functions) > 1:
        rows.append(["functions", ", ".join(graph.functions), f"shown: {function.name}"])
    rows += [["shapes", key, allowed_text(allowed)] for key, allowed in graph.metadata.get("shapes", {}).items()]
    rows += [["taken", text, ""] for text in graph.metadata.get("assumed", ())]
    rows += [
        ["operations", str(summary.ops), ""],
        ["parameters", count_text(summary.parameters), f"{count_text(summary.parameter_bytes)}B"],
        ["MACs", count_text(summary.macs), ""],
    ]
    print_rows(rows)
    title("Operations")
    print_rows(
        [
            [kind, str(count), count_text(summary.macs_by_kind.get(kind, 0)) if kind in summary.macs_by_kind else ""]
            for kind, count in summary.kinds.items()
        ],
        ["operation", "count", "MACs"],
        right=(1, 2),
    )
    if ops:
        title("Every operation")
        print_rows(
            [
                [
                    op.outputs[0].name if op.outputs else "",
                    op.type,
                    ", ".join(type_text(value.type) for value in op.outputs),
                    count_text(macs) if (macs := macs_of(op)) else "",
                ]
                for op in function.walk()
            ],
            ["result", "operation", "type", "MACs"],
            right=(3,),
        )
    if weights:
        title("Weights")
        print_rows(
            [
                [row.name, type_text(row.type), row.used_by, *_numbers(row.low, row.high, row.mean_abs, row.zeros)]
                for row in weight_stats(function)
            ],
            ["weight", "type", "used by", "min", "max", "mean |w|", "zeros"],
            right=(3, 4, 5, 6),
        )
    if graph.problems:
        title("What was read past")
        print_rows([[repr(problem)] for problem in graph.problems])


def _numbers(low: float | None, high: float | None, mean: float | None, zeros: float | None) -> list[str]:
    if low is None or high is None or mean is None or zeros is None:
        return ["no data", "", "", ""]
    return [f"{low:.4g}", f"{high:.4g}", f"{mean:.4g}", f"{100 * zeros:.1f} %"]
