"""Result of a check of a MIL program."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from hexane.restrictions.reports import REFUSALS, Severity


@dataclass(frozen=True)
class Finding:
    """A restriction that a program breaks.

    ``rule`` is its id (docs/restrictions.md), ``name`` what it is called; ``line`` and ``column`` count from 1 and
    point at the words in the text; ``evidence`` is SILICON, APPLE or INFERRED; ``sources`` say who saw what, where;
    ``fixable``: ``hexane check --fix`` rewrites it.
    """

    rule: str
    name: str
    severity: Severity
    line: int
    column: int
    message: str
    remedy: str
    evidence: str
    sources: tuple[str, ...] = ()
    fixable: bool = False
    chips: tuple[str, ...] = field(default=(), compare=False)

    @property
    def refuses(self) -> bool:
        """True where the program gives no result: rejected, or failing at evaluation."""
        return self.severity in REFUSALS

    @property
    def spoils(self) -> bool:
        """True where the program gives no result or a wrong one."""
        return self.refuses or self.severity is Severity.WRONG

    def as_dict(self) -> dict[str, Any]:
        """Plain data, schema ``hexane-mil-check/1`` (docs/commands/check.md)."""
        return asdict(self) | {"severity": str(self.severity), "sources": list(self.sources), "chips": list(self.chips)}

    def show(self, text: str, name: str = "line") -> str:
        """The finding over several lines: place, message, the line of text with a caret, remedy, sources."""
        lines = text.split("\n")
        source = lines[self.line - 1].rstrip("\r") if 0 < self.line <= len(lines) else ""
        excerpt, at = _around(source.replace("\t", " "), self.column - 1)
        out = [f"{name}:{self.line}:{self.column}: {self.severity}: {self.message} [{self.rule} {self.name}]"]
        if source:
            out += [f"    {excerpt}", f"    {' ' * at}^"]
        out.append(f"    {'fix' if self.fixable else 'remedy'}: {self.remedy}")
        if self.severity is not Severity.DISPUTED:  # whose message names them
            out.append(f"    {self.evidence}: {'; '.join(self.sources)}")
        return "\n".join(out)


def _around(source: str, at: int, width: int = 140) -> tuple[str, int]:
    """A long line cut down to the part around a column, and the column in it."""
    if len(source) <= width:
        return source, at
    start = max(0, min(at - width // 2, len(source) - width))
    prefix = "..." if start else ""
    return f"{prefix}{source[start : start + width]}", at - start + len(prefix)
