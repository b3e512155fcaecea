"""``python tools/fuzz page``: the figures of `runs.json` into docs/fuzzing.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

RUNS = Path(__file__).with_name("runs.json")
PAGE = Path(__file__).parents[2] / "docs" / "fuzzing.md"
BEGIN, END = "<!-- figures: python tools/fuzz page -->\n", "<!-- end -->\n"


SUMMED = ("networks", "ops", "programs", "tasks")
FAILURES = ("bare", "refused", "bits", "late")


def table(runs: list[dict]) -> str:
    """A row for each run, and the sums of each kind."""
    rows = ["| kind | seed | " + " | ".join((*SUMMED, *FAILURES)) + " | other | slowest |", "|---|---:|" + "---:|" * 10]
    sums: dict[str, Counter[str]] = {}
    for run in runs:
        counts = Counter(run["counts"])
        total = sums.setdefault(run["kind"], Counter())
        slowest = max(total["slowest, ms"], counts["slowest, ms"])
        total.update(counts)
        total["slowest, ms"] = slowest
        rows.append(_row(run["kind"], str(run["seed"]), counts))
    rows += [_row(f"{kind} together", "", total) for kind, total in sums.items()]
    return "\n".join(rows) + "\n"


def _row(kind: str, seed: str, counts: Counter[str]) -> str:
    failed = {name: number for name, number in counts.items() if name.startswith("failed")}
    known = [failed.pop(f"failed: {name}", 0) for name in FAILURES]
    numbers = [counts[name] for name in SUMMED] + known + [sum(failed.values())]
    return (
        f"| {kind} | {seed} | " + " | ".join(f"{n:,}" for n in numbers) + f" | {counts['slowest, ms'] / 1000:.1f} s |"
    )


def main(_: Sequence[str]) -> int:
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    PAGE.write_text(head + BEGIN + "\n" + table(json.loads(RUNS.read_text())) + "\n" + END + rest.split(END)[1])
    return 0
