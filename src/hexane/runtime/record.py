"""Knowledge of a device before anything runs there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class DeviceRecord:
    """One row of ``hexane.devices()``.

    Parameters
    ----------
    name : what ``--device`` and ``program.run(device=...)`` take.
    runs : what the device runs, in one line.
    flavours : flavour -> what it runs, for a device that has several (``virtual:eiln``).
    generations : engine generations whose programs it takes; empty where it takes networks instead of programs.
    reason : why it is not available here; empty where it is.
    """

    name: str
    runs: str
    flavours: Mapping[str, str] = field(default_factory=dict)
    generations: tuple[str, ...] = ()
    reason: str = ""

    @property
    def available(self) -> bool:
        """True where a program can be run on it here and now."""
        return not self.reason

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "available": self.available,
            "reason": self.reason,
            "runs": self.runs,
            "flavours": dict(self.flavours),
            "generations": list(self.generations),
        }
