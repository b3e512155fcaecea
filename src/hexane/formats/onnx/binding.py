"""Bind what an ONNX model leaves open: shapes of inputs, symbolic extents, and the values of inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from hexane.errors import UsageError
from hexane.formats.onnx.file import OnnxFile, all_graphs, import_onnx
from hexane.formats.open_shapes import Extent, OpenShapes, assumed_batch, is_open


def bind_values(file: OnnxFile, bind: Mapping[str, Any]) -> None:
    """Make constants of inputs: ``bind`` gives their values, numbers or arrays of the declared shape."""
    onnx = import_onnx()
    inputs = _inputs(file)
    graph = file.model.graph
    for name, values in bind.items():
        value = inputs.get(name)
        if value is None:
            raise UsageError(
                f"the model has no input {name!r} to bind", where=file.where, hint=f"inputs: {', '.join(inputs)}"
            )
        if value.type.WhichOneof("value") != "tensor_type":
            raise UsageError(f"input {name!r} is no tensor, so no value can be bound to it", where=file.where)
        tensor = value.type.tensor_type
        try:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"input {name!r} has no element type that a value could have", where=file.where) from None
        array = _fitted(np.asarray(values), dtype, tuple(_extents(tensor)), name, file.where)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        graph.input.remove(value)
        file.bound[name] = array
        file.assumed.append(f"input {name!r} is bound to {np.array2string(array, threshold=8)}")


def _fitted(array: np.ndarray, dtype: Any, extents: tuple[Extent, ...], name: str, where: str) -> np.ndarray:
    """A value in the input's dtype and shape; UsageError where it loses something or does not fit."""
    if array.dtype.kind not in "biuf":
        raise UsageError(f"--bind {name}: {array.dtype} is no number", where=where)
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    if array.dtype.kind in "iub" and cast.dtype.kind in "iub" and not np.array_equal(cast, array):
        raise UsageError(f"--bind {name}: {array.tolist()} does not fit {dtype}", where=where)
    if cast.dtype.kind in "iu" and array.dtype.kind == "f" and not np.array_equal(cast, array):
        raise UsageError(f"--bind {name}: {array.tolist()} has fractions, the input is {dtype}", where=where)
    if not cast.ndim and extents:
        return np.full(tuple(extent if isinstance(extent, int) else 1 for extent in extents), cast, dtype)
    fits = cast.ndim == len(extents) and all(not isinstance(e, int) or e == n for e, n in zip(extents, cast.shape))
    if not fits:
        raise UsageError(f"--bind {name}: an array of shape {cast.shape} for an input {list(extents)}", where=where)
    return np.ascontiguousarray(cast).reshape(cast.shape)


def bind_shapes(file: OnnxFile, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Give every input a static shape. ``shapes`` holds shapes by input name and extents by symbolic name.

    A batch that nobody binds is taken as 1, which ``file.assumed`` says; OpenShapes where any other extent stays open.
    Declared shapes that a binding contradicts are dropped, so that inference finds the right ones.
    """
    model, where = file.model, file.where
    inputs = _inputs(file)
    symbols: dict[str, int] = {}
    overridden = False
    for name, extents in shapes.items():
        if name in inputs:
            continue
        if len(extents) == 1 and name in _symbols(model):
            symbols[name] = extents[0]
        else:
            raise UsageError(
                f"the model has no input {name!r}",
                where=where,
                hint=f"inputs: {_listed(inputs)}; dimensions: {_listed(sorted(_symbols(model)))}",
            )
    for name, value in inputs.items():
        if value.type.WhichOneof("value") != "tensor_type" or name not in shapes:
            continue
        tensor = value.type.tensor_type
        extents = shapes[name]
        if tensor.HasField("shape") and len(tensor.shape.dim) != len(extents):
            raise UsageError(
                f"input {name!r} has {len(tensor.shape.dim)} dimensions, {len(extents)} were given", where=where
            )
        for dim, extent in zip(list(tensor.shape.dim), extents):
            if dim.HasField("dim_param") and dim.dim_param:
                symbols.setdefault(dim.dim_param, extent)
            elif dim.HasField("dim_value") and dim.dim_value > 0 and dim.dim_value != extent:
                overridden = True
        tensor.ClearField("shape")
        tensor.shape.SetInParent()
        for extent in extents:
            tensor.shape.dim.add().dim_value = extent
    _substitute(model, symbols)
    batches = _take_batches(file, inputs)
    _require_static(file, inputs)
    if shapes or batches or file.assumed:
        # Intermediate shapes in the file may be those of other bindings; inference knows better.
        del model.graph.value_info[:]
    if overridden:
        for value in model.graph.output:
            if value.type.WhichOneof("value") == "tensor_type":
                value.type.tensor_type.ClearField("shape")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _inputs(file: OnnxFile) -> dict[str, Any]:
    initial = {tensor.name for tensor in file.model.graph.initializer} | set(file.weights)
    return {value.name: value for value in file.model.graph.input if value.name not in initial}


def _extents(tensor: Any) -> Iterator[Extent]:
    for dim in tensor.shape.dim:
        is_number = dim.HasField("dim_value") and dim.dim_value >= 0
        yield dim.dim_value if is_number else dim.dim_param or None


def _substitute(model: Any, symbols: Mapping[str, int]) -> None:
    for graph in all_graphs(model.graph):
        for value in [*graph.input, *graph.output, *graph.value_info]:
            if value.type.WhichOneof("value") == "tensor_type":
                for dim in value.type.tensor_type.shape.dim:
                    if dim.dim_param in symbols:
                        dim.dim_value = symbols[dim.dim_param]


def _take_batches(file: OnnxFile, inputs: Mapping[str, Any]) -> bool:
    """Batches that nobody bound become 1."""
    symbols: dict[str, int] = {}
    names = []
    for name, value in inputs.items():
        if value.type.WhichOneof("value") != "tensor_type":
            continue
        tensor = value.type.tensor_type
        extents = list(_extents(tensor))
        for axis in assumed_batch(extents):
            if isinstance(extents[axis], str):
                symbols[str(extents[axis])] = 1
            tensor.shape.dim[axis].dim_value = 1
            names.append(name)
    if names:
        file.assumed.append(f"the open batch of {', '.join(dict.fromkeys(names))} is taken as 1")
    _substitute(file.model, symbols)
    return bool(names)


def _require_static(file: OnnxFile, inputs: Mapping[str, Any]) -> None:
    """OpenShapes, with everything that is known, where an input still has an open extent."""
    open_inputs: dict[str, list[Extent]] = {}
    for name, value in inputs.items():
        if value.type.WhichOneof("value") == "tensor_type":
            tensor = value.type.tensor_type
            if not tensor.HasField("shape"):
                raise UsageError(
                    f"input {name!r} has no shape, not even a rank", where=file.where, hint=f"--shape {name}=1x..."
                )
            open_inputs[name] = list(_extents(tensor))
    if any(is_open(extents) for extents in open_inputs.values()):
        tensors = [v for v in file.model.graph.output if v.type.WhichOneof("value") == "tensor_type"]
        raise OpenShapes(
            open_inputs,
            where=file.where,
            outputs={value.name: list(_extents(value.type.tensor_type)) for value in tensors},
            kinds=Counter(node.op_type for node in file.model.graph.node),
        )


def _symbols(model: Any) -> set[str]:
    symbols = set()
    for graph in all_graphs(model.graph):
        for value in [*graph.input, *graph.output, *graph.value_info]:
            if value.type.WhichOneof("value") == "tensor_type":
                symbols |= {dim.dim_param for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    return symbols
