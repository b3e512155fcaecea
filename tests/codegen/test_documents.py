"""Generated documents say what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.parity import DIFFERENT

ROOT = Path(__file__).resolve().parents[2]


def test_recipes_document():
    made = subprocess.run([sys.executable, "tools/recipes.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_parity_document_names_what_differs():
    """Without compiling: the document's rows are the table that ``test_parity`` holds the compiler to."""
    text = (ROOT / "docs" / "parity.md").read_text()
    sections = {part.split("\n", 1)[0]: part for part in text.split("\n## ")[1:]}
    assert list(sections) == [*DIFFERENT, "By number of layers", "Several layers"]
    for target, rows in DIFFERENT.items():
        found = {line.split(" | ")[0][2:]: line.split(" | ")[-1][:-2] for line in sections[target].splitlines()}
        assert {name: found.get(name) for name in rows} == rows
        same, programs = re.search(r"\*\*(\d+) of (\d+) programs", sections[target]).groups()
        assert int(programs) - int(same) == len(rows)


@pytest.mark.slow
def test_parity_document(facts):
    made = subprocess.run([sys.executable, "tools/parity.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
