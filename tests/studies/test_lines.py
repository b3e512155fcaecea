"""The lines of text of examples/lines.py: the same for everybody, and readable."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest


def test_lines_are_the_same_and_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    for needed in ("PIL", "matplotlib"):
        pytest.importorskip(needed)
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "examples"), *sys.path])
    example = importlib.import_module("lines")
    texts = example.lines(64)
    assert texts == example.lines(64) and len(set(texts)) > 40
    assert all(0 < len(text) <= 14 for text in texts)
    one, other = (example.picture(texts[0], np.random.default_rng(n)) for n in (0, 1))
    assert one.shape == (3, 48, 160) and one.dtype == np.float32 and np.abs(one).max() <= 1
    assert np.array_equal(one, example.picture(texts[0], np.random.default_rng(0))) and not np.array_equal(one, other)
    ink = one[0].mean(0)  # columns: the line begins at the left and ends before the right border
    assert abs(ink[:2] - ink[-2:]).max() < 0.2 < np.ptp(ink)
