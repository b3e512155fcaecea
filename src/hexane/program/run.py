"""The one loop that runs a program: segment after segment, engine segments on a device, host segments here.

A device is an object with one method for a segment, :meth:`Device.load`. The emulator is the first of them; engines
behind drivers, virtual ones and the arithmetic on the graph are others (``hexane.runtime.devices``). The loop knows
none of them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hexane.arithmetic import tier
from hexane.errors import HexaneError, UsageError
from hexane.graph.types import eval_dtype
from hexane.program.segment import Port, Segment
from hexane.program.state import checked_state

if TYPE_CHECKING:
    from hexane.program.program import Program

CALLS_UNTIL_WARM = 3
"""Calls until the emulator runs a program as one plan (``hexane.emulator.ready``)."""

_OF_PARENTS: list[object] = []
"""Devices and loaded segments of a parent process: their finalisers would give back what the parent still uses."""

Values = Mapping[str, np.ndarray]
"""Arrays by the name of their port, as the graph declares them."""


class Loaded(Protocol):
    """A segment on a device, ready to run as often as needed."""

    def run(self, values: Values) -> dict[str, np.ndarray]:
        """The segment's outputs by name, as the graph declares them; ``values`` holds its inputs among others."""

    def close(self) -> None:
        """Give back what the device keeps for the segment; nothing unless a device says what."""
        return


class Device:
    """Device of engine segments; a subclass says how.

    ``chip`` is the chip that a network is best compiled for when nobody names one; empty where any will do.
    ``engine`` says whether a real engine runs behind it, so that its times are measurements; ``interface`` what its
    calls are in the timing model (``hexane.timing.call.INTERFACES``). ``shared_by_fork`` says that a forked process may
    go on with what its parent loaded, because nothing of it is a driver's.
    """

    name = ""
    chip = ""
    engine = False
    interface = "evaluate"
    shared_by_fork = False

    @property
    def title(self) -> str:
        """Name in messages and reports."""
        return self.name

    def load(self, segment: Segment) -> Loaded:
        """Put an engine segment on the device. UnsupportedError for one that the device cannot take."""
        raise NotImplementedError

    def adapted(self, program: Program) -> Program:
        """The program as this device takes it; a device that takes whole networks gives one with other segments."""
        return program


@dataclass(frozen=True)
class OnHost(Loaded):
    """A host segment: the float32 reference."""

    segment: Segment

    def run(self, values: Values) -> dict[str, np.ndarray]:
        """Outputs by name; arrays of states among the inputs are changed in place."""
        assert self.segment.graph is not None
        return self.segment.graph.evaluate({port.name: values[port.name] for port in self.segment.inputs})


@dataclass
class Run:
    """Result of a run: the outputs, every value at a segment's edge, and the seconds of each segment.

    ``call_seconds`` are the device's own calls, without conversions and copies, where a device tells them apart.
    """

    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    call_seconds: list[float] = field(default_factory=list)


def no_flavour(flavour: str) -> None:
    """UsageError for a flavour of a device that has none."""
    if flavour:
        raise UsageError(f"the device has no flavour {flavour!r}", hint="leave it out")


OnSegment = Callable[[int, Segment], None]
"""Called after every segment with its index."""


