"""The verdict on every program with a recorded fate: none accepted is refused, the others meet the right rule."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import hexane
from hexane.restrictions import RULES

ACCEPTED = ("reported_ok", "structure_reported_ok")
WRONG = ("silent_wrong", "silent_zero", "silent_reorder")
FAILING = ("rejected", "eval_fails", "poisons_process")


def records(facts: Path) -> list[dict]:
    return json.loads((facts / "mil" / "index.json").read_text())


@pytest.fixture(scope="module")
def corpus(facts: Path) -> list[tuple[dict, list]]:
    """Every record with the findings of its program."""
    return [(record, findings(facts, record)) for record in records(facts)]


def findings(facts: Path, record: dict) -> list:
    return hexane.check_mil(
        (facts / "mil" / record["file"]).read_text(),
        chip=record["chip"],
        os=record["os"],
        interface=record["interface"],
        surfaces=record["surfaces"],
    )


def test_the_verdict_on_every_recorded_program(corpus: list[tuple[dict, list]]) -> None:
    table: Counter[tuple[str, str]] = Counter()
    for record, found in corpus:
        refused = any(f.severity in ("rejected", "fails") for f in found)
        spoiled = {f.rule for f in found if f.spoils}
        table[record["status"], "refused" if refused else "let pass"] += 1
        if record["status"] in ACCEPTED:
            assert not refused, (record["file"], [f for f in found if f.refuses])
        elif record["status"] in FAILING:
            assert refused, record["file"]
            assert spoiled & set(record["rules"]), (record["file"], spoiled)
        elif record["status"] in WRONG:
            assert spoiled & set(record["rules"]), (record["file"], spoiled)
        elif record["status"] == "disputed":
            assert {f.rule for f in found} & set(record["rules"]), record["file"]
    for (status, verdict), count in sorted(table.items()):
        print(f"{status:24} {verdict:10} {count}")
    assert sum(table.values()) >= 185


def test_no_rule_knows_a_file(facts: Path) -> None:
    """The verdict stays when names of values change: rules look at structure."""
    for record in records(facts)[::17]:
        text = (facts / "mil" / record["file"]).read_text()
        assert not any(record["file"].removesuffix(".mil") in rule.says for rule in RULES.values())
        renamed = text.replace("weights/", "other/")
        options = {"chip": record["chip"], "os": record["os"], "surfaces": record["surfaces"]}
        before = hexane.check_mil(text, **options, interface=record["interface"])
        after = hexane.check_mil(renamed, **options, interface=record["interface"])
        assert [(f.rule, f.severity, f.line) for f in before] == [(f.rule, f.severity, f.line) for f in after]


def test_places_lie_in_the_text(facts: Path, corpus: list[tuple[dict, list]]) -> None:
    for record, found in corpus[::5]:
        lines = (facts / "mil" / record["file"]).read_text().split("\n")
        for finding in found:
            assert 1 <= finding.line <= len(lines)
            assert 1 <= finding.column <= len(lines[finding.line - 1]) + 1
            assert finding.message
            assert finding.remedy
            assert finding.sources
