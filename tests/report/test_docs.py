"""Documentation that comes from tables is current, and every link between pages leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hexane.cli.docs import commands, with_usage
from hexane.report.docs import limits_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", commands())
def test_every_command_has_a_page_that_is_current(name: str) -> None:
    text = (ROOT / "docs" / "commands" / f"{name}.md").read_text()
    assert with_usage(text, name, commands()[name]) == text, "run `make docs`"
    assert "Exit status" in text


def test_the_limits_are_current() -> None:
    assert (ROOT / "docs" / "limits.md").read_text() == limits_page(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http", "mailto:")):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    "page, below", [("contributing", "."), ("codegen", "codegen"), ("residency", "codegen/memory")]
)
def test_files_that_pages_name_are_there(page: str, below: str) -> None:
    """Below `src/hexane`, or as paths of the repository; `hNN`, `NAME` and `FAMILY` stand for others."""
    package = ROOT / "src/hexane"
    text = (ROOT / "docs" / f"{page}.md").read_text()
    places = (package / below, package, ROOT)
    names = [name for name in re.findall(r"`([\w./]+\.(?:py|md))`", text) if not re.search(r"hNN|NAME|FAMILY", name)]
    missing = [name for name in names if not any((place / name).exists() for place in places)]
    assert names and not missing, missing


def test_every_command_of_the_project_is_there() -> None:
    wanted = "run check estimate compile emulate disasm asm info diff edit kernels show convert report demo doctor"
    assert set(wanted.split()) <= set(commands())
