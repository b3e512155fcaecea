"""``hexane.InferenceSession``: onnxruntime's interface, with the engine behind it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import HexaneError, UsageError
from hexane.formats.arguments import path_of
from hexane.formats.onnx import load
from hexane.formats.onnx.file import read_file
from hexane.formats.open_shapes import is_made_up
from hexane.integrations.onnx.binding import IOBinding, OrtValue
from hexane.integrations.onnx.signature import (
    ModelMetadata,
    NodeArg,
    Signature,
    dtype_of,
    element_of,
    inward,
    outward,
    signature_of,
)

if TYPE_CHECKING:
    from hexane.program import Program
    from hexane.program.run import Session

PROVIDER = "HexaneExecutionProvider"
MOST_PROGRAMS = 16
"""Programs that a session keeps for the shapes it met; the oldest is compiled anew when it comes again."""


@dataclass(frozen=True)
class ProviderOptions:
    """Options of a session: the words of ``hexane.compile`` and ``Program.run``.

    ``strict`` refuses a network of which anything would run on the host.
    """

    chip: str = "M1"
    device: str = "emulator"
    level: str = "engine"
    strict: bool = False

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> ProviderOptions:
        """From keywords or a provider's options, in which onnxruntime has strings; UsageError for an unknown word."""
        names = {entry.name for entry in fields(cls)}
        for name in words:
            if name not in names:
                raise UsageError(f"a session has no option {name!r}", hint=f"options: {', '.join(sorted(names))}")
        values = dict(words)
        if isinstance(strict := values.get("strict"), str):
            values["strict"] = strict.strip().lower() in ("1", "true", "yes")
        return cls(**values)


