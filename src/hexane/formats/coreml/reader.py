"""Read a Core ML model: ``.mlpackage``, ``.mlmodel`` or ``.mlmodelc``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.formats.coreml.description import allowed_shapes, feature_shape, features, read_description
from hexane.formats.coreml.files import MANIFEST_LIMIT, WeightFiles, inside, model_file, read_bytes
from hexane.formats.coreml.program import read_program
from hexane.formats.coreml.protos import protos
from hexane.formats.mil.names import decode
from hexane.formats.open_shapes import require_allowed
from hexane.graph.ir import Graph


def load_coreml(
    path: str | Path,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    function: str | None = None,
    weights: Mapping[str, Any] | None = None,
) -> Graph:
    """A graph from a Core ML model.

    Parameters
    ----------
    path : a ``.mlpackage`` folder, a ``.mlmodel`` file, or a ``.mlmodelc`` folder with its ``model.mil``.
    shapes : shapes of inputs whose extents the file leaves open; the file's own default shape is taken otherwise.
    function : which function of a package with several is to run (``main`` unless told otherwise).
    weights : weight files by the name that the program gives them, in place of those in the package.

    ML programs become graphs as they stand; classic neural networks are translated layer by layer. Metadata and image
    inputs (size, colour layout) stand in ``graph.metadata``; a classic network's image scale and bias become ops.
    """
    path = Path(path)
    if path.suffix == ".mlmodelc" or (path.is_dir() and (path / "model.mil").is_file()):
        return _compiled(path, function, weights)
    file = model_file(path)
    where = str(path)
    model = protos().model.Model()
    from google.protobuf.message import DecodeError

    try:
        model.ParseFromString(read_bytes(file))
    except (DecodeError, ValueError, RuntimeError) as error:
        raise FormatError("not a Core ML protobuf", where=where, hint="is the file complete?") from error
    kind = model.WhichOneof("Type")
    if kind == "mlProgram":
        graph = _program(model, file, where, shapes or {}, function, weights)
    elif kind in ("neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor"):
        from hexane.formats.coreml.network import read_network

        graph = read_network(model, where, shapes or {})
    elif kind is None:
        raise FormatError("not a Core ML model: it holds no model of any kind", where=where)
    else:
        raise UnsupportedError(f"the model is a {kind}; hexane reads ML programs and neural networks", where=where)
    graph.metadata["format"] = "coreml"
    read_description(model, graph.metadata, function)
    if function is not None:
        select(graph, function, where)
    return graph


def select(graph: Graph, function: str, where: str) -> None:
    """Make ``function`` the one that runs."""
    if function not in graph.functions:
        names = ", ".join(map(repr, graph.functions))
        raise UsageError(f"there is no function {function!r}", where=where, hint=f"the model has {names}")
    graph.entry = function


def _program(
    model: Any, file: Path, where: str, shapes: Mapping[str, tuple[int, ...]], function: str | None, weights: Any
) -> Graph:
    inputs = {
        decode(feature.name): feature_shape(feature) for feature in features(model.description, "input", function)
    }
    unknown = sorted(set(shapes) - set(inputs)) if inputs else []
    if unknown:
        raise UsageError(f"there is no input {unknown[0]!r}", where=where, hint=f"the inputs are {', '.join(inputs)}")
    for feature in features(model.description, "input", function):
        name = decode(feature.name)
        if name in shapes:
            require_allowed(name, shapes[name], allowed_shapes(feature), where)
    given = {name: shape for name, shape in inputs.items() if shape is not None}
    given |= {name: tuple(shape) for name, shape in shapes.items()}
    open_only = _open_inputs(model.mlProgram)
    graph = read_program(
        model.mlProgram,
        WeightFiles(file.parent, weights),
        where,
        {name: shape for name, shape in given.items() if name in shapes or name in open_only},
    )
    if function is None and model.description.defaultFunctionName in graph.functions:
        graph.entry = model.description.defaultFunctionName
    return graph


def _open_inputs(program: Any) -> set[str]:
    """Inputs whose type leaves an extent open."""
    found = set()
    for function in program.functions.values():
        for parameter in function.inputs:
            if any(d.WhichOneof("dimension") == "unknown" for d in parameter.type.tensorType.dimensions):
                found.add(decode(parameter.name))
    return found


def _compiled(path: Path, function: str | None, weights: Mapping[str, Any] | None) -> Graph:
    from hexane.formats.mil.files import load

    if not path.is_dir():
        raise FormatError("is no folder", where=str(path))
    if not (path / "model.mil").is_file():
        raise UnsupportedError(
            "the compiled model has no model.mil (an old neural network, or a pipeline)", where=str(path)
        )
    graph = load(inside(path, "model.mil", str(path)), function=function, weights=weights)
    graph.metadata["format"] = "mil"
    images = _compiled_images(path / "metadata.json")
    if images:
        graph.metadata["images"] = images
    return graph


def _compiled_images(path: Path) -> dict[str, dict[str, Any]]:
    """Image inputs as a compiled model's ``metadata.json`` describes them; none where there is no such file."""
    import json

    try:
        if path.stat().st_size > MANIFEST_LIMIT:
            return {}
        said = json.loads(path.read_text("utf-8"))
        rows = said[0]["inputSchema"] if isinstance(said, list) else said["inputSchema"]
        found = {}
        for row in rows:
            if row.get("type") == "Image":
                color = str(row.get("colorspace") or ("RGB" if row.get("isColor") == "1" else "GRAYSCALE")).upper()
                found[str(row["name"])] = {"width": int(row["width"]), "height": int(row["height"]), "color": color}
        return found
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return {}
