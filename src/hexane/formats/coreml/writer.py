"""Write a graph as a Core ML package that coremltools (and Core ML) load."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import HexaneError, UnsupportedError
from hexane.files import folder_beside, plain_errors, replace_folder, take_back
from hexane.formats.coreml.description import ARRAY_DTYPES, write_description
from hexane.formats.coreml.protos import protos
from hexane.formats.coreml.values import string_value, write_tensor, write_type, write_typed
from hexane.formats.mil.names import encode
from hexane.formats.mil.printer import WEIGHT_PATH, WeightCollector
from hexane.formats.mutable import mutable_files
from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Block, Function, Graph, Names, Op, Value
from hexane.graph.registry import is_known, opset_number, spec_of
from hexane.graph.types import ListType, StateType, TensorType, Type, tensor_of

NARROWED = {"int64": "int32", "uint32": "int32", "uint64": "int32"}
"""Core ML computes with 32-bit integers only; a constant that does not fit is refused."""

_SPECIFICATION = {15: 6, 16: 7, 17: 8, 18: 9}
_FEATURE_DTYPES = frozenset(ARRAY_DTYPES.values()) - {"int8", "fp64"}


def save_package(graph: Graph, path: str | Path) -> None:
    """Write ``path`` (a ``.mlpackage`` folder) whole, in place of what was there.

    64-bit integers become int32. Raises UnsupportedError naming every op that Core ML lacks (``onnx.*``), and values of
    types that it lacks (fp64), before anything is written.
    """
    model, files = to_model(graph)
    write_package(Path(path), model.SerializeToString(deterministic=True), files)


def write_package(path: Path, model: bytes, files: Mapping[str, Iterable[bytes]]) -> None:
    """Write a package of a ``Model`` message and weight files (``@model_path/weights/NAME``), whole or not at all.

    UsageError where it cannot be written, or where a folder with other things stands in its place.
    """
    with plain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        take_back(path)
        temporary = folder_beside(path, "new")
        try:
            _write(temporary, model, files)
            _replace(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _write(folder: Path, model: bytes, files: Mapping[str, Iterable[bytes]]) -> None:
    data = folder / "Data" / "com.apple.CoreML"
    data.mkdir(parents=True)
    (data / "model.mlmodel").write_bytes(model)
    items = [("model.mlmodel", "CoreML Model Specification", "com.apple.CoreML/model.mlmodel")]
    for path, parts in files.items():
        relative = Path(path.removeprefix("@model_path/"))
        if relative.parts != ("weights", relative.name):
            raise UnsupportedError(f"a package keeps no weight file as {path!r}", hint="@model_path/weights/NAME")
        (data / "weights").mkdir(exist_ok=True)
        with open(data / relative, "wb") as file:
            file.writelines(parts)
    if files:
        items.append(("weights", "CoreML Model Weights", "com.apple.CoreML/weights"))
    entries, root = {}, ""
    for name, description, place in items:
        # Identifiers that follow from the content keep the package the same for the same graph.
        identifier = str(uuid.uuid5(uuid.UUID(int=0), f"{place}:{len(model)}")).upper()
        root = root or identifier
        entries[identifier] = {"author": "com.apple.CoreML", "description": description, "name": name, "path": place}
    manifest = {"fileFormatVersion": "1.0.0", "itemInfoEntries": entries, "rootModelIdentifier": root}
    (folder / "Manifest.json").write_text(json.dumps(manifest, indent=4, sort_keys=True) + "\n")
    os.chmod(folder, 0o755)


def _replace(temporary: Path, path: Path) -> None:
    """Move the new folder into place; an older package goes only when the new one stands."""
    if not path.is_dir() or not any(path.iterdir()):
        if path.is_file():
            path.unlink()
        os.replace(temporary, path)
        return
    if not (path / "Manifest.json").is_file():
        raise HexaneError("is a folder with other things in it", where=str(path), hint="choose another path")
    shutil.rmtree(replace_folder(path, temporary))


def to_model(graph: Graph) -> tuple[Any, dict[str, Iterable[bytes]]]:
    """The protobuf model of a graph, and its weight files by path in pieces: the base's, and mutable ones."""
    graph = _with_computed_outputs(graph)
    check_ops(graph)
    model = protos().model.Model()
    opset = max(opset_number(function.opset) for function in graph.functions.values())
    model.specificationVersion = _SPECIFICATION[min(max(opset, 15), 18)]
    files: dict[str, Iterable[bytes]] = {name: (data,) for name, data in mutable_files(graph).items()}
    if WEIGHT_PATH in files:
        raise UnsupportedError(f"mutable constants stand in {WEIGHT_PATH}, which is the base's")
    weights = WeightCollector(mutable=tuple(files))
    program = model.mlProgram
    program.version = 1
    for key, value in graph.attributes.items():
        write_typed(program.attributes[key], value)
    for function in graph.functions.values():
        _FunctionWriter(program.functions[encode(function.name)], function, weights).write()
    write_description(model, graph, encode, lambda dtype: NARROWED.get(dtype, dtype))
    if len(weights.writer):
        files[WEIGHT_PATH] = weights.writer.parts()
    return model, files


