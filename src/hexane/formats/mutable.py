"""Constants whose values a program gets when it is loaded: an adapter's, in a weight file of their own.

The program's attribute ``BlobFileMutabilityInfo`` names the files; every other weight file is the base's and stays
(docs/reference/adapters.md, macOS 27; SILICON, one source, whose compiled programs have the attribute in ``model.mil``.
That Core ML's compiler carries it over from a package, as it does ``buildInfo``, is INFERRED).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.formats.blob import TYPE_CODES, BlobWriter
from hexane.formats.mil.literals import Braces, Parens, TypedValue
from hexane.graph.constants import BlobReference, Constant
from hexane.graph.ir import Graph
from hexane.graph.types import DictType, TensorType, TupleType

ATTRIBUTE = "BlobFileMutabilityInfo"
ADAPTER_PATH = "@model_path/weights/adapter.bin"
_STRING = TensorType("string")
_TYPE = TupleType((_STRING, DictType(_STRING, _STRING)))


def mutable_paths(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """The weight files that a program's attributes declare mutable, as written; FormatError for another form."""
    info = attributes.get(ATTRIBUTE)
    if info is None:
        return ()
    try:
        head, pairs = info.payload
        paths = tuple(key for key, _ in pairs)
    except (TypeError, ValueError):
        head, paths = None, ()
    if head != "Paths" or not all(isinstance(path, str) for path in paths):
        hint = f'{_TYPE}(("Paths", {{{{path, path}}, ...}}))'
        raise FormatError(f"{ATTRIBUTE} has a form that is not known", hint=hint)
    return paths


def mutable_constants(graph: Graph, path: str | None = None) -> dict[str, Constant]:
    """The mutable constants of all functions by name, of one file or of all, in the order of their records."""
    paths = mutable_paths(graph.attributes) if path is None else (path,)
    constants = [(v.name, v.constant) for function in graph.functions.values() for v in function.constants()]
    own = [(c.source.path, c.source.offset, name, c) for name, c in constants if c is not None and c.source is not None]
    rows = sorted((row for row in own if row[0] in paths), key=lambda row: row[:3])
    return {name: constant for _, _, name, constant in rows}


def declare_mutable(graph: Graph, names: Iterable[str], path: str = ADAPTER_PATH) -> None:
    """Declare constants of a graph mutable: from now on their values belong to the weight file ``path``.

    A name that several functions have is one constant. UsageError for a name that no constant has, or for constants of
    one name that differ; UnsupportedError for a dtype that no weight file holds.
    """
    values: dict[str, list[Any]] = {name: [] for name in names}
    for function in graph.functions.values():
        for value in function.constants():
            if value.name in values:
                values[value.name].append(value)
    writer = BlobWriter()
    for name, several in values.items():
        if not several:
            raise UsageError(f"there is no constant {name!r}")
        constant = several[0].constant
        if any(not constant.equals(value.constant) for value in several):
            raise UsageError(f"the functions have different constants {name!r}")
        source = BlobReference(path, writer.add(constant.array, constant.type))
        shared = Constant(constant.type, constant.array, source=source)
        for value in several:
            value.constant = shared
    paths = dict.fromkeys((*mutable_paths(graph.attributes), path))
    graph.attributes[ATTRIBUTE] = TypedValue(_TYPE, Parens(("Paths", Braces(Braces((p, p)) for p in paths))))


def mutable_files(graph: Graph, arrays: Mapping[str, np.ndarray] | None = None) -> dict[str, bytes]:
    """The mutable weight files of a graph by path, with other values where ``arrays`` has them by name of constant.

    Every record stands where the graph expects it, so that such a file fits the base however its values came.
    UsageError for a name that is no mutable constant, or an array of another shape.
    """
    constants, others = mutable_constants(graph), dict(arrays or {})
    unknown = sorted(set(others) - set(constants))
    if unknown:
        raise UsageError(
            f"there is no mutable constant {unknown[0]!r}", hint=", ".join(constants) or "none is declared"
        )
    writers: dict[str, BlobWriter] = {}
    for name, constant in constants.items():
        other, source = others.get(name), constant.source
        array = constant.array if other is None else np.asarray(other)
        if array.shape != constant.type.shape:
            raise UsageError(f"{name!r} has shape {constant.type.shape}, the array {array.shape}")
        assert source is not None
        if constant.type.dtype not in TYPE_CODES:
            raise UnsupportedError(f"{constant.type.dtype} is no type of weight files")
        with np.errstate(over="ignore"):
            array = array.astype(constant.type.carrier)
        writers.setdefault(source.path, BlobWriter()).add(array, constant.type, key=source.offset, at=source.offset)
    return {path: writer.to_bytes() for path, writer in writers.items()}
