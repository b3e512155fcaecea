"""Any network file to a graph and back: which reader and writer a path belongs to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import FormatError, GraphError, UnsupportedError, UsageError
from hexane.formats.arguments import checked_shapes, given_files, path_of
from hexane.graph.constants import Constant
from hexane.graph.evaluate import checked_input
from hexane.graph.ir import Graph, Value
from hexane.graph.rewrite import replace_uses
from hexane.graph.types import TensorType

_KINDS = {
    ".onnx": "onnx",
    ".mil": "mil",
    ".plist": "netplist",
    ".mlmodel": "coreml",
    ".mlpackage": "coreml",
    ".mlmodelc": "coreml",
    ".mlir": "stablehlo",
    ".stablehlo": "stablehlo",
}
"""The package of ``hexane.formats`` that reads files of a suffix."""

_WRITERS = {".mil": "mil", ".mlpackage": "coreml", ".onnx": "onnx.writer", ".plist": "netplist"}
"""The module of ``hexane.formats`` that writes them."""

_INNER = {"mil": "model.mil", "netplist": "net.plist"}
"""The file that is read of a folder, of kinds whose reader takes files only."""

_REFUSED = {
    ".hwx": ("is an engine program, not a network", "open it with hexane.open_image, or `hexane info`"),
    ".anec": ("is an engine program, not a network", "open it with hexane.open_image, or `hexane info`"),
    ".hexane": ("is a compiled program, not a network", "open it with hexane.load_program, or `hexane run`"),
    ".pt": (
        "is a PyTorch file, which holds Python code",
        "load it with PyTorch and hand the module to hexane.from_torch",
    ),
    ".pth": (
        "is a PyTorch file, which holds Python code",
        "load it with PyTorch and hand the module to hexane.from_torch",
    ),
    ".pt2": (
        "is an exported PyTorch program, and PyTorch unpickles Python objects from it",
        "where you trust it: hexane.load(torch.export.load(path))",
    ),
    ".tflite": ("is a TensorFlow Lite file", "convert it to ONNX first"),
}


def kind_of(path: Path) -> str:
    """The reader's package ("onnx", "mil" ...), by suffix, else by content; FormatError when neither says."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError | ValueError):
            raise FormatError("there is no such file", where=str(path)) from None
        raise FormatError(f"cannot be read ({error.strerror})", where=str(path)) from None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise FormatError("is neither a file nor a folder", where=str(path), hint="copy it into a file first")
    suffix = path.suffix.lower()
    if suffix in _REFUSED:
        message, hint = _REFUSED[suffix]
        raise UnsupportedError(message, where=str(path), hint=hint)
    if suffix in _KINDS:
        return _KINDS[suffix]
    if path.is_dir():
        for name, kind in (("Manifest.json", "coreml"), ("coremldata.bin", "coreml"), ("model.mil", "mil")):
            if (path / name).is_file():
                return kind
        if (path / "net.plist").is_file():
            return "netplist"
        raise FormatError("the folder holds no network", where=str(path), hint="model.mil, net.plist or Manifest.json")
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", where=str(path)) from None
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith((b"program(", b"program (", b"//")):
        return "mil"
    if text.startswith((b"bplist", b"<?xml", b"<plist", b"<!DOCTYPE plist")):
        return "netplist"
    if text.startswith((b"module", b"#loc")) or head.startswith(b"ML\xefR"):
        return "stablehlo"
    if head[:1] == b"\x08" and b"onnx" not in head and suffix == ".pb":
        raise UnsupportedError("is a TensorFlow graph", where=str(path), hint="convert it to ONNX first")
    if head[:1] == b"\x08":
        return "onnx"
    raise FormatError("is no network that hexane knows", where=str(path), hint=f"known: {', '.join(_KINDS)}")


def _reader(kind: str) -> Any:
    """The module that reads a kind; imported when it is needed, since some bring heavy libraries."""
    return import_module(f"hexane.formats.{kind}")


def load(
    path: str | Path,
    shapes: Mapping[str, Any] | None = None,
    function: str | None = None,
    weights: Mapping[str, Any] | None = None,
    bind: Mapping[str, Any] | None = None,
) -> Graph:
    """A graph from a network file: ONNX, MIL text, Core ML package, (compiled) model, StableHLO, or ``net.plist``.

    Parameters
    ----------
    path : the file, or the folder of a package; also a ``torch.export.ExportedProgram`` (see ``hexane.from_torch``).
    shapes : shapes by input name (and extents by symbolic dimension) for networks that leave them open.
    function : which function runs, of a program with several.
    weights : weight files by the name that is written in the network, as bytes or a path; needed where they do not lie
        beside it.
    bind : values of inputs that become constants of the network, by input name: ``{"sr": 16000}``.

    Raises FormatError for a broken file, UnsupportedError for what hexane does not read, each with the place.
    """
    if type(path).__name__ == "ExportedProgram":
        return _exported_program(path, shapes, function, weights, bind)
    path = path_of(path)
    options = {"shapes": checked_shapes(shapes), "function": function, "weights": given_files(weights), "bind": bind}
    return _loaded(path, kind_of(path), options)


