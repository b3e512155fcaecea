"""``virtual:omarchy``: the hardened driver (ABI 1, version 1.0.0)."""

from __future__ import annotations

from hexane.program.run import Device

RUNS = "H13 programs: the hardened driver (ABI 1, version 1.0.0)"
GENERATIONS = ("h13",)


def open_device() -> Device:
    """An engine of its own for every call."""
    from hexane.runtime.devices.linux import LinuxEngine
    from hexane.runtime.virtual.core import PATH
    from hexane.runtime.virtual.linked import HardenedDriver

    return LinuxEngine(PATH, HardenedDriver(), title="virtual:omarchy", chip="M1")
