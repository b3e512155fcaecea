"""Reported restrictions of the engine's compiler and private runtime, one small rule each with its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hexane.later import loaded

if TYPE_CHECKING:
    from hexane.restrictions.check import check_mil as check_mil
    from hexane.restrictions.every import RULES as RULES
    from hexane.restrictions.findings import Finding as Finding
    from hexane.restrictions.reports import Severity as Severity
    from hexane.restrictions.rule import Rule as Rule

_NAMES = {
    "RULES": "hexane.restrictions.every",
    "Finding": "hexane.restrictions.findings",
    "Rule": "hexane.restrictions.rule",
    "Severity": "hexane.restrictions.reports",
    "check_mil": "hexane.restrictions.check",
}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    return loaded(__name__, _NAMES, name)
