"""Generated documents say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_recipes_document():
    made = subprocess.run([sys.executable, "tools/recipes.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_parity_document(shared):
    made = subprocess.run([sys.executable, "tools/parity.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
