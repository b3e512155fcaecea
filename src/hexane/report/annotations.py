"""A comparison for machines that build: GitHub's annotations, and JUnit's XML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from hexane.session.baseline import Comparison

MOST_NOTICES = 20
"""Changes that are not worse and still have a line of their own."""


def github(comparison: Comparison) -> Iterator[str]:
    """One workflow command a line: an error for each change that is worse, notices for others.

    Source of the form and its escapes: GitHub's documentation, "Workflow commands for GitHub Actions".
    """
    for change in comparison.worse:
        yield f"::error title={_property(f'hexane: worse {change.kind}')}::{_data(change.text)}"
    others = [change for change in comparison.changes if not change.worse]
    for change in others[:MOST_NOTICES]:
        yield f"::notice title={_property(f'hexane: {change.kind}')}::{_data(change.text)}"
    more = f"; {len(others) - MOST_NOTICES} more that are not worse" if len(others) > MOST_NOTICES else ""
    for note in comparison.notes:
        yield f"::warning title=hexane::{_data(note)}"
    yield _data(comparison.text + more)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def junit(comparison: Comparison) -> str:
    """One test case per chip and kind of fact, failed by what is worse."""
    bad = {(change.chip, change.kind) for change in comparison.worse}
    suite = ElementTree.Element(
        "testsuite", name="hexane compare", tests=str(len(comparison.compared)), failures=str(len(bad)), errors="0"
    )
    for (chip, kind), count in comparison.compared.items():
        case = ElementTree.SubElement(suite, "testcase", classname=f"hexane.{chip}", name=f"{kind} ({count} facts)")
        worse = [change.text for change in comparison.worse if (change.chip, change.kind) == (chip, kind)]
        if worse:
            failure = ElementTree.SubElement(case, "failure", message=_xml(worse[0]), type="worse")
            failure.text = _xml("\n".join(worse))
        rest = [c.text for c in comparison.changes if (c.chip, c.kind) == (chip, kind) and not c.worse]
        if rest:
            ElementTree.SubElement(case, "system-out").text = _xml("\n".join(rest))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode")


def _xml(text: str) -> str:
    """Without the characters that XML cannot hold at all."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
