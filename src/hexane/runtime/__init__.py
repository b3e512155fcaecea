"""A program on a device: the emulator, Linux, macOS."""

from __future__ import annotations

from typing import Any

from hexane.later import loaded

_NAMES = {
    "DEVICES": "hexane.runtime.devices",
    "Advice": "hexane.runtime.doctor",
    "DeviceRecord": "hexane.runtime.record",
    "Diagnosis": "hexane.runtime.doctor",
    "device_named": "hexane.runtime.devices",
    "diagnose": "hexane.runtime.doctor",
    "run": "hexane.runtime.devices",
    "session": "hexane.runtime.devices",
}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    return loaded(__name__, _NAMES, name)
