"""The page of ignored bits is current, and the tables name fields that exist."""

from __future__ import annotations

import re
from pathlib import Path

from hexane import emulator
from hexane.emulator import docs
from hexane.emulator.ignored import EMULATED, IGNORED, generations_of
from hexane.emulator.legal import ALWAYS, HEADER_H13, NE_ONLY, PE_ONLY
from hexane.isa.roles import VOCABULARY, roles_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / docs.PAGE


def test_page_is_current() -> None:
    assert PAGE.read_text() == docs.page(), "run: python -m hexane.emulator.docs docs"


def test_every_name_in_the_tables_is_a_field() -> None:
    for name in (*ALWAYS, *NE_ONLY, *PE_ONLY):
        assert name in VOCABULARY, name
    assert all(roles_of("h13").family.table.handle(name) for name in HEADER_H13)
    for entry in IGNORED:
        assert generations_of(entry), entry.pattern


def test_the_emulator_asks_for_roles_only() -> None:
    """Every dotted name in its code is a role, a header field of H13 or a field that one generation alone has."""
    known = set(VOCABULARY) | {n for g in EMULATED for n in names_of(g)}
    dotted = re.compile(r'"((?:Task|Common|L2|PE|NE|TileDMASrc|TileDMADst|KernelDMASrc)[.]\w+[.]\w+)"')
    for path in Path(emulator.__file__).parent.glob("*.py"):
        for name in dotted.findall(path.read_text()):
            assert name in known, f"{path.name}: {name}"


def names_of(generation: str) -> set[str]:
    registers = roles_of(generation).family.table.by_key.values()
    return {f"{name}.{field.name}" for name, register in registers for field in register.fields}
