"""``hexane info FILE``: what an engine program is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexane.cli.console import print_json, print_rows, title
from hexane.cli.engine_files import FILE_HELP, SegmentNumber, engine_program, package_of

if TYPE_CHECKING:
    from hexane.program import Program

HEAD = [
    "task", "offset", "words", "operation", "in C x H x W", "out C x H x W", "kernel", "reads", "writes", "does",
]  # fmt: skip
FEW = 100
"""Tasks that are listed unless all are asked for."""


def command(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    every: Annotated[bool, typer.Option("--all", help=f"List all tasks, not only the first {FEW}.")] = False,
    segment: SegmentNumber = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show generation, compiler, surfaces, tasks, kernels and sections of an engine program.

    Of a .hexane package with several segments: what the segments are; --segment N shows one.
    """
    from hexane.emulator.placement import with_placements
    from hexane.image.summary import summary_of

    package = package_of(file) if segment is None else None
    if package is not None and sum(part.image is not None for part in package.segments) != 1:
        _show_package(file, package, json)
        return
    image = engine_program(file, segment, lenient=True)
    summary = {"file": str(file), **with_placements(summary_of(image), image)}
    if json:
        print_json({"schema": "hexane-info/1", **summary}, file)
    else:
        _show(summary, None if every else FEW)


def _show_package(file: Path, package: Program, json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "segment": i,
            "kind": part.kind,
            "tasks": None if part.image is None else len(part.image.tasks),
            "ops": len(part.ops),
            "inputs": [port.name for port in part.inputs],
            "outputs": [port.name for port in part.outputs],
        }
        for i, part in enumerate(package.segments)
    ]
    if json:
        answer = {"schema": "hexane-info/1", "file": str(file), "chip": package.chip, "dialect": package.dialect}
        print_json({**answer, "segments": rows}, file)
        return
    print_rows([["file:", str(file)], ["chip:", package.chip], ["dialect:", package.dialect]])
    title("segments (--segment N shows one of the engine's)")
    names = list(rows[0]) if rows else []
    texts = [[", ".join(v) if isinstance(v, list) else "-" if v is None else v for v in row.values()] for row in rows]
    print_rows(texts, names, (0, 2, 3))


def _show(summary: dict[str, Any], most: int | None) -> None:
    print_rows([[f"{name}:", value] for name, value in _facts(summary)])
    if summary["surfaces"]:
        title("surfaces")
        print_rows(
            [
                [s["role"], s["name"], _dims(s["shape"]), s["dtype"], _strides(s["strides"]), _channel(s["channel"])]
                for s in summary["surfaces"]
            ],
            ["role", "name", "N x C x H x W", "type", "strides n, c, h, w", "channel"],
            (5,),
        )
    if summary["tasks"] and "problem" in summary["tasks"][0]:
        title("tasks")
        print_rows([[summary["tasks"][0]["problem"]]])
    elif summary["tasks"]:
        title("tasks")
        print_rows(
            [
                [
                    t["task"],
                    f"{t['offset']:#x}",
                    t["words"],
                    t["operation"],
                    _dims(t["input"]),
                    _dims(t["output"]),
                    _kernel(t),
                    ", ".join(t["reads"]),
                    t["writes"],
                    t["does"],
                ]
                for t in summary["tasks"][:most]
            ],
            HEAD,
            (0, 1, 2),
        )
        if most is not None and len(summary["tasks"]) > most:
            print_rows([[f"... and {len(summary['tasks']) - most} more; --all lists them"]])
    if summary["not_followed"]:
        print_rows([["reads and writes end where the emulator refuses a task:", summary["not_followed"]]])
    if summary["sections"]:
        title("sections")
        print_rows(
            [
                [
                    f"{s['segment']},{s['section']}",
                    f"{s['address']:#x}",
                    s["bytes"],
                    "not in the file" if s["offset"] is None else f"{s['offset']:#x}",
                ]
                for s in summary["sections"]
            ],
            ["section", "address", "bytes", "in the file at"],
            (1, 2),
        )


def _facts(summary: dict[str, Any]) -> list[tuple[str, Any]]:
    rule = "every byte follows from the values" if summary["laid_out_by_rule"] else "read as it stands"
    facts = [
        ("file", summary["file"]),
        ("generation", summary["generation"]),
        ("container", f"{summary['container']} ({rule})"),
        ("compiler", summary["compiler"] or "not recorded"),
        ("compiled from", summary["input_path"]),
        ("procedure", summary["procedure"]),
        ("tasks", f"{summary['task_count']} in {summary['text_bytes']} bytes"),
        ("constants", f"{summary['const_bytes']} bytes"),
        ("scratch", f"{summary['scratch_bytes']} bytes" if summary["scratch_bytes"] else None),
        ("symbols", f"{summary['symbol_count']}, relocations {summary['relocation_count']}"),
        ("unexplained", f"{summary['unexplained_bytes']} bytes" if summary["unexplained_bytes"] else None),
    ]
    return [(name, value) for name, value in facts if value not in (None, "")]


def _dims(shape: list[int]) -> str:
    return " x ".join(map(str, shape))


def _strides(strides: list[int]) -> str:
    return ", ".join(map(str, strides))


def _channel(channel: int | None) -> str:
    return "-" if channel is None else str(channel)


def _kernel(task: dict[str, Any]) -> str:
    if task["kernel"] is None:
        return "-"
    place = "" if task["kernel_channel"] == 1 else f" from channel {task['kernel_channel']}"
    return f"{task['kernel']}, {task['kernel_bytes']} bytes{place}"
