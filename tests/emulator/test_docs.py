"""The page of ignored bits is current, and the tables name fields that exist."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from hexane import isa
from hexane.emulator import docs
from hexane.emulator.ignored import IGNORED
from hexane.emulator.legal import ALWAYS, NE_ONLY, PE_ONLY

PAGE = Path(__file__).resolve().parents[2] / "docs" / docs.PAGE


def test_page_is_current() -> None:
    assert PAGE.read_text() == docs.page(), "run: python -m hexane.emulator.docs docs"


def _fields() -> list[str]:
    task = isa.Task("h13")
    dotted = []
    for block in task._family.table.blocks:
        for register in block.registers:
            name = f"{block.name}.{register.name}"
            names = [f"{name}[{i}]" for i in range(register.words)] if register.count else [name]
            dotted += [f"{n}.{field.name}" for n in names for field in register.fields]
    header = [f"Header[{i}].{f.name}" for i, r in enumerate(task._family.table.header) for f in r.fields]
    return dotted + header


def test_every_name_in_the_tables_is_a_field() -> None:
    fields = _fields()
    for name in (*ALWAYS, *NE_ONLY, *PE_ONLY):
        assert name in fields, name
    for entry in IGNORED:
        assert any(fnmatchcase(name, entry.pattern.replace("[", "[[]")) for name in fields), entry.pattern
