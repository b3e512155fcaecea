"""The programming model of the private in-memory class, on any machine: MIL text, weights, compile, load, evaluate."""

from __future__ import annotations

from typing import Any

from hexane.later import loaded

_NAMES = {
    "Chain": "hexane.mil.chain",
    "CompileBudget": "hexane.private_api.budget",
    "Event": "hexane.runtime.queue",
    "Model": "hexane.mil.model",
    "NSString": "hexane.mil.quirks",
    "Options": "hexane.mil.model",
    "Process": "hexane.mil.process",
    "ProcessCrash": "hexane.private_api.faults",
    "QueueClosed": "hexane.runtime.queue",
    "QueueFull": "hexane.runtime.queue",
    "Refused": "hexane.private_api.faults",
    "RequestQueue": "hexane.runtime.queue",
    "RuntimeFault": "hexane.private_api.faults",
    "Surface": "hexane.mil.surfaces",
    "resumed": "hexane.private_api.budget",
}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    return loaded(__name__, _NAMES, name)
