"""``python tools/fuzz page``: the figures of `runs.json` into docs/fuzzing.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

RUNS = Path(__file__).with_name("runs.json")
PAGE = Path(__file__).parents[2] / "docs" / "fuzzing.md"
BEGIN, END = "<!-- figures: python tools/fuzz page -->\n", "<!-- end -->\n"


def table(runs: list[dict]) -> str:
    """A row for each run, and the sums of each kind."""
    rows = ["| kind | seed | networks | ops | programs | tasks | failed | slowest |", "|---|---:|" + "---:|" * 6]
    sums: dict[str, Counter[str]] = {}
    for run in runs:
        counts = Counter(run["counts"])
        failed = sum(number for name, number in counts.items() if name.startswith("failed"))
        total = sums.setdefault(run["kind"], Counter())
        total.update({name: counts[name] for name in ("networks", "ops", "programs", "tasks")}, failed=failed)
        total["slowest, ms"] = max(total["slowest, ms"], counts["slowest, ms"])
        rows.append(_row(run["kind"], str(run["seed"]), counts, failed))
    rows += [_row(f"{kind} together", "", total, total["failed"]) for kind, total in sums.items()]
    return "\n".join(rows) + "\n"


def _row(kind: str, seed: str, counts: Counter[str], failed: int) -> str:
    numbers = " | ".join(f"{counts[name]:,}" for name in ("networks", "ops", "programs", "tasks"))
    return f"| {kind} | {seed} | {numbers} | {failed} | {counts['slowest, ms'] / 1000:.1f} s |"


def main(_: Sequence[str]) -> int:
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    PAGE.write_text(head + BEGIN + "\n" + table(json.loads(RUNS.read_text())) + "\n" + END + rest.split(END)[1])
    return 0
