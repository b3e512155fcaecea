"""Look registers and fields up: by name, by the engine's address, by byte offset in a task.

Names may have the prefixes of Apple's debug printer (``aneTD.``, ``aneRegs.``), or be those of the first notes on the
engine (``InputWidth``; `OLDER_NAMES` of the schema). Offsets are those of a task of H13 that
writes every register, which is the form of the compiler of 2020 (docs/reference/engine-h13.md 4): other tasks leave
registers out, and `hexane disasm --json` of a program gives theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from hexane.counts import counted
from hexane.errors import UsageError
from hexane.isa.generations import family_of
from hexane.isa.records import canonical
from hexane.isa.schema import Field, Register, Table, Unit, Values, plain_name

MOST = 400
"""Fields that one answer holds."""


@dataclass(frozen=True)
class LookupEntry:
    """A field: dotted name, where it lies, what it means.

    ``address`` is the register's byte address in the engine (None for header words), ``offset`` the byte offset of its
    word in a whole task (None where tasks have no fixed form), ``bits`` as ``high:low``, ``mask`` the bits in the word.
    """

    name: str
    address: int | None
    offset: int | None
    bits: str
    mask: int
    meaning: str
    register_meaning: str
    unit: str
    values: dict[int, str]
    evidence: str
    apple_name: bool
    reset: int | None


def lookup(text: str, generation: str = "h13") -> list[LookupEntry]:
    """Fields that a name, an address or an offset names, in the order of a task.

    ``text`` is a dotted name or a part of one (``InDim``, ``aneTD.Header[0].NID``, ``NE.MACCfg``) or a number: an
    offset where a whole task of H13 has one, else the engine's address (``task:0x128`` and ``engine:0x13800`` say
    which). A bit may follow: ``"TileDMADst.Fmt 27"``. UsageError where nothing fits.
    """
    table = family_of(generation).table
    words = text.split()
    if not 1 <= len(words) <= 2 or (len(words) == 2 and not words[1].isdecimal()):
        raise UsageError(
            f"{text!r} is no name, address or offset", hint='InDim, 0x128, engine:0x13800, "TileDMADst.Fmt 27"'
        )
    entries = _by_number(table, words[0]) if re.match(r"(task:|engine:)?(0x[0-9a-fA-F]+|\d+)$", words[0]) else None
    if entries is None:
        entries = _by_name(table, words[0])
    if len(words) == 2:
        bit = int(words[1])
        entries = [entry for entry in entries if bit < 32 and entry.mask >> bit & 1]
    if not entries:
        raise UsageError(
            f"{table.generation} has no register or field {text!r}", hint=f"docs/registers-{generation}.md"
        )
    if len(entries) > MOST:
        raise UsageError(f"{text!r} is in the names of {counted(len(entries), 'field')}", hint="give more of the name")
    return entries


def _by_number(table: Table, text: str) -> list[LookupEntry]:
    kind, _, digits = text.rpartition(":")
    number = int(digits, 0) if digits.startswith("0x") else int(digits)
    offsets = task_offsets(table.generation)
    word = number & ~3
    as_offset = [key for key, offset in offsets.items() if offset == word] if kind != "engine" else []
    keys = as_offset or ([word] if kind != "task" and word in table.by_key else [])
    entries = [entry for key in keys for entry in _fields(table, key)]
    low = 8 * (number & 3)
    return [entry for entry in entries if number & 3 == 0 or entry.mask >> low]


def _by_name(table: Table, text: str) -> list[LookupEntry]:
    plain = plain_name(text).lower()
    near = [entry for entry in _entries(table.generation) if plain in entry.name.lower()]
    exact = [e for e in near if plain in (e.name.lower(), e.name.lower().rpartition(".")[0])]
    return exact or [e for e in near if plain in e.name.lower().split(".")] or near


@cache
def task_offsets(generation: str) -> dict[int, int]:
    """Byte offsets of all registers in a task that writes them all, by key; empty where tasks have no such form."""
    family = family_of(generation)
    if family.packed:
        return {}
    addresses = tuple(sorted((key for key in family.table.by_key if key >= 0), key=family.table.rank.__getitem__))
    return {key: 4 * at for key, at in canonical(family.heads, family.header_words, addresses, ()).position.items()}


@cache
def _entries(generation: str) -> tuple[LookupEntry, ...]:
    table = family_of(generation).table
    return tuple(entry for key in table.by_key for entry in _fields(table, key))


def _fields(table: Table, key: int) -> Iterator[LookupEntry]:
    name, register = table.register(key)
    offset = task_offsets(table.generation).get(key)
    for row in register.fields:
        yield _entry(f"{name}.{row.name}", key, offset, register, row)


def _entry(name: str, key: int, offset: int | None, register: Register, row: Field) -> LookupEntry:
    unit = f"{row.kind.scale} {row.kind.name}" if isinstance(row.kind, Unit) and row.kind.scale > 1 else ""
    return LookupEntry(
        name,
        key if key >= 0 else None,
        offset,
        row.bits,
        row.mask,
        row.meaning,
        register.meaning,
        unit or (row.kind.name if isinstance(row.kind, Unit) else ""),
        dict(row.kind.names) if isinstance(row.kind, Values) else {},
        row.evidence.value if row.evidence else "unknown",
        row.from_apple,
        register.reset,
    )
