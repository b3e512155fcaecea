"""H17 (A18, M5 family) and H18 (A19): H16's words by name; no program of Apple's compiler is recorded word for word."""

from __future__ import annotations

from hexane.codegen.targets.h16 import H16G


class H17(H16G):
    """M5."""

    name = generation = "h17"
    shown = frozenset()


class H18(H17):
    name = generation = "h18"
