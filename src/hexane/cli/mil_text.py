"""``hexane check`` on a MIL text: its findings with carets, and ``--fix``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hexane.cli.console import print_json, title
from hexane.errors import FormatError, UsageError
from hexane.files import write_whole

if TYPE_CHECKING:
    from hexane.restrictions import Finding


@dataclass(frozen=True)
class Asked:
    """Options and inputs of the command."""

    model: Path
    chip: str
    os: str
    interface: str
    surfaces: str
    json: bool

    @property
    def text(self) -> str:
        """The program."""
        try:
            return self.model.read_text(encoding="utf-8")
        except OSError as error:
            raise FormatError(f"cannot be read: {error.strerror}", where=str(self.model)) from None
        except UnicodeDecodeError as error:
            raise FormatError("is no UTF-8 text", offset=error.start, where=str(self.model)) from None

    def findings(self, text: str) -> list[Finding]:
        """Every restriction that a text breaks, its weight files looked for beside the model."""
        from hexane import check_mil, chips

        names = ",".join(chip.name for chip in chips.parse_list(self.chip))
        return check_mil(
            text, None, names, self.os or None, self.interface, self.surfaces, folder=self.model.absolute().parent
        )

    def fix(self, output: Path | None) -> None:
        """Write the text with every mechanical fix made, and print the difference."""
        from hexane.restrictions.fixes import difference, fixed

        target = output or self.model.with_suffix(".fixed.mil")
        if target.absolute() == self.model.absolute():
            raise UsageError("--fix writes a new file", hint="name another one with -o")
        old = self.text
        new, changes = fixed(old, self.findings)
        for line in difference(old, new, str(self.model), str(target)):
            typer.echo(line)
        remaining = self.findings(new)
        if changes:
            write_whole(target, new.encode("utf-8"))
            typer.echo(f"{target}: {len(changes)} fixed ({', '.join(sorted({f.rule for f in changes}))})", err=True)
        else:
            typer.echo("nothing has a mechanical fix; no file is written", err=True)
        for finding in remaining:
            if finding.spoils:
                typer.echo(finding.show(new, str(target)), err=True)
        if any(finding.spoils for finding in remaining):
            raise typer.Exit(1)


def check_text(question: Asked) -> tuple[list[Finding], bool]:
    """The findings, printed unless JSON is wanted, and whether the text can be read on as a network."""
    text = question.text
    findings = question.findings(text)
    readable = not any(f.rule in ("T0", "T6", "T7", "T12") and f.severity == "rejected" for f in findings)
    if not question.json:
        title(f"Restrictions, {question.chip}, {question.interface}{f', {question.os}' if question.os else ''}")
        for finding in findings:
            typer.echo(finding.show(text, str(question.model)))
        counts = {s: sum(f.severity == s for f in findings) for s in dict.fromkeys(f.severity for f in findings)}
        typer.echo(", ".join(f"{n} {s}" for s, n in counts.items()) or "none broken")
    elif not readable:
        entries = [finding.as_dict() for finding in findings]
        print_json({"schema": "hexane-checks/1", "model": str(question.model), "reports": [], "findings": entries})
    return findings, readable
