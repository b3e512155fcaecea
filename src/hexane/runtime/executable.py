"""A MIL program made ready to run: on the emulated engine where it compiles as one, else with its arithmetic."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.chips import Chip
from hexane.errors import EmulationError, UnsupportedError, UsageError
from hexane.graph.ir import Graph

if TYPE_CHECKING:
    from hexane.program import Program
    from hexane.program.run import Session

ENGINE, GRAPH, AUTO = "engine", "graph", "auto"
LEVELS = (AUTO, ENGINE, GRAPH)


@dataclass(eq=False)
class Executable:
    """``level`` is "engine" or "graph", ``reason`` why it is not "engine".

    ``fixed``: the level was asked for, so that what the emulator cannot run is an error; else it is evaluated with the
    engine's arithmetic, with a warning. ``state``: what its states hold while it is loaded, by name; functions of one
    program have one such dictionary.
    """

    graph: Graph
    chip: Chip
    level: str
    reason: str = ""
    program: Program | None = None
    fixed: bool = False
    zeros: frozenset[str] = frozenset()
    places: dict[tuple[str, ...], Any] = field(default_factory=dict, repr=False)
    state: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    _session: Session | None = field(default=None, repr=False)

    @property
    def is_loaded(self) -> bool:
        """True where it is on its device."""
        return self._session is not None

    def load(self) -> None:
        """Put it on its device, with states of zeros where none are there."""
        for name, zeros in self.graph.make_state().items():
            self.state.setdefault(name, zeros)
        if self.program is not None and self._session is None:
            self._session = self.program.on("emulator")

    def close(self) -> None:
        """Take it off; what its states held is gone."""
        self.state.clear()
        if self._session is not None:
            self._session.close()
            self._session = None

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, in their declared dtypes; states are changed in place."""
        results = self._on_engine(values) if self._session is not None else None
        if results is None:
            from hexane import numerics

            own = {name: self.state[name] for name in self.graph.inputs if name in self.state}
            results = numerics.evaluate(self.graph, {**values, **own}, chip=self.chip)
        return {name: np.zeros_like(a) if name in self.zeros else np.asarray(a) for name, a in results.items()}

    def _on_engine(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """Outputs of the emulated engine; None where it cannot run the program and the level was ours to choose."""
        assert self._session is not None
        try:
            return self._session.run(values, {name: self.state[name] for name in self.graph.make_state()})
        except EmulationError as error:
            if self.fixed:
                raise
            warnings.warn(f"evaluated with the engine's arithmetic, not task by task: {error}", stacklevel=2)
            self.close()
            self.level, self.reason, self.program = GRAPH, str(error), None
            return None


def executable(graph: Graph, chip: Chip, level: str = AUTO) -> Executable:
    """A graph made ready for a chip.

    Raises UnsupportedError with ``level="engine"`` where the program does not become one engine program that can be
    emulated: the direct routes have no host part.
    """
    if level not in LEVELS:
        raise UsageError(f"there is no level {level!r}", hint=f"one of {', '.join(LEVELS)}")
    if level == GRAPH:
        return Executable(graph, chip, GRAPH, "asked for")
    program, reason = _engine_program(graph, chip)
    if program is not None:
        return Executable(graph, chip, ENGINE, program=program, fixed=level == ENGINE)
    if level == ENGINE:
        raise UnsupportedError(reason, hint="level='graph' computes with the engine's arithmetic")
    return Executable(graph, chip, GRAPH, reason)


def _engine_program(graph: Graph, chip: Chip) -> tuple[Program | None, str]:
    """The compiled program, when all of it is on an engine that can be emulated; else None and why."""
    from hexane.codegen import compile
    from hexane.isa import WRITTEN

    if chip.generation_name not in WRITTEN:
        return None, f"{chip.name} ({chip.generation_name}) is not emulated task by task"
    try:
        program = compile(graph, chip=chip)
    except UnsupportedError as error:
        return None, error.message
    host = [segment for segment in program.segments if segment.image is None]
    if host:
        return None, f"part of it stays on the host: {host[0].reason}"
    return program, ""
