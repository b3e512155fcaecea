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


def test_every_command_of_the_project_is_there() -> None:
    wanted = "run check estimate compile emulate disasm asm info diff edit kernels show convert report demo doctor"
    assert set(wanted.split()) <= set(commands())
