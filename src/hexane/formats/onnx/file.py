"""An ONNX file on disk: bounded reading, and its large tensors kept out of memory until they are used.

Large initializers are taken out of the protobuf before anything else looks at it. Shape inference, inlining and
folding then handle a model of a few kilobytes, however many gigabytes its weights have.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import FormatError, HexaneError, UnsupportedError
from hexane.files import is_file
from hexane.formats.arguments import given_files
from hexane.formats.onnx import library
from hexane.formats.weight_files import bytes_of, file_name, path_inside, source_under
from hexane.rounding import ceil_div

SMALL_BYTES = 4096
"""Initializers up to this size stay in the model, where folding needs their values (shapes, axes, scales)."""

MAX_ELEMENTS = 1 << 33
"""No tensor of a file may claim more elements than this."""


@dataclass
class OnnxFile:
    """A model without its large tensors, and those tensors by name (arrays, memory-mapped where they are external)."""

    model: Any
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    where: str = "ONNX model"
    assumed: list[str] = field(default_factory=list)
    """What was bound or taken without being asked, in sentences."""
    bound: dict[str, np.ndarray] = field(default_factory=dict)
    """Values of inputs that were bound."""
    declared_inputs: frozenset[str] = frozenset()
    """The inputs that the file itself declares, those with a default among them."""


def import_onnx() -> Any:
    """The ``onnx`` package, or an error that says how to get it. Its C++ is called through `library` alone."""
    try:
        import onnx
    except ImportError as error:
        raise UnsupportedError("ONNX files need the onnx package", hint="pip install 'hexane[onnx]'") from error
    return onnx


def read_file(source: str | Path | bytes | Any, weights: Mapping[str, Any] | None = None) -> OnnxFile:
    """Read a model from a path, from bytes, or from a ``ModelProto`` (which is copied, never changed).

    Raises
    ------
    FormatError : not an ONNX protobuf, a tensor's data that do not fit its shape, external data outside the file or
        outside the model's folder.
    """
    library.start()  # it gets ready while this process imports onnx
    onnx = import_onnx()
    model = onnx.ModelProto()
    folder: Path | None = None
    if isinstance(source, str | Path):
        path = Path(source)
        where, folder = str(path), path.parent
        _parse_path(model, path, where)
    elif isinstance(source, bytes | bytearray | memoryview):
        where = "ONNX bytes"
        _parse(model, source, where)
    elif isinstance(source, onnx.ModelProto):
        where = source.graph.name or "ONNX model"
        model.CopyFrom(source)
    else:
        raise FormatError(
            f"cannot read an ONNX model from {type(source).__name__}", hint="give a path, bytes or a ModelProto"
        )
    if not model.graph.node and not model.graph.output:
        raise FormatError("not an ONNX model: it has neither nodes nor outputs", where=where)
    file = OnnxFile(model, where=where, declared_inputs=frozenset(value.name for value in model.graph.input))
    _take_weights(file, External(folder, given_files(weights)))
    return file


def _parse_path(model: Any, path: Path, where: str) -> None:
    try:
        with path.open("rb") as handle:
            if path.stat().st_size == 0:
                raise FormatError("the file is empty", where=where)
            with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
                view = memoryview(data)
                try:
                    _parse(model, view, where)
                finally:
                    view.release()
    except OSError as error:
        raise FormatError(f"cannot be read ({error.strerror or error})", where=where) from error


def _parse(model: Any, data: Any, where: str) -> None:
    from google.protobuf.message import DecodeError

    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError, TypeError) as error:
        raise FormatError("not an ONNX protobuf", where=where, hint="is the file complete?") from error


def all_graphs(graph: Any) -> Iterator[Any]:
    """A graph and every graph inside its nodes (branches and loop bodies)."""
    yield graph
    for node in graph.node:
        yield from node_graphs(node)


def node_graphs(node: Any) -> Iterator[Any]:
    """Every graph inside a node's attributes, at any depth."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from all_graphs(attribute.g)
        for graph in attribute.graphs:
            yield from all_graphs(graph)


def _take_weights(file: OnnxFile, external: External) -> None:
    """Move large initializers of the main graph into ``file.weights``; make every other tensor inline."""
    onnx = import_onnx()
    graph = file.model.graph
    declared = {value.name for value in graph.input}
    tensors = []
    for tensor in graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL and tensor.ByteSize() <= SMALL_BYTES:
            check_claim(tensor, file.where)
            tensors.append(tensor)
            continue
        if tensor.data_type == onnx.TensorProto.STRING:
            tensors.append(tensor)
            continue
        file.weights[tensor.name] = tensor_array(tensor, external, file.where)
        if tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    stored = {tensor.name for tensor in graph.initializer if tensor.data_location != onnx.TensorProto.EXTERNAL}
    if file.weights:
        tensors = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors]
        del graph.initializer[:]
        graph.initializer.extend(tensors)
    if stored & set(file.weights):
        # A message frees what was deleted from it only together with itself.
        fresh = onnx.ModelProto()
        fresh.CopyFrom(file.model)
        file.model, graph = fresh, fresh.graph
    for owner in [*all_graphs(graph), *file.model.functions]:
        if owner is not graph and hasattr(owner, "initializer"):
            for tensor in owner.initializer:
                _make_inline(tensor, external, file.where)
        for node in owner.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    _make_inline(attribute.t, external, file.where)
                for tensor in attribute.tensors:
                    _make_inline(tensor, external, file.where)