class Session:
    """A program on a device, kept loaded between calls.

    A context manager: what the device keeps is given back at the end. Segments are loaded when they are first run.
    Threads may share a session. A process that was forked with an open session opens the device anew on its first call,
    because buffers of a driver belong to the process that made them; ``reopen`` gives that device. Without ``reopen``
    such a call is a UsageError.

    >>> with program.on("emulator") as session:
    ...     first, second = session.run(inputs), session.run(others)
    """

    def __init__(self, program: Program, device: Device, reopen: Callable[[], Device] | None = None) -> None:
        self.device = device
        self.program = device.adapted(program)
        self._reopen = reopen
        self._begin()

    def _begin(self) -> None:
        """Nothing is loaded, and this process owns what will be."""
        self._process = os.getpid()
        self._loading = threading.Lock()
        self._loaded: dict[int, Loaded] = {}

    def _in_this_process(self) -> None:
        """Another device where the session was opened by another process; what that one loaded is left alone."""
        if os.getpid() == self._process:
            return
        if not self.device.shared_by_fork:
            if self._reopen is None:
                raise UsageError(
                    f"the session on {self.device.title} was opened in another process",
                    hint="open a session in each process, after the fork",
                )
            _OF_PARENTS.append((self.device, self._loaded))
            self.device = self._reopen()
        self._begin()

    def __getstate__(self) -> dict[str, Any]:
        """Program and device; whoever unpickles or copies a session loads the program anew."""
        return {name: self.__dict__[name] for name in ("device", "program", "_reopen")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with after_failure(kind is not None):
            self.close()

    def close(self) -> None:
        """Unload every segment, the last one first; the session may be used again and loads them anew.

        Every segment is unloaded also where one of them fails; the first failure is raised then.
        """
        if os.getpid() != self._process:
            return
        first: HexaneError | None = None
        while self._loaded:
            _, loaded = self._loaded.popitem()
            try:
                loaded.close()
            except HexaneError as error:
                first = first or error
        if first is not None:
            raise first

    def run(self, inputs: Mapping[str, Any], state: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Outputs by name, as :meth:`hexane.program.Program.run` gives them."""
        return self.record(inputs, state).outputs

    def warm(self) -> None:
        """Load the program and run it on zeros until later calls are as fast as they get.

        For services: the first call of a process compiles or reads kernels, the emulator checks every task in its first
        run and prepares the steps in its second and third.
        """
        tier.compile_now()
        zeros = {port.name: np.zeros(port.shape, eval_dtype(port.dtype)) for port in self.program.inputs}
        for _ in range(CALLS_UNTIL_WARM):
            self.run(zeros)

    def record(
        self,
        inputs: Mapping[str, Any],
        state: Mapping[str, np.ndarray] | None = None,
        *,
        keep: bool = True,
        on_segment: OnSegment | None = None,
    ) -> Run:
        """The same with the values between segments and the time of each.

        Parameters
        ----------
        state : from ``program.make_state()``, changed in place; None begins with zeros and forgets them.
        keep : leave segments loaded for the next call.
        """
        self._in_this_process()
        program = self.program
        run = Run(values={**program.checked(inputs), **checked_state(program.states, state)})
        for number, segment in enumerate(program.segments):
            start = time.perf_counter()
            loaded, failed = self._load(number, segment), True
            try:
                run.values.update(loaded.run(run.values))
                called = getattr(loaded, "seconds", None)
                failed = False
            finally:
                if not keep:
                    with after_failure(failed):
                        self._loaded.pop(number).close()
            run.seconds.append(time.perf_counter() - start)
            run.call_seconds.append(run.seconds[-1] if called is None else called)
            if on_segment is not None:
                on_segment(number, segment)
        for name, result in program.state_results.items():
            array = run.values[name]
            array[...] = np.asarray(run.values[result]).reshape(array.shape)
        run.outputs = {port.name: _as_dtype(run.values[port.name], port) for port in program.outputs}
        return run

    def counters(self) -> dict[str, int]:
        """Counters of the device itself (``busy_ns``, ``jobs``), by the first loaded segment that can say."""
        for loaded in self._loaded.values():
            counts: dict[str, int] = getattr(loaded, "counters", dict)()
            if counts:
                return counts
        return {}

    def _load(self, number: int, segment: Segment) -> Loaded:
        loaded = self._loaded.get(number)
        if loaded is not None:
            return loaded
        with self._loading:
            if number not in self._loaded:
                self._loaded[number] = OnHost(segment) if segment.graph is not None else self.device.load(segment)
            return self._loaded[number]


def after_failure(failed: bool) -> contextlib.suppress:
    """Around a close: where something ``failed`` before it, that is the news, and not that the close fails, too."""
    return contextlib.suppress(*((HexaneError,) if failed else ()))


def _as_dtype(array: np.ndarray, port: Port) -> np.ndarray:
    """A result in the dtype that the network declares; the engine computes fp32 values in fp16."""
    wide = {"fp32": np.float32, "fp16": np.float16}.get(port.dtype)
    return array if wide is None else np.asarray(array).astype(wide, copy=False)
