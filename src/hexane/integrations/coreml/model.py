"""``hexane.coreml.MLModel``: a Core ML model with the look of coremltools, predicted without Core ML.

``CPU_ONLY`` and ``CPU_AND_GPU`` evaluate the network in float32 on the host; ``ALL`` and ``CPU_AND_NE`` compile it for
the engine of a chip and run the program on a device, the emulator unless told otherwise. What of it stays on the host,
and why, is in ``model.report``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hexane
from hexane.errors import UnsupportedError, UsageError
from hexane.formats.coreml.description import read_description
from hexane.formats.coreml.files import WeightFiles
from hexane.formats.coreml.reader import graph_of, parsed, read_message, select
from hexane.formats.networks import well_formed
from hexane.graph import Graph, TensorType
from hexane.integrations.coreml.features import Feature, described, of_graph
from hexane.integrations.coreml.programs import OnEngine, OnHost, Report, Size

if TYPE_CHECKING:
    from hexane.program.run import Device
    from hexane.report import CheckReport

UNITS = ("ALL", "CPU_AND_NE", "CPU_AND_GPU", "CPU_ONLY")
HOST_UNITS = ("CPU_AND_GPU", "CPU_ONLY")


class MLState:
    """What a model keeps between predictions, from :meth:`MLModel.make_state`."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    def read_state(self, name: str) -> np.ndarray:
        """A copy of a state, in float32 where it is held in float16. UsageError for another name."""
        array = self._named(name)
        return array.astype(np.float32) if array.dtype.kind == "f" else array.copy()

    def write_state(self, name: str, value: Any) -> None:
        """Put numbers into a state. UsageError for another name or shape."""
        array, given = self._named(name), np.asarray(value)
        if given.shape != array.shape:
            raise UsageError(f"state {name!r} has the shape {array.shape}, not {given.shape}")
        array[...] = given

    def _named(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise UsageError(f"there is no state {name!r}", hint=f"the states are {', '.join(self.arrays) or 'none'}")
        return self.arrays[name]


class MLModel:
    """A Core ML model: ``.mlpackage``, ``.mlmodel``, ``.mlmodelc``, or a ``Model`` message.

    Parameters
    ----------
    model : the path, or a protobuf ``Model`` (of an ML program with ``weights_dir``).
    compute_units : a ``coremltools.ComputeUnit`` or its name.
    function_name : which function of a package with several.
    weights_dir : where the weights of a ``Model`` message lie.
    chip : whose engine the network is compiled for.
    device, level : where engine programs run (see ``Program.run``).

    Raises
    ------
    UsageError, FormatError, UnsupportedError : as ``hexane.load``; a network is read when the model is made, and
        compiled at the first prediction of each size.
    """

    def __init__(
        self,
        model: Any,
        compute_units: Any = "ALL",
        function_name: str | None = None,
        *,
        weights_dir: str | Path | None = None,
        chip: str = "M1",
        device: str | Device = "emulator",
        level: str = "engine",
    ) -> None:
        self.compute_unit = compute_units
        self._units = getattr(compute_units, "name", compute_units)
        if self._units not in UNITS:
            raise UsageError(f"compute_units is {compute_units!r}", hint=f"one of {', '.join(UNITS)}")
        self.function_name = function_name
        self.chip, self.device, self.level = chip, device, level
        self.weights_dir = None if weights_dir is None else str(weights_dir)
        self._spec: Any = None
        self._folder: Path | None = None
        self._path: Path | None = None
        self._sizes: dict[tuple[tuple[str, tuple[int, ...]], ...], Size] = {}
        self._read(model)
        self._default = self._network({})
        if self._spec is None:
            self._inputs, self._outputs = of_graph(self._default, "input"), of_graph(self._default, "output")
        else:
            self._inputs = described(self._spec.description, "input", function_name)
            self._outputs = described(self._spec.description, "output", function_name)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self, model: Any) -> None:
        """The message, and where its weights are."""
        if isinstance(model, str | Path):
            self._path = Path(model).expanduser()
            if self._path.suffix == ".mlmodelc" or (self._path / "model.mil").is_file():
                return
            self._spec, file = read_message(self._path)
            self._folder = file.parent
        elif hasattr(model, "SerializeToString"):
            self._spec = parsed(model.SerializeToString(), "Model message")
            self._folder = None if self.weights_dir is None else Path(self.weights_dir).parent
        else:
            raise UsageError(f"a {type(model).__name__} is no Core ML model", hint="give a path or a Model message")

    def _network(self, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        """The network with inputs of these shapes, the model's own where none is given."""
        if self._spec is None:
            return hexane.load(str(self._path), shapes=shapes or None, function=self.function_name)
        where = str(self._path or "model")
        with well_formed(where):
            graph = graph_of(self._spec, WeightFiles(None, self._folder), where, shapes, self.function_name)
        read_description(self._spec, graph.metadata, self.function_name)
        if self.function_name is not None:
            select(graph, self.function_name, where)
        return graph

    # -- what it says of itself ----------------------------------------------------------------------------------------

    def get_spec(self) -> Any:
        """A copy of the protobuf ``Model``. UnsupportedError for a compiled model, which has none."""
        if self._spec is None:
            raise UnsupportedError("a compiled model has no specification", where=str(self._path))
        copy = type(self._spec)()
        copy.CopyFrom(self._spec)
        return copy

    @property
    def input_description(self) -> dict[str, str]:
        """Input name -> what the model says of it."""
        return {name: feature.text for name, feature in self._inputs.items()}

    @property
    def output_description(self) -> dict[str, str]:
        """Output name -> what the model says of it."""
        return {name: feature.text for name, feature in self._outputs.items()}

    @property
    def inputs(self) -> dict[str, Feature]:
        """Input name -> its kind, shape, type, and what else it may be."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, Feature]:
        """The same for outputs."""
        return dict(self._outputs)

    @property
    def user_defined_metadata(self) -> dict[str, str]:
        """What the maker wrote beside the model."""
        return dict(self._default.metadata.get("user", {}))

    @property
    def author(self) -> str:
        """Who made the model."""
        return str(self._default.metadata.get("author", ""))

    @property
    def license(self) -> str:
        """Under which licence."""
        return str(self._default.metadata.get("license", ""))

    @property
    def short_description(self) -> str:
        """What the model is, in its maker's words."""
        return str(self._default.metadata.get("description", ""))

    @property
    def version(self) -> str:
        """The maker's version of it."""
        return str(self._default.metadata.get("model_version", ""))

    @property
    def report(self) -> Report:
        """What runs where, for every size compiled so far (none before the first prediction)."""
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
        UsageError for an input that is missing, unknown, or of another shape, mode or kind.
        """
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
        types = {name: type_.carrier for name, type_ in size.graph.inputs.items() if isinstance(type_, TensorType)}
        with np.errstate(over="ignore", invalid="ignore"):
            cast = {name: values[name].astype(types[name]) for name in values if name in types}
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
                self._sizes[key] = OnHost(graph)
            else:
                self._sizes[key] = OnEngine(graph, self.chip, self.device, self.level)
        return self._sizes[key]
