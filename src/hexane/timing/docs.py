"""Writes ``docs/timing-error.md``: the shipped constants and how well they do, from ``chips/measured.json``."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from hexane.chips.measured import _data, language, provenance
from hexane.timing.energy import ENERGY_PARAMETERS
from hexane.timing.language import LANGUAGE_PARAMETERS
from hexane.timing.parameters import PARAMETERS
from hexane.timing.ranges import HOST_SCATTER, UNTIMED_SCATTER, shipped
from hexane.timing.speculation import FORGE, PUBLISHED, PUBLISHED_RATES, verify_ms

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
    extra = facts["heads_and_formats"]
    for name, e in (
        ("held out", held_out),
        ("fitted", fitted),
        ("plain roofline", roof),
        ("heads of language models and weight formats, held out", extra["cross_validated"]),
        ("the same, fitted", extra["fitted"]),
    ):
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
        "## Whole networks",
        "",
        "| chip | network | measured, us | predicted over measured, held out | fitted |",
        "|---|---|---:|---:|---:|",
        *(
            f"| {chip} | {name} | {us:g} | {outside:.2f} | {inside:.2f} |"
            for chip, name, us, inside, outside in facts["whole_networks"]
        ),
    ]
    return "\n".join([*lines, *_ranges(facts), *_constants(), *_language(), *_verification()]) + "\n"


_COVERED = {
    "known_trust": "each row with its own trust",
    "unknown_trust": "each row as a measurement of average trust, as an estimate takes it",
    "widths_of_other_series": "widths fitted to four fifths of the series, rows of the other fifth",
}


def _ranges(facts: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "## Ranges",
        "",
        "Share of the rows left out within one, two and three standard deviations (a normal distribution: 68.3, 95.4",
        "and 99.7 %):",
        "",
        "| | one | two | three |",
        "|---|---:|---:|---:|",
    ]
    for name, (one, two, three) in facts["coverage_of_rows_left_out"].items():
        lines.append(f"| {_COVERED[name]} | {one:.1%} | {two:.1%} | {three:.1%} |")
    errors, others = shipped(), facts["other_networks"]
    lines += [
        "",
        "What a part of a time scatters by beyond what its constants leave open, as a one-sigma factor. It counts by",
        f"the part's share; every time scatters by {math.exp(errors.base):.3f} besides, a measurement of trust B by",
        f"{math.exp(errors.trust['B']):.3f}, one of trust C by {math.exp(errors.trust['C']):.3f}.",
        "",
        "| part | factor |",
        "|---|---:|",
        *(f"| {part} | {math.exp(width):.3f} |" for part, width in sorted(errors.scatter.items())),
        f"| a layer that nobody has timed (assumed) | {math.exp(UNTIMED_SCATTER):.3f} |",
        f"| ops on the host (assumed) | {math.exp(HOST_SCATTER):.3f} |",
        f"| a network or row of a source that no constant was fitted on | {math.exp(errors.others):.3f} |",
        "",
        f"The last is fitted to {others['rows']} rows of other people's networks, met within a mean factor of",
        f"{others['mean_factor']:.3f} (median {others['median']:.3f}); with each source left out in turn and the width",
        f"of the rest, {others['covered_sources_left_out']:.1%} lie within one standard deviation.",
    ]
    return lines


def _constants() -> list[str]:
    lines = [
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
    return lines


def _language() -> list[str]:
    facts = language()
    lines = [
        "",
        "## Language models",
        "",
        "`hexane.timing.language.decode_rate` beside published decoding rates. Counted are rows of trust A and B that",
        f"ran on the engine alone, one token a step: {facts['rows']} rows, mean factor {facts['mean_factor']:.3f}",
        f"fitted, {facts['mean_factor_left_out']:.3f} with every row of a model left out. The context is what",
        "attention runs over: the next rung where a program has a ladder of graphs.",
        "",
        "| constant | meaning | unit | value | factor | rows |",
        "|---|---|---|---:|---:|---:|",
    ]
    for parameter in LANGUAGE_PARAMETERS:
        entry = facts["constants"][parameter.name]
        lines.append(
            f"| `{parameter.name}` | {parameter.meaning} | {parameter.unit} | {entry['value']:g} "
            f"| {entry['factor']:.2f} | {entry['rows']} |"
        )
    lines += [
        "",
        "| chip | model | weights | context | batch | trust | measured | predicted | ratio | not counted | source |",
        "|---|---|---|---:|---:|---|---:|---:|---:|---|---|",
    ]
    for chip, model, fmt, context, batch, trust, measured, predicted, why_not, source in facts["table"]:
        numbers = f"{predicted:g} | {predicted / measured:.2f}" if predicted is not None else " | "
        row_text = f"{chip} | {model} | {fmt} | {context} | {batch} | {trust} | {measured:g}"
        lines.append(f"| {row_text} | {numbers} | {why_not} | {source} |")
    return lines


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _verification() -> list[str]:
    chip, params, fmt, source = FORGE
    rows, logs = [], []
    for call in PUBLISHED:
        for k in (8, 32, 64):
            published = call.fixed + call.slope * k
            predicted = verify_ms(chip, params, fmt, k * 1024, call.rows, call.cache_bytes)
            logs.append(abs(math.log(predicted / published)))
            times = f"{published:.1f} | {predicted:.1f} | {predicted / published:.2f}"
            rows.append(f"| {call.build} | {call.rows} | {k}K | {times} |")
    rates = []
    for positions, verified, words, beside, rate in PUBLISHED_RATES:
        own = verify_ms(chip, params, fmt, positions, 8, PUBLISHED[2].cache_bytes)
        predicted = 1e3 * words / (own + beside)
        both = f"{rate} | {predicted:.1f} | {predicted / rate:.2f}"
        rates.append(f"| {positions:,} | {words:.2f} | {verified} | {own:.1f} | {both} |")
    return [
        "",
        "## Verification of several rows, and prefill",
        "",
        f"`hexane.timing.speculation.verify_ms` beside the calls of {source}: that project's least squares over caches",
        "of 8K to 64K positions. Nothing is fitted to them. The cache is the model's own, 64 KiB a position in fp16,",
        "48.1 with values of 8 bits; narrow tiles are attention in pieces of 2,048 positions, which the model does not",
        "know: its cache rate is that of whole rows, and it counts the kernels of two joined engines as of one.",
        f"Mean factor {math.exp(sum(logs) / len(logs)):.2f}.",
        "",
        "| build | rows | context | published, ms | predicted, ms | ratio |",
        "|---|---:|---:|---:|---:|---:|",
        *rows,
        "",
        "The same project's server, seven words proposed: words a cycle as it counted them, 18.6 ms a cycle beside the",
        "verification.",
        "",
        "| positions | words a cycle | verification, ms | predicted | tok/s | predicted | ratio |",
        "|---:|---:|---:|---:|---:|---:|---:|",
        *rates,
    ]


def main() -> None:
    Path(sys.argv[1], NAME).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
