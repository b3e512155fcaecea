"""An engine where one may be used, else the emulator."""

from __future__ import annotations

from hexane.program.run import Device, no_flavour
from hexane.runtime.devices.emulator import Emulator
from hexane.runtime.devices.linux import LinuxEngine, chip_of, engine_path
from hexane.runtime.machine import Machine
from hexane.runtime.record import DeviceRecord


def describe(machine: Machine) -> DeviceRecord:
    """Always available; says which device it would be."""
    name = "emulator" if engine_path(machine) is None else "linux"
    return DeviceRecord("auto", f"an engine where one may be used, else the emulator; here: {name}")


def open_device(flavour: str) -> Device:
    """Never refuses: the emulator is always there."""
    no_flavour(flavour)
    path = engine_path(Machine())
    return Emulator() if path is None else LinuxEngine(path, chip=chip_of(Machine()))
