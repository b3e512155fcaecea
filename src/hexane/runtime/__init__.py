"""A program on a device: the emulator, Linux, macOS."""

from hexane.runtime.devices import DEVICES, device_named, run, session
from hexane.runtime.doctor import Diagnosis, Finding, diagnose

__all__ = ["DEVICES", "Diagnosis", "Finding", "device_named", "diagnose", "run", "session"]
