"""Writes ``docs/timing-error.md``: the shipped constants and how well they do, from ``chips/measured.json``."""

from __future__ import annotations

import sys
from pathlib import Path

from hexane.chips.measured import _data, provenance
from hexane.timing.energy import ENERGY_PARAMETERS
from hexane.timing.parameters import PARAMETERS

NAME = "timing-error.md"


def page() -> str:
    """The page as Markdown."""
    facts = provenance()
    fitted, held_out, roof = facts["fitted"], facts["cross_validated"], facts["roofline"]
    lines = [
        "# Timing: error and constants",
        "",
        "Generated from `chips/measured.json` by `make docs`; `make calibrate` makes the numbers anew.",
        "",
        f"{_sentence(facts['source'])} {_sentence(facts['method'])}",
        f"Held out: {held_out['left_out']}, every constant fitted anew each time.",
        "A factor of 1.10 means: off by 10 % either way. The energy model meets the measured",
        f"engine-rail energies within a mean factor of {facts['energy_mean_factor']:.3f} (fitted, not held out).",
        "",
        "| | rows | mean factor | median | 90th percentile | mean over (chip, kind) cells |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, e in (("held out", held_out), ("fitted", fitted), ("plain roofline", roof)):
        lines.append(
            f"| {name} | {e['rows']} | {e['mean_factor']:.3f} | {e['median']:.3f} | {e['p90']:.3f} "
            f"| {e['cells_mean']:.3f} |"
        )
    for by, title in (("by_chip", "By chip"), ("by_kind", "By kind of workload")):
        lines += ["", f"## {title}", "", "| | rows | held out | fitted | roofline |", "|---|---:|---:|---:|---:|"]
        for key, (rows, factor) in held_out[by].items():
            lines.append(f"| {key} | {rows} | {factor:.3f} | {fitted[by][key][1]:.3f} | {roof[by][key][1]:.3f} |")
    lines += [
        "",
        "## Constants",
        "",
        "For all chips, with a one-sigma factor of uncertainty and the rows that speak for each; then what families",
        "and chips have of their own (early: up to H14, middle: H15 and H16, late: H17 on).",
        "",
        "| constant | meaning | unit | value | factor | rows | of their own |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    data = _data()
    for parameter in (*PARAMETERS, *ENERGY_PARAMETERS):
        entry = data["shared"][parameter.name]
        owners = {**data["families"], **data["chips"]}
        own = ", ".join(f"{o} {e[parameter.name]['value']:g}" for o, e in owners.items() if parameter.name in e)
        lines.append(
            f"| `{parameter.name}` | {parameter.meaning} | {parameter.unit} | {entry['value']:g} "
            f"| {entry['factor']:.2f} | {entry['rows']} | {own} |"
        )
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def main() -> None:
    Path(sys.argv[1], NAME).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
