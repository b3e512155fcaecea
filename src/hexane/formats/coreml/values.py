"""Types and values of Core ML's protobuf MIL, to and from the graph's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import FormatError, UnsupportedError
from hexane.formats.blob import decode, encode
from hexane.formats.coreml.protos import protos
from hexane.formats.mil.literals import Blob, Braces, Parens, TypedValue, array_of
from hexane.graph.types import DictType, ListType, StateType, TensorType, TupleType, Type

DTYPE_CODES: dict[str, int] = {
    "bool": 1, "string": 2, "fp16": 10, "fp32": 11, "fp64": 12, "bf16": 13, "int8": 21, "int16": 22,
    "int32": 23, "int64": 24, "int4": 25, "uint8": 31, "uint16": 32, "uint32": 33, "uint64": 34, "uint4": 35,
    "uint2": 36, "uint1": 37, "uint6": 38, "uint3": 39, "fp8e4m3fn": 40, "fp8e5m2": 41,
}  # fmt: skip
"""``MILSpec.DataType``."""
_DTYPES = {code: name for name, code in DTYPE_CODES.items()}

_FIELDS = {
    "fp32": "floats",
    "int32": "ints",
    "bool": "bools",
    "string": "strings",
    "int64": "longInts",
    "fp64": "doubles",
}
"""Where an immediate tensor's values stand; every other dtype's stand in ``bytes``."""
_ALSO_INTS = ("int8", "int16", "uint8", "uint16", "uint32")


def read_type(proto: Any, where: str) -> Any:
    """A ``ValueType`` as a graph type; extents that the file leaves open are None."""
    kind = proto.WhichOneof("type")
    if kind == "tensorType":
        return _read_tensor(proto.tensorType, where)
    if kind == "stateType":
        wrapped = read_type(proto.stateType.wrappedType, where)
        if not isinstance(wrapped, TensorType):
            raise FormatError("a state wraps something else than a tensor", where=where)
        return StateType(wrapped)
    if kind == "listType":
        length = proto.listType.length
        is_constant = length.WhichOneof("dimension") == "constant"
        return ListType(read_type(proto.listType.type, where), length.constant.size if is_constant else None)
    if kind == "tupleType":
        return TupleType(tuple(read_type(item, where) for item in proto.tupleType.types))
    if kind == "dictionaryType":
        return DictType(
            read_type(proto.dictionaryType.keyType, where), read_type(proto.dictionaryType.valueType, where)
        )
    raise FormatError("a value without a type", where=where)


def _read_tensor(proto: Any, where: str) -> TensorType:
    if proto.dataType not in _DTYPES:
        raise FormatError(f"element type {proto.dataType} is unknown", where=where)
    shape: list[Any] = []
    for dimension in proto.dimensions:
        if dimension.WhichOneof("dimension") == "constant":
            shape.append(dimension.constant.size)
        elif dimension.WhichOneof("dimension") == "unknown" and dimension.unknown.variadic:
            raise UnsupportedError("a tensor of any rank", where=where)
        else:
            shape.append(None)
    if proto.rank >= 0 and proto.rank != len(shape):
        raise FormatError(f"a tensor of rank {proto.rank} with {len(shape)} extents", where=where)
    return TensorType(_DTYPES[proto.dataType], tuple(shape))


def write_type(proto: Any, type_: Any) -> None:
    """The inverse of ``read_type``, into an empty ``ValueType``."""
    if isinstance(type_, TensorType):
        tensor = proto.tensorType
        tensor.dataType = DTYPE_CODES[type_.dtype]
        tensor.rank = type_.rank
        for extent in type_.shape:
            dimension = tensor.dimensions.add()
            if extent is None:
                dimension.unknown.variadic = False
            else:
                dimension.constant.size = extent
    elif isinstance(type_, StateType):
        write_type(proto.stateType.wrappedType, type_.tensor)
    elif isinstance(type_, ListType):
        write_type(proto.listType.type, type_.element)
        if type_.length is None:
            proto.listType.length.unknown.variadic = False
        else:
            proto.listType.length.constant.size = type_.length
    elif isinstance(type_, TupleType):
        proto.tupleType.SetInParent()
        for element in type_.elements:
            write_type(proto.tupleType.types.add(), element)
    elif isinstance(type_, DictType):
        write_type(proto.dictionaryType.keyType, type_.key)
        write_type(proto.dictionaryType.valueType, type_.value)
    else:
        raise UnsupportedError(f"{type_} is no type of a Core ML package")


def read_tensor(tensor: Any, type_: TensorType, where: str) -> np.ndarray:
    """An immediate tensor in the carrier dtype of ``type_``."""
    field = tensor.WhichOneof("value")
    if field is None:
        values: Any = ()
    elif field == "bytes":
        raw = np.frombuffer(tensor.bytes.values, np.uint8)
        if len(raw) != type_.nbytes:
            raise FormatError(f"{len(raw)} bytes for {type_}, which takes {type_.nbytes}", where=where)
        return decode(raw, type_)
    else:
        values = getattr(tensor, field).values
    field_name = _FIELDS.get(type_.dtype, "ints" if type_.dtype in _ALSO_INTS else None)
    if field is not None and field != field_name:
        raise FormatError(f"values of kind {field} for {type_}", where=where)
    if len(values) != type_.count:
        raise FormatError(f"{len(values)} values for {type_}, which has {type_.count}", where=where)
    if type_.dtype == "string":
        return np.array(list(values), dtype=str).reshape(type_.shape)
    return np.array(values, dtype=type_.carrier).reshape(type_.shape)


def write_tensor(tensor: Any, array: np.ndarray, dtype: str) -> None:
    """The inverse of ``read_tensor``, into an empty ``TensorValue``."""
    field = _FIELDS.get(dtype)
    if field is None:
        tensor.bytes.values = encode(array, dtype)
        return
    part = getattr(tensor, field)
    part.SetInParent()
    part.values.extend(array.reshape(-1).tolist())


def read_typed(value: Any, where: str) -> TypedValue:
    """A ``Value`` of an attribute, as MIL text would write it."""
    type_ = read_type(value.type, where)
    if value.WhichOneof("value") == "blobFileValue":
        return TypedValue(type_, Blob(value.blobFileValue.fileName, value.blobFileValue.offset))
    immediate = value.immediateValue
    kind = immediate.WhichOneof("value")
    if kind == "tensor":
        if not isinstance(type_, TensorType) or not type_.is_static:
            raise FormatError(f"a tensor given for {type_}", where=where)
        listed = read_tensor(immediate.tensor, type_, where).tolist()
        return TypedValue(type_, listed)
    if kind == "tuple":
        return TypedValue(type_, Parens(read_typed(item, where).payload for item in immediate.tuple.values))
    if kind == "list":
        return TypedValue(type_, [_plain(read_typed(item, where)) for item in immediate.list.values])
    if kind == "dictionary":
        pairs = (
            Braces((_plain(read_typed(pair.key, where)), _plain(read_typed(pair.value, where))))
            for pair in immediate.dictionary.values
        )
        return TypedValue(type_, Braces(pairs))
    raise FormatError("an attribute without a value", where=where)


def _plain(value: TypedValue) -> Any:
    """The bare payload of a string or a number; anything else stays typed."""
    return value.payload if isinstance(value.payload, str | int | float | bool) else value


def write_typed(proto: Any, value: TypedValue) -> None:
    """The inverse of ``read_typed``, into an empty ``Value``."""
    type_, payload = value.type, value.payload
    write_type(proto.type, type_)
    if isinstance(payload, Blob):
        proto.blobFileValue.fileName, proto.blobFileValue.offset = payload.path, payload.offset
    elif isinstance(type_, TensorType):
        write_tensor(proto.immediateValue.tensor, array_of(payload, type_), type_.dtype)
    elif isinstance(type_, TupleType):
        proto.immediateValue.tuple.SetInParent()
        for item, element in zip(payload, type_.elements, strict=True):
            write_typed(proto.immediateValue.tuple.values.add(), _retyped(item, element))
    elif isinstance(type_, ListType):
        proto.immediateValue.list.SetInParent()
        for item in payload:
            write_typed(proto.immediateValue.list.values.add(), _retyped(item, type_.element))
    elif isinstance(type_, DictType):
        proto.immediateValue.dictionary.SetInParent()
        for pair in payload or ():
            key, item = pair
            entry = proto.immediateValue.dictionary.values.add()
            write_typed(entry.key, _retyped(key, type_.key))
            write_typed(entry.value, _retyped(item, type_.value))
    else:
        raise UnsupportedError(f"a value of type {type_} in a Core ML package")


def _retyped(item: Any, type_: Type) -> TypedValue:
    return item if isinstance(item, TypedValue) else TypedValue(type_, item)


def string_value(proto: Any, text: str) -> None:
    """A scalar string into an empty ``Value``."""
    proto.type.tensorType.dataType = protos().mil.DataType.Value("STRING")
    proto.immediateValue.tensor.strings.values.append(text)
