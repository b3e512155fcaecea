"""A program on a device: the emulator, Linux, macOS."""

from hexane.runtime.devices import DEVICES, device_named, devices, run, session
from hexane.runtime.doctor import Diagnosis, Finding, diagnose
from hexane.runtime.record import DeviceRecord

__all__ = [
    "DEVICES",
    "DeviceRecord",
    "Diagnosis",
    "Finding",
    "device_named",
    "devices",
    "diagnose",
    "run",
    "session",
]
