"""No rule, text or limit stands twice: read off the rules themselves and what they say of one and the same op."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path

import pytest

import hexane
from hexane.report.errata import ERRATA, Erratum
from hexane.restrictions import RULES
from hexane.restrictions.remarks import remarks

FOLDER = Path(hexane.__file__).parent / "restrictions"
LEAST = 200
"""Whole numbers from here on, and fractions, are limits; smaller ones count axes, lanes, releases."""
EVERYWHERE = {512, 1024, 0.01, 0.5, 0.7978846}
"""Sizes of unlike things: queries and element-wise ops; a number to round and channels; shares; and what a gelu is
written with."""


def twice(items: list[str]) -> set[str]:
    return {item for item, count in Counter(items).items() if count > 1}


def test_ids_names_and_texts_are_each_one_rules() -> None:
    assert twice([rule.name for rule in RULES.values()]) == set()
    assert twice([rule.says for rule in RULES.values() if rule.says != "{what}"]) == set()


def test_a_limit_is_written_in_one_function_or_has_a_name() -> None:
    places = defaultdict(set)
    for path in sorted(FOLDER.glob("*.py")):
        for top in ast.parse(path.read_text()).body:
            name = f"{path.stem}.{getattr(top, 'name', '')}"
            for node in ast.walk(top):
                value = node.value if isinstance(node, ast.Constant) else None
                if type(value) in (int, float) and (value >= LEAST or value % 1):
                    places[value].add(name)
    several = {value: names for value, names in places.items() if len(names) > 1 and value not in EVERYWHERE}
    assert several == {}


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.rule}-{row.name.replace(' ', '-')}") for row in ERRATA])
def test_one_op_and_one_limit_are_one_remark(row: Erratum) -> None:
    """Two rules that say the same limit of one op are one rule that stands twice."""
    graph = row.graph()
    values = row.values(graph) if row.rule != "C2" else None
    for chip in ("M1", "M4", "M5"):
        for op, rows in remarks(graph, hexane.chips.get(chip), values).items():
            pairs = [(a.rule, b.rule) for a, b in combinations(rows, 2) if a.rule != b.rule and a.limit == b.limit]
            assert pairs == [], op.type
