"""``hexane.check_mil``: a MIL program against every restriction, for one chip, system and interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hexane.chips import Chip
from hexane.errors import SyntaxProblem, UsageError
from hexane.formats.mil import parse_mil
from hexane.formats.mil.reader import TextWeights
from hexane.formats.mil.syntax import parse_text
from hexane.restrictions.every import RULES, hits
from hexane.restrictions.findings import Finding
from hexane.restrictions.fixes import is_fixable
from hexane.restrictions.objections import objections
from hexane.restrictions.reports import Severity, System, chips_of, releases_of
from hexane.restrictions.rule import DIRECT, INTERFACES, Hit, Rule
from hexane.restrictions.shapes import SURFACES
from hexane.restrictions.subject import Subject

TOLD_BY_RULES = frozenset({"extent", "runtime_weight", "element_type", "float_type", "static_shape"})
"""Limits that a rule above speaks of with the words of its reports."""
DEFAULT_CHIP = "M4"


def check_mil(
    text: str | bytes,
    weights: Mapping[str, Any] | None = None,
    chip: str | Chip | None = DEFAULT_CHIP,
    os: str | None = None,
    interface: str = "in-memory",
    surfaces: str = "own_size",
    *,
    folder: Path | None = None,
) -> list[Finding]:
    """Every restriction that the program breaks, the worst first, then by line.

    Parameters
    ----------
    text : the program, either dialect.
    weights : the path of each BLOBFILE, as written, to the file's bytes or a file; or as the private class takes them,
        ``{path: {"offset": 0, "data": bytes}}``. Without it the records of the files are not looked at.
    chip : a chip, or several separated by commas (each is checked); None: not stated.
    os : the system, such as "macOS 15" or "26.3.1"; None: not stated, so that reports of any release count.
    interface : "in-memory" (the private class), "client" (``_ANEClient``, the same refusals), "mle5" (Core ML).
    surfaces : "own_size" (each as large as its tensor), "uniform_largest" (all as large as the largest of their side),
        "unknown".
    folder : where ``@model_path`` is, for weight files that are not in ``weights``.

    Returns
    -------
    Findings; see docs/restrictions.md for the rules. A text that does not parse gives one finding of rule T0 (or T6).

    Raises
    ------
    UsageError : an unknown chip, interface or way of allocating surfaces.
    """
    if interface not in INTERFACES:
        raise UsageError(f"there is no interface {interface!r}", hint=f"one of {', '.join(INTERFACES)}")
    if surfaces not in SURFACES:
        raise UsageError(f"surfaces cannot be {surfaces!r}", hint=f"one of {', '.join(SURFACES)}")
    if isinstance(text, (bytes, bytearray)):
        text = bytes(text).decode("utf-8", errors="replace")
    if not isinstance(text, str):
        raise UsageError(f"MIL text is a string, not {type(text).__name__}")
    targets, releases = chips_of(chip), releases_of(os)
    try:
        tree = parse_text(text)
        graph = parse_mil(text)
        if not graph.functions:
            raise SyntaxProblem("the program has no function", line=1, column=1)
    except SyntaxProblem as error:
        return [_unreadable(error)]
    by_place: dict[tuple[str, int, int, str], Finding] = {}
    for target in targets:
        subject = Subject(
            text,
            tree,
            graph,
            System(target, releases),
            interface,
            surfaces,
            TextWeights(plain_weights(weights), folder) if weights is not None or folder is not None else None,
            weights is not None,
        )
        for finding in findings_of(subject):
            key = (finding.rule, finding.line, finding.column, finding.message.split("; sources disagree")[0])
            by_place[key] = _joined(by_place.get(key), finding)
    return sorted(by_place.values(), key=lambda f: (f.severity.rank, f.line, f.column))


def plain_weights(weights: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Weights by path, from either form of the dictionary."""
    if weights is None:
        return None
    return {path: item.get("data", b"") if isinstance(item, Mapping) else item for path, item in weights.items()}


def findings_of(subject: Subject) -> list[Finding]:
    """Findings of rules and limits on a program that parses: a raw program has no host part that could help."""
    found = [_finding(rule, hit, subject) for rule, hit in hits(subject)]
    chip = subject.system.chip
    if chip is None:
        return found
    severity = Severity.REJECTED if subject.interface in DIRECT else Severity.SLOW
    for statement in subject.statements:
        for o in objections(statement.op, chip):
            if o.rule not in TOLD_BY_RULES:
                place, name = statement.place, o.rule.replace("_", " ")
                says = (f"L-{o.rule}", name, severity, place.line, place.column, o.reason, o.advice, str(o.evidence))
                found.append(Finding(*says, ("docs/limits.md",), False, (chip.name,)))
    return found


def _finding(rule: Rule, hit: Hit, subject: Subject) -> Finding:
    reports, severity = subject.judged(rule, hit)
    message = rule.says.format(**hit.words)
    sources = tuple(report.describe() for report in reports)
    if severity is Severity.DISPUTED:
        message = f"{message}; sources disagree: {'; '.join(sources)}"
    place, chip = hit.place, subject.system.chip
    says = (rule.id, rule.name, severity, place.line, place.column, message, rule.remedy, str(rule.evidence))
    return Finding(*says, sources, is_fixable(rule.id), (chip.name,) if chip else ())


def _unreadable(error: SyntaxProblem) -> Finding:
    rule = RULES["T6" if error.hint == "rule T6" else "T0"]
    message = error.message.split("\n")[0]
    hint = error.hint if error.hint and rule.id == "T0" else rule.remedy
    says = (rule.id, rule.name, Severity.REJECTED, error.line, error.column, message, hint)
    return Finding(*says, "APPLE", ("all sources",))


def _joined(old: Finding | None, new: Finding) -> Finding:
    """One finding for several chips: where they differ in what becomes of it, it is disputed."""
    if old is None:
        return new
    severity = old.severity if old.severity is new.severity else Severity.DISPUTED
    return replace(old, severity=severity, chips=(*old.chips, *new.chips))
