"""``hexane.mil.Model``: a MIL program as the private in-memory class takes it, on any machine."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane import chips
from hexane.chips import Chip
from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.formats.mil import parse_mil
from hexane.graph.types import TensorType
from hexane.mil import quirks as silence
from hexane.mil.on_mac import OnMac, compiled_on, function_alone, side_of, way_of
from hexane.mil.process import PROCESS, Process
from hexane.mil.statistics import Statistics
from hexane.mil.surfaces import OWN_SIZE, UNIFORM, Ports, checked
from hexane.private_api import selector
from hexane.private_api.budget import CompileBudget
from hexane.private_api.calls import DEFAULT_QOS, QOS
from hexane.private_api.faults import Refused
from hexane.private_api.identifier import identifier
from hexane.restrictions import Finding, check_mil
from hexane.restrictions.check import plain_weights
from hexane.restrictions.reports import Severity
from hexane.restrictions.rule import IN_MEMORY
from hexane.runtime.executable import AUTO, Executable, executable
from hexane.runtime.macos.border import SystemBorder
from hexane.runtime.macos.model import SubmissionWay
from hexane.runtime.macos.segments import written
from hexane.runtime.queue import Moment, Request, RequestQueue
from hexane.runtime.resident import CopyTraffic

if TYPE_CHECKING:
    from hexane.graph.ir import Graph
    from hexane.mil.update import Update
    from hexane.program import Program

BUDGET = CompileBudget()
"""The budget of this process, shared by all models that are given none."""


@lru_cache(maxsize=1)
def engine_queue() -> RequestQueue:
    """The queue of the one engine, made when it is first asked for."""
    return RequestQueue()


SPOKEN = 4096
"""Selectors that a transcript holds."""
NEW, COMPILED, LOADED = "new", "compiled", "loaded"
EMULATOR = "emulator"


@dataclass(frozen=True)
class Options:
    """Options of a model's hand-over and runs.

    ``os``: the system that it is for ("macOS 15"); ``interface``: "in-memory", "client" or "mle5"; ``surfaces``:
    "uniform_largest" or "own_size"; ``level``: "auto", "engine" (tasks on the emulator, or an error) or "graph" (the
    engine's arithmetic); ``allow``: ids of restrictions to run in spite of; ``budget``: compilations of this process;
    ``process``: counters and cache of the real runtime (quirks only); ``statistics``: estimate the time on the chip
    when the model is loaded; ``queue``: where asynchronous evaluations wait (None: the one queue that all models share,
    as they share the engine); ``in_child``: whether a device's compiler runs in a process of its own (None: on a real
    Mac only).
    """

    os: str | None = None
    interface: str = IN_MEMORY
    surfaces: str | None = None
    level: str = AUTO
    allow: tuple[str, ...] = ()
    budget: CompileBudget | None = None
    process: Process | None = None
    statistics: bool = True
    queue: RequestQueue | None = None
    in_child: bool | None = None


class Model:
    """A program in MIL text: compile, load, evaluate, unload.

    A context manager compiles and loads at its start and unloads at its end:

    >>> with hexane.mil.Model(text, {"@model_path/weights/w.bin": data}, chip="M4") as model:
    ...     outputs = model.evaluate({"x": x})

    Parameters
    ----------
    text : the program, UTF-8 bytes or a string.
    weights : the path of each BLOBFILE, as written, to the file's bytes or a file; or the private class's form,
        ``{path: {"offset": 0, "data": bytes}}``.
    chip : the chip that it is checked against and computed as.
    quirks : False: every restriction that would make it fail, or give wrong numbers in silence, is an error with a line
        and a remedy; inputs are bound by name and checked. True: do what the real runtime is reported to do, with its
        error domains and codes; nobody's engine is asked, docs/restrictions.md says who reported what.
    options : see :class:`Options`.
    device : "emulator"; "macos", the private classes of this Mac; "virtual:macos", the same calls answered by a fake of
        them; or an object of the same interface as ``hexane.runtime.macos.border.SystemBorder``.

    The emulator runs task by task where the program becomes one engine program for the chip (``level`` is
    "engine"), else the network with the chip's arithmetic ("graph"; ``level_reason`` says why).

    A program of several functions runs each (``evaluate(..., function="prefill")``). States stay with the loaded model:
    zero when it is loaded, one for each name, whichever function writes or reads it.
    """

    def __init__(
        self,
        text: str | bytes,
        weights: Mapping[str, Any] | None = None,
        chip: str | Chip = "M4",
        *,
        quirks: bool = False,
        options: Options | None = None,
        device: str | SystemBorder = EMULATOR,
    ) -> None:
        if quirks and device != EMULATOR:
            raise UsageError("quirks are the emulated runtime's; a device does what it does", hint="leave one out")
        if quirks and isinstance(text, silence.NSString):
            raise silence.crash_of("T1")
        if not isinstance(text, (str, bytes, bytearray)):
            raise UsageError(f"a program is text or its bytes, not {type(text).__name__}")
        self.text = text if isinstance(text, str) else bytes(text).decode("utf-8", errors="replace")
        if quirks and weights is None and "BLOBFILE" in self.text:
            raise silence.crash_of("W1")
        self.chip = chips.get(chip)
        self.quirks = quirks
        self.device = device
        self.options = options or Options()
        self.surfaces = self.options.surfaces or (OWN_SIZE if quirks else UNIFORM)
        self.state = NEW
        self.files: dict[str, bytes] = _Files(self, _bytes_of(weights))
        self.identifier = identifier(self.text.encode(), self.files)
        self.findings: list[Finding] = []
        self.statistics = Statistics()
        self.traffic = CopyTraffic()
        self.transcript: deque[str] = deque(maxlen=SPOKEN)
        self._say("modelWithMILText:weights:optionsPlist:")
        self._say("inMemoryModelWithDescriptor:")
        self._made: Executable | OnMac | None = None
        self._ports: Ports | None = None
        self._others: dict[str, Executable | OnMac] = {}
        self._lock = threading.Lock()
        self._size = sum(map(len, self.files.values()))

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def level(self) -> str:
        """ "engine" or "graph"; compile first."""
        return self.ready().level

    @property
    def level_reason(self) -> str:
        """Reason why the level is not "engine"."""
        return self.ready().reason

    @property
    def graph(self) -> Graph:
        """The network that was compiled."""
        return self.ready().graph

    @property
    def program(self) -> Program | None:
        """The compiled engine program; None at level "graph"."""
        return self.ready().program

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Inputs by name, as declared; compile first."""
        return dict(self._known_ports().inputs)

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Outputs by name, as listed; compile first."""
        return dict(self._known_ports().outputs)

    # -- the calls -----------------------------------------------------------------------------------------------------

    def compile(self, qos: int = DEFAULT_QOS) -> Model:
        """Check the program and make it ready for the chip; once is enough.

        Raises
        ------
        Refused : restrictions that the program breaks (not with quirks).
        RuntimeFault : with quirks, what the real compiler says; the compile budget.
        """
        _checked_qos(qos)
        if self.state != NEW:
            return self
        self.findings = check_mil(
            self.text, self.files, self.chip, self.options.os, self.options.interface, self.surfaces
        )
        budget = self.options.budget or BUDGET
        if self.device != EMULATOR:
            self._refuse(Severity.REJECTED)
            self._compile_on_mac(self._parsed(), budget)
        elif self.quirks:
            budget.spend()
            self._compile_as_the_runtime()
        else:
            budget.spend()
            self._refuse(Severity.REJECTED)
            self._compile_functions(self._parsed())
        self._ports = _ports_of(self.ready().graph)
        self.statistics.level = self.level
        self._say("compileWithQoS:options:error:")
        self.statistics.count("compiles", qos)
        self.state = COMPILED
        return self

    def load(self, qos: int = DEFAULT_QOS) -> Model:
        """Put the compiled program on its device."""
        _checked_qos(qos)
        if self.state == NEW:
            raise UsageError("the model is not compiled", hint="model.compile() first")
        if self.state == LOADED:
            return self
        if self.quirks:
            self._process.load(self._size)
        for each in self.executables():
            each.load()
        self.state = LOADED
        self._say("loadWithQoS:options:error:")
        self.statistics.count("loads", qos)
        if self.options.statistics and not self.statistics.hw_execution_ns:
            self._estimate()
        return self

    def evaluate(
        self,
        inputs: Mapping[str, Any],
        qos: int = DEFAULT_QOS,
        *,
        weights_buffer: object = None,
        function: str | None = None,
    ) -> dict[str, np.ndarray]:
        """Outputs by name, as declared.

        Parameters
        ----------
        inputs : name -> array of the declared shape and dtype (fp16 is float16), packed; or :class:`Surface`.
        weights_buffer : of the private request; the engine ignores it (W10), so without quirks it is refused.
        function : of a program with several; by default the one that runs.

        Raises
        ------
        UsageError : an array that does not fit, a model that is not loaded.
        Refused : restrictions by which evaluation fails or gives wrong numbers; ``Options(allow=("O7",))`` runs it.
        RuntimeFault : with quirks, what the real runtime says.
        """
        _checked_qos(qos)
        if self.state != LOADED:
            raise UsageError(f"the model is {self.state}, not loaded", hint="model.load() first")
        if weights_buffer is not None and not self.quirks:
            raise UsageError("a weights buffer is ignored by the engine (restriction W10)", hint="leave it out")
        return self._evaluated(inputs, qos, function)

    def evaluate_async(
        self,
        inputs: Mapping[str, Any],
        qos: int = DEFAULT_QOS,
        *,
        waits: Sequence[Moment] = (),
        signals: Sequence[Moment] = (),
        block: bool = True,
        function: str | None = None,
    ) -> Future[dict[str, np.ndarray]]:
        """The same through the queue (``Options(queue=...)``; else the engine's one): a future of the outputs.

        The inputs are checked and copied at once. ``waits`` and ``signals`` are (event, value) pairs around the
        evaluation (``hexane.runtime.queue.Event``). Raises QueueFull with ``block=False`` where 127 requests wait.
        """
        _checked_qos(qos)
        if self.state != LOADED:
            raise UsageError(f"the model is {self.state}, not loaded", hint="model.load() first")
        copies: Mapping[str, Any] = dict(inputs)
        if not self.quirks:
            self._refuse(Severity.FAILS, Severity.WRONG)
            ports = _ports_of(self._of(function).graph)
            copies = {name: array.copy() for name, array in checked(ports, inputs).items()}
        request = Request(lambda: self._evaluated(copies, qos, function), self, waits, signals)
        return self._queue.submit(request, block=block)

    def _evaluated(self, inputs: Mapping[str, Any], qos: int, function: str | None = None) -> dict[str, np.ndarray]:
        start = time.perf_counter()
        each = self._of(function)
        results = self._as_the_runtime(inputs) if self.quirks else self._strictly(inputs, each)
        ports = _ports_of(each.graph)
        with self._lock:
            self.statistics.seconds += time.perf_counter() - start
            self._say("evaluateWithQoS:options:request:error:")
            self.statistics.count("evaluations", qos)
            for type_ in ports.inputs.values():
                self.traffic.up(type_.count * type_.carrier.itemsize)
            for array in results.values():
                self.traffic.down(array.nbytes)
        return results

    @property
    def _queue(self) -> RequestQueue:
        return self.options.queue or engine_queue()

    def unload(self, qos: int = DEFAULT_QOS) -> None:
        """Take the program off its device; it stays compiled. Requests that wait are answered with QueueClosed."""
        _checked_qos(qos)
        if self.state != LOADED:
            return
        self.state = COMPILED
        if self.options.queue is not None or engine_queue.cache_info().currsize:
            self._queue.forget(self)
        for each in self.executables():
            each.close()
        if self.quirks:
            self._process.unload(self._size)
        self._say("unloadWithQoS:error:")
        self.statistics.count("unloads", qos)

    def update(self, weights: Mapping[str, np.ndarray]) -> Update:
        """Give constants other values without compiling again; see :func:`hexane.mil.update.update`."""
        from hexane.mil.update import update

        if self.device != EMULATOR:
            raise UnsupportedError(
                "weights of a compiled program stay what they are on a device (restriction W8)",
                hint="weights as inputs of matmul, or a new model",
            )
        return update(self, weights)

    def close(self) -> None:
        """Unload; a device also gives back the program's objects and files, so that it is new again."""
        self.unload()
        if isinstance(self._made, OnMac):
            for each in self.executables():
                if isinstance(each, OnMac):
                    each.discard()
            self._made, self.state = None, NEW
            self._others.clear()

    def __enter__(self) -> Model:
        try:
            return self.compile().load()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _say(self, name: str) -> None:
        """Note the selector that the same step sends on a Mac; the map has to know it."""
        self.transcript.append(selector(name).name)

    # -- how -----------------------------------------------------------------------------------------------------------

    @property
    def _process(self) -> Process:
        return self.options.process or PROCESS

    def ready(self) -> Executable | OnMac:
        """The compiled program; UsageError before that."""
        if self._made is None:
            raise UsageError("the model is not compiled", hint="model.compile() first")
        return self._made

    def executables(self) -> tuple[Executable | OnMac, ...]:
        """The compiled program of each function, the one that runs first."""
        return (self.ready(), *self._others.values())

    def _of(self, function: str | None) -> Executable | OnMac:
        """Program of a function; UsageError for one that the network lacks or that only the emulator runs."""
        each = self.ready()
        if function is None or function == each.graph.main.name:
            return each
        if function not in self._others:
            there = ", ".join([each.graph.main.name, *self._others])
            raise UsageError(f"there is no function {function!r} to run here", hint=f"there is {there}")
        return self._others[function]

    def _compile_functions(self, graph: Graph) -> None:
        """Every function for the chip; their states are the same arrays."""
        self._made = first = executable(graph, self.chip, self.options.level)
        for name in graph.functions:
            if name != graph.main.name:
                other = graph.clone()
                other.entry = name
                each = executable(other, self.chip, self.options.level)
                each.state = first.state
                self._others[name] = each

    def _known_ports(self) -> Ports:
        self.ready()
        assert self._ports is not None
        return self._ports

    def _parsed(self) -> Graph:
        return parse_mil(self.text, self.files)

    def refusing(self, *severities: Severity) -> list[Finding]:
        """Findings of these severities that are neither allowed nor taken care of by binding by name."""
        allowed = {*self.options.allow, *silence.BINDING}
        return [f for f in self.findings if f.severity in severities and f.rule not in allowed]

    def _refuse(self, *severities: Severity) -> None:
        findings = self.refusing(*severities)
        if findings:
            raise Refused(findings, self.text)

    def _strictly(self, inputs: Mapping[str, Any], each: Executable | OnMac) -> dict[str, np.ndarray]:
        self._refuse(Severity.FAILS, Severity.WRONG)
        return each.run(checked(_ports_of(each.graph), inputs))

    def _compile_on_mac(self, graph: Graph, budget: CompileBudget) -> None:
        """The text as it is, or each function as a text of its own, with its states as tensors."""
        border = side_of(self.device, self.chip, self.options.level)
        way = way_of(self.device, border, SubmissionWay(budget=budget, surfaces=self.surfaces), self.options.in_child)
        where = self.device if isinstance(self.device, str) else "macos"
        if len(graph.functions) == 1 and not graph.make_state():
            self._made = OnMac(graph, self.chip, where, compiled_on(border, self.text, self.files, way))
            return
        state: dict[str, np.ndarray] = {}
        for name in [graph.main.name, *(name for name in graph.functions if name != graph.main.name)]:
            own = graph.clone()
            own.entry = name
            alone, results = function_alone(graph, name)
            model = compiled_on(border, *written(alone, self.chip.generation_name), way)
            each = OnMac(own, self.chip, where, model, results=results, state=state)
            if self._made is None:
                self._made = each
            else:
                self._others[name] = each

    def _compile_as_the_runtime(self) -> None:
        cached_program = self._process.cached(self.identifier)
        if cached_program is not None:
            self._made = cached_program
            return
        self._process.compile()
        fault = silence.compile_fault_of(self.findings)
        if fault is not None:
            raise fault
        try:
            graph = self._parsed()
            self._made = silence.silent(graph, executable(graph, self.chip, self.options.level), self.findings)
        except UnsupportedError:
            raise
        except HexaneError as error:
            raise silence.compile_fault(error.message.split("\n")[0]) from None
        self._process.remember(self.identifier, self._made)

    def _as_the_runtime(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        self._process.evaluate()
        fault = silence.inference_fault_of(self.findings)
        if fault is not None:
            raise fault
        ports = self._known_ports()
        results = self.ready().run(silence.bound_inputs(ports, inputs, self.surfaces))
        if any(f.rule == "O7" and f.severity is Severity.FAILS for f in self.findings):
            self._process.poisoned = True
        return silence.bound_outputs(ports, results, self.surfaces)

    def _estimate(self) -> None:
        from hexane.timing import estimate

        prediction = None
        for source in (self.program, self.graph):  # the tasks of some generations have no model of their own
            try:
                prediction = estimate(source, self.chip) if source is not None else None
            except HexaneError:
                continue
            if prediction is not None:
                break
        if prediction is None:  # an op that the timing model does not know: no estimate is better than a wrong one
            return
        self.statistics.hw_execution_ns = round(prediction.latency_us * 1000)
        self.statistics.estimate_range_us = prediction.latency_range_us


class _Files(dict[str, bytes]):
    """The staged weight files: the compiler's snapshot is what counts (restriction W8)."""

    def __init__(self, model: Model, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self._model = model

    def __setitem__(self, path: str, data: bytes) -> None:
        if self._model.state != NEW and not self._model.quirks:
            raise UsageError(
                "weights that change after compilation have no effect (restriction W8)",
                hint="model.update({name: array}), or a new model",
            )
        super().__setitem__(path, data)


def _ports_of(graph: Graph) -> Ports:
    return Ports(_tensors(graph.main.inputs), _tensors(graph.main.outputs))


def _tensors(values: Any) -> dict[str, TensorType]:
    return {value.name: value.type for value in values if isinstance(value.type, TensorType)}


def _bytes_of(weights: Mapping[str, Any] | None) -> dict[str, bytes]:
    """Weight files as bytes: a snapshot, as the compiler takes one."""
    files = {}
    for path, item in (plain_weights(weights) or {}).items():
        files[path] = Path(item).read_bytes() if isinstance(item, (str, Path)) else bytes(item)
    return files


def _checked_qos(qos: int) -> None:
    if qos not in QOS:
        raise UsageError(f"there is no quality of service {qos!r}", hint=f"one of {', '.join(map(str, QOS))}")
