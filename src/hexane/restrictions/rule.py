"""A restriction as a small function: its docstring is the message and the documentation, its body finds the places.

The function gets a :class:`~hexane.restrictions.subject.Subject` and yields :func:`hit` for every place that breaks it,
with the words that fill the gaps of its docstring. Rules of the runtime, which no text shows, have no body:
``hexane.mil.Model`` keeps them, and raises with their words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hexane.chips import Evidence
from hexane.formats.mil.tree import TextPlace
from hexane.restrictions.reports import PublishedReport, Severity

if TYPE_CHECKING:
    from hexane.restrictions.subject import Subject

IN_MEMORY, CLIENT, MLE5 = "in-memory", "client", "mle5"
INTERFACES = (IN_MEMORY, CLIENT, MLE5)
"""The private in-memory class; ``_ANEClient`` on a folder, which refuses the same texts; Core ML's own engine."""
DIRECT = (IN_MEMORY, CLIENT)


@dataclass(frozen=True)
class Hit:
    """A place that breaks a rule: words for the docstring, and reports or a severity where the rule's do not fit it."""

    place: TextPlace
    words: dict[str, Any] = field(default_factory=dict)
    reports: tuple[PublishedReport, ...] | None = None
    severity: Severity | None = None


def hit(
    place: TextPlace,
    *,
    reports: tuple[PublishedReport, ...] | None = None,
    severity: Severity | None = None,
    **words: Any,
) -> Hit:
    """A place that breaks the rule."""
    return Hit(place, words, reports, severity)


Found = Iterator[Hit]
Test = Callable[["Subject"], Found]


@dataclass(frozen=True)
class Rule:
    """One published restriction. ``test`` is None for rules of the runtime; ``orion`` its number in Orion's list."""

    id: str
    name: str
    says: str
    remedy: str
    reports: tuple[PublishedReport, ...]
    evidence: Evidence
    interfaces: tuple[str, ...]
    contested: bool
    orion: int | None
    test: Test | None
    fixable: bool
    module: str

    @property
    def effects(self) -> tuple[Severity, ...]:
        """Consequence by the reports, the worst first."""
        return tuple(sorted({r.says for r in self.reports if r.says is not None}, key=lambda s: s.rank))


RULES: dict[str, Rule] = {}


@dataclass(frozen=True)
class Background:
    """Facts of a rule besides its test."""

    reports: tuple[PublishedReport, ...]
    evidence: Evidence = Evidence.SILICON
    interfaces: tuple[str, ...] = DIRECT
    contested: bool = False
    orion: int | None = None
    fixable: bool = False


def rule(id: str, remedy: str, *reports: PublishedReport, **background: Any) -> Callable[[Test], Test]:
    """Declare a rule; further keywords are those of :class:`Background`."""
    facts = Background(reports, **background)

    def declare(test: Test) -> Test:
        _add(id, test, remedy, facts, test)
        return test

    return declare


def runtime_rule(
    id: str, remedy: str, *reports: PublishedReport, **background: Any
) -> Callable[[Callable[[], None]], Rule]:
    """Declare a rule that ``hexane.mil.Model`` keeps; the name then stands for the rule itself."""
    facts = Background(reports, **background)

    def declare(function: Callable[[], None]) -> Rule:
        return _add(id, function, remedy, facts, None)

    return declare


def _add(id: str, function: Callable[..., Any], remedy: str, background: Background, test: Test | None) -> Rule:
    if id in RULES:
        raise ValueError(f"two rules are called {id}")
    RULES[id] = Rule(
        id,
        function.__name__.replace("_", " "),
        " ".join((function.__doc__ or "").split()),
        remedy,
        background.reports,
        background.evidence,
        background.interfaces,
        background.contested,
        background.orion,
        test,
        background.fixable,
        function.__module__,
    )
    return RULES[id]
