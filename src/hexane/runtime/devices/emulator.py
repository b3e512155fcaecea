"""Devices that compute here: the emulated engine, and the engine's arithmetic on the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexane.errors import UnsupportedError
from hexane.isa import WRITTEN
from hexane.program.run import Device, Loaded, no_flavour
from hexane.runtime.record import DeviceRecord

if TYPE_CHECKING:
    from hexane.graph.ir import Graph
    from hexane.program import Segment
    from hexane.program.run import Values
    from hexane.runtime.machine import Machine


@dataclass(frozen=True)
class EmulatedSegment(Loaded):
    """An engine program on the emulator, which itself keeps the machine that ran a program last."""

    segment: Segment

    def run(self, values: Values) -> dict[str, np.ndarray]:
        """Outputs by name, bit for bit as the tasks make them."""
        from hexane.emulator import emulate

        assert self.segment.image is not None
        return self.segment.declared(emulate(self.segment.image, self.segment.surfaces(values)))


class Emulator(Device):
    """The engine in software: registers and bytes."""

    name = "emulator"
    shared_by_fork = True

    def load(self, segment: Segment) -> EmulatedSegment:
        """Any segment with an image; the emulator refuses a generation that it lacks when the segment runs."""
        return EmulatedSegment(segment)


@dataclass(frozen=True)
class EvaluatedSegment(Loaded):
    """A part of a network, evaluated with the arithmetic of a chip."""

    source: Graph
    inputs: tuple[str, ...]
    chip: str

    def run(self, values: Values) -> dict[str, np.ndarray]:
        """Outputs by name."""
        from hexane import numerics

        return numerics.evaluate(self.source, {name: values[name] for name in self.inputs}, chip=self.chip)


@dataclass(frozen=True)
class GraphArithmetic(Device):
    """``level="graph"``: what the engine of a chip computes, without tasks."""

    chip: str
    name = "graph"
    shared_by_fork = True

    def load(self, segment: Segment) -> EvaluatedSegment:
        """A segment that was compiled in this process; files hold the tasks only."""
        if segment.source is None:
            raise UnsupportedError("a loaded program has no graph level", hint="compile the network again")
        return EvaluatedSegment(segment.source, tuple(port.name for port in segment.inputs), self.chip)


def describe(machine: Machine) -> DeviceRecord:
    """Always available."""
    return DeviceRecord("emulator", "engine programs in software, bit for bit", generations=tuple(WRITTEN))


def open_device(flavour: str) -> Device:
    """The emulator is always there."""
    no_flavour(flavour)
    return Emulator()
