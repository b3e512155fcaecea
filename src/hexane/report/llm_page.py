"""The page of a language model: its programs, rates over the context, places, range and accuracy by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, log2, log10
from pathlib import Path
from typing import Any

from hexane.files import write_whole
from hexane.language.layer_errors import DIFFERS, LayerError, first_to_differ
from hexane.language.plan import DecoderPlan
from hexane.report.page import render
from hexane.timing.language import BILLION, decode_rate

WIDTH, HEIGHT, MARGIN = 720, 280, 44
COLOURS = ("#0b7285", "#e8590c", "#7048e8", "#2f9e44", "#c2255c", "#5f3dc4")
LEAST_CONTEXT, MOST_CONTEXT = 256, 65536


def write_page(
    path: Path, plans: Sequence[DecoderPlan], model: str, positions: int, scores: Mapping[str, Any] | None = None,
    errors: Sequence[LayerError] = (), answer: str | None = None,
) -> None:  # fmt: skip
    """Write one self-contained file; rates are drawn to the ``positions`` that the model has. Needs jinja2 (extra
    ``report``): UnsupportedError without."""
    lines, marks = _rates(plans, positions)
    text = render(
        "llm.html", plans=plans, plan=plans[0], model=model, lines=lines, marks=marks, size=(WIDTH, HEIGHT, MARGIN),
        scores=scores, errors=errors, bars=_bars(errors), first=first_to_differ(errors), differs=DIFFERS, answer=answer,
    )  # fmt: skip
    write_whole(path, text.encode())


def _rates(plans: Sequence[DecoderPlan], positions: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Decode rates of every chip over the context: polylines of the rate, and outlines one deviation to each side."""
    last = max(2 * LEAST_CONTEXT, min(positions, MOST_CONTEXT))
    contexts = [LEAST_CONTEXT * 2**n for n in range(int(log2(last / LEAST_CONTEXT)) + 1)]
    first: dict[str, DecoderPlan] = {}
    for plan in plans:
        first.setdefault(plan.chip, plan)
    rates = {
        chip: [decode_rate(chip, plan.parameters / BILLION, plan.timed_as, context) for context in contexts]
        for chip, plan in first.items()
    }
    high = max(rate[2] for row in rates.values() for rate in row)
    across = (WIDTH - 2 * MARGIN) / (len(contexts) - 1)
    at = lambda n, rate: (MARGIN + n * across, HEIGHT - MARGIN - rate / high * (HEIGHT - 2 * MARGIN))  # noqa: E731
    lines = []
    for number, (chip, row) in enumerate(rates.items()):
        side = [[at(n, rate[i]) for n, rate in enumerate(row)] for i in range(3)]
        outline = [*side[1], *reversed(side[2])]
        lines.append({"chip": chip, "colour": COLOURS[number % len(COLOURS)], "line": _points(side[0]),
                      "range": _points(outline)})  # fmt: skip
    ticks = [(at(0, high * part / 4)[1], high * part / 4) for part in range(5)]
    return lines, {"rates": ticks, "contexts": [(at(n, 0)[0], context) for n, context in enumerate(contexts)]}


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _bars(errors: Sequence[LayerError]) -> list[float]:
    """The length of each error, of 100, on a logarithmic scale from a hundred-thousandth to one."""
    lengths = (20 * (log10(max(e.stream, 1e-5)) + 5) if isfinite(e.stream) else 100.0 for e in errors)
    return [min(100.0, length) for length in lengths]
