"""The protocol: a MIL program through the in-memory class, call by call (docs/private-api.md, "Order of calls").

1 descriptor and model, 2 staging, 3 compile, 4 load, 5 surfaces and request, 6 evaluate, 7 unload. A model whose
compilation failed is never evaluated: the class answers that with an exception, which ends the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from hexane.errors import HexaneError
from hexane.graph.types import TensorType
from hexane.private_api.budget import CompileBudget
from hexane.private_api.calls import DEFAULT_QOS
from hexane.private_api.remedies import fault_of
from hexane.runtime.macos import binding, staging
from hexane.runtime.macos.border import (
    DESCRIPTOR,
    LIBRARIES,
    MODEL,
    REQUEST,
    SURFACE,
    BorderError,
    ErrorSlot,
    SystemBorder,
    pool,
)
from hexane.runtime.macos.foundation import Objects, text_of
from hexane.runtime.macos.surfaces import SharedSurface

NEEDED = {
    DESCRIPTOR: "modelWithMILText:weights:optionsPlist:",
    MODEL: "inMemoryModelWithDescriptor:",
    REQUEST: "requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:",
    SURFACE: "objectWithIOSurface:",
}
"""Classes, each with the selector that makes one."""
LOAD_AGAIN_S = 0.1
"""One runner found that a load which failed goes through at a second try after this time."""
LAST_CALL_S = 5
"""A call that another thread has under way at the end of the process is waited for so long, then unloaded under it."""


@dataclass(frozen=True)
class ModelSource:
    """A program as it is handed over: text, weight files by path, and its ports by symbol."""

    text: bytes
    weights: Mapping[str, bytes]
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]


class Compiler(Protocol):
    """Compiles a staged program in another process; the result is in the system's cache then."""

    def compile(self, folder: Path, weights: Mapping[str, bytes], qos: int) -> None:
        """RuntimeFault where the compiler refuses."""


@dataclass(frozen=True)
class SubmissionWay:
    """Options of a model's compilation and binding.

    ``compiler``: another process that compiles; None compiles here, which ``budget`` counts. ``surfaces``:
    "uniform_largest" or "own_size". ``root``: where programs are staged.
    """

    compiler: Compiler | None = None
    budget: CompileBudget = field(default_factory=CompileBudget)
    surfaces: str = binding.UNIFORM
    root: Path = field(default_factory=staging.staging_root)


def prepared(border: SystemBorder) -> dict[str, int]:
    """Open the libraries and find the classes; BorderError names what this system has not."""
    for path in LIBRARIES:
        try:
            border.open(path)
        except OSError as error:
            raise BorderError(
                f"this system has no {path.rpartition('/')[2]} ({error})", hint="`hexane doctor` says what is missing"
            ) from None
    arrays = {}
    for name, selector in NEEDED.items():
        arrays[name] = border.find_class(name)
        if not arrays[name]:
            raise BorderError(f"this system has no class {name}", hint="seen on macOS 13 to 27; `hexane doctor`")
        if not border.responds(arrays[name], selector):
            raise BorderError(f"class {name} has no selector {selector}", hint="the interface has changed")
    return arrays


