"""Inputs and outputs bound to arrays before a run, as onnxruntime has them; everything lies in host memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hexane.errors import UsageError
from hexane.integrations.onnx.signature import NodeArg, element_of


class OrtValue:
    """An array in the wrapping that onnxruntime gives it."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A value of an array, which is not copied; UsageError for another device than the CPU's memory."""
        _only_cpu(device_type)
        return OrtValue(np.asarray(numpy_obj))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A value of zeros."""
        _only_cpu(device_type)
        return OrtValue(np.zeros(tuple(shape), element_type))

    def numpy(self) -> np.ndarray:
        """The array."""
        return self._array

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        """``tensor(float)``."""
        return f"tensor({element_of(self._array.dtype)})"

    def device_name(self) -> str:
        return "cpu"

    def is_tensor(self) -> bool:
        return True

    def has_value(self) -> bool:
        return True

    def update_inplace(self, np_arr: np.ndarray) -> None:
        """New contents of the same shape and dtype; UsageError for others."""
        array = np.asarray(np_arr)
        if array.shape != self._array.shape or array.dtype != self._array.dtype:
            raise UsageError(
                f"{array.dtype} {array.shape} into a value of {self._array.dtype} {self._array.shape}",
                hint="a new value is OrtValue.ortvalue_from_numpy(array)",
            )
        self._array[...] = array


class IOBinding:
    """Made by ``session.io_binding()``; used by ``session.run_with_iobinding(binding)``."""

    def __init__(self, inputs: Sequence[NodeArg], outputs: Sequence[NodeArg]) -> None:
        self._inputs = {entry.name: entry for entry in inputs}
        self._outputs = {entry.name: entry for entry in outputs}
        self._feed: dict[str, np.ndarray] = {}
        self._bound: dict[str, np.ndarray | None] = {}
        self._results: dict[str, np.ndarray] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """An array as input; it is read when the session runs."""
        if name not in self._inputs:
            raise UsageError(f"invalid input name: {name!r}", hint=f"the inputs are {', '.join(self._inputs)}")
        self._feed[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """The same for a value."""
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: Any
    ) -> None:
        """Refused: a bare address says nothing of the memory behind it."""
        raise UsageError("inputs are bound as arrays, not by address", hint="bind_cpu_input(name, array)")

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: Any = None,
    ) -> None:
        """An output that the session makes. Memory by address is refused; give it as an `OrtValue`."""
        _only_cpu(device_type)
        if buffer_ptr is not None:
            raise UsageError("outputs are bound as values, not by address", hint="bind_ortvalue_output(name, value)")
        self._output(name, None if shape is None else np.zeros(tuple(shape), element_type or np.float32))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """An output that is written into a value."""
        self._output(name, ortvalue.numpy())

    def _output(self, name: str, array: np.ndarray | None) -> None:
        if name not in self._outputs:
            raise UsageError(f"invalid output name: {name!r}", hint=f"the outputs are {', '.join(self._outputs)}")
        self._bound[name] = array

    def feed(self) -> dict[str, np.ndarray]:
        """Arrays bound to the inputs."""
        return dict(self._feed)

    def output_names(self) -> list[str]:
        """The bound outputs, in the order in which they were bound."""
        return list(self._bound)

    def take(self, results: Mapping[str, np.ndarray]) -> None:
        """Results of a run into the bound outputs; UsageError where one does not fit."""
        for name, array in results.items():
            target = self._bound[name]
            if target is None:
                self._results[name] = array
            elif target.shape != array.shape or target.dtype != array.dtype:
                raise UsageError(
                    f"output {name!r} is {array.dtype} {array.shape}; what is bound is {target.dtype} {target.shape}"
                )
            else:
                target[...] = array
                self._results[name] = target

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """The results of the last run."""
        return [self._results[name] for name in self._bound if name in self._results]

    def get_outputs(self) -> list[OrtValue]:
        """The same as values."""
        return [OrtValue(array) for array in self.copy_outputs_to_cpu()]

    def clear_binding_inputs(self) -> None:
        self._feed.clear()

    def clear_binding_outputs(self) -> None:
        self._bound.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing is in flight."""

    def synchronize_outputs(self) -> None:
        """Nothing is in flight."""


def _only_cpu(device_type: str) -> None:
    if str(device_type).lower() != "cpu":
        raise UsageError(f"memory of {device_type!r} cannot be bound", hint="arrays lie in the CPU's memory")
