"""``virtual:intree2``: the M2 family's driver in the kernel tree (ABI 2 with GET_CAPS)."""

from __future__ import annotations

from hexane.program.run import Device

RUNS = "H14 programs: the M2 family's driver in the kernel tree (ABI 2 with GET_CAPS)"
GENERATIONS = ("h14",)


def open_device() -> Device:
    """An engine of its own for every call."""
    from hexane.runtime.devices.linux import LinuxEngine
    from hexane.runtime.virtual.core import PATH
    from hexane.runtime.virtual.sectioned import InTreeSectionedDevice

    return LinuxEngine(PATH, InTreeSectionedDevice(), title="virtual:intree2", chip="M2 Max")
