"""The map of the private interface: one table for ``hexane api``, docs/private-api.md and ``hexane.mil``."""

from __future__ import annotations

from hexane.errors import UsageError
from hexane.private_api.calls import FAULTS, KEYS, LIMITS, STEPS, SURFACES
from hexane.private_api.classes import CLASSES, FRAMEWORKS, SELECTORS
from hexane.private_api.compiler import CODES, COMPILER_SYMBOLS, MORE_CLASSES, MORE_SELECTORS
from hexane.private_api.rows import KINDS, Row
from hexane.private_api.system import CHOICES, DAEMONS, ENTITLEMENTS, IOKIT, PATHS, STRUCTURES, SYMBOLS, TRIED

ROWS: tuple[Row, ...] = (
    *FRAMEWORKS,
    *CLASSES,
    *MORE_CLASSES,
    *SELECTORS,
    *MORE_SELECTORS,
    *STEPS,
    *KEYS,
    *SURFACES,
    *(fault.row for fault in FAULTS),
    *LIMITS,
    *DAEMONS,
    *ENTITLEMENTS,
    *CHOICES,
    *SYMBOLS,
    *COMPILER_SYMBOLS,
    *CODES,
    *IOKIT,
    *STRUCTURES,
    *PATHS,
    *TRIED,
)

_SELECTORS = {row.name.lstrip("+"): row for row in SELECTORS}


def selector(name: str) -> Row:
    """The row of a selector; KeyError for one that the map has not, which nothing here may call."""
    return _SELECTORS[name.lstrip("+")]


def find(name: str) -> list[Row]:
    """Rows whose name, owner or kind is ``name``; else those that contain it. UsageError where there are none."""
    plain = name.casefold().lstrip("+-")
    exact = [r for r in ROWS if plain in (r.name.casefold().lstrip("+"), r.owner.casefold(), r.kind)]
    matches = exact or [r for r in ROWS if plain in f"{r.name} {r.owner} {r.text}".casefold()]
    if not matches:
        raise UsageError(f"the map has nothing called {name!r}", hint=f"kinds are {', '.join(KINDS)}")
    return matches


def private_api_page() -> str:
    """docs/private-api.md."""
    lines = [INTRO]
    for kind, title in KINDS.items():
        lines += [f"## {title}", "", "| name | what | evidence | systems | seen by |", "|---|---|---|---|---|"]
        for row in ROWS:
            if row.kind == kind:
                owner = f"{row.owner} " if row.owner else ""
                cells = (f"{owner}`{row.name}`", row.text, str(row.evidence), row.systems, row.source)
                lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


INTRO = """# The private interface of the Neural Engine on macOS

Generated from the table in `hexane.private_api` (`make docs`); `hexane api [NAME]` prints it, and `hexane.mil`
takes its selectors, errors and limits from it. It gathers what public projects reported. This project has no engine and
tried none of it; nothing of Apple's code is used. The interface is undocumented and changes without notice.

SILICON: seen on a machine by the sources named. APPLE: read from what Apple's binaries contain. INFERRED: follows from
several reports. Restrictions by their ids: [restrictions.md](restrictions.md).
"""

__all__ = ["KINDS", "ROWS", "Row", "find", "private_api_page", "selector"]
