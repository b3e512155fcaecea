"""``virtual:intree``: the driver in the kernel tree (ABI 1 with GET_CAPS)."""

from __future__ import annotations

from hexane.program.run import Device

RUNS = "H13 programs: the driver in the kernel tree (ABI 1 with GET_CAPS)"
GENERATIONS = ("h13",)


def open_device() -> Device:
    """An engine of its own for every call."""
    from hexane.runtime.devices.linux import LinuxEngine
    from hexane.runtime.virtual.core import PATH
    from hexane.runtime.virtual.linked import InTreeDriver

    return LinuxEngine(PATH, InTreeDriver(), title="virtual:intree", chip="M1")
