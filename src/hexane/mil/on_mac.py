"""A MIL program through the private classes of a Mac, or of the fake of one, in the place of the emulator."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hexane.chips import Chip
from hexane.errors import UsageError
from hexane.formats.mil.names import encode
from hexane.graph.ir import Graph
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
    """What :class:`hexane.runtime.executable.Executable` is for the emulator. ``level`` is the device's name."""

    graph: Graph
    chip: Chip
    level: str
    model: MemoryModel
    reason: str = "the program runs on a device"
    program: None = None
    places: dict[tuple[str, ...], object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, self.model.close)

    @property
    def is_loaded(self) -> bool:
        """Whether it is on its device."""
        return self.model.is_loaded

    def load(self) -> None:
        """Put it on the engine."""
        if not self.model.is_loaded:
            self.model.load()

    def close(self) -> None:
        """Take it off; it stays compiled."""
        self.model.unload()

    def discard(self) -> None:
        """Give everything back: objects and the staging folder."""
        self.model.close()

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, in their declared dtypes."""
        outputs = self.model.evaluate({encode(name): array for name, array in values.items()})
        return {value.name: outputs[encode(value.name)] for value in self.graph.main.outputs}


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
