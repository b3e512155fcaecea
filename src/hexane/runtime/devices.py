"""Which device runs a program: the emulator, an engine under Linux, or the virtual one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.program.run import Device, Session
from hexane.runtime.emulated import Emulator, GraphArithmetic
from hexane.runtime.machine import Machine

if TYPE_CHECKING:
    from hexane.program import Program

LEVELS = ("engine", "graph")


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
        the emulator; "auto", an engine where one may be used, else the emulator; or a device object. Host segments run
        here in any case. "macos" is refused: macOS loads no programs but its own compiler's.
    level : "engine" runs tasks; "graph" evaluates the network with the engine's arithmetic, on no device.
    """
    if level not in LEVELS:
        raise UsageError(f"there is no level {level!r}", hint=" or ".join(LEVELS))
    chosen = device_named(device) if isinstance(device, str) else device
    if level == "graph":
        if not isinstance(chosen, Emulator):
            raise UsageError("level 'graph' is computed here, not on a device", hint='device="emulator"')
        chosen = GraphArithmetic(program.chip)
    return Session(program, chosen)


def device_named(name: str) -> Device:
    """The device of a name; ``NAME:FLAVOUR`` gives the flavour to a device that has several.

    Raises UsageError for a name that is none, UnsupportedError for a device that is not here.
    """
    kind, _, flavour = name.partition(":")
    if kind not in _OPENERS:
        raise UsageError(f"there is no device {name!r}", hint=f"one of {', '.join(DEVICES)}")
    return _OPENERS[kind](flavour)


def _plain(open_it: Callable[[], Device]) -> Callable[[str], Device]:
    """A device without flavours."""

    def opener(flavour: str) -> Device:
        if flavour:
            raise UsageError(f"the device has no flavour {flavour!r}", hint="leave it out")
        return open_it()

    return opener


def _linux() -> Device:
    from hexane.runtime.linux import LinuxEngine

    path = _engine_path(Machine())
    if path is None:
        raise UnsupportedError("no engine that may be used", hint="`hexane doctor` says what is missing")
    return LinuxEngine(path)


def _virtual() -> Device:
    from hexane.runtime.linux import LinuxEngine
    from hexane.runtime.virtual import PATH, VirtualDevice

    return LinuxEngine(PATH, VirtualDevice())


def _macos() -> Device:
    raise UnsupportedError(
        "macOS loads engine programs of its own compiler only",
        hint="run on the emulator, or give Core ML an .mlpackage (hexane convert)",
    )


def _auto() -> Device:
    return Emulator() if _engine_path(Machine()) is None else _linux()


_OPENERS: dict[str, Callable[[str], Device]] = {
    "emulator": _plain(Emulator),
    "linux": _plain(_linux),
    "virtual": _plain(_virtual),
    "macos": _plain(_macos),
    "auto": _plain(_auto),
}

DEVICES = tuple(_OPENERS)


def _engine_path(machine: Machine) -> str | None:
    """The device file of an engine that this user may use."""
    if machine.system != "Linux":
        return None
    from hexane.runtime.probe_linux import accel_path, probe

    usable, _, _ = probe(machine)
    return accel_path(machine) if usable else None
