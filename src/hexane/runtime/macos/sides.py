"""The other side of the border by its words: ``system``, or ``fake CHIP FOLDER OPTIONS``."""

from __future__ import annotations

import json

from hexane.errors import UsageError
from hexane.runtime.macos.border import SystemBorder
from hexane.runtime.macos.fake.border import FakeMac
from hexane.runtime.macos.fake.settings import Settings
from hexane.runtime.macos.system import MacSystem


def open_side(words: list[str]) -> SystemBorder:
    """The border that ``Border.again`` described."""
    kind, *rest = words or [""]
    if kind == "system" and not rest:
        return MacSystem()
    if kind == "fake" and len(rest) == 1:
        return FakeMac(Settings(**json.loads(rest[0])))
    raise UsageError(f"there is no border {' '.join(words)!r}", hint="system, or fake with its settings")
