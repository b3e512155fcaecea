"""A network in the hands of Core ML, by way of coremltools: written as a package, loaded, predicted."""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.graph.ir import Graph
from hexane.graph.types import TensorType

UNITS = {"engine": "CPU_AND_NE", "all": "ALL", "gpu": "CPU_AND_GPU", "cpu": "CPU_ONLY"}
"""What a prediction may use -> coremltools' name of it. There is no "engine only": ops that it lacks go to the CPU."""
DTYPES = {65552: np.float16, 65568: np.float32, 65600: np.float64, 131104: np.int32, 131080: np.int8}
"""Core ML's array types."""


def coremltools() -> Any:
    """The library on a Mac; UnsupportedError where Core ML cannot be asked."""
    if sys.platform != "darwin":
        raise UnsupportedError("Core ML is on macOS only", hint="predict there, or run on the emulator")
    try:
        import coremltools as found
    except ImportError:
        raise UnsupportedError("coremltools is not installed", hint="pip install coremltools") from None
    return found


class Package:
    """A network as Core ML has it. A context manager; the package and what Core ML made of it are removed at the end.

    Parameters
    ----------
    units : "engine" (engine and CPU), "all", "gpu" (GPU and CPU), "cpu".
    library : coremltools, or an object of the same interface (``models.MLModel``, ``models.compute_plan``,
        ``ComputeUnit``).
    """

    def __init__(self, graph: Graph, units: str = "engine", library: Any = None) -> None:
        if units not in UNITS:
            raise UsageError(f"Core ML has no compute units {units!r}", hint=f"one of {', '.join(UNITS)}")
        self.library = library if library is not None else coremltools()
        self.graph = graph.clone()
        self.graph.metadata.pop("images", None)  # arrays go in, as hexane's networks have them
        if any(not isinstance(value.type, TensorType) for value in self.graph.main.inputs):
            raise UnsupportedError("a network with states", hint="run it on the emulator")
        self.units = getattr(self.library.ComputeUnit, UNITS[units])
        self.folder = Path(tempfile.mkdtemp(prefix="hexane-coreml-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        try:
            path = self.folder / "model.mlpackage"
            self.graph.save(path)
            self.model = asked("load the network", self.library.models.MLModel, str(path), compute_units=self.units)
            description = self.model.get_spec().description
            self.inputs = _features(description.input, self.graph.main.inputs)
            self.outputs = _features(description.output, self.graph.main.outputs)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Package:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def predict(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by the graph's names, in the dtypes that Core ML gives; ``values`` by name."""
        features = {}
        for name, (feature, dtype) in self.inputs.items():
            with np.errstate(over="ignore", invalid="ignore"):
                features[feature] = np.ascontiguousarray(values[name]).astype(dtype, copy=False)
        predictions = asked("predict", self.model.predict, features)
        missing = [name for name, (feature, _) in self.outputs.items() if feature not in predictions]
        if missing:
            raise HexaneError(f"Core ML gave no output {missing[0]!r}")
        return {name: np.asarray(predictions[feature]) for name, (feature, _) in self.outputs.items()}

    def close(self) -> None:
        """Let go of the model and remove its files."""
        self.model = None
        self._finalizer()


def _features(features: Any, values: Any) -> dict[str, tuple[str, Any]]:
    """The graph's name -> Core ML's name and dtype; the package lists them in the graph's order."""
    features_read = {}
    for feature, value in zip(features, values, strict=True):
        code = feature.type.multiArrayType.dataType
        if code not in DTYPES:
            raise UnsupportedError(f"Core ML has {value.name!r} as no array (type {code})")
        features_read[value.name] = (feature.name, np.dtype(DTYPES[code]))
    return features_read


def asked(what: str, function: Any, *arguments: Any, **options: Any) -> Any:
    """A call of Core ML; whatever it raises is a HexaneError with its words."""
    try:
        return function(*arguments, **options)
    except HexaneError:
        raise
    except Exception as error:  # Core ML raises RuntimeError, ValueError and bare Exception
        words = str(error).strip().splitlines()
        raise HexaneError(
            f"Core ML could not {what}: {words[0][:300] if words else type(error).__name__}",
            hint="`hexane check --coreml` says where it would put each op",
        ) from None