def network_of(source: Any) -> Graph:
    """A graph as it is, that of a file by its path; UsageError for anything else."""
    if isinstance(source, Graph):
        return source
    if isinstance(source, str | os.PathLike):
        return load(Path(source))
    raise UsageError(
        f"a {type(source).__name__} is no network",
        hint="give hexane.load(path), a path, or hexane.from_torch(module, inputs)",
    )


def _exported_program(program: Any, *others: Any) -> Graph:
    """A program of ``torch.export``, whose shapes and weights are its own."""
    from hexane.frontends.torch import from_torch

    shapes, function, weights, bind = others
    if shapes or weights or function is not None:
        raise UsageError("an exported program has its own shapes, weights and function", hint="leave them out")
    graph = from_torch(program)
    if bind:
        bind_inputs(graph, bind)
    return graph


@contextmanager
def well_formed(path: str | Path) -> Iterator[None]:
    """A file may break any assumption that a reader makes; what no step of it names is said here."""
    try:
        yield
    except (
        TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError, AssertionError,
    ) as error:  # fmt: skip
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise FormatError(f"the file is not well-formed ({what})", where=str(path)) from error


def _loaded(path: Path, kind: str, options: dict[str, Any]) -> Graph:
    """The graph; a reader gets what its ``load`` takes of ``options``, and what it does not take is looked at here."""
    read = _reader(kind).load
    takes = signature(read).parameters
    if "function" not in takes and options["function"] not in (None, "main"):
        raise UsageError(f"a network of kind {kind} has no functions", hint="leave out function")
    file = path / _INNER[kind] if kind in _INNER and path.is_dir() else path
    with well_formed(path):
        graph: Graph = read(file, **{name: value for name, value in options.items() if name in takes})
    if "bind" not in takes:
        _check_shapes(graph, options["shapes"])
        bind_inputs(graph, options["bind"] or {})
    return graph


def bind_inputs(graph: Graph, bind: Mapping[str, Any]) -> None:
    """Make constants of inputs of the function that runs; UsageError for a value that does not fit its input."""
    function = graph.main
    inputs = {value.name: value for value in function.inputs}
    for name, given in bind.items():
        value = inputs.get(name)
        if value is None or not isinstance(value.type, TensorType):
            raise UsageError(f"there is no input {name!r} to bind", hint=f"the inputs are {', '.join(inputs)}")
        array = np.asarray(given)
        array = np.full(value.shape, array) if not array.ndim else array
        array = checked_input(value, array).astype(value.type.carrier)
        constant = Value(function.names.unique(f"{name}_bound"), value.type, constant=Constant(value.type, array))
        replace_uses(value, constant)
        function.remove_input(value)
        graph.metadata.setdefault("assumed", []).append(
            f"input {name!r} is bound to {np.array2string(array, threshold=8)}"
        )


def _check_shapes(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse shapes that a file with fixed shapes contradicts."""
    for name, shape in shapes.items():
        type_ = graph.inputs.get(name)
        if type_ is None:
            raise UsageError(f"there is no input {name!r}", hint=f"the inputs are {', '.join(map(repr, graph.inputs))}")
        if tuple(type_.shape) != shape:
            raise UsageError(f"input {name!r} has the fixed shape {tuple(type_.shape)}, not {shape}")


def to_text(graph: Graph, *, version: str | None = None, weights: Any = None) -> str:
    """A graph as MIL text (see ``hexane.formats.mil.to_text``)."""
    return str(_reader("mil").to_text(graph, version=version, weights=weights))


def save(graph: Graph, path: str | Path) -> None:
    """Write a graph: ``.mil`` and ``.plist`` (with a weight file beside it), ``.mlpackage`` or ``.onnx``.

    UnsupportedError, naming the op, where the format does not say what the graph does.
    """
    path = path_of(path)
    suffix = path.suffix.lower()
    if not graph.functions:
        raise GraphError("the graph has no function")
    if suffix not in _WRITERS:
        raise UnsupportedError(
            f"hexane writes no {suffix or 'file without a suffix'}", hint=f"write {', '.join(_WRITERS)}"
        )
    _reader(_WRITERS[suffix]).save(graph, path)
