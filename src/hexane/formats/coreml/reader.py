"""Read a Core ML model: ``.mlpackage``, ``.mlmodel`` or ``.mlmodelc``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.formats.coreml import espresso
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
    where = str(path)
    model, file = read_message(path)
    graph = graph_of(model, WeightFiles(weights, file.parent), where, shapes or {}, function)
    graph.metadata["format"] = "coreml"
    read_description(model, graph.metadata, function)
    if function is not None:
        select(graph, function, where)
    return graph


def read_message(path: Path) -> tuple[Any, Path]:
    """The ``Model`` message of a package or file, and the file that it stood in."""
    file = model_file(path)
    return parsed(read_bytes(file), str(path)), file


def parsed(data: bytes, where: str) -> Any:
    """A ``Model`` message from its bytes."""
    model = protos().model.Model()
    from google.protobuf.message import DecodeError

    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise FormatError("not a Core ML protobuf", where=where, hint="is the file complete?") from error
    return model


def graph_of(
    model: Any,
    files: WeightFiles,
    where: str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    function: str | None = None,
) -> Graph:
    """The network of a ``Model`` message, without what its description says beside it."""
    kind = model.WhichOneof("Type")
    shapes = shapes or {}
    if kind == "mlProgram":
        return _program(model, files, where, shapes, function)
    if kind in ("neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor"):
        from hexane.formats.coreml.network import read_network

        return read_network(model, where, shapes)
    from hexane.formats.coreml.pipeline import PIPELINES, PipelineReader
    from hexane.formats.coreml.small_models import SMALL_MODELS

    if kind in PIPELINES or kind in SMALL_MODELS:
        reader = PipelineReader(lambda one, place, given: graph_of(one, files, place, given), where)
        return reader.run(model, shapes)
    if kind is None:
        raise FormatError("not a Core ML model: it holds no model of any kind", where=where)
    raise UnsupportedError(
        f"the model is a {kind}; hexane reads ML programs, neural networks, pipelines and small linear models",
        where=where,
    )


def select(graph: Graph, function: str, where: str) -> None:
    """Make ``function`` the one that runs."""
    if function not in graph.functions:
        names = ", ".join(map(repr, graph.functions))
        raise UsageError(f"there is no function {function!r}", where=where, hint=f"the model has {names}")
    graph.entry = function


def _program(
    model: Any, files: WeightFiles, where: str, shapes: Mapping[str, tuple[int, ...]], function: str | None
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
    extents = {name: shape for name, shape in inputs.items() if shape is not None}
    extents |= {name: tuple(shape) for name, shape in shapes.items()}
    open_only = _open_inputs(model.mlProgram)
    graph = read_program(
        model.mlProgram,
        files,
        where,
        {name: shape for name, shape in extents.items() if name in shapes or name in open_only},
    )
    if function is None and model.description.defaultFunctionName in graph.functions:
        graph.entry = model.description.defaultFunctionName
    return graph


def _open_inputs(program: Any) -> set[str]:
    """Inputs whose type leaves an extent open."""
    names = set()
    for function in program.functions.values():
        for parameter in function.inputs:
            if any(d.WhichOneof("dimension") == "unknown" for d in parameter.type.tensorType.dimensions):
                names.add(decode(parameter.name))
    return names


def _compiled(path: Path, function: str | None, weights: Mapping[str, Any] | None) -> Graph:
    from hexane.formats.mil.files import load

    if not path.is_dir():
        raise FormatError("is no folder", where=str(path))
    if not (path / "model.mil").is_file():
        network = espresso.described(path)
        raise UnsupportedError(
            f"an Espresso network, which hexane cannot read: {network}"
            if network
            else "the compiled model has no model.mil and no Espresso network (a pipeline, or a small model)",
            where=str(path),
            hint="give the .mlmodel or .mlpackage that it was compiled from",
        )
    graph = load(inside(path, "model.mil", str(path)), function=function, weights=weights)
    graph.metadata["format"], graph.metadata["compiled_model"] = "mil", True
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
        images = {}
        for row in rows:
            if row.get("type") == "Image":
                color = str(row.get("colorspace") or ("RGB" if row.get("isColor") == "1" else "GRAYSCALE")).upper()
                images[str(row["name"])] = {"width": int(row["width"]), "height": int(row["height"]), "color": color}
        return images
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return {}
