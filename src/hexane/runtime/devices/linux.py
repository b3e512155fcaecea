"""Engine programs on the open Linux drivers (docs/devices.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hexane.chips import get
from hexane.errors import UnsupportedError
from hexane.program.run import Device, no_flavour
from hexane.runtime.linux.border import DriverBorder
from hexane.runtime.linux.programs import LoadedProgram, load
from hexane.runtime.machine import Machine
from hexane.runtime.record import DeviceRecord

if TYPE_CHECKING:
    from hexane.program import Segment
    from hexane.program.run import Values

RUNS = "engine programs behind the open Linux drivers: H13 (M1 family), H14 (M2 family)"


class LinuxEngine(Device):
    """An engine behind an open driver. ``border`` answers the calls; None asks the kernel."""

    name = "linux"
    interface = "linux"

    def __init__(
        self, path: str, border: DriverBorder | None = None, *, title: str = "linux", chip: str = "M1"
    ) -> None:
        self.path = path
        self.border = border
        self.chip = chip
        self.engine = border is None
        self._title = title

    @property
    def title(self) -> str:
        """``linux``, or which virtual device answers."""
        return self._title

    def load(self, segment: Segment) -> LoadedSegment:
        """The segment's program in buffers of the engine.

        Raises DeviceError where the driver refuses, UnsupportedError for a program of another generation.
        """
        assert segment.image is not None
        return LoadedSegment(segment, load(segment.image, self.path, self.border))


class LoadedSegment:
    """An engine segment behind the driver."""

    def __init__(self, segment: Segment, program: LoadedProgram) -> None:
        self.segment = segment
        self.program = program

    def run(self, values: Values) -> dict[str, np.ndarray]:
        """Outputs by name, as the graph declares them."""
        return self.segment.declared(self.program.run(self.segment.surfaces(values)))

    @property
    def seconds(self) -> float:
        """Duration of the driver's last call."""
        return self.program.seconds

    def counters(self) -> dict[str, int]:
        """Counters of the driver, over all programs: ``busy_ns``, ``jobs``; empty where it has none."""
        return self.program.device.counters()

    def close(self) -> None:
        """Free the buffers."""
        self.program.close()


def engine_path(machine: Machine) -> str | None:
    """The device file of an engine that this user may use."""
    if machine.system != "Linux":
        return None
    from hexane.runtime.probe_linux import accel_path, probe

    usable, _, _ = probe(machine)
    return accel_path(machine) if usable else None


def describe(machine: Machine) -> DeviceRecord:
    """Available where a driver has an engine that this user may open."""
    return DeviceRecord("linux", RUNS, generations=("h13", "h14"), reason=_reason(machine))


def _reason(machine: Machine) -> str:
    if machine.system != "Linux":
        return f"this machine runs {machine.system}"
    from hexane.runtime.probe_linux import probe

    usable, _, rows = probe(machine)
    if usable:
        return ""
    _, _, answer, remedy = rows[-1]
    return f"{answer}; {remedy}" if remedy else answer


def chip_of(machine: Machine) -> str:
    """The name of this machine's chip, as ``hexane.chips`` knows it; M1 where it is not known."""
    from hexane.runtime.probe_linux import soc_of

    soc = soc_of(machine)
    return get(soc).name if soc else "M1"


def open_device(flavour: str) -> Device:
    """The first engine of this machine that may be used."""
    no_flavour(flavour)
    machine = Machine()
    path = engine_path(machine)
    if path is None:
        raise UnsupportedError(f"no engine that may be used ({_reason(machine)})", hint="`hexane doctor` says more")
    return LinuxEngine(path, chip=chip_of(machine))
