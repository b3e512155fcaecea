"""docs/operations.md is what the vocabulary says."""

from __future__ import annotations

from pathlib import Path

from hexane.graph.docs import page


def test_the_list_of_operations_is_current():
    path = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
    assert path.read_text(encoding="utf-8") == page(), "run make docs"


def test_every_operation_is_explained():
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) >= 170
    assert all(row.split(" | ")[2].strip(" |") for row in rows)
