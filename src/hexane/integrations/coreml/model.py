"""``hexane.coreml.MLModel``: a Core ML model with the look of coremltools, predicted without Core ML.

``CPU_ONLY`` and ``CPU_AND_GPU`` evaluate the network in float32 on the host; ``ALL`` and ``CPU_AND_NE`` compile it for
the engine of a chip and run the program on a device, the emulator unless told otherwise. What of it stays on the host,
and why, is in ``model.report``.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hexane
from hexane.cached import cached_property
from hexane.errors import UnsupportedError, UsageError
from hexane.files import write_whole
from hexane.formats.coreml.description import read_description
from hexane.formats.coreml.files import WeightFiles
from hexane.formats.coreml.reader import graph_of, parsed, read_message, select
from hexane.formats.coreml.writer import write_package
from hexane.frontends.networks import well_formed
from hexane.graph import Graph, TensorType
from hexane.graph.types import misfit
from hexane.integrations.coreml.features import Descriptions, Feature, described, of_graph
from hexane.integrations.coreml.programs import EngineSize, HostSize, Report, Size

if TYPE_CHECKING:
    from hexane.program.run import Device
    from hexane.session.check import CheckReport

UNITS = ("ALL", "CPU_AND_NE", "CPU_AND_GPU", "CPU_ONLY")
HOST_UNITS = ("CPU_AND_GPU", "CPU_ONLY")
PIECE = 1 << 24
"""How many bytes of a weight file are copied at a time."""


class MLState:
    """State of a model between predictions, from :meth:`MLModel.make_state`."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    def read_state(self, name: str) -> np.ndarray:
        """A copy of a state, in float32 where it is held in float16. UsageError for another name."""
        array = self._named(name)
        return array.astype(np.float32) if array.dtype.kind == "f" else array.copy()

    def write_state(self, name: str, value: Any) -> None:
        """Put numbers into a state. UsageError for another name or shape."""
        array, content = self._named(name), np.asarray(value)
        if content.shape != array.shape:
            raise UsageError(f"state {name!r} has the shape {array.shape}, not {content.shape}")
        array[...] = content

    def _named(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise UsageError(f"there is no state {name!r}", hint=f"the states are {', '.join(self.arrays) or 'none'}")
        return self.arrays[name]


@dataclass(frozen=True)
class MLCPUComputeDevice:
    """The processor of the host."""


@dataclass(frozen=True)
class MLNeuralEngineComputeDevice:
    """The engine of a chip, by default M1's."""

    total_core_count: int = 16


def _metadata(field: str, text: str) -> property:
    """A text of the message's metadata that reads as coremltools' and can be set; of a compiled model it is empty."""

    def read(model: MLModel) -> str:
        return "" if model._spec is None else str(getattr(model._spec.description.metadata, field))

    def write(model: MLModel, words: str) -> None:
        setattr(model._message().description.metadata, field, words)

    return property(read, write, doc=text)


class MLModel:
    """A Core ML model: ``.mlpackage``, ``.mlmodel``, ``.mlmodelc``, a ``Model`` message, or coremltools' ``MLModel``.

    Parameters
    ----------
    model : the path, a protobuf ``Model`` (of an ML program with ``weights_dir``), or a ``coremltools.models.MLModel``.
    is_temp_package : remove the package when the process ends.
    mil_program : taken and not used: the network is read from ``model``.
    skip_model_load : read the network when it is first needed, so that a model can be looked at, edited and saved whose
        network hexane does not take. (coremltools refuses ``predict`` then; here it reads the network.)
    compute_units : a ``coremltools.ComputeUnit`` or its name.
    weights_dir : the folder of the weight files of a ``Model`` message.
    function_name : which function of a package with several.
    optimization_hints : kept, without effect.
    chip : whose engine the network is compiled for.
    device, level : where engine programs run (see ``Program.run``).

    Raises
    ------
    UsageError, FormatError, UnsupportedError : as ``hexane.load``; a network is read when the model is made, and
        compiled at the first prediction of each size.
    """

    __proxy__ = None
    """What coremltools' own tools ask for to see whether Core ML has the model loaded: never here."""

    def __init__(
        self,
        model: Any,
        is_temp_package: bool = False,
        mil_program: Any = None,
        skip_model_load: bool = False,
        compute_units: Any = "ALL",
        weights_dir: str | Path | None = None,
        function_name: str | None = None,
        optimization_hints: Mapping[str, Any] | None = None,
        *,
        chip: str = "M1",
        device: str | Device = "emulator",
        level: str = "engine",
    ) -> None:
        if not isinstance(is_temp_package, bool):
            hint = "compute_units= goes by name, as coremltools has it"
            raise UsageError(f"is_temp_package is true or false, not {is_temp_package!r}", hint=hint)
        self._units = getattr(compute_units, "name", compute_units)
        if self._units not in UNITS:
            raise UsageError(f"compute_units is {compute_units!r}", hint=f"one of {', '.join(UNITS)}")
        self.function_name = function_name
        self.optimization_hints = None if optimization_hints is None else dict(optimization_hints)
        self.chip, self.device, self.level = chip, device, level
        self.weights_dir = None if weights_dir is None else str(weights_dir)
        self.last_predict_duration_in_nano_seconds: int | None = None
        self.load_duration_in_nano_seconds: int | None = None
        self._mil_program = mil_program
        self._spec: Any = None
        self._path: Path | None = None
        self._sizes: dict[tuple[tuple[str, tuple[int, ...]], ...], Size] = {}
        self._read(model)
        if is_temp_package and self._path is not None:
            atexit.register(shutil.rmtree, self._path, ignore_errors=True)
        if not skip_model_load:
            start = time.perf_counter_ns()
            self._default  # noqa: B018 - reads the network
            self.load_duration_in_nano_seconds = time.perf_counter_ns() - start
        if self._spec is None:
            self._inputs, self._outputs = of_graph(self._default, "input"), of_graph(self._default, "output")
        else:
            self._inputs = described(self._spec.description, "input", function_name)
            self._outputs = described(self._spec.description, "output", function_name)

    # -- reading and writing -------------------------------------------------------------------------------------------

    def _read(self, model: Any) -> None:
        """The message, and where its weights are."""
        if hasattr(model, "get_spec"):
            self.weights_dir = self.weights_dir or getattr(model, "weights_dir", None)
            model = model.get_spec()
        if isinstance(model, str | Path):
            self._path = Path(model).expanduser()
            if self._path.suffix == ".mlmodelc" or (self._path / "model.mil").is_file():
                return
            self._spec, file = read_message(self._path)
            folder = file.parent / "weights"
            if self._path.is_dir() and folder.is_dir():
                self.weights_dir = str(folder)
        elif hasattr(model, "SerializeToString"):
            self._spec = parsed(model.SerializeToString(), "Model message")
        else:
            raise UsageError(f"a {type(model).__name__} is no Core ML model", hint="give a path or a Model message")

    def _weights(self) -> dict[str, Path]:
        """The weight files by their names in the program. UsageError for a folder that cannot be read."""
        if self.weights_dir is None:
            return {}
        try:
            return {f"@model_path/weights/{file.name}": file for file in Path(self.weights_dir).iterdir()}
        except OSError as error:
            raise UsageError(f"weights_dir cannot be read ({error.strerror})", where=self.weights_dir) from None

    @cached_property
    def _default(self) -> Graph:
        """The network at its own sizes."""
        return self._network({})

    def _network(self, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        """The network with inputs of these shapes, the model's own where none is given."""
        if self._spec is None:
            return hexane.load(str(self._path), shapes=shapes or None, function=self.function_name)
        where = str(self._path or "model")
        files = WeightFiles(self._weights())
        files.hint = "weights_dir=model.weights_dir"
        with well_formed(where):
            graph = graph_of(self._spec, files, where, shapes, self.function_name)
        graph.metadata["format"] = "coreml"
        read_description(self._spec, graph.metadata, self.function_name)
        if self.function_name is not None:
            select(graph, self.function_name, where)
        return graph

    def save(self, save_path: str | Path) -> None:
        """Write the model with its weights and what was set of its metadata.

        A folder ``.mlpackage``, or a file ``.mlmodel`` where it is no ML program; the ending may be left out.
        UsageError for another ending, UnsupportedError for a compiled model.
        """
        message, files, path = self._message(), self._weights(), Path(save_path).expanduser()
        package = bool(files) or _holds_program(message)
        if not path.suffix:
            path = path.with_suffix(".mlpackage" if package else ".mlmodel")
        if path.suffix not in ((".mlpackage",) if package else (".mlmodel", ".mlpackage")):
            hint = "an ML program is a folder .mlpackage" if package else "a model is .mlmodel or .mlpackage"
            raise UsageError(f"a model is not saved as {path.suffix!r}", where=str(path), hint=hint)
        data = message.SerializeToString(deterministic=True)
        if path.suffix == ".mlmodel":
            write_whole(path, data)
        else:
            write_package(path, data, {name: _pieces(file) for name, file in files.items()})

    def get_compiled_model_path(self) -> str:
        """The compiled model's folder. UnsupportedError for a model that Core ML has not compiled: hexane does not."""
        if self._spec is None:
            return str(self._path)
        raise UnsupportedError("only Core ML makes .mlmodelc folders", hint="model.save(path) writes the package")

    @classmethod
    def get_available_compute_devices(cls) -> list[MLCPUComputeDevice | MLNeuralEngineComputeDevice]:
        """The host and an engine of M1's size; the chip of a model is its ``chip``."""
        return [MLCPUComputeDevice(), MLNeuralEngineComputeDevice()]

    # -- what it says of itself ----------------------------------------------------------------------------------------

    def _message(self) -> Any:
        """The protobuf ``Model``. UnsupportedError for a compiled model, which has none."""
        if self._spec is None:
            raise UnsupportedError("a compiled model has no specification", where=str(self._path))
        return self._spec

    def get_spec(self) -> Any:
        """A copy of the protobuf ``Model``. UnsupportedError for a compiled model, which has none."""
        copy = type(self._message())()
        copy.CopyFrom(self._spec)
        return copy

    @property
    def compute_unit(self) -> Any:
        """The compute units: coremltools' own word where it is loaded, else the name."""
        words = getattr(sys.modules.get("coremltools"), "ComputeUnit", None)
        return self._units if words is None else words[self._units]

    def _is_multifunction(self) -> bool:
        """Attributes that coremltools' own tools ask for."""
        return self._spec is not None and len(self._spec.description.functions) > 0

    @property
    def input_description(self) -> dict[str, str]:
        """Input name -> what the model says of it; it can be set."""
        return self._said("input", self._inputs)

    @property
    def output_description(self) -> dict[str, str]:
        """Output name -> what the model says of it; it can be set."""
        return self._said("output", self._outputs)

    def _said(self, kind: str, of: Mapping[str, Feature]) -> dict[str, str]:
        if self._spec is None:
            return {name: feature.text for name, feature in of.items()}
        return Descriptions(self._spec.description, kind, self.function_name)

    @property
    def inputs(self) -> dict[str, Feature]:
        """Input name -> its kind, shape, type, and what else it may be."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, Feature]:
        """The same for outputs."""
        return dict(self._outputs)

    author = _metadata("author", "Who made the model.")
    license = _metadata("license", "Under which licence.")
    short_description = _metadata("shortDescription", "What the model is, in its maker's words.")
    version = _metadata("versionString", "The maker's version of it.")

    @property
    def user_defined_metadata(self) -> MutableMapping[str, str]:
        """Metadata of the model's maker; they can be changed."""
        words: MutableMapping[str, str] = {} if self._spec is None else self._spec.description.metadata.userDefined
        return words

    @property
    def report(self) -> Report:
        """Placement for every size compiled so far (none before the first prediction)."""
        device = self.device if isinstance(self.device, str) else self.device.name
        return Report(self._units, self.chip, device, tuple(size.row() for size in self._sizes.values()))

    def check(self, chip: str | None = None) -> CheckReport:
        """``hexane.check`` of the network at its default size."""
        return hexane.check(self._default, chip or self.chip)

    def __repr__(self) -> str:
        parts = [", ".join(f"{f.name}: {f}" for f in fs.values()) for fs in (self._inputs, self._outputs)]
        return f"<MLModel {parts[0]} -> {parts[1]}; {self._units}, {self.chip}>"

    # -- predictions ---------------------------------------------------------------------------------------------------

    def predict(
        self, data: Mapping[str, Any] | Sequence[Mapping[str, Any]], state: MLState | None = None
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Outputs by name; a list of them for a list of inputs.

        Arrays, lists, tensors of frameworks, numbers, and ``PIL`` images where the model takes pictures. Numbers are
        cast to the declared element type. A model with states needs one from :meth:`make_state`, changed in place.
        UsageError for an input that is missing, unknown, or of another shape, mode or kind, and for fractions where
        whole numbers are declared (Core ML takes floats there; what it makes of a fraction is not documented).
        """
        start = time.perf_counter_ns()
        try:
            return self._predicted(data, state)
        finally:
            self.last_predict_duration_in_nano_seconds = time.perf_counter_ns() - start

    def _predicted(
        self, data: Mapping[str, Any] | Sequence[Mapping[str, Any]], state: MLState | None
    ) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(data, Mapping):
            return self._one(data, state)
        if not isinstance(data, list | tuple) or not all(isinstance(one, Mapping) for one in data):
            raise UsageError(f"data is a {type(data).__name__}", hint="a dict of inputs, or a list of dicts")
        if state is not None:
            raise UsageError("a state goes with one prediction, not with a list of them")
        return [self._one(one, None) for one in data]

    def make_state(self) -> MLState:
        """New states, all zero. UsageError for a model that keeps none."""
        size = self._size({name: f.shape for name, f in self._inputs.items() if f.shape is not None})
        arrays = size.make_state()
        if not arrays:
            raise UsageError("the model has no states")
        return MLState(arrays)

    def _one(self, data: Mapping[str, Any], state: MLState | None) -> dict[str, Any]:
        unknown = sorted(set(map(str, data)) - set(self._inputs))
        if unknown:
            raise UsageError(f"there is no input {unknown[0]!r}", hint=f"the inputs are {', '.join(self._inputs)}")
        values = {
            name: feature.taken(data[name]) if name in data else feature.missing()
            for name, feature in self._inputs.items()
        }
        size = self._size({name: array.shape for name, array in values.items()})
        types = {name: type_ for name, type_ in size.graph.inputs.items() if isinstance(type_, TensorType)}
        for name, array in values.items():
            if name in types and (reason := misfit(array, types[name].dtype)):
                raise UsageError(f"input {name!r} {reason}", hint=f"it is a {self._inputs[name]}")
        with np.errstate(over="ignore", invalid="ignore"):
            cast = {name: values[name].astype(types[name].carrier) for name in values if name in types}
        results = size.run(cast, self._arrays(size, state))
        classes = size.graph.metadata.get("classes")
        return {name: feature.given_back(results[name], classes) for name, feature in self._outputs.items()}

    def _arrays(self, size: Size, state: MLState | None) -> dict[str, np.ndarray] | None:
        needed = size.make_state()
        if needed and state is None:
            raise UsageError("the model keeps states", hint="predict(data, state=model.make_state())")
        if not needed and state is not None:
            raise UsageError("the model keeps no states", hint="leave out state")
        return state.arrays if state is not None else None

    def _size(self, shapes: Mapping[str, tuple[int, ...]]) -> Size:
        """The network for these shapes, compiled when they are first met."""
        key = tuple(sorted(shapes.items()))
        if key not in self._sizes:
            own = all(shapes[name] == feature.shape for name, feature in self._inputs.items() if feature.shape)
            other = {name: shape for name, shape in shapes.items() if self._inputs[name].allowed is not None}
            graph = self._default if own else self._network(other)
            if self._units in HOST_UNITS:
                self._sizes[key] = HostSize(graph)
            else:
                self._sizes[key] = EngineSize(graph, self.chip, self.device, self.level)
        return self._sizes[key]


class CompiledMLModel(MLModel):
    """A compiled model (``.mlmodelc``) with the look of coremltools', or any other that :class:`MLModel` reads."""

    def __init__(
        self,
        path: str | Path,
        compute_units: Any = "ALL",
        function_name: str | None = None,
        optimization_hints: Mapping[str, Any] | None = None,
        **where: Any,
    ) -> None:
        """``where``: ``chip``, ``device`` and ``level``."""
        super().__init__(
            path, compute_units=compute_units, function_name=function_name, optimization_hints=optimization_hints,
            **where,
        )  # fmt: skip


def _holds_program(message: Any) -> bool:
    """True where a model is an ML program, or a pipeline with one in it."""
    kind = message.WhichOneof("Type")
    if kind == "pipeline":
        return any(map(_holds_program, message.pipeline.models))
    if kind in ("pipelineClassifier", "pipelineRegressor"):
        return any(map(_holds_program, getattr(message, kind).pipeline.models))
    return bool(kind == "mlProgram")


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while piece := stream.read(PIECE):
            yield piece
