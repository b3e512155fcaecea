"""Several loaded programs as one submission: buffers stay on the device, results come in sets used in turn.

The real runtime has such calls, and nobody outside Apple is known to have made them work (docs/private-api.md). Here
they are real: the buffer that one program writes is the buffer that the next one reads, and copies are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.private_api.faults import Refused
from hexane.restrictions.reports import Severity
from hexane.runtime.queue import Moment, Request, RequestQueue
from hexane.runtime.resident import BufferLayout, CopyTraffic, DeviceBuffer, Resident, ResidentGraph, ResidentImage

if TYPE_CHECKING:
    from hexane.mil.model import Model

Key = tuple[int, str]
"""A program's number in the chain, and the name of one of its inputs or outputs."""


@dataclass(frozen=True)
class Links:
    """``wires``: (stage, input) -> (stage, output) that it reads; ``feedback``: of the submission before."""

    wires: Mapping[Key, Key]
    feedback: Mapping[Key, Key]


class Results:
    """The results of one submission, on the device; valid until the chain used its other sets and came back to this."""

    def __init__(self, chain: Chain, number: int, buffers: Mapping[str, DeviceBuffer]) -> None:
        self._chain = chain
        self._number = number
        self._buffers = buffers

    def read(self, name: str | None = None) -> Any:
        """One result, or all by name, as copies for the host. UsageError when a later submission has overwritten it."""
        if self._chain.submitted - self._number >= self._chain.sets:
            raise UsageError(
                f"the results of submission {self._number} are gone: {self._chain.sets} sets are used in turn",
                hint="read sooner, or use more sets",
            )
        if name is None:
            return {key: buffer.read() for key, buffer in self._buffers.items()}
        if name not in self._buffers:
            raise UsageError(f"there is no result {name!r}", hint=f"the results are {', '.join(self._buffers)}")
        return self._buffers[name].read()


