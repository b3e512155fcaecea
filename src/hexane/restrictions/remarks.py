"""Known failures of the ops of any network on a chip: every rule, with its limit and the value that is there.

The rules are those of ``RULES``, limits of the generation among them; each stands once.
A remark is a finding on an op of a graph, whatever file the graph came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.chips import Chip, Evidence
from hexane.graph import Graph, Op
from hexane.restrictions.every import hits
from hexane.restrictions.objections import Objection, objections
from hexane.restrictions.reports import ANY_RELEASE, Severity, System
from hexane.restrictions.rule import MLE5, Hit, Rule
from hexane.restrictions.subject import Subject

CONFIRMED, DISPUTED, INFERRED = "confirmed", "disputed", "inferred"


@dataclass(frozen=True)
class Remark:
    """One rule that an op breaks, or breaks for some numbers.

    ``rule`` is its id (docs/restrictions.md) or the name of a limit (docs/limits.md). ``limit`` is what the phone holds
    (a number where it is one), ``found`` what this network has: a shape, a constant, or the range that was seen.
    ``status`` is "confirmed" (somebody saw it on a chip of this generation, or did not say on which), "disputed"
    (sources contradict each other) or "inferred" (it was seen on another generation, or follows from what is known).
    """

    rule: str
    says: str
    effect: str
    limit: float | int | str
    found: float | int | str
    remedy: str
    source: str
    status: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dict(vars(self))


def remarks(
    graph: Graph, chip: Chip, values: Mapping[str, np.ndarray] | None = None, *, interface: str = MLE5
) -> dict[Op, tuple[Remark, ...]]:
    """Every remark on the ops of the function that runs.

    ``values``: what each value was on the user's inputs, by name (float32); rules on values then speak only of
    what was beyond their limit.
    """
    subject = Subject.of_graph(graph, System(chip, ANY_RELEASE), interface, values)
    ops = graph.main.ops
    by_op: dict[Op, list[Remark]] = {}
    for rule, hit in hits(subject):
        if 0 < hit.place.line <= len(ops):
            by_op.setdefault(ops[hit.place.line - 1], []).append(_remark(rule, hit, subject))
    for op in ops:
        for o in objections(op, chip):
            by_op.setdefault(op, []).append(_of_limit(o, subject.system))
    return {op: tuple(rows) for op, rows in by_op.items()}


def _of_limit(o: Objection, system: System) -> Remark:
    """A limit; disputed where somebody saw an engine of the generation take the op all the same."""
    if not o.reports or not system.is_spoken_of(o.reports):
        status = INFERRED if o.evidence is Evidence.INFERRED else CONFIRMED
        return Remark(o.rule, o.reason, "on the host", o.limit, o.found, o.advice, o.source, status)
    source = "; ".join((f"{o.source}: on the host", *(report.describe() for report in o.reports)))
    effect = str(system.verdict(o.reports))
    return Remark(o.rule, o.reason, effect, o.limit, o.found, o.advice, source, DISPUTED)


def _remark(rule: Rule, hit: Hit, subject: Subject) -> Remark:
    reports, severity = subject.judged(rule, hit)
    inferred = rule.evidence is Evidence.INFERRED or not subject.system.is_spoken_of(reports)
    status = DISPUTED if severity is Severity.DISPUTED else INFERRED if inferred else CONFIRMED
    says, limit, found = rule.says.format(**hit.words), hit.words.get("limit", ""), hit.words.get("found", "")
    source = "; ".join(report.describe() for report in reports)
    return Remark(rule.id, says, str(severity), limit, found, rule.remedy, source, status)
