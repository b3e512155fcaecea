"""Reported restrictions of the engine's compiler and private runtime, one small rule each with its evidence."""

from hexane.restrictions.check import check_mil
from hexane.restrictions.every import RULES
from hexane.restrictions.findings import Finding
from hexane.restrictions.reports import Severity
from hexane.restrictions.rule import Rule

__all__ = ["RULES", "Finding", "Rule", "Severity", "check_mil"]
