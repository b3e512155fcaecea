"""Declarations of an ONNX file: inputs and outputs with symbolic extents, and its maker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError
from hexane.formats.onnx.file import OnnxFile, import_onnx
from hexane.formats.operands import known

_NAMES = {"FLOAT": "float", "DOUBLE": "double"}
"""Where onnxruntime spells an element type otherwise than ONNX in small letters."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its name, its extents (a number, a symbol, or None), its type as ``tensor(float)``."""

    name: str
    shape: list[int | str | None]
    type: str

    @property
    def element(self) -> str:
        """The element type alone: ``float``."""
        return self.type.partition("(")[2].removesuffix(")")


@dataclass(frozen=True)
class ModelMetadata:
    """Metadata as in onnxruntime's ``get_modelmeta``."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Signature:
    """All that a session says of its model without running it."""

    inputs: tuple[NodeArg, ...]
    outputs: tuple[NodeArg, ...]
    overridable: tuple[NodeArg, ...]
    """Inputs with a default value in the file, which a call may not change here."""
    meta: ModelMetadata


def signature_of(file: OnnxFile) -> Signature:
    """The declarations of a file; UnsupportedError where an input or output is no tensor."""
    model = file.model
    graph = model.graph
    defaults = {tensor.name for tensor in graph.initializer} | set(file.weights)
    declared = file.declared_inputs
    meta = ModelMetadata(
        model.producer_name,
        graph.name,
        model.domain,
        model.doc_string,
        graph.doc_string,
        model.model_version,
        {entry.key: entry.value for entry in model.metadata_props},
    )
    return Signature(
        tuple(_argument(value, file.where) for value in graph.input if value.name not in defaults),
        tuple(_argument(value, file.where) for value in graph.output),
        tuple(_argument(v, file.where) for v in graph.input if v.name in defaults and v.name in declared),
        meta,
    )


def _argument(value: Any, where: str) -> NodeArg:
    onnx = import_onnx()
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        what = "has no type" if kind is None else f"is a {kind.removesuffix('_type')}"
        raise UnsupportedError(f"{value.name!r} {what}; hexane takes tensors only", where=where)
    tensor = value.type.tensor_type
    codes = onnx.TensorProto.DataType
    name = codes.Name(tensor.elem_type) if tensor.elem_type in codes.values() else str(tensor.elem_type)
    shape: list[int | str | None] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value if dim.dim_value >= 0 else None)  # some exporters write -1 for an open extent
        else:
            shape.append(dim.dim_param or None)
    return NodeArg(value.name, shape, f"tensor({_NAMES.get(name, name.lower())})")


_ELEMENTS = {
    "float": np.float32, "float16": np.float16, "double": np.float64, "bool": np.bool_,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
}  # fmt: skip


def dtype_of(element: str) -> np.dtype | None:
    """The dtype of an element type, of ml_dtypes for bfloat16, float8 and below a byte; None where there is none."""
    if element in _ELEMENTS:
        return np.dtype(_ELEMENTS[element])
    onnx = import_onnx()
    codes = onnx.TensorProto.DataType
    name = element.upper()
    if name not in codes.keys() or name in ("UNDEFINED", "STRING", "COMPLEX64", "COMPLEX128"):  # noqa: SIM118
        return None
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(codes.Value(name)))


def inward(array: np.ndarray) -> np.ndarray:
    """An input as a graph carries it: bfloat16 and float8 as float32, whole numbers below a byte one per byte."""
    if array.dtype.kind in "OU":  # text, as ONNX has it
        return array.astype(str)
    return array if array.dtype.kind in "biuf" and array.dtype.isbuiltin == 1 else known(array)


def outward(array: np.ndarray, element: str) -> np.ndarray:
    """A result in the declared type where NumPy itself has none for it."""
    dtype = None if element in _ELEMENTS else dtype_of(element)
    return array if dtype is None else np.asarray(array).astype(dtype)


def element_of(dtype: np.dtype) -> str:
    """onnxruntime's word for a dtype, for messages."""
    return next((name for name, ours in _ELEMENTS.items() if np.dtype(ours) == dtype), str(dtype))
