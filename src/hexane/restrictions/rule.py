"""A restriction as a small function: its docstring is the message and the documentation, its body finds the places.

The function gets a :class:`~hexane.restrictions.subject.Subject` and yields :func:`hit` for every place that breaks it,
with the words that fill the gaps of its docstring. A limit of a generation looks at one op and a chip, and returns such
words or None. Rules of the runtime, which no text shows, have no function: ``hexane.mil.Model`` keeps them, and raises
with their words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from hexane.chips import Evidence
from hexane.formats.mil.tree import TextPlace
from hexane.restrictions.reports import PublishedReport, Severity

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph import Op
    from hexane.restrictions.subject import Subject

IN_MEMORY, CLIENT, MLE5 = "in-memory", "client", "mle5"
INTERFACES = (IN_MEMORY, CLIENT, MLE5)
"""The private in-memory class; ``_ANEClient`` on a folder, which refuses the same texts; Core ML's own engine."""
DIRECT = (IN_MEMORY, CLIENT)


@dataclass(frozen=True)
class Hit:
    """A place that breaks a rule: words for the docstring, and reports where the rule's do not fit it."""

    place: TextPlace
    words: dict[str, Any] = field(default_factory=dict)
    reports: tuple[PublishedReport, ...] | None = None


def hit(place: TextPlace, *, reports: tuple[PublishedReport, ...] | None = None, **words: Any) -> Hit:
    """A place that breaks the rule."""
    return Hit(place, words, reports)


Found = Iterator[Hit]
Words = dict[str, Any] | None
Test = Callable[["Subject"], Found]
OpTest = Callable[["Op", "Chip"], Words]


@dataclass(frozen=True)
class Rule:
    """One restriction: ``says`` with its gaps, what to do about it, where the fact comes from.

    ``test`` looks at a program, ``op_test`` at an op on a chip (a limit of the generation, whose ``source`` is a page);
    a rule of the runtime has neither. ``reports``: who saw it, or, of a limit, who saw an engine take the op all the
    same. ``orion``: its number in Orion's list.
    """

    id: str
    says: str
    remedy: str
    reports: tuple[PublishedReport, ...] = ()
    evidence: Evidence = Evidence.SILICON
    interfaces: tuple[str, ...] = DIRECT
    contested: bool = False
    orion: int | None = None
    name: str = ""
    source: str = ""
    test: Test | None = None
    op_test: OpTest | None = None
    module: str = ""

    @property
    def effects(self) -> tuple[Severity, ...]:
        """Consequence by the reports, the worst first."""
        return tuple(sorted({r.says for r in self.reports if r.says is not None}, key=lambda s: s.rank))


RULES: dict[str, Rule] = {}
"""Every rule by its id; a limit's id is the name of its function."""


def add(rule: Rule) -> Rule:
    """Declare a rule; ValueError where its id is taken."""
    if RULES.setdefault(rule.id, rule) is not rule:
        raise ValueError(f"two rules are called {rule.id}")
    return rule


def _about(function: Callable[..., Any]) -> dict[str, Any]:
    says = " ".join((function.__doc__ or "").split())
    return {"says": says, "name": function.__name__.replace("_", " "), "module": function.__module__}


def rule(id: str, remedy: str, *reports: PublishedReport, **background: Any) -> Callable[[Test], Test]:
    """Declare a rule on programs; further keywords are fields of :class:`Rule`."""

    def declare(test: Test) -> Test:
        add(Rule(id, remedy=remedy, reports=reports, test=test, **_about(test), **background))
        return test

    return declare


core_ml_rule = partial(rule, interfaces=(MLE5,))
"""Declare a rule on what goes through Core ML."""


def limit(
    remedy: str, source: str, evidence: Evidence = Evidence.APPLE, reports: tuple[PublishedReport, ...] = ()
) -> Callable[[OpTest], OpTest]:
    """Declare a limit of a generation."""

    def declare(test: OpTest) -> OpTest:
        facts: dict[str, Any] = {"evidence": evidence, "interfaces": INTERFACES, "source": source}
        add(Rule(test.__name__, remedy=remedy, reports=reports, op_test=test, **_about(test), **facts))
        return test

    return declare
