"""H17 (A18, M5 family): as H16 [INFERRED: one published program of one task has H16's heads and packets]."""

from __future__ import annotations

from hexane.isa.compose.h16 import RULES

__all__ = ["RULES"]
