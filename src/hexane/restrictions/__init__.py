"""What the engine's compiler and private runtime are reported to refuse, each as one small rule with its evidence."""

from hexane.restrictions.check import check_mil
from hexane.restrictions.every import RULES
from hexane.restrictions.findings import Finding
from hexane.restrictions.reports import Severity
from hexane.restrictions.rule import Rule

__all__ = ["RULES", "Finding", "Rule", "Severity", "check_mil"]
