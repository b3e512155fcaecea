"""Engines under macOS, which load programs of Apple's own compiler only."""

from __future__ import annotations

from hexane.errors import UnsupportedError
from hexane.program.run import Device, no_flavour
from hexane.runtime.machine import Machine
from hexane.runtime.record import DeviceRecord


def describe(machine: Machine) -> DeviceRecord:
    """Never available so far."""
    return DeviceRecord("macos", "nothing yet", reason="macOS loads engine programs of its own compiler only")


def open_device(flavour: str) -> Device:
    """Always refused."""
    no_flavour(flavour)
    raise UnsupportedError(
        "macOS loads engine programs of its own compiler only",
        hint="run on the emulator, or give Core ML an .mlpackage (hexane convert)",
    )
