"""The generated page is current."""

from __future__ import annotations

from pathlib import Path

from hexane.timing.docs import NAME, page


def test_the_error_page_is_current():
    assert (Path(__file__).parents[2] / "docs" / NAME).read_text() == page(), "run make docs"
