"""Back ends for a decoder's programs: tasks in the emulator, the engine's arithmetic, or float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hexane import chips
from hexane.errors import UnsupportedError
from hexane.graph.types import StateType
from hexane.language.adapters import BESIDE
from hexane.language.patching import PatchedBase

if TYPE_CHECKING:
    from hexane.language.decoder import Decoder
    from hexane.language.network import StepForm
    from hexane.mil.update import Update
    from hexane.program import Program
    from hexane.program.run import Session

LEVELS = ("graph", "engine", "float32")
Arrays = dict[str, np.ndarray]


class Backend(Protocol):
    """Runs the chunks of a decoder, by number and form."""

    dtype: str

    def state(self, chunk: int, form: StepForm) -> Arrays:
        """An empty cache."""

    def run(self, chunk: int, form: StepForm, inputs: Mapping[str, np.ndarray], state: Arrays) -> Arrays:
        """Outputs by name; ``inputs`` may hold more than the chunk asks for; the state is changed."""


def backend_of(decoder: Decoder, chip: str, level: str) -> Backend:
    """The backend of a level; chips without code generation have "graph" by the network as it stands."""
    from hexane.codegen.targets import target_of

    if level == "float32":
        return Evaluated(decoder, None)
    try:
        target_of(chips.get(chip))
    except UnsupportedError:
        if level == "engine":
            raise
        return Evaluated(decoder, chip)
    return Compiled(decoder, chip, level)


class Evaluated:
    """Graphs without programs: in float32, or with a chip's arithmetic."""

    def __init__(self, decoder: Decoder, chip: str | None) -> None:
        self.decoder, self.chip = decoder, chip
        self.dtype = "fp32" if chip is None else "fp16"

    def state(self, chunk: int, form: StepForm) -> Arrays:
        graph = self.decoder.graph(chunk, form)
        types = {value.name: value.type for value in graph.main.inputs}
        states = {name: type_.tensor for name, type_ in types.items() if isinstance(type_, StateType)}
        return {name: np.zeros(type_.shape, type_.carrier) for name, type_ in states.items()}

    def run(self, chunk: int, form: StepForm, inputs: Mapping[str, np.ndarray], state: Arrays) -> Arrays:
        from hexane.numerics import evaluate

        graph = self.decoder.graph(chunk, form)
        own: dict[str, Any] = {v.name: inputs[v.name] for v in graph.main.inputs if v.name in inputs}
        own.update(state)
        results = graph.evaluate(own) if self.chip is None else evaluate(graph, own, self.chip)
        return {value.name: results[value.name] for value in graph.main.outputs}


class Compiled:
    """Programs of a chip, loaded once each; decoders that differ in their adapters share what they can."""

    def __init__(self, decoder: Decoder, chip: str, level: str) -> None:
        self.decoder, self.chip, self.level = decoder, chip, level
        self.dtype = "fp16"
        self.updates: list[Update] = []

    def program(self, chunk: int, form: StepForm) -> Program:
        return self.session(chunk, form).program

    def session(self, chunk: int, form: StepForm) -> Session:
        """A chunk's session; with an adapter beside it, a session of a program whose constants are patched."""
        from hexane.codegen import compile

        sessions, key = self.decoder._sessions, (self.chip, self.level, chunk, form)
        matrices = self.decoder.adapter_matrices(chunk) if self.decoder.adapter_form == BESIDE else {}
        own = (*key, self.decoder.adapter) if matrices else key
        if own not in sessions:
            if matrices:
                program = self._patched(key, matrices)
            else:
                program = compile(self.decoder.graph(chunk, form), chip=self.chip)
            sessions[own] = program.on("emulator", level=self.level)
        session: Session = sessions[own]
        return session

    def _patched(self, key: tuple[str, str, int, StepForm], matrices: Mapping[str, np.ndarray]) -> Program:
        sessions = self.decoder._sessions
        if key not in sessions:
            sessions[key] = PatchedBase.of(self.decoder.graph(*key[2:]), self.chip, self.level)
        base: PatchedBase = sessions[key]
        program, update = base.patched({name: matrix[:, :, None, None] for name, matrix in matrices.items()})
        self.updates.append(update)
        return program

    def state(self, chunk: int, form: StepForm) -> Arrays:
        return self.program(chunk, form).make_state()

    def run(self, chunk: int, form: StepForm, inputs: Mapping[str, np.ndarray], state: Arrays) -> Arrays:
        session = self.session(chunk, form)
        own = {port.name: inputs[port.name] for port in session.program.inputs}
        return session.record(own, state).outputs
