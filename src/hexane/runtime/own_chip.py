"""Chip of a device: of this machine, or of what stands in its place."""

from __future__ import annotations

from hexane import chips
from hexane.errors import HexaneError, UsageError
from hexane.runtime.devices.virtual import FLAVOURS
from hexane.runtime.machine import Machine
from hexane.runtime.probe_linux import soc_of


def chip_of(device: str, machine: Machine | None = None) -> str:
    """The chip of a device's name. UsageError where this machine does not say which it is."""
    kind, _, flavour = device.partition(":")
    if kind == "virtual":
        return FLAVOURS[flavour].chip or "M1" if flavour in FLAVOURS else "M1"
    here = machine or Machine()
    chip = named_chip(here)
    if chip is None and kind in ("emulator", "auto"):
        return "M1"
    if chip is None:
        raise UsageError("this machine does not say which chip it has", hint='name it: --chip "M1 Max"')
    return chip


def named_chip(machine: Machine) -> str | None:
    """The chip that the system names; None where it names none that hexane knows."""
    brand = machine.run("sysctl", "-n", "machdep.cpu.brand_string") if machine.system == "Darwin" else None
    for name in ((brand or "").removeprefix("Apple ").strip(), soc_of(machine) or ""):
        if not name:
            continue
        try:
            return chips.get(name).name
        except HexaneError:
            continue
    return None
