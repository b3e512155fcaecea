"""``virtual:abi2``: the hardened driver of the M2 family (ABI 2, version 2.0.0)."""

from __future__ import annotations

from hexane.program.run import Device

RUNS = "H14 programs: the hardened driver of the M2 family (ABI 2, version 2.0.0)"
GENERATIONS = ("h14",)


def open_device() -> Device:
    """An engine of its own for every call."""
    from hexane.runtime.devices.linux import LinuxEngine
    from hexane.runtime.virtual.core import PATH
    from hexane.runtime.virtual.sectioned import SectionedDevice

    return LinuxEngine(PATH, SectionedDevice(), title="virtual:abi2", chip="M2 Max")
