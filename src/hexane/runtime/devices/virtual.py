"""The Linux driver's calls, answered by the emulator: no engine, the whole path to one."""

from __future__ import annotations

from hexane.program.run import Device, no_flavour
from hexane.runtime.devices.linux import LinuxEngine


def open_device(flavour: str) -> Device:
    """A virtual engine of its own for every call."""
    no_flavour(flavour)
    from hexane.runtime.virtual import PATH, VirtualDevice

    return LinuxEngine(PATH, VirtualDevice())
