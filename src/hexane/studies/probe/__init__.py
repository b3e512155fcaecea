"""Small programs, one per open question: what a device answers, and which hypotheses its answers leave standing.

``questions`` and ``examples`` are the programs, ``ask`` runs them on a device, ``answers`` is the file, ``read``
compares it with the emulator under every choice of every hypothesis (docs/numerics-open.md).
"""

from __future__ import annotations

from typing import Any

from hexane.later import loaded

_NAMES = {
    "ask": "hexane.studies.probe.ask",
    "read": "hexane.studies.probe.read",
    "Answers": "hexane.studies.probe.answers",
}
__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    return loaded(__name__, _NAMES, name)
