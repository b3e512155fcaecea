"""Control flow, states, lists, buffers and references (docs/reference/mil.md 5.6, 5.8, 5.9)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hexane.errors import GraphError, UnsupportedError
from hexane.graph.effects import held
from hexane.graph.ir import Block, Op
from hexane.graph.ops._gradients import reshaped, zero
from hexane.graph.ops._rules import axis_of
from hexane.graph.registry import UNKNOWN, op
from hexane.graph.types import BufferType, ListType, StateType, TensorType, Type

_FLOW = "which block runs, and how often, is known at run time only"
_LISTS = "gradients of lists are not defined: stack their elements"
_STATES = "a state is no operand: what it holds comes from an earlier call"


LOOP_LIMIT = 1_000_000
"""Most turns of a ``while_loop`` that the reference makes."""


def _from_blocks() -> Type:
    raise GraphError("the results of control flow are those of its blocks")


def branches(operation: Op) -> tuple[Block, Block]:
    """The blocks (true, false) of a ``cond``, or (condition, body) of a ``while_loop``."""
    if len(operation.blocks) != 2:
        raise GraphError(f"{operation.type} has {len(operation.blocks)} blocks, 2 are needed")
    return operation.blocks[0], operation.blocks[1]


@op("cond", "pred:B", infer=_from_blocks, special=True, dynamic=True, derivative=_FLOW)
def cond(run: Any, operation: Op) -> tuple[Any, ...]:
    """The first block where ``pred`` holds, else the second; both return the same types."""
    true, false = branches(operation)
    return tuple(run.block(true if bool(np.all(run.array(operation.inputs["pred"]))) else false))


@op("while_loop", "loop_vars:D*", infer=_from_blocks, special=True, dynamic=True, derivative=_FLOW)
def while_loop(run: Any, operation: Op) -> tuple[Any, ...]:
    """The second block over and over while the first one, of the same inputs, returns true."""
    condition, body = branches(operation)
    values = [run.array(value) for value in operation.inputs["loop_vars"]]
    for _ in range(LOOP_LIMIT):
        run.environment.update(zip(condition.inputs, values))
        if not bool(np.all(run.block(condition)[0])):
            return tuple(values)
        run.environment.update(zip(body.inputs, values))
        values = run.block(body)
    raise UnsupportedError(f"the loop did not end within {LOOP_LIMIT} turns")


def _read_type(input: Type) -> TensorType:
    if not isinstance(input, StateType):
        raise GraphError(f"input is a {input}, not a state")
    return input.tensor


@op("read_state", "input:state", infer=_read_type, special=True, derivative=_STATES)
def read_state(run: Any, operation: Op) -> Any:
    """Contents of the state."""
    return run.environment[operation.inputs["input"]]


def _write_type(data: TensorType, input: Type) -> tuple[()]:
    if not isinstance(input, StateType) or not input.tensor.accepts(data):
        raise GraphError(f"a {data} cannot be written to a {input}")
    return ()


@op("write_state", "data:D input:state", infer=_write_type, special=True, derivative=_STATES)
def write_state(run: Any, operation: Op) -> tuple[()]:
    """Put a value into the state."""
    state = operation.inputs["input"]
    run.environment[state] = held(run.array(operation.inputs["data"]), state)
    return ()


def _update_state_type(state: Type, value: TensorType) -> TensorType:
    _write_type(value, state)
    return value


@op("coreml_update_state", "state:state value:D", infer=_update_state_type, special=True, derivative=_STATES)
def coreml_update_state(run: Any, operation: Op) -> Any:
    """Put a value into the state and read it back (coremltools' dialect)."""
    state = operation.inputs["state"]
    run.environment[state] = held(run.array(operation.inputs["value"]), state)
    return run.environment[state]


def _from_buffer(input: Type) -> TensorType:
    if not isinstance(input, BufferType):
        raise GraphError(f"input is a {input}, not a tensor_buffer")
    return input.tensor


@op(
    "tensor_buffer_to_tensor",
    "input:D",
    infer=_from_buffer,
    derivative="a memory layout has no gradient: differentiate what stands before it",
)
def tensor_buffer_to_tensor(input: np.ndarray) -> np.ndarray:
    """The same numbers without a memory layout."""
    return input


def _to_buffer(input: TensorType, interleave_factors: Any, strides: Any) -> BufferType:
    if len(strides) != input.rank or len(interleave_factors) != input.rank:
        raise GraphError(f"strides and interleave_factors need {input.rank} entries each")
    if min((*strides, *interleave_factors), default=0) < 0:
        raise GraphError("strides and interleave_factors must not be negative")
    return BufferType(input.dtype, input.shape, tuple(strides), tuple(interleave_factors))


@op(
    "tensor_to_tensor_buffer",
    "input:D interleave_factors:ints strides:ints",
    infer=_to_buffer,
    derivative="a memory layout has no gradient: differentiate what stands before it",
)
def tensor_to_tensor_buffer(input: np.ndarray) -> np.ndarray:
    """The same numbers in a memory layout, which the reference does not model."""
    return input


def _make_list_type(init_length: int, dynamic_length: bool, elem_shape: Any, dtype: str) -> ListType:
    if init_length < 0 or any(extent is UNKNOWN for extent in elem_shape):
        raise GraphError("make_list needs a length from 0 on and a known element shape")
    return ListType(TensorType(dtype, tuple(elem_shape)), None if dynamic_length else init_length)


@op(
    "make_list",
    "init_length:int=1 dynamic_length:bool=True elem_shape:int* dtype:str='fp32'",
    infer=_make_list_type,
    derivative=_LISTS,
)
def make_list(init_length: int, elem_shape: Any, dtype: str) -> list[np.ndarray]:
    """A list of zeros."""
    zero = np.zeros(elem_shape, TensorType(dtype).carrier)
    return [zero] * init_length


def _element(ls: Type) -> TensorType:
    if not isinstance(ls, ListType) or not isinstance(ls.element, TensorType):
        raise GraphError(f"ls is a {ls}, not a list of tensors")
    return ls.element


def _place(ls: list[Any], index: np.ndarray) -> int:
    place = int(np.asarray(index).reshape(()))
    if not 0 <= place < len(ls):
        raise GraphError(f"index {place} of a list of {len(ls)}")
    return place


@op("list_length", "ls:list", infer=lambda ls: TensorType("int32"), derivative=_LISTS)
def list_length(ls: list[Any]) -> np.ndarray:
    """Number of elements in the list."""
    return np.int32(len(ls))  # type: ignore[return-value]


@op("list_read", "ls:list index:I", infer=lambda ls, index: _element(ls), derivative=_LISTS)
def list_read(ls: list[Any], index: np.ndarray) -> Any:
    """One element."""
    return ls[_place(ls, index)]


def _list_write_type(ls: Type, value: TensorType) -> Type:
    if not _element(ls).accepts(value):
        raise GraphError(f"a {value} does not fit into {ls}")
    return ls


@op("list_write", "ls:list index:I value:D", infer=_list_write_type, derivative=_LISTS)
def list_write(ls: list[Any], index: np.ndarray, value: np.ndarray) -> list[Any]:
    """The list with one element replaced; a list without fixed length grows by one at its end."""
    place = int(np.asarray(index).reshape(()))
    if place == len(ls):
        return [*ls, value]
    place = _place(ls, index)
    return [*ls[:place], value, *ls[place + 1 :]]


def _list_gather_type(ls: Type, indices: TensorType) -> TensorType:
    element = _element(ls)
    return element.with_shape((*indices.shape, *element.shape))


@op("list_gather", "ls:list indices:I", infer=_list_gather_type, dynamic=True, derivative=_LISTS)
def list_gather(ls: list[Any], indices: np.ndarray) -> np.ndarray:
    """Elements stacked along a new first axis."""
    return np.stack([ls[_place(ls, index)] for index in indices])


def _list_scatter_type(ls: Type, indices: TensorType, value: TensorType) -> Type:
    if value.shape[1:] != _element(ls).shape or value.shape[:1] != indices.shape:
        raise GraphError(f"a {value} does not fit into {ls}")
    return ls


@op("list_scatter", "ls:list indices:I value:D", infer=_list_scatter_type, derivative=_LISTS)
def list_scatter(ls: list[Any], indices: np.ndarray, value: np.ndarray) -> list[Any]:
    """The list with several elements replaced; it grows as far as needed."""
    result = list(ls)
    for index, element in zip(indices, value):
        place = int(index)
        if not 0 <= place < LOOP_LIMIT:
            raise GraphError(f"index {place} of a list of {len(ls)}")
        result.extend([np.zeros_like(element)] * (place + 1 - len(result)))
        result[place] = element
    return result


def _classify_type(probabilities: TensorType, classes: Type) -> tuple[TensorType, TensorType]:
    labels = classes.length if isinstance(classes, ListType) else prod(classes.shape)
    if labels is not None and probabilities.is_static and labels != probabilities.count:
        raise GraphError(f"{probabilities.count} probabilities for {labels} classes")
    return TensorType(classes.dtype), probabilities


@op("classify", "probabilities:T classes:any", infer=_classify_type, derivative="a label is constant between its jumps")
def classify(probabilities: np.ndarray, classes: Any) -> tuple[np.ndarray, np.ndarray]:
    """The label of the largest probability, and the probabilities themselves in the order of the classes.

    Core ML gives the latter as a dictionary from label to probability; a graph keeps the tensor.
    """
    labels = np.asarray(classes).reshape(-1)
    if labels.size != probabilities.size:
        raise GraphError(f"{probabilities.size} probabilities for {labels.size} classes")
    return np.array(labels[int(np.argmax(probabilities))]), probabilities


def _reshape_like_shape(ref_tensors: Any, begins: Any, ends: Any, end_masks: Any) -> tuple[int, ...]:
    if not len(ref_tensors) == len(begins) == len(ends) == len(end_masks):
        raise GraphError("ref_tensors, begins, ends and end_masks need one entry each")
    shape: list[int] = []
    for reference, begin, end, open_end in zip(ref_tensors, begins, ends, end_masks):
        if begin:
            axis_of(begin, len(reference.shape), "begin")
        shape += reference.shape[begin:] if open_end else reference.shape[begin:end]
    return tuple(shape)


def _reshape_like_type(x: TensorType, ref_tensors: Any, begins: Any, ends: Any, end_masks: Any) -> TensorType:
    shape = _reshape_like_shape(ref_tensors, begins, ends, end_masks)
    if int(np.prod(shape, dtype=np.int64)) != x.count:
        raise GraphError(f"{x.shape} cannot be reshaped to {shape}")
    return x.with_shape(shape)


@op(
    "reshape_like",
    "x:A ref_tensors:D* begins:int* ends:int* end_masks:bool*",
    infer=_reshape_like_type,
    since=16,
    derivative={"x": reshaped, "ref_tensors": zero},
)
def reshape_like(x: np.ndarray, ref_tensors: Any, begins: Any, ends: Any, end_masks: Any) -> np.ndarray:
    """Reshape to extents of other tensors, joined."""
    return x.reshape(_reshape_like_shape(ref_tensors, begins, ends, end_masks))
