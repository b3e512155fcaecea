"""Devices that run programs. Every file of this folder is a device, by its name; a new one is a new file.

A file has ``describe(machine)``, which gives a ``hexane.runtime.record.DeviceRecord`` and opens nothing, and
``open_device(flavour)``, which gives a ``hexane.program.run.Device`` or says why there is none here. What stands behind
the colon of ``virtual:NAME`` is the flavour, else it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UsageError
from hexane.program.run import Device, Session
from hexane.runtime.machine import Machine
from hexane.runtime.record import DeviceRecord

if TYPE_CHECKING:
    from hexane.program import Program

LEVELS = ("engine", "graph")
DEVICES = tuple(module.name for module in iter_modules(__path__))


def devices(machine: Machine | None = None) -> tuple[DeviceRecord, ...]:
    """Every device that hexane knows, in the order of their names: what it runs, and why it is not available here.

    Reads files and asks what libraries are installed; opens no engine. ``machine`` is this one unless a test gives
    another.
    """
    here = machine or Machine()
    return tuple(import_module(f"{__name__}.{name}").describe(here) for name in DEVICES)


def run(
    program: Program,
    inputs: Mapping[str, Any],
    device: str | Device = "auto",
    level: str = "engine",
    state: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Outputs by name, as ``Program.run`` gives them; devices and levels as for :func:`session`."""
    with session(program, device, level) as engine:
        return engine.record(inputs, state, keep=False).outputs


def session(program: Program, device: str | Device = "auto", level: str = "engine") -> Session:
    """A program on a device, kept loaded until the session is closed.

    Parameters
    ----------
    device : "emulator"; "linux", an engine behind the open driver (M1 family); "virtual", the same calls answered by
        the emulator; "auto", an engine where one may be used, else the emulator; "macos" and "virtual:macos", which
        take the MIL text of a program's segments, because macOS loads no programs but its own compiler's; or a device
        object. Host segments run here in any case.
    level : "engine" runs tasks; "graph" evaluates the network with the engine's arithmetic, on no device.
    """
    if level not in LEVELS:
        raise UsageError(f"there is no level {level!r}", hint=" or ".join(LEVELS))
    engine = device_named(device) if isinstance(device, str) else device
    if level == "graph":
        if engine.name != "emulator":
            raise UsageError("level 'graph' is computed here, not on a device", hint='device="emulator"')
        from hexane.runtime.devices.emulator import GraphArithmetic

        engine = GraphArithmetic(program.chip)
    return Session(program, engine, partial(device_named, device) if isinstance(device, str) else None)


def device_named(name: str) -> Device:
    """The device of a name; ``NAME:FLAVOUR`` gives the flavour to a device that has several.

    Raises UsageError for a name that is none, UnsupportedError for a device that is not here.
    """
    kind, _, flavour = name.partition(":")
    if kind not in DEVICES:
        raise UsageError(f"there is no device {name!r}", hint=f"one of {', '.join(DEVICES)}")
    device: Device = import_module(f"hexane.runtime.devices.{kind}").open_device(flavour)
    return device
