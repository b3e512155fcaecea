"""Drivers' and frameworks' calls, answered by the emulator: no engine, the whole path to one. A flavour is a row."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from hexane.errors import UsageError
from hexane.program.run import Device
from hexane.runtime.machine import Machine
from hexane.runtime.record import DeviceRecord


@dataclass(frozen=True)
class Flavour:
    """``virtual:NAME``: what it runs, the class that answers the calls, and the chip of a Linux driver's engine.

    ``place`` is a module of ``hexane.runtime`` and a class: of a driver where ``chip`` is named, else of a device.
    """

    runs: str
    place: str
    chip: str = ""

    def open(self, title: str) -> Device:
        """A device of its own for every call."""
        module, _, name = self.place.rpartition(".")
        kind = getattr(import_module(f"hexane.runtime.{module}"), name)
        if not self.chip:
            device: Device = kind()
            return device
        from hexane.runtime.devices.linux import LinuxEngine
        from hexane.runtime.virtual.core import PATH

        return LinuxEngine(PATH, kind(), title=title, chip=self.chip)


FLAVOURS = {
    "abi2": Flavour(
        "H14 programs: the hardened driver of the M2 family (ABI 2, version 2.0.0)",
        "virtual.sectioned.SectionedDevice",
        "M2 Max",
    ),
    "eiln": Flavour("H13 programs: the first open driver (ABI 1, version 0.0.0)", "virtual.linked.FirstDriver", "M1"),
    "intree": Flavour(
        "H13 programs: the driver in the kernel tree (ABI 1 with GET_CAPS)", "virtual.linked.InTreeDriver", "M1"
    ),
    "intree2": Flavour(
        "H14 programs: the M2 family's driver in the kernel tree (ABI 2 with GET_CAPS)",
        "virtual.sectioned.InTreeSectionedDevice",
        "M2 Max",
    ),
    "macos": Flavour(
        "networks, each engine segment as MIL text: the calls of macOS's private classes, answered by the emulator",
        "macos.fake.engine.VirtualMac",
    ),
    "omarchy": Flavour(
        "H13 programs: the hardened driver (ABI 1, version 1.0.0)", "virtual.linked.HardenedDriver", "M1"
    ),
}
DEFAULT = "omarchy"
"""The flavour of plain ``virtual``: the driver that checks most."""


def describe(machine: Machine) -> DeviceRecord:
    """Always available."""
    runs = "a driver's calls, answered by the emulator: the whole path, no engine"
    return DeviceRecord("virtual", runs, {name: flavour.runs for name, flavour in FLAVOURS.items()})


def open_device(flavour: str) -> Device:
    """A virtual engine of its own for every call; the default one for an empty name. UsageError for an unknown one."""
    name = flavour or DEFAULT
    if name not in FLAVOURS:
        raise UsageError(f"there is no virtual device {name!r}", hint=f"one of {', '.join(FLAVOURS)}")
    return FLAVOURS[name].open(f"virtual:{name}")
