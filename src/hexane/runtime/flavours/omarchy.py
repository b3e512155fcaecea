"""The hardened driver of the M1 family (ABI 1, version 1)."""

from __future__ import annotations

from hexane.program.run import Device

RUNS = "H13 programs: the hardened Linux driver's calls (ABI 1, version 1.0.0), answered by the emulator"
GENERATIONS = ("h13",)


def open_device() -> Device:
    """An engine of its own for every call."""
    from hexane.runtime.devices.linux import LinuxEngine
    from hexane.runtime.virtual import PATH, VirtualDevice

    return LinuxEngine(PATH, VirtualDevice(), title="virtual:omarchy")