class InferenceSession:
    """An ONNX model on the engine, with onnxruntime's look.

    >>> session = hexane.InferenceSession("model.onnx", chip="M4")
    >>> scores, = session.run(None, {"image": image})

    Parameters
    ----------
    path_or_bytes : an ``.onnx`` file or its bytes; external data lie beside the file.
    sess_options : onnxruntime's; what it asks (threads, optimisation, logging) has no meaning here and is left alone.
    providers : names, or (name, options) pairs, in onnxruntime's order; only "HexaneExecutionProvider" has options
        here, and the others stand for what runs on the host.
    provider_options : options by provider, in the order of ``providers``.
    options : ``chip``, ``device``, ``level`` ("engine" or "graph") and ``strict``, as `ProviderOptions` has them.

    A model whose shapes are known is compiled at once; one with open extents for every set of shapes it meets, at its
    first use. The engine computes in fp16: results are rounded to about three decimal digits.

    Raises
    ------
    FormatError : no ONNX model. UnsupportedError : it has nodes that hexane cannot take, all of which are named;
        or, with ``strict``, some that would run on the host. UsageError : unknown options.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        self._options = ProviderOptions.of({**_provider_options(providers, provider_options), **options})
        self._sess_options = sess_options
        is_data = isinstance(path_or_bytes, bytes | bytearray | memoryview)
        self._source: Path | bytes = bytes(path_or_bytes) if is_data else path_of(path_or_bytes)  # type: ignore[arg-type]
        self._signature: Signature = signature_of(read_file(self._source))
        self._programs: dict[tuple[tuple[int, ...], ...], Session] = {}
        self._lock = threading.RLock()
        if all(isinstance(extent, int) for entry in self._signature.inputs for extent in entry.shape):
            self.program()

    # ----------------------------------------------------------------------------------------------- what it says

    def __repr__(self) -> str:
        ends = [
            ", ".join(f"{entry.name} {entry.type} {list(entry.shape)}" for entry in entries)
            for entries in (self._signature.inputs, self._signature.outputs)
        ]
        return f"<InferenceSession {ends[0]} -> {ends[1]}; {self._options.chip} on {self._options.device}>"

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, with symbols where the file leaves extents open."""
        return list(self._signature.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return list(self._signature.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a value in the file; here that value is used."""
        return list(self._signature.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """Maker of the model."""
        return self._signature.meta

    def get_providers(self) -> list[str]:
        """The engine, and the host for what is not the engine's."""
        return [PROVIDER] if self._options.strict else [PROVIDER, "CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the engine, as strings."""
        values = {entry.name: str(getattr(self._options, entry.name)) for entry in fields(self._options)}
        return {name: values if name == PROVIDER else {} for name in self.get_providers()}

    def get_session_options(self) -> Any:
        """Options as given."""
        return self._sess_options

    # --------------------------------------------------------------------------------------------------- running

    def program(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Program:
        """The compiled program, for models with open extents that of the given shapes: statistics, estimate, save."""
        feed_shapes = {
            entry.name: tuple((shapes or {}).get(entry.name, entry.shape)) for entry in self._signature.inputs
        }
        for name, shape in feed_shapes.items():
            if not all(isinstance(extent, int) for extent in shape):
                raise UsageError(f"input {name!r} has the open shape {list(shape)}", hint="give shapes={name: (...)}")
        with self._lock:
            return self._session(feed_shapes).program  # type: ignore[arg-type]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[np.ndarray]:
        """The outputs named, in that order; None or an empty list means all.

        Raises
        ------
        UsageError : a name, shape or dtype that the model does not have.
        """
        names = self._wanted(output_names)
        feed = self._checked(input_feed)
        with self._lock:
            results = self._session({name: array.shape for name, array in feed.items()}).run(feed)
        self._say(results, feed)
        elements = {entry.name: entry.element for entry in self._signature.outputs}
        return [outward(results[name], elements[name]) for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[np.ndarray], Any, str], Any],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """:meth:`run` in a thread of its own; ``callback(outputs, user_data, error)`` is called there when it is over.

        As onnxruntime has it: no outputs where ``error`` says something, and an empty ``error`` where all went well.
        """

        def run() -> None:
            try:
                outputs, error = self.run(output_names, input_feed, run_options), ""
            except HexaneError as reason:
                outputs, error = [], str(reason)
            callback(outputs, user_data, error)

        threading.Thread(target=run, name="hexane run_async", daemon=True).start()

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue], run_options: Any = None
    ) -> list[OrtValue]:
        """The same for values of `OrtValue`."""
        feed = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(array) for array in self.run(output_names, feed)]

    def io_binding(self) -> IOBinding:
        """A set of inputs and outputs bound to arrays, for :meth:`run_with_iobinding`."""
        return IOBinding(self._signature.inputs, self._signature.outputs)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run with the bound inputs; results go into the bound outputs."""
        names = iobinding.output_names()
        if not names:
            raise UsageError("no output is bound", hint="binding.bind_output(name)")
        iobinding.take(dict(zip(names, self.run(names, iobinding.feed()))))

    # ---------------------------------------------------------------------------------------------------- inside

    def _wanted(self, names: Sequence[str] | None) -> list[str]:
        declared = [entry.name for entry in self._signature.outputs]
        if names is not None and (isinstance(names, str) or not isinstance(names, Sequence)):
            raise UsageError(f"output_names is a {type(names).__name__}", hint="give a list of names, or None for all")
        for name in names or ():
            if name not in declared:
                raise UsageError(f"invalid output name: {name!r}", hint=f"the outputs are {', '.join(declared)}")
        return list(names or declared)

    def _checked(self, feed: Mapping[str, Any]) -> dict[str, np.ndarray]:
        entries = {entry.name: entry for entry in self._signature.inputs}
        listed = f"the inputs are {', '.join(entries)}"
        if not isinstance(feed, Mapping):
            raise UsageError(f"input_feed is a {type(feed).__name__}", hint="give a dict of arrays by input name")
        missing = [name for name in entries if name not in feed]
        if missing:
            raise UsageError(f"required inputs ({missing}) are missing from input feed ({list(feed)})", hint=listed)
        fixed = {entry.name for entry in self._signature.overridable}
        for name in feed:
            if name in fixed:
                raise UsageError(f"input {name!r} is a constant of the compiled program", hint="leave it out")
            if name not in entries:
                raise UsageError(f"invalid input name: {name!r}", hint=listed)
        symbols: dict[str, tuple[int, str]] = {}
        return {name: _fitting(entry, feed[name], symbols) for name, entry in entries.items()}

    def _say(self, results: Mapping[str, np.ndarray], feed: Mapping[str, np.ndarray]) -> None:
        """A warning where results left fp16's range; onnxruntime would give numbers there."""
        if not all(np.isfinite(array).all() for array in feed.values() if array.dtype.kind == "f"):
            return
        for name, array in results.items():
            if array.dtype.kind == "f" and (count := array.size - int(np.isfinite(array).sum())):
                logging.getLogger(__name__).warning(
                    "%s: %d of %d numbers are infinite or no number; the engine computes in fp16, up to 65504",
                    name,
                    count,
                    array.size,
                )

    def _session(self, shapes: dict[str, tuple[int, ...]]) -> Session:
        """The loaded program for these shapes; the shapes are whole numbers."""
        key = tuple(shapes[entry.name] for entry in self._signature.inputs)
        runner = self._programs.pop(key, None)
        if runner is None:
            from hexane.codegen import compile
            from hexane.integrations.onnx.strict import engine_alone

            options = self._options
            program = compile(load(self._source, shapes=shapes), chip=options.chip)
            if options.strict:
                engine_alone(program)
            runner = program.on(options.device, options.level)
            while len(self._programs) >= MOST_PROGRAMS:
                self._programs.pop(next(iter(self._programs))).close()
        self._programs[key] = runner
        return runner


