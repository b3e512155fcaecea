"""A program on a device: the emulator, Linux, macOS."""

from hexane.runtime.devices import DEVICES, device_named, devices, run, session
from hexane.runtime.doctor import Advice, Diagnosis, diagnose
from hexane.runtime.record import DeviceRecord

__all__ = [
    "DEVICES",
    "Advice",
    "DeviceRecord",
    "Diagnosis",
    "device_named",
    "devices",
    "diagnose",
    "run",
    "session",
]
