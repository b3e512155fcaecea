"""The yardstick beside an engine's error: the same network in float32, every tensor stored in fp16.

What any machine of 16 bits loses before its own arithmetic counts: constants, inputs and results are rounded to fp16,
the work of each op is float32's. Give it a network in canonical form: what every converter folds away (a batch norm
behind a convolution, say) is stored nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.bits import in_dtype
from hexane.graph.evaluate import Evaluation, checked_input, declared
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph import Graph, Op, Value


def stored_in_fp16(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Outputs of the function that runs by name, every float of at most 32 bits rounded to fp16 where it is stored."""
    function, run = graph.main, _Stored(doubtful=bool(graph.problems))
    for value in function.inputs:
        provided = inputs.get(value.name)
        run.environment[value] = _rounded(value, checked_input(value, provided))
    results = run.block(function)
    return {value.name: declared(array, value.type, value.name) for value, array in zip(function.outputs, results)}


class _Stored(Evaluation):
    def array(self, value: Value) -> Any:
        data = super().array(value)
        return _rounded(value, data) if value.constant is not None else data

    def settled(self, op: Op, value: Value, array: Any) -> Any:
        return _rounded(value, super().settled(op, value, array))


def _rounded(value: Value, array: Any) -> Any:
    if not isinstance(value.type, TensorType) or not isinstance(array, np.ndarray) or array.dtype != np.float32:
        return array
    return in_dtype(array, np.dtype(np.float16)).astype(np.float32)
