"""Drivers' and frameworks' calls, answered by the emulator: no engine, the whole path to one."""

from __future__ import annotations

from hexane.program.run import Device
from hexane.runtime.flavours import describe as flavours
from hexane.runtime.flavours import open_flavour
from hexane.runtime.machine import Machine
from hexane.runtime.record import DeviceRecord


def describe(machine: Machine) -> DeviceRecord:
    """Always available."""
    return DeviceRecord("virtual", "a driver's calls, answered by the emulator: the whole path, no engine", flavours())


def open_device(flavour: str) -> Device:
    """A virtual engine of its own for every call."""
    return open_flavour(flavour)
