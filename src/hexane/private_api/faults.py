"""Errors of the private runtime, with its domains, codes and words; and the refusals that stand in their place.

With ``quirks=True`` a model raises what the real runtime gives back: a domain, a code, a status, and no place. Without,
it raises :class:`Refused` with the restrictions that the program breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.counts import counted
from hexane.errors import HexaneError
from hexane.private_api.calls import COMPILE_FAILED, INFERENCE_FAILED, LOAD_FAILED
from hexane.private_api.rows import Fault

if TYPE_CHECKING:
    from hexane.restrictions import Finding

SURFACE, BAD_WIDTH, NO_RESOURCES, NO_MAPPING = 0x1D, 0x9, 0x5, 0x12
LOAD_FAILURE, TOO_LARGE = 0x50004, 0x20004


class RuntimeFault(HexaneError):
    """An error as the real runtime reports it: ``domain``, ``code`` (a number, as in its NSError), ``words`` and
    ``status``."""

    code: int  # type: ignore[assignment]

    def __init__(
        self,
        message: str,
        *,
        domain: str,
        code: int,
        status: int | None = None,
        rule: str = "",
        hint: str | None = None,
    ) -> None:
        self.domain = domain
        self.code = code
        self.status = status
        self.rule = rule
        self.words = message
        place = f"rule {rule} of docs/restrictions.md" if rule else None
        hint = "; ".join(part for part in (hint, place) if part) or None
        super().__init__(f"{message} (domain {domain}, code {code})", hint=hint)


class ProcessCrash(HexaneError):
    """End of the real process: an Objective-C exception that nobody catches."""

    code = "crash"


class Refused(HexaneError):
    """A program that the restrictions refuse. ``findings`` are those that do."""

    code = "refused"

    def __init__(self, findings: list[Finding], text: str) -> None:
        self.findings = findings
        excerpt = "\n".join(finding.show(text, "program") for finding in findings[:3])
        more = f"\n({len(findings) - 3} more)" if len(findings) > 3 else ""
        super().__init__(f"the program breaks {counted(len(findings), 'restriction')}\n{excerpt}{more}")


def compile_fault(detail: str = "InvalidMILProgram", rule: str = "") -> RuntimeFault:
    """Compilation failed; the words name no line."""
    words = COMPILE_FAILED.words
    return _fault(COMPILE_FAILED, f"{words}: {detail}" if detail else words, None, rule)


def inference_fault(status: int, rule: str = "") -> RuntimeFault:
    """Evaluation failed."""
    return _fault(INFERENCE_FAILED, INFERENCE_FAILED.words.replace("STATUS", f"{status:#x}"), status, rule)


def load_fault(status: int = LOAD_FAILURE, rule: str = "R3") -> RuntimeFault:
    """A program could not be put on the engine."""
    return _fault(LOAD_FAILED, LOAD_FAILED.words.replace("STATUS", f"{status:#x}"), status, rule)


def _fault(row: Fault, words: str, status: int | None, rule: str) -> RuntimeFault:
    return RuntimeFault(words, domain=row.domain, code=row.code, status=status, rule=rule)