def _with_computed_outputs(graph: Graph) -> Graph:
    """The graph with an ``identity`` wherever a function returns an input or a constant as it is."""
    if all(value.op is not None for function in graph.functions.values() for value in function.outputs):
        return graph
    graph = graph.clone()
    for function in graph.functions.values():
        builder = GraphBuilder(function=function, graph=graph)
        function.set_outputs(
            value if value.op is not None else builder.op("identity", name=f"{value.name}_out", x=value)
            for value in function.outputs
        )
    return graph


def check_ops(graph: Graph) -> None:
    """UnsupportedError that names every op, and every value, that a Core ML package cannot hold."""
    refused = []
    for function in graph.functions.values():
        for op in function.walk():
            if "." in op.type:
                refused.append(f"{op.describe()} is an op of hexane's own, which Core ML lacks")
            refused += [f"{value.name!r} is {value.dtype}" for value in op.outputs if value.dtype == "fp64"]
        for value in [*function.inputs, *function.outputs]:
            if isinstance(value.type, ListType):
                refused.append(f"{value.name!r} is a {value.type}")
                continue
            dtype = tensor_of(value.type).dtype
            if NARROWED.get(dtype, dtype) not in _FEATURE_DTYPES:
                refused.append(f"{value.name!r} is {dtype}; Core ML takes and gives fp16, fp32 and int32")
            elif isinstance(value.type, TensorType) and not value.type.is_static:
                refused.append(f"{value.name!r} has a shape that depends on data")
    if refused:
        listed = "\n    ".join(refused[:40]) + (f"\n    and {len(refused) - 40} more" if len(refused) > 40 else "")
        raise UnsupportedError(
            f"a Core ML package cannot hold this graph:\n    {listed}", hint="save it as .mil, which holds everything"
        )


