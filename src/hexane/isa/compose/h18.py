"""H18 (A19): as H16 [INFERRED: no stream is published, only register positions]."""

from __future__ import annotations

from hexane.isa.compose.h16 import RULES

__all__ = ["RULES"]