class MemoryModel:
    """One program of the private class. Every method takes the model further; :meth:`close` gives everything back."""

    def __init__(self, border: SystemBorder, source: ModelSource, way: SubmissionWay | None = None) -> None:
        self.border = border
        self.source = source
        self.way = way or SubmissionWay()
        self.notes: list[str] = []
        self.order = binding.SurfaceOrder((), (), known=False)
        self.is_loaded = False
        self._classes = prepared(border)
        self._objects = Objects(border)
        self._bound = ExitStack()
        self._surfaces: dict[str, SharedSurface] = {}
        self._request = 0
        self._lock = threading.Lock()
        self.folder: Path | None = None
        with self._or_nothing():
            self._model, self.identifier = described(border, self._classes, self._objects, source)
            self.folder = staging.stage(self.way.root, self.identifier, source.text, source.weights)

    # -- the calls -----------------------------------------------------------------------------------------------------

    def compile(self, qos: int = DEFAULT_QOS) -> None:
        """Let the compiler service read the staged files; in another process where there is one for it."""
        if self.folder is None:
            raise BorderError("the model was closed", hint="make a new one")
        with self._or_nothing():
            if self.way.compiler is not None:
                self.way.compiler.compile(self.folder, self.source.weights, qos)
                if self.border.send(self._model, "compiledModelExists"):
                    return
                self.notes.append("compiled a second time: what another process compiled is not in the system's cache")
            self.way.budget.spend()
            compile_here(self.border, self._model, qos)

    def load(self, qos: int = DEFAULT_QOS) -> None:
        """Put the program on the engine and make its surfaces and its request."""
        with self._or_nothing():
            try:
                self._said("loadWithQoS:options:error:", qos)
            except HexaneError:
                time.sleep(LOAD_AGAIN_S)
                self._said("loadWithQoS:options:error:", qos)
                self.notes.append("loaded at the second try")
            self.is_loaded = True
            with pool(self.border):
                self.order = binding.order_of(self.border, self._model, self.source.inputs, self.source.outputs)
                self._bind()

    def evaluate(self, values: Mapping[str, np.ndarray], qos: int = DEFAULT_QOS) -> dict[str, np.ndarray]:
        """Outputs by symbol; ``values``: arrays of the declared shapes and dtypes by symbol."""
        with self._lock:
            self._require_loaded()
            for name, type_ in self.source.inputs.items():
                with self.view(name) as memory:
                    memory[...] = np.asarray(values[name], type_.carrier).reshape(type_.shape)
            self.run(qos)
            arrays = {}
            for name in self.source.outputs:
                with self.view(name, read_only=True) as memory:
                    arrays[name] = memory.copy()
            return arrays

    def run(self, qos: int = DEFAULT_QOS) -> None:
        """Evaluate with what lies in the surfaces; the results lie in them."""
        self._require_loaded()
        self._said("evaluateWithQoS:options:request:error:", qos, self._request)

    @contextmanager
    def view(self, name: str, *, read_only: bool = False) -> Iterator[np.ndarray]:
        """The surface of a port as an array of its shape and dtype: the memory itself, locked for the block."""
        self._require_loaded()
        type_ = {**self.source.inputs, **self.source.outputs}[name]
        with self._surfaces[name].bytes(read_only=read_only) as memory:
            yield memory[: binding.nbytes(type_)].view(type_.carrier).reshape(type_.shape)

    def _require_loaded(self) -> None:
        if not self.is_loaded:
            raise BorderError("the model is not loaded", hint="compile and load it first")

    def unload(self, qos: int = DEFAULT_QOS) -> None:
        """Take the program off the engine; a second try where the first fails."""
        if not self.is_loaded:
            return
        self.is_loaded = False
        try:
            self._said("unloadWithQoS:error:", qos)
        except HexaneError:
            self._said("unloadWithQoS:error:", qos)
        finally:
            self._bound.close()
            self._surfaces.clear()

    def close(self) -> None:
        """Unload, release every object, remove the staging folder; also after an error."""
        with ExitStack() as last:
            if self.folder is not None:
                folder, self.folder = self.folder, None
                last.callback(staging.unstage, folder)
            last.callback(self._objects.close)
            last.callback(self._bound.close)
            self.unload()

    def close_last(self) -> None:
        """Close after the call that runs. At the end of the process none follows: a daemon thread's next call waits."""
        idle = self._lock.acquire(timeout=LAST_CALL_S)
        self.close()
        if idle and threading.main_thread().is_alive():
            self._lock.release()

    # -- how -----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _or_nothing(self) -> Iterator[None]:
        """Whatever fails gives back what was taken so far; the first error is the one that is told."""
        try:
            yield
        except BaseException as error:
            try:
                self.close()
            except HexaneError as second:
                error.add_note(f"and giving it back failed: {second.message}")
            raise

    def _said(self, selector: str, qos: int, *others: int) -> None:
        with pool(self.border), Objects(self.border) as objects:
            options = [] if selector.startswith("unload") else [objects.dictionary({})]
            asked(self.border, self._model, selector, qos, *options, *others)

    def _bind(self) -> None:
        """Step 5: a surface, a wrapper and an index per port, and the request, which is fixed once made."""
        border, bound = self.border, self._bound
        objects = bound.enter_context(Objects(border))
        sides = []
        for names, tensors in ((self.order.inputs, self.source.inputs), (self.order.outputs, self.source.outputs)):
            wrappers = []
            for name, size in zip(names, binding.sizes(names, tensors, self.way.surfaces)):
                surface = self._surfaces[name] = SharedSurface(border, size)
                bound.callback(surface.close)
                wrapper = border.send(self._classes[SURFACE], "objectWithIOSurface:", surface.pointer)
                if not wrapper:
                    raise BorderError(f"macOS gave no wrapper for the surface of {name!r}")
                wrappers.append(wrapper)
            sides += [objects.array(wrappers), objects.array([objects.number(index) for index in range(len(names))])]
        request = border.send(self._classes[REQUEST], NEEDED[REQUEST], *sides, 0, 0, objects.number(0))
        self._request = objects.keep("request", request)


# -- steps that another process takes, too ----------------------------------------------------------------------------


def described(
    border: SystemBorder, classes: Mapping[str, int], parent: Objects, source: ModelSource
) -> tuple[int, str]:
    """Step 1: descriptor and model; the model, which ``parent`` keeps, and its identifier."""
    with pool(border), Objects(border) as objects:
        entries = {
            objects.text(path): objects.dictionary(
                {objects.text("offset"): objects.number(0), objects.text("data"): objects.data(data)}
            )
            for path, data in source.weights.items()
        }
        text, weights = objects.data(source.text), objects.dictionary(entries)
        descriptor = border.send(classes[DESCRIPTOR], NEEDED[DESCRIPTOR], text, weights, 0)
        parent.keep("descriptor", descriptor)
        model = parent.keep("model", border.send(classes[MODEL], NEEDED[MODEL], descriptor))
        return model, text_of(border, border.send(model, "hexStringIdentifier"))


def compile_here(border: SystemBorder, model: int, qos: int) -> None:
    """Step 3, in this process."""
    with pool(border), Objects(border) as objects:
        asked(border, model, "compileWithQoS:options:error:", qos, objects.dictionary({}))


def asked(border: SystemBorder, model: int, selector: str, *arguments: int) -> None:
    """Send a method that says YES, or NO with an NSError, which becomes a RuntimeFault."""
    slot = ErrorSlot()
    if border.send(model, selector, *arguments, slot):
        return
    error = slot.value
    if not error:
        raise BorderError(f"{selector} failed without a word", hint="`hexane api errors` lists what is known")
    domain = text_of(border, border.send(error, "domain"))
    words = text_of(border, border.send(error, "localizedDescription"))
    raise fault_of(domain, border.send(error, "code"), words)