class _FunctionWriter:
    """Writes one function into an empty ``Function`` message."""

    def __init__(self, proto: Any, function: Function, weights: WeightCollector) -> None:
        self.proto = proto
        self.function = function
        self.weights = weights
        self.opset = opset_number(function.opset)
        self.names = Names()
        self.spelled: dict[int, str] = {}
        self.kept: list[Value] = []
        self.declared: set[int] = set()

    def write(self) -> None:
        for value in self.function.values():
            if not value.is_constant:
                self.spell(value)
        key = f"CoreML{self.opset - 10}"
        self.proto.opset = key
        for value in self.function.inputs:
            self.typed_name(self.proto.inputs.add(), value)
        for name, attribute in self.function.attributes.items():
            write_typed(self.proto.attributes[name], attribute)
        self.block(self.proto.block_specializations[key], self.function)

    def spell(self, value: Value) -> str:
        """The value's name in the program; unique, and one that MIL can spell."""
        name = self.spelled.get(id(value))
        if name is None:
            name = self.spelled[id(value)] = self.names.unique(encode(value.name))
            self.kept.append(value)
        return name

    def typed_name(self, proto: Any, value: Value) -> None:
        proto.name = self.spell(value)
        write_type(proto.type, narrowed(value.type))

    def block(self, proto: Any, block: Block) -> None:
        for op in block.ops:
            self.op(proto, op)
        for value in block.outputs:
            if value.is_constant:
                self.constant(proto, value)
        proto.outputs.extend(self.spell(value) for value in block.outputs)

    def op(self, block: Any, op: Op) -> None:
        packed = op.type.startswith("constexpr_") and is_known(op.type) and spec_of(op).since < 18
        if not packed:
            for _, operand in sorted(op.inputs.items()):
                for value in operand if isinstance(operand, tuple) else (operand,):
                    if value.is_constant:
                        self.constant(block, value)
        proto = block.operations.add()
        proto.type = op.type
        for param, operand in sorted(op.inputs.items()):
            values = operand if isinstance(operand, tuple) else (operand,)
            if packed:
                if len(values) != 1 or not values[0].is_constant:
                    raise UnsupportedError(f"{param} of {op.describe()} must be a constant in this op set")
                self.literal(proto.attributes[param], values[0])
                continue
            argument = proto.inputs[param]
            for value in values:
                argument.arguments.add().name = self.spell(value)
        for value in op.outputs:
            self.typed_name(proto.outputs.add(), value)
        if op.name or op.outputs:
            string_value(proto.attributes["name"], op.name or self.spell(op.outputs[0]))
        for key, attribute in op.attributes.items():
            write_typed(proto.attributes[key], attribute)
        for inner in op.blocks:
            operation = proto.blocks.add()
            for value in inner.inputs:
                self.typed_name(operation.inputs.add(), value)
            self.block(operation, inner)

    def constant(self, block: Any, value: Value) -> None:
        """A ``const`` operation, before its first use."""
        if id(value) in self.declared:
            return
        self.declared.add(id(value))
        proto = block.operations.add()
        proto.type = "const"
        self.typed_name(proto.outputs.add(), value)
        string_value(proto.attributes["name"], value.label if value.label is not None else self.spell(value))
        self.literal(proto.attributes["val"], value)

    def literal(self, proto: Any, value: Value) -> None:
        constant = value.constant
        assert constant is not None
        type_ = narrowed(value.type)
        assert isinstance(type_, TensorType)
        write_type(proto.type, type_)
        blob = None if type_.dtype in ("int32", "uint32") else self.weights.place(value)
        if blob is not None:
            proto.blobFileValue.fileName, proto.blobFileValue.offset = blob.path, blob.offset
            return
        write_tensor(proto.immediateValue.tensor, narrow(constant.array, value), type_.dtype)


def narrowed(type_: Type) -> Type:
    """The type that a Core ML package has for a value."""
    if isinstance(type_, StateType):
        return StateType(_narrow_tensor(type_.tensor))
    return _narrow_tensor(type_) if isinstance(type_, TensorType) else type_


def _narrow_tensor(type_: TensorType) -> TensorType:
    return type_.with_dtype(NARROWED.get(type_.dtype, type_.dtype))


def narrow(array: np.ndarray, value: Value) -> np.ndarray:
    """A constant's values in the narrowed dtype; a dtype named as a string is narrowed as well."""
    if value.dtype in NARROWED:
        info = np.iinfo(np.int32)
        if array.size and (array.min() < info.min or array.max() > info.max):
            raise UnsupportedError(f"constant {value.name!r} holds numbers beyond int32, which is all that Core ML has")
        return array.astype(np.int32)
    if value.dtype == "string" and array.ndim == 0 and str(array) in NARROWED:
        return np.array(NARROWED[str(array)])
    return array
