"""The page of plots draws every panel from measured rows."""

from __future__ import annotations

import pytest


def test_the_page_is_drawn(facts, tmp_path):
    pytest.importorskip("matplotlib")
    from hexane.report.timing_plots import PANELS, save_page
    from hexane.timing.calibrate import read_rows

    path = save_page(read_rows(facts / "perf" / "calibration.csv"), tmp_path / "timing.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(PANELS) == 6
