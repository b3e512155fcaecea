"""Engines under macOS: engine segments go to the private in-memory class as MIL text, and Apple's compiler makes the
program. An engine program of one's own is refused by the system (docs/private-api.md, "Tried and failed").
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING

import numpy as np

from hexane.errors import HexaneError, UnsupportedError
from hexane.program.run import Device, no_flavour
from hexane.runtime.machine import Machine
from hexane.runtime.macos.border import SystemBorder
from hexane.runtime.macos.compiler import compiler_for
from hexane.runtime.macos.model import MemoryModel, SubmissionWay
from hexane.runtime.macos.segments import SegmentText, as_given, as_text
from hexane.runtime.macos.system import this_mac
from hexane.runtime.own_chip import named_chip
from hexane.runtime.probe_macos import engine_properties
from hexane.runtime.record import DeviceRecord

if TYPE_CHECKING:
    from hexane.program import Program, Segment
    from hexane.program.run import Values


def describe(machine: Machine) -> DeviceRecord:
    """Available on a Mac with an engine; whether its private classes are there is known when they are asked."""
    runs = "networks compiled by hexane, each engine segment as MIL text; Apple's compiler makes the program"
    if machine.system != "Darwin":
        return DeviceRecord(
            "macos", runs, reason=f"the private classes are on macOS only, and this is {machine.system}"
        )
    if not engine_properties(machine):
        return DeviceRecord("macos", runs, reason="no engine in the device registry")
    return DeviceRecord("macos", runs)


class MacEngine(Device):
    """The engine of a Mac through the private classes.

    ``border`` answers the calls; ``way`` says where programs are compiled and staged. ``notes`` says what was out of
    the ordinary: restrictions that a program breaks by the reports of others, a second compilation.
    """

    name = "macos"
    networks = True
    """It takes networks: programs that hold tasks only cannot be given to it."""

    def __init__(self, border: SystemBorder, way: SubmissionWay | None = None, *, title: str = "macos") -> None:
        self.border = border
        self.way = way or SubmissionWay()
        self.name = title
        self.chip = "M1"
        self.notes: list[str] = []

    def adapted(self, program: Program) -> Program:
        """The program, states with the host; its chip says which dialect its text is in."""
        self.chip = program.chip
        if not program.state_results:
            return program
        if program.graph is None:
            raise UnsupportedError("the in-memory class has no states", hint="compile the network again")
        from hexane.codegen import compile

        return compile(program.graph, program.chip, program.dialect, without=("states-in-place",))

    def load(self, segment: Segment) -> MacSegment:
        """Compile, load and bind; RuntimeFault, BorderError or UnsupportedError where that fails."""
        program_text = as_text(segment, self.chip)
        words = [f"{f.rule} ({f.severity}): {f.message}" for f in program_text.findings if f.spoils]
        self.notes += words
        model = MemoryModel(self.border, program_text.source, self.way)
        try:
            model.compile()
            model.load()
        except HexaneError as error:
            for note in words[:3]:
                error.add_note(f"the program breaks restriction {note}")
            raise
        self.notes += model.notes
        return MacSegment(segment, program_text, model)


class MacSegment:
    """An engine segment on the engine of a Mac."""

    def __init__(self, segment: Segment, text: SegmentText, model: MemoryModel) -> None:
        self.segment = segment
        self.written = text
        self.model = model
        weakref.finalize(self, model.close_last)  # a session that nobody closed leaves nothing behind either

    def run(self, values: Values) -> dict[str, np.ndarray]:
        """Outputs by name, as the graph declares them."""
        source = self.written.source
        arrays = {
            symbol: as_given(np.asarray(values[name]).reshape(source.inputs[symbol].shape), source.inputs[symbol])
            for name, symbol in self.written.inputs.items()
        }
        outputs = self.model.evaluate(arrays)
        results = {name.removesuffix("@output"): outputs[symbol] for name, symbol in self.written.outputs.items()}
        return self.segment.declared(results)

    def close(self) -> None:
        """Take the program off the engine; nothing is left behind."""
        self.model.close()


def open_device(flavour: str) -> Device:
    """The engine of this Mac."""
    no_flavour(flavour)
    if sys.platform != "darwin":
        raise UnsupportedError(
            "the private classes are on macOS only",
            hint='device="virtual:macos" runs the same calls against a fake of them',
        )
    border = this_mac()
    device = MacEngine(border, SubmissionWay(compiler=compiler_for(border)))
    device.engine, device.chip = True, named_chip(Machine()) or "M1"
    return device
