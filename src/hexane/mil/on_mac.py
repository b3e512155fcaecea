"""A MIL program through the private classes of a Mac, or of the fake of one, in the place of the emulator."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hexane.chips import Chip
from hexane.errors import UnsupportedError, UsageError
from hexane.formats.mil.names import encode
from hexane.graph.builder import GraphBuilder
from hexane.graph.effects import written
from hexane.graph.ir import Graph
from hexane.graph.rewrite import replace_op
from hexane.graph.types import tensor_of
from hexane.runtime.macos.border import SystemBorder
from hexane.runtime.macos.compiler import compiler_for
from hexane.runtime.macos.fake.border import FakeMac
from hexane.runtime.macos.fake.settings import Settings
from hexane.runtime.macos.model import MemoryModel, SubmissionWay
from hexane.runtime.macos.segments import source_of
from hexane.runtime.macos.system import this_mac

MACOS, VIRTUAL = "macos", "virtual:macos"
DEVICES = ("emulator", MACOS, VIRTUAL)


@dataclass(eq=False)
class OnMac:
    """Counterpart of :class:`hexane.runtime.executable.Executable` on a Mac. ``level`` is the device's name.

    ``results``: the output that each state becomes, which the device has as input and output, by name; ``state``: what
    they hold while the program is loaded, one dictionary for all functions.
    """

    graph: Graph
    chip: Chip
    level: str
    model: MemoryModel
    reason: str = "the program runs on a device"
    program: None = None
    places: dict[tuple[str, ...], object] = field(default_factory=dict, repr=False)
    results: Mapping[str, str] = field(default_factory=dict)
    state: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, self.model.close)

    @property
    def is_loaded(self) -> bool:
        """True where it is on its device."""
        return self.model.is_loaded

    def load(self) -> None:
        """Put it on the engine, with states of zeros where none are there."""
        for name, zeros in self.graph.make_state().items():
            self.state.setdefault(name, zeros)
        if not self.model.is_loaded:
            self.model.load()

    def close(self) -> None:
        """Take it off; it stays compiled, and what its states held is gone."""
        self.state.clear()
        self.model.unload()

    def discard(self) -> None:
        """Give everything back: objects and the staging folder."""
        self.model.close()

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, in their declared dtypes; states change."""
        own = {state.name: self.state[state.name] for state in self.graph.main.states}
        outputs = self.model.evaluate({encode(name): array for name, array in {**own, **values}.items()})
        for name, result in self.results.items():
            self.state[name][...] = outputs[encode(result)]
        return {value.name: outputs[encode(value.name)] for value in self.graph.main.outputs}


def function_alone(graph: Graph, name: str) -> tuple[Graph, dict[str, str]]:
    """A function as a program of its own, its states tensors that go in and out, since the in-memory class knows no
    others; and the output that each state becomes, of those that are written."""
    alone = graph.clone()
    function = alone.functions[name]
    alone.functions, alone.entry = {name: function}, name
    results = {}
    for state in function.states:
        state.type, latest = tensor_of(state.type), state
        for op in [op for op in function.walk() if state in op.operands()]:
            if op.block is not function:
                raise UnsupportedError(f"state {state.name!r} is used inside a block", hint="device='emulator'")
            if op.type != "read_state":
                latest = written(op)
            replace_op(op, () if op.type == "write_state" else latest)
        if latest is not state:
            b = GraphBuilder(function=function, opset=function.opset)
            own = latest if latest.op is not None and not latest.is_output else b.identity(x=latest)
            function.set_outputs((*function.outputs, own))
            results[state.name] = own.name
    return alone, results


def side_of(device: str | SystemBorder, chip: Chip, level: str) -> SystemBorder:
    """The border that a device's name means. UsageError for a name that is none, UnsupportedError off macOS."""
    if not isinstance(device, str):
        return device
    if device == MACOS:
        return this_mac()
    if device == VIRTUAL:
        return FakeMac(Settings(chip=chip.name, level=level))
    raise UsageError(f"there is no device {device!r} for a MIL text", hint=f"one of {', '.join(DEVICES)}")


def compiled_on(border: SystemBorder, text: str, files: Mapping[str, bytes], way: SubmissionWay) -> MemoryModel:
    """The program, compiled; RuntimeFault where the compiler refuses."""
    model = MemoryModel(border, source_of(text, dict(files)), way)
    model.compile()
    return model


def way_of(device: str | SystemBorder, border: SystemBorder, way: SubmissionWay, child: bool | None) -> SubmissionWay:
    """In a child process where it is asked for, and on a real Mac unless it is not."""
    if child or (child is None and device == MACOS):
        return SubmissionWay(compiler_for(border), way.budget, way.surfaces, way.root)
    return way
