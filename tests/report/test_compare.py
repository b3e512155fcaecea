"""``hexane report``: one report in words, two side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from hexane.errors import FormatError, UsageError
from report.networks import command, saved, small


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("two")
    model = saved(small(), folder)
    for name, more in (("a", ()), ("b", ("--level", "graph", "--chip", "M5"))):
        command("run", model, "--random", 1, "--report", folder / name, *more, "--json")
    return folder / "a", folder / "b"


def test_one_report(two) -> None:
    text = command("report", two[0])
    assert "4 of 4" in text and "on the engine" in text
    assert command("report", two[0], "--json")["schema"] == "hexane-report/1"


def test_two_reports(two, tmp_path: Path) -> None:
    found = command("report", *two, "-o", tmp_path / "both", "--json")
    chips = next(row for row in found["figures"] if row["name"] == "chip")
    assert (chips["left"], chips["right"]) == ("M1", "M5")
    page = (tmp_path / "both" / "index.html").read_text()
    assert "M5" in page and "Figures" in page
    assert "level" in command("report", *two)


def test_what_is_no_report(two, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hexane run"):
        command("report", tmp_path, status=None)
    (tmp_path / "report.json").write_text('{"schema": "other/1"}')
    with pytest.raises(FormatError, match="other/1"):
        command("report", tmp_path, status=None)
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(FormatError, match="no report"):
        command("report", tmp_path, status=None)