def _fitting(entry: NodeArg, value: Any, symbols: dict[str, tuple[int, str]]) -> np.ndarray:
    """A value as the input declares it; one symbol that a person wrote stands for one extent in all inputs."""
    try:
        array = value.numpy() if isinstance(value, OrtValue) else np.asarray(value)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"input {entry.name!r} is no array ({error})", hint=f"it is {entry.type} {entry.shape}"
        ) from None
    dtype = dtype_of(entry.element)
    if dtype is not None and array.dtype != dtype and isinstance(value, np.ndarray | np.generic | OrtValue):
        raise UsageError(
            f"input {entry.name!r}: unexpected data type, tensor({element_of(array.dtype)}) where the model has "
            f"{entry.type}",
            hint=f"give an array of {dtype}",
        )
    if dtype is not None and array.dtype != dtype:  # lists have no dtype of their own
        if array.dtype.kind not in "biuf" or not np.can_cast(array.dtype.kind + "8", dtype, "same_kind"):
            raise UsageError(f"input {entry.name!r} of {array.dtype} does not fit {entry.type}")
        array = array.astype(dtype)
    if array.ndim != len(entry.shape):
        raise UsageError(
            f"input {entry.name!r}: invalid rank {array.ndim}, expected {len(entry.shape)}",
            hint=f"its shape is {entry.shape}",
        )
    for axis, (got, extent) in enumerate(zip(array.shape, entry.shape)):
        if isinstance(extent, str) and is_made_up(extent):
            extent, why = None, ""
        elif isinstance(extent, str):
            extent, place = symbols.setdefault(extent, (got, entry.name))
            why = f" as in {place!r}"
        else:
            why = ""
        if extent is not None and got != extent:
            raise UsageError(
                f"input {entry.name!r}: invalid dimensions, {got} at index {axis} where {extent} is expected{why}",
                hint=f"its shape is {entry.shape}",
            )
    return inward(array)


def _provider_options(providers: Any, options: Any) -> dict[str, Any]:
    """The engine's options out of onnxruntime's two lists; UsageError where they do not fit each other."""
    if providers is not None and (isinstance(providers, str) or not isinstance(providers, Sequence)):
        raise UsageError("providers is a list of names or of (name, options)", hint=f'providers=["{PROVIDER}"]')
    if options is not None and (providers is None or len(options) != len(providers)):
        raise UsageError("provider_options has one entry for each of providers")
    merged: dict[str, Any] = {}
    for number, entry in enumerate(providers or ()):
        name, own = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, {})
        if not isinstance(name, str) or not isinstance(own, Mapping):
            raise UsageError(f"providers[{number}] is {entry!r}", hint="a name, or a pair of a name and a dict")
        if not name.endswith("ExecutionProvider"):
            raise UsageError(f"unknown provider {name!r}", hint=f"{PROVIDER}; others stand for the host")
        if name not in (PROVIDER, "CPUExecutionProvider"):
            logging.getLogger(__name__).warning("there is no %s here: it is left out", name)
        if name == PROVIDER:
            merged.update(own)
            merged.update(options[number] if options is not None else {})
    return merged
