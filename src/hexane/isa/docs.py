"""The register documentation, written from the tables: ``python -m hexane.isa.docs FOLDER`` (``make docs``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from hexane.chips import CHIPS, Evidence
from hexane.isa.generations import GENERATIONS, family_of
from hexane.isa.schema import UNKNOWN, Field, Register, RegisterBlock, Table, Unit, Values

_EVIDENCE = {Evidence.SILICON: "silicon", Evidence.APPLE: "Apple", Evidence.INFERRED: "inferred", UNKNOWN: "unknown"}

_LEGEND = """\
Written from `src/hexane/isa/{generation}.py` by `make docs`; a test keeps it current.

* **Field** names are used as `task.{example}` from Python and in assembly text. A star marks a name that
  Apple's debug printer does not print for this generation.
* **Values** are the bits themselves: in a field that counts 64 bytes, 0xc0 bytes read 3.
* **Evidence**: *silicon* ran on an engine somewhere and was published; *Apple* is what Apple's compiler emits or its
  tools name; *inferred* is deduced and not contradicted by any program seen; *unknown* bits have a name only.
* **Reset** is what a register holds in a task that does not write it, where that is known.
"""


def register_page(table: Table) -> str:
    """The page of one generation, as Markdown."""
    return "\n".join(_page(table)) + "\n"


def _page(table: Table) -> Iterator[str]:
    family = family_of(table.generation)
    name = table.generation.upper()
    chips = ", ".join(chip.name for chip in CHIPS if chip.generation_name == table.generation)
    yield f"# Registers of {name} ({chips})\n"
    yield f"Task descriptor version {table.version}. " + (
        "Tasks form a linked list; records hold byte addresses."
        if not family.packed
        else f"Tasks lie one behind the other, {family.alignment}-byte aligned; records hold these byte addresses "
        "divided by four."
    )
    if table.notes:
        yield f"\n{table.notes}"
    example = "Common.InDim.Win" if "InDim" in table.by_name["Common"].by_name else "Common.Win.Win"
    yield "\n" + _LEGEND.format(generation=table.generation, example=example)
    yield "| block | address | words | what it is |\n|---|---|---|---|"
    yield f"| [Header](#header) | | {family.header_words} + 1 | {len(table.header)} words in front of the records |"
    for block in table.blocks:
        anchor = block.name.lower()
        yield f"| [{block.name}](#{anchor}) | {block.address:#07x} | {block.words} | {block.meaning} |"
    yield "\n## Header\n"
    yield from _table(
        (f"word {i}", f"Header[{i}]", register, register.reset) for i, register in enumerate(table.header)
    )
    for block in table.blocks:
        yield f"\n## {block.name}\n\n{block.meaning}. {block.words} words at {block.address:#07x}.\n"
        yield from _table(_rows(block))
    yield "\n## Bits without a known meaning\n"
    unknown: dict[str, list[str]] = {}
    for name in table.unknown_fields():
        register, _, row = name.rpartition(".")
        unknown.setdefault(register, []).append(row.removeprefix("Unk").removeprefix("Bit").replace("_", ":"))
    whole = [f"`{register}`" for register, bits in unknown.items() if bits == ["31:0"]]
    yield f"Nothing is known of {len(whole)} registers: {', '.join(whole)}.\n"
    yield "In the other registers these bits are unknown:\n"
    yield "| register | bits |\n|---|---|"
    for register, bits in unknown.items():
        if bits != ["31:0"]:
            yield f"| {register} | {', '.join(bits)} |"


def _rows(block: RegisterBlock) -> Iterator[tuple[str, str, Register, int | None]]:
    for register in block.registers:
        where = f"{register.address:#07x}" + (f" + 4i, i < {register.count}" if register.count else "")
        name = register.name + (f"[{register.count}]" if register.count else "")
        yield where, name, register, register.reset


def _table(rows: Iterator[tuple[str, str, Register, int | None]]) -> Iterator[str]:
    yield "| address | register | bits | field | meaning | values | evidence |\n|---|---|---|---|---|---|---|"
    for where, name, register, reset in rows:
        star = "" if register.from_apple or name.startswith("Header") else "*"
        note = register.meaning + (f" (reset {reset:#x})" if reset is not None else "")
        table_rows = [row for row in register.fields if row.known or row.meaning or not row.name.startswith("Unk")]
        plain = not table_rows
        evidence = _EVIDENCE[register.evidence] if plain else ""
        yield f"| {where} | **{name}**{star} | | {'Unk31_0' if plain else ''} | {note} | | {evidence} |"
        for row in table_rows:
            mark = "" if row.from_apple else "*"
            yield f"| | | {row.bits} | {row.name}{mark} | {row.meaning} | {_kind(row)} | {_EVIDENCE[row.evidence]} |"


def _kind(row: Field) -> str:
    match row.kind:
        case Values():
            return ", ".join(f"{value} {name}" for value, name in row.kind.names.items())
        case Unit():
            return f"{row.kind.scale} {row.kind.name}" if row.kind.scale > 1 else row.kind.name
    return ""


def write_pages(folder: Path) -> list[Path]:
    """Write ``registers-GENERATION.md`` for every generation; each page whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for generation in GENERATIONS:
        path = folder / f"registers-{generation}.md"
        part = path.with_suffix(".part")
        part.write_text(register_page(family_of(generation).table))
        os.replace(part, path)
        paths.append(path)
    return paths


if __name__ == "__main__":
    for written in write_pages(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")):
        print(written)
