"""The register documentation in docs/ is what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hexane.image.text import assemble_image
from hexane.isa import GENERATIONS
from hexane.isa.docs import register_page, write_pages
from hexane.isa.generations import family_of

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_page_is_current(generation):
    page = DOCS / f"registers-{generation}.md"
    assert page.read_text() == register_page(family_of(generation).table), "run make docs"


def test_pages_name_every_field(tmp_path):
    for path, generation in zip(write_pages(tmp_path), GENERATIONS):
        text = path.read_text()
        for block in family_of(generation).table.blocks:
            for register in block.registers:
                assert f"**{register.name}" in text
                assert all(row.name in text for row in register.rows if row.known)


def test_the_texts_of_the_page_are_the_real_files(facts):
    """Every program that docs/assembly.md shows assembles to the very bytes of the file that it names."""
    shown = re.findall(r"^## (\w+)\.hwx\n.*?```hxs\n(.*?)```", (DOCS / "assembly.md").read_text(), re.M | re.S)
    assert len(shown) == 3
    for name, text in shown:
        assert assemble_image(text).to_bytes() == (facts / "hwx" / f"{name}.hwx").read_bytes()