def _make_inline(tensor: Any, external: External, where: str) -> None:
    onnx = import_onnx()
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        array = tensor_array(tensor, external, where)
        name = tensor.name
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
    else:
        check_claim(tensor, where)


def check_claim(tensor: Any, where: str) -> int:
    """The number of elements that a tensor's shape claims; refused where negative or beyond any memory."""
    count = 1
    for extent in tensor.dims:
        if extent < 0:
            raise FormatError(f"tensor {tensor.name!r} has a negative extent {list(tensor.dims)}", where=where)
        count *= extent
    if count > MAX_ELEMENTS:
        raise FormatError(f"tensor {tensor.name!r} claims {count} elements {list(tensor.dims)}", where=where)
    return count


def tensor_array(tensor: Any, external: External | None, where: str) -> np.ndarray:
    """A ``TensorProto``'s values. External data are memory-mapped, never copied.

    Types that NumPy lacks (bfloat16, float8, int4) come as the ``ml_dtypes`` types that onnx itself uses.
    """
    onnx = import_onnx()
    count = check_claim(tensor, where)
    place = f"{where}: tensor {tensor.name!r}"
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, count, external or External(), place)
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if tensor.raw_data and dtype.kind in "fiub" and dtype.itemsize * 8 == _bits(tensor.data_type):
            raw = tensor.raw_data
            if len(raw) != count * dtype.itemsize:
                raise FormatError(
                    f"has {len(raw)} bytes where its shape {list(tensor.dims)} needs {count * dtype.itemsize}",
                    where=place,
                )
            return np.frombuffer(raw, dtype.newbyteorder("<")).reshape(tuple(tensor.dims))
        return onnx.numpy_helper.to_array(tensor)
    except HexaneError:
        raise
    except Exception as error:
        raise FormatError(f"its data do not fit its type and shape ({error})", where=place) from error


def _bits(data_type: int) -> int:
    onnx = import_onnx()
    name = onnx.TensorProto.DataType.Name(data_type)
    return {"INT4": 4, "UINT4": 4, "INT2": 2, "UINT2": 2, "FLOAT4E2M1": 4, "BOOL": 8}.get(
        name, onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize * 8
    )


def _external(tensor: Any, count: int, external: External, place: str) -> np.ndarray:
    onnx = import_onnx()
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"unknown element type {tensor.data_type}", where=place) from error
    size = ceil_div(count * _bits(tensor.data_type), 8)
    data = external.data(location, place)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    except ValueError as error:
        raise FormatError(f"offset or length is not a number: {entries}", where=place) from error
    if offset < 0 or length < size or offset + size > len(data):
        raise FormatError(
            f"needs {size} bytes at offset {offset} (length {length}) of {location!r}, which has {len(data)}",
            where=place,
        )
    if count == 0:
        return np.zeros(tuple(tensor.dims), dtype)
    raw = data[offset : offset + size]
    if _bits(tensor.data_type) < 8:
        inline = onnx.TensorProto(
            name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=raw.tobytes()
        )
        return onnx.numpy_helper.to_array(inline)
    return raw.view(dtype).reshape(tuple(tensor.dims))


@dataclass
class External:
    """External data files: ``given`` by location or file name, else inside ``folder``; mapped once, never copied."""

    folder: Path | None = None
    given: dict[str, Any] = field(default_factory=dict)
    opened: dict[str, np.ndarray] = field(default_factory=dict)

    def data(self, location: str, place: str) -> np.ndarray:
        """A data file's bytes."""
        if location not in self.opened:
            self.opened[location] = self._open(location, place)
        return self.opened[location]

    def _open(self, location: str, place: str) -> np.ndarray:
        source = source_under(self.given, location, file_name(location))
        if source is not None:
            return bytes_of(source, place)
        if self.folder is None:
            raise FormatError(
                f"its data are in {location!r}, and this model was not read from a path",
                where=place,
                hint="give weights",
            )
        if not location or "\0" in location:
            raise FormatError("names no data file", where=place)
        path = path_inside(self.folder, location)
        if path is None or not is_file(path):
            raise FormatError(
                f"its data file {location!r} is not a file inside the model's folder",
                where=place,
                hint="keep data beside the model",
            )
        return bytes_of(path, place)
