"""Reports on a restriction by source, and what they make of it on one chip and system.

A restriction is a list of reports. A report names its source, the chips and system releases that it speaks of, and what
happened there. The verdict on a program is that of the reports that stand closest to the machine asked for: the same
chip first, then the same generation, then all of them. Where sources of the same closeness contradict each other, or
only say that it runs while others elsewhere say that it does not, the verdict is "disputed" and names both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hexane import chips
from hexane.chips import Chip
from hexane.errors import UsageError


class Severity(StrEnum):
    """Consequences of breaking a rule, the worst first."""

    REJECTED = "rejected"
    FAILS = "fails"
    WRONG = "silently wrong"
    SLOW = "slow"
    DISPUTED = "disputed"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


REFUSALS = frozenset({Severity.REJECTED, Severity.FAILS})
"""Severities of a program that gives no result."""


@dataclass(frozen=True)
class PublishedReport:
    """One source's word. ``says`` is None where it runs; ``chips`` empty: every chip; ``systems``: releases of macOS
    (15, 26; iOS 18 counts as 15), empty: not stated. ``tested``: the source tried this very point, so that its word
    outweighs programs that merely break the rule and were used."""

    source: str
    says: Severity | None
    chips: tuple[str, ...] = ()
    systems: tuple[int, ...] = ()
    note: str = ""
    tested: bool = False

    def describe(self) -> str:
        """The report as a clause: ``Orion (M4 Max, macOS 15): rejected``."""
        where = ", ".join([*self.chips, *(f"macOS {system}" for system in self.systems)])
        says = "runs" if self.says is None else str(self.says)
        note = f", {self.note}" if self.note else ""
        return f"{self.source}{f' ({where})' if where else ''}: {says}{note}"


def _reporter(says: Severity | None) -> Callable[..., PublishedReport]:
    def report(
        source: str, where: str = "", system: int | None = None, note: str = "", *, tested: bool = False
    ) -> PublishedReport:
        """A source's word on chips (between commas) on a release of macOS."""
        names = tuple(name.strip() for name in where.split(",") if name.strip())
        return PublishedReport(source, says, names, () if system is None else (system,), note, tested)

    return report


refused, fails, wrong, slow = map(_reporter, (Severity.REJECTED, Severity.FAILS, Severity.WRONG, Severity.SLOW))
"""Compilation fails; evaluation fails; numbers are wrong without an error; it costs time."""
runs = _reporter(None)
"""It runs and gives right numbers."""

ANY_RELEASE = (0, 999)


@dataclass(frozen=True)
class System:
    """The machine asked for: a chip (None: not stated) and the first and last release of its system."""

    chip: Chip | None
    releases: tuple[int, int] = ANY_RELEASE

    @property
    def generation(self) -> str:
        """The engine generation; "" when no chip is stated."""
        return self.chip.generation_name if self.chip else ""

    def is_on(self, *generations: str) -> bool:
        """True where the chip is of one of these generations."""
        return self.generation in generations

    def is_from(self, generation: str) -> bool:
        """True where the chip is of this generation or a later one."""
        return self.chip is not None and self.chip.generation.is_from(generation)

    def _release_of(self, report: PublishedReport) -> bool:
        low, high = self.releases
        return not report.systems or any(low <= system <= high for system in report.systems)

    def closest(self, reports: tuple[PublishedReport, ...]) -> tuple[PublishedReport, ...]:
        """The reports on this very chip and release; else on its generation; else all."""
        if self.chip is not None:
            near = [r for r in reports if self._release_of(r)]
            exact = tuple(r for r in near if self.chip.name in r.chips)
            if exact:
                return exact
            kin = tuple(r for r in near if any(chips.get(c).generation_name == self.generation for c in r.chips))
            if kin:
                return kin
        return tuple(reports)

    def is_spoken_of(self, reports: tuple[PublishedReport, ...]) -> bool:
        """True where a source names the chip's generation, or none at all."""
        return any(
            not r.chips or any(chips.get(c).generation_name == self.generation for c in r.chips) for r in reports
        )

    def verdict(self, reports: tuple[PublishedReport, ...], *, contested: bool = False) -> Severity:
        """Verdict of the reports on a program on this machine."""
        against = any(report.says is None for report in reports)
        if contested and against:
            return Severity.DISPUTED
        near = self.closest(reports)
        failing = [r.says for r in near if r.says is not None]
        if not failing or (len(failing) < len(near) and not any(r.tested for r in near if r.says is not None)):
            return Severity.DISPUTED
        return min(failing, key=lambda severity: severity.rank)


def releases_of(text: str | None) -> tuple[int, int]:
    """First and last release in words such as "macOS 15", "26.3.1", "macOS 15 or later", "15.7.4 / 26.x".

    iOS 17 and 18 are macOS 14 and 15; from 26 on both count alike. No text, or none with a number: any release.
    """
    if not text:
        return ANY_RELEASE
    numbers = [int(match[0].split(".")[0]) for match in re.finditer(r"\d+(?:\.[\dx]+)*", text)]
    if not numbers:
        return ANY_RELEASE
    if "ios" in text.lower():
        numbers = [n - 3 if n < 26 else n for n in numbers]
    low, high = min(numbers), max(numbers)
    if "later" in text or "+" in text:
        high = ANY_RELEASE[1]
    return low, high


def chips_of(text: str | Chip | None) -> tuple[Chip | None, ...]:
    """The chips that a text names: one, or several between commas or slashes, remarks in brackets left out."""
    if isinstance(text, Chip):
        return (text,)
    if not text:
        return (None,)
    names = [name.strip() for name in re.split(r"[,/]", re.sub(r"\([^)]*\)", "", text))]
    chip_rows = tuple(dict.fromkeys(chips.get(name) for name in names if name))
    if not chip_rows:
        raise UsageError(f"{text!r} names no chip", hint='write "M1" or "M4 Max"')
    return chip_rows
