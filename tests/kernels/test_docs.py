"""The page on look-up tables is the one that the tables give."""

from pathlib import Path

from hexane.kernels.docs import PAGE, lookup_page


def test_page_is_current():
    page = Path(__file__).resolve().parents[2] / "docs" / PAGE
    assert page.read_text() == lookup_page(), "run make docs"
