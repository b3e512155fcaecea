"""Core ML through coremltools: the whole network as a package; Core ML decides what runs on the engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.program.run import Device
from hexane.program.segment import ENGINE, Segment
from hexane.runtime.core_ml.package import UNITS, Package, coremltools
from hexane.runtime.machine import Machine
from hexane.runtime.own_chip import named_chip
from hexane.runtime.record import DeviceRecord

if TYPE_CHECKING:
    from hexane.program import Program

FLAVOURS = {"engine": "engine and CPU", "all": "engine, GPU and CPU", "gpu": "GPU and CPU", "cpu": "CPU"}


def describe(machine: Machine) -> DeviceRecord:
    """Available on a Mac with coremltools."""
    reason = ""
    if machine.system != "Darwin":
        reason = f"Core ML is on macOS only; this is {machine.system}"
    elif importlib.util.find_spec("coremltools") is None:
        reason = "coremltools is not installed"
    return DeviceRecord("coreml", "networks: Core ML decides where each op runs", FLAVOURS, reason=reason)


class CoreMLDevice(Device):
    """Core ML. ``library`` is coremltools or an object of its interface; ``units`` as for :class:`Package`."""

    name = "coreml"
    interface = "coreml"
    networks = True

    def __init__(self, units: str = "engine", library: Any = None) -> None:
        self.units = units
        self.engine = library is None and units in ("engine", "all")  # a wish, not a command
        self.library = library if library is not None else coremltools()

    @property
    def title(self) -> str:
        """With what may be used."""
        return f"{self.name}:{self.units}"

    def adapted(self, program: Program) -> Program:
        """The program as one segment: Core ML takes whole networks."""
        graph = program.graph
        if graph is None and len(program.segments) == 1:
            graph = program.segments[0].source
        if graph is None:
            raise UnsupportedError(
                "Core ML takes networks, and a program from a file holds none", hint="compile the network again"
            )
        if program.states:
            raise UnsupportedError("a network with states", hint="run it on the emulator")
        ops = tuple(op.describe() for op in graph.main.walk())
        whole = Segment(ENGINE, "the whole network", ops, program.inputs, program.outputs, source=graph)
        return replace(program, segments=(whole,))

    def load(self, segment: Segment) -> PackagedSegment:
        """The network as a package, loaded by Core ML."""
        assert segment.source is not None
        return PackagedSegment(segment, Package(segment.source, self.units, self.library))


class PackagedSegment:
    """A network in the hands of Core ML."""

    def __init__(self, segment: Segment, package: Package) -> None:
        self.segment = segment
        self.package = package

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""
        outputs = self.package.predict(values)
        return {port.name: outputs[port.name].reshape(port.shape) for port in self.segment.outputs}

    def close(self) -> None:
        """Remove the package."""
        self.package.close()


def open_device(flavour: str) -> Device:
    """Core ML of this Mac; the flavour says what it may use."""
    if flavour and flavour not in UNITS:
        raise UsageError(f"Core ML has no compute units {flavour!r}", hint=f"one of {', '.join(UNITS)}")
    device = CoreMLDevice(flavour or "engine")
    device.engine, device.chip = flavour not in ("cpu", "gpu"), named_chip(Machine()) or "M1"
    return device
