"""A program on a device: the emulator, Linux, macOS."""

from hexane.runtime.devices import DEVICES, run
from hexane.runtime.doctor import Diagnosis, Finding, diagnose

__all__ = ["DEVICES", "Diagnosis", "Finding", "diagnose", "run"]
