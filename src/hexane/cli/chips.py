"""``hexane chips [NAME]``: what is known of each chip, and how."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hexane.cli.console import print_json, print_rows, title

MEASURED = {
    "weights_gbs": "weights",
    "activations_gbs": "activations",
    "floor_evaluate_us": "a call, surfaces filled in place",
    "floor_copies_us": "a call that copies in and out",
}
"""Constants of the timing model that are shown: streams out of DRAM, and what a call takes by itself."""
FIRST_MEASURED = 7
"""Version of the task descriptor from which on anything was measured: H13."""


def command(
    name: Annotated[
        str, typer.Argument(help='Chips, separated by commas (M1,"M4 Max"), or all; left out: every chip.')
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON (schema hexane-chips/1).")] = False,
) -> None:
    """Print what is known of chips: cores, clock, operations per second, memories, time of a call, evidence."""
    from hexane.chips import CHIPS, parse_list

    rows = [_facts(chip) for chip in (parse_list(name) if name else CHIPS)]
    if json:
        print_json({"schema": "hexane-chips/1", "chips": rows})
    else:
        _show(rows)


def _facts(chip: Any) -> dict[str, Any]:
    """A chip as plain data; every fact that another source may contradict has its evidence beside it."""
    from hexane.timing.call import LINUX_FLOOR_US

    generation = chip.generation
    compiled_for = generation.descriptor_version >= FIRST_MEASURED
    measured = {key: _measured(chip, key) if compiled_for else None for key in MEASURED}
    tops = 2 * chip.peak_macs_per_us / 1e6
    int8 = chip.int8_rate
    return {
        "name": chip.name,
        "soc": chip.soc,
        "target": chip.target,
        "generation": chip.generation_name,
        "aliases": list(chip.aliases),
        "cores": chip.cores,
        "engines": chip.engines,
        "clock_mhz": chip.clock_mhz,
        "macs_per_core_cycle": chip.macs_per_core_cycle,
        "tops_fp16": round(tops, 2),
        "tops_int8": None if int8 is None else round(tops * int8[0], 2),
        "tops_advertised": chip.advertised_tops,
        "advertised_means": _meaning(chip.advertised_tops, tops, None if int8 is None else tops * int8[0]),
        "l2_bytes": generation.l2_bytes * chip.engines if compiled_for else None,
        "kernel_bytes_per_core": generation.kernel_bytes_per_core,
        "dram": {"peak_gbs": chip.dram_gbs} | {key: measured[key] for key in ("weights_gbs", "activations_gbs")},
        "dispatch": {
            **{key: measured[key] for key in ("floor_evaluate_us", "floor_copies_us")},
            "linux_us": LINUX_FLOOR_US.get(chip.name),
        },
        "evidence": {
            "clock_mhz": str(chip.clock_evidence),
            "cores": str(generation.evidence) if compiled_for else "INFERRED",
            "tops_fp16": str(chip.clock_evidence),
            "tops_int8": None if int8 is None else str(int8[1]),
            "l2_bytes": str(generation.evidence) if compiled_for else None,
        },
    }


def _measured(chip: Any, name: str) -> dict[str, Any] | None:
    """A constant of the timing model with its provenance; None for a relative's that this chip's memory cannot give."""
    from hexane.chips.measured import constants

    constant = constants(chip)[name]
    if constant.unit == "GB/s" and constant.chip != chip.name and constant.value > (chip.dram_gbs or constant.value):
        return None
    return {
        "value": constant.value, "unit": constant.unit, "factor": constant.factor, "evidence": str(constant.evidence),
        "measured_on": constant.chip,
    }  # fmt: skip


def _meaning(advertised: float | None, fp16: float, int8: float | None) -> str | None:
    """Precision that an advertised number means: the nearer one; None where neither is within a fifth of it."""
    if advertised is None:
        return None
    near = {word: abs(tops / advertised - 1) for word, tops in (("fp16", fp16), ("int8", int8)) if tops is not None}
    word = min(near, key=lambda key: near[key])
    return word if near[word] <= 0.2 else None


def _show(rows: list[dict[str, Any]]) -> None:
    def text(value: Any) -> str:
        return "not known" if value is None else f"{value:g}"

    def figure(row: dict[str, Any], part: str, key: str) -> str:
        entry = row[part][key]
        if entry is None:
            return "not known"
        return f"{entry['value']:.3g}{'' if entry['measured_on'] == row['name'] else '*'}"

    def advertised(row: dict[str, Any]) -> str:
        stated = row["tops_advertised"]
        return "" if stated is None else f"{stated:g} ({row['advertised_means'] or '?'})"

    print_rows(
        [
            [
                row["name"], row["generation"], row["cores"], f"{row['clock_mhz']:g}", text(row["tops_fp16"]),
                text(row["tops_int8"]), advertised(row),
                "not known" if row["l2_bytes"] is None else f"{row['l2_bytes'] // 2**20} MiB",
                text(row["dram"]["peak_gbs"]),
                *(figure(row, "dram", key) for key in ("weights_gbs", "activations_gbs")),
                *(figure(row, "dispatch", key) for key in ("floor_evaluate_us", "floor_copies_us")),
                row["evidence"]["clock_mhz"],
            ]
            for row in rows
        ],
        ["chip", "engine", "cores", "MHz", "TOPS fp16", "TOPS int8", "advertised", "L2", "DRAM GB/s", "weights GB/s",
         "activations GB/s", "call us", "with copies us", "evidence (clock)"],
        right=(2, 3, 4, 5, 8, 9, 10, 11, 12),
    )  # fmt: skip
    typer.echo("* not measured on this very chip: a relative's, or one that all chips share")
    if len(rows) == 1:
        (row,) = rows
        entries = [(key, row[part][key]) for part in ("dram", "dispatch") for key in MEASURED if row[part].get(key)]
        if entries:
            title("Where the figures come from")
        print_rows(
            [[MEASURED[key], f"{e['value']:.4g} {e['unit']}", f"within a factor of {e['factor']:.2f}",
              e["measured_on"] or "all chips", e["evidence"]] for key, e in entries],
            ["", "value", "one sigma", "measured on", "evidence"] if entries else None,
        )  # fmt: skip
