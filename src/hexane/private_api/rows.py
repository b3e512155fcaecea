"""A row of the map of the private interface: what it is, what it does, who saw it where."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hexane.chips import Evidence

SILICON, APPLE, INFERRED = Evidence.SILICON, Evidence.APPLE, Evidence.INFERRED

KINDS = {
    "framework": "Frameworks",
    "class": "Classes",
    "selector": "Selectors",
    "step": "Order of calls",
    "key": "Options and dictionary keys",
    "surface": "Surfaces",
    "error": "Errors",
    "limit": "Limits and values",
    "daemon": "Daemons and services",
    "entitlement": "Entitlements and security",
    "symbol": "C++ and C symbols",
    "code": "Numbers of the compiler",
    "iokit": "IOKit selectors",
    "structure": "Structures",
    "path": "Dispatch paths",
    "tried": "Tried and failed",
}


@dataclass(frozen=True)
class Row:
    """``owner``: the class or group that it belongs to; ``systems``: releases on which it was seen; ``source``: who."""

    kind: str
    name: str
    text: str
    evidence: Evidence = SILICON
    systems: str = "macOS 13 to 27"
    source: str = "maderix, Orion, Espresso, libane"
    owner: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"evidence": str(self.evidence)}


@dataclass(frozen=True)
class Fault:
    """An error of the runtime: domain, code, words; the row of the map and what ``hexane.mil`` raises."""

    name: str
    domain: str
    code: int
    words: str
    meaning: str
    systems: str = "macOS 15, 26"
    source: str = "maderix, Orion"

    @property
    def row(self) -> Row:
        """The fault as a row of the map."""
        text = f"{self.domain} {self.code}: {self.words}. {self.meaning}"
        return Row("error", self.name, text, SILICON, self.systems, self.source)