class Chain:
    """Loaded models that run one after the other on the device.

    Parameters
    ----------
    models : loaded, in the order in which they run.
    links : (stage, input) -> (stage, output); left out, an input takes the result of the same name of the stage before
        it, or its only result of the same type.
    feedback : the same for results of the submission before; such inputs are zero at first, or what ``preset`` gave.
    sets : sets of result buffers used in turn.
    queue : where submissions wait; None makes one.

    Inputs and results that nothing in the chain provides or takes keep their names, with the stage before them
    (``2.mask``) where two would be called the same.
    """

    def __init__(
        self,
        models: Sequence[Model],
        *,
        links: Mapping[Key, Key] | None = None,
        feedback: Mapping[Key, Key] | None = None,
        sets: int = 2,
        queue: RequestQueue | None = None,
    ) -> None:
        if not models:
            raise UsageError("a chain of no models")
        if sets < 1 or (feedback and sets < 2):
            raise UsageError(f"{sets} sets of results", hint="at least 1; with feedback at least 2")
        self.models = tuple(models)
        self.traffic = CopyTraffic()
        self.sets = sets
        self.submitted = 0
        self._own_queue = queue is None
        self.queue = queue or RequestQueue(name="chain")
        self._stages = [_resident(model) for model in models]
        self.links = Links(dict(links) if links is not None else self._matched(), dict(feedback or {}))
        self._check()
        self.inputs = _named(self._free_inputs())
        self.outputs = _named(self._free_outputs())
        self._buffers: list[dict[Key, DeviceBuffer]] = []
        self._programs: list[list[Callable[[], None]]] = []
        self._make_buffers()

    # -- how the programs hang together --------------------------------------------------------------------------------

    def _matched(self) -> dict[Key, Key]:
        wires: dict[Key, Key] = {}
        for number in range(1, len(self._stages)):
            before, here = self._stages[number - 1].outputs, self._stages[number].inputs
            shared = {name for name in here if name in before and before[name].fits(here[name])}
            wires |= {(number, name): (number - 1, name) for name in shared}
            left_in, left_out = set(here) - shared, set(before) - shared
            if len(left_out) == 1:
                (output,) = left_out
                fitting = [name for name in left_in if before[output].fits(here[name])]
                if len(fitting) == 1:
                    wires[number, fitting[0]] = (number - 1, output)
        return wires

    def _check(self) -> None:
        for wires, late in ((self.links.wires, False), (self.links.feedback, True)):
            for (stage, name), (source, output) in wires.items():
                needed, offered = self._layout(stage, name, "inputs"), self._layout(source, output, "outputs")
                if not late and source >= stage:
                    raise UsageError(f"program {stage} cannot read what program {source} writes later")
                if not offered.fits(needed):
                    raise UnsupportedError(
                        f"output {output!r} of program {source} and input {name!r} of program {stage} "
                        "lie differently in memory",
                        hint=f"{offered.declared} {offered.dtype} against {needed.declared} {needed.dtype}",
                    )
        both = set(self.links.wires) & set(self.links.feedback)
        if both:
            raise UsageError(f"input {sorted(both)[0]} has two sources")

    def _layout(self, stage: int, name: str, side: str) -> BufferLayout:
        if not 0 <= stage < len(self._stages):
            raise UsageError(f"there is no program {stage} in the chain")
        layouts: dict[str, BufferLayout] = getattr(self._stages[stage], side)
        if name not in layouts:
            raise UsageError(f"program {stage} has no {side[:-1]} {name!r}", hint=f"it has {', '.join(layouts)}")
        return layouts[name]

    def _free_inputs(self) -> list[Key]:
        bound = {*self.links.wires, *self.links.feedback}
        return [(i, name) for i, stage in enumerate(self._stages) for name in stage.inputs if (i, name) not in bound]

    def _free_outputs(self) -> list[Key]:
        sources = set(self.links.wires.values())
        return [(i, name) for i, stage in enumerate(self._stages) for name in stage.outputs if (i, name) not in sources]

    def _make_buffers(self) -> None:
        """Buffers for every set; what lies between the programs is shared by all sets."""
        lasting = set(self.outputs.values()) | set(self.links.feedback.values())
        shared: dict[Key, DeviceBuffer] = {}
        for number, stage in enumerate(self._stages):
            for name, layout in stage.outputs.items():
                if (number, name) not in lasting:
                    shared[number, name] = DeviceBuffer(layout, self.traffic)
            for name, layout in stage.inputs.items():
                if (number, name) not in self.links.wires and (number, name) not in self.links.feedback:
                    shared[number, name] = DeviceBuffer(layout, self.traffic)
        results = [
            {key: DeviceBuffer(self._layout(*key, "outputs"), self.traffic) for key in lasting}
            for _ in range(self.sets)
        ]
        makers: dict[tuple, Callable[[], None]] = {}
        for turn in range(self.sets):
            here, before = {**shared, **results[turn]}, results[turn - 1]
            self._buffers.append(here)
            programs = []
            for number, stage in enumerate(self._stages):
                bound = {name: here[number, name] for name in stage.outputs}
                for name in stage.inputs:
                    key = (number, name)
                    if key in self.links.feedback:
                        bound[name] = before[self.links.feedback[key]]
                    else:
                        bound[name] = here[self.links.wires.get(key, key)]
                same = (number, *sorted((name, id(buffer)) for name, buffer in bound.items()))
                if same not in makers:
                    makers[same] = stage.bind(bound)
                programs.append(makers[same])
            self._programs.append(programs)

    # -- running -------------------------------------------------------------------------------------------------------

    def preset(self, values: Mapping[Key, np.ndarray]) -> None:
        """Give inputs that are fed back the values of the first submission."""
        for key, array in values.items():
            if key not in self.links.feedback:
                raise UsageError(f"input {key} is not fed back")
            self._buffers[(self.submitted - 1) % self.sets][self.links.feedback[key]].write(array)

    def submit(
        self, inputs: Mapping[str, np.ndarray], *, waits: Sequence[Moment] = (), signals: Sequence[Moment] = ()
    ) -> Future[Results]:
        """One submission of the whole chain: inputs are copied to the device in its turn, results stay there."""
        arrays = self._checked(inputs)

        def work() -> Results:
            number = self.submitted
            turn = number % self.sets
            for name, array in arrays.items():
                self._buffers[turn][self.inputs[name]].write(array)
            for program in self._programs[turn]:
                program()
            self.submitted = number + 1
            outputs = {name: self._buffers[turn][key] for name, key in self.outputs.items()}
            return Results(self, number + 1, outputs)

        return self.queue.submit(Request(work, self, waits, signals))

    def evaluate(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Submit, wait, and read all results."""
        return self.submit(inputs).result().read()

    def _checked(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if set(inputs) != set(self.inputs):
            odd = sorted(set(inputs) ^ set(self.inputs))[0]
            what = "is missing" if odd in self.inputs else "is not an input of the chain"
            raise UsageError(f"{odd!r} {what}", hint=f"the inputs are {', '.join(self.inputs)}")
        values = {}
        for name, (stage, port) in self.inputs.items():
            array, layout = np.asarray(inputs[name]), self._stages[stage].inputs[port]
            if array.shape != layout.declared or array.dtype != layout.dtype:
                raise UsageError(
                    f"input {name!r} is {array.dtype} {array.shape}", hint=f"it is {layout.dtype} {layout.declared}"
                )
            values[name] = array.copy()
        return values

    def close(self) -> None:
        """Wait for what was submitted."""
        if self._own_queue:
            self.queue.close()

    def __enter__(self) -> Chain:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _named(keys: list[Key]) -> dict[str, Key]:
    """Names for keys: the plain name where it is the only one."""
    plain = [name for _, name in keys]
    return {name if plain.count(name) == 1 else f"{stage}.{name}": (stage, name) for stage, name in keys}


def _resident(model: Model) -> Resident:
    """A loaded model as a program on device buffers."""
    if model.quirks:
        raise UnsupportedError(
            "the real runtime chains nothing: prepareChainingWithModel: fails with code 15 for all parameters",
            hint="without quirks chains run",
        )
    if model.state != "loaded":
        raise UsageError(f"a model of the chain is {model.state}, not loaded", hint="model.compile().load()")
    spoiled = model.refusing(Severity.FAILS, Severity.WRONG)
    if spoiled:
        raise Refused(spoiled, model.text)
    program = model.program
    if program is None:
        return ResidentGraph(model.graph, model.chip)
    if len(program.segments) != 1 or program.segments[0].image is None:
        raise UnsupportedError("a program of several segments has no buffers of its own on the device")
    declared = {port.name: port.shape for port in (*program.inputs, *program.outputs)}
    return ResidentImage(program.segments[0].image, declared)
