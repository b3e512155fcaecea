"""Which device runs a program: the emulator, an engine under Linux, or the virtual one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.runtime.drm import Border
from hexane.runtime.machine import Machine

if TYPE_CHECKING:
    from hexane.program import Program

DEVICES = ("emulator", "linux", "virtual", "macos", "auto")


def run(
    program: Program, inputs: Mapping[str, Any], device: str = "auto", level: str = "engine"
) -> dict[str, np.ndarray]:
    """Outputs by name, as ``Program.run`` gives them.

    Parameters
    ----------
    device : "emulator"; "linux", an engine behind the open driver (spec/devices §4; M1 family); "virtual", the same
        calls answered by the emulator; "auto", an engine where one may be used, else the emulator. Host segments run
        here in any case. "macos" is refused: macOS loads no programs but its own compiler's (spec/devices §11).
    """
    if device == "auto":
        device = "linux" if _engine_path(Machine()) is not None else "emulator"
    if device == "emulator":
        return program.run(inputs, level=level)
    if device not in DEVICES:
        raise UsageError(f"there is no device {device!r}", hint=f"one of {', '.join(DEVICES)}")
    if level != "engine":
        raise UsageError(f"level {level!r} is computed here, not on a device", hint='device="emulator"')
    if device == "macos":
        raise UnsupportedError(
            "macOS loads engine programs of its own compiler only",
            hint="run on the emulator, or give Core ML an .mlpackage (hexane convert)",
        )
    if device == "virtual":
        from hexane.runtime.virtual import PATH, VirtualDevice

        return on_border(program, inputs, PATH, VirtualDevice())
    path = _engine_path(Machine())
    if path is None:
        raise UnsupportedError("no engine that may be used", hint="`hexane doctor` says what is missing")
    return on_border(program, inputs, path, None)


def on_border(program: Program, inputs: Mapping[str, Any], path: str, border: Border | None) -> dict[str, np.ndarray]:
    """Run every engine segment through a device file, the host's segments here."""
    from hexane.runtime.linux import run_image

    values = program.checked(inputs)
    for segment in program.segments:
        if segment.image is None:
            values.update(segment.run(values))
        else:
            values.update(segment.declared(run_image(segment.image, segment.surfaces(values), path, border)))
    return {port.name: values[port.name] for port in program.outputs}


def _engine_path(machine: Machine) -> str | None:
    """The device file of an engine that this user may use."""
    if machine.system != "Linux":
        return None
    from hexane.runtime.probe_linux import accel_path, probe

    usable, _, _ = probe(machine)
    return accel_path(machine) if usable else None
