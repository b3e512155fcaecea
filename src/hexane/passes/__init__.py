"""Graph to graph: canonical form, folding, fusion, legalisation."""

from hexane.passes.manager import available, run

__all__ = ["available", "run"]
