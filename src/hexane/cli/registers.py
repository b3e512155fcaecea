"""``hexane registers NAME|OFFSET``: what a register or a field of a task descriptor is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from hexane.cli.console import print_json, print_rows


def command(
    what: Annotated[
        str,
        typer.Argument(
            help="A name or a part of one, a byte offset in a task (0x128), an address of the engine (0x13800), "
            'each also with a bit ("TileDMADst.Fmt 27").'
        ),
    ],
    generation: Annotated[str, typer.Option("--generation", help="h13 (A14, M1) to h19.")] = "h13",
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-registers/1).")] = False,
) -> None:
    """Look a register or field up: where it lies in the engine and in a task, its meaning, values, evidence."""
    from hexane.isa.lookup import lookup

    entries = lookup(what, generation)
    if json:
        rows = [{**asdict(entry), "values": {str(k): v for k, v in entry.values.items()}} for entry in entries]
        print_json({"schema": "hexane-registers/1", "generation": generation, "asked": what, "fields": rows})
    else:
        _show([asdict(entry) for entry in entries])


def _show(entries: list[dict[str, Any]]) -> None:
    print_rows(
        [
            [
                entry["name"] + ("" if entry["apple_name"] else "*"),
                "header" if entry["address"] is None else f"{entry['address']:#07x}",
                "" if entry["offset"] is None else f"{entry['offset']:#x}",
                entry["bits"],
                entry["meaning"] or entry["register_meaning"],
                ", ".join(f"{value} {name}" for value, name in entry["values"].items()) or entry["unit"],
                entry["evidence"],
            ]
            for entry in entries
        ],
        ["field", "engine", "in a task", "bits", "meaning", "values", "evidence"],
    )
    if not all(entry["apple_name"] for entry in entries):
        typer.echo("* a name that Apple's debug printer does not print for this generation")
