"""An op that stays as it is, on the host: no pass looks inside (``hexane.graph.whole``)."""

from __future__ import annotations

from typing import Any

from hexane.errors import GraphError
from hexane.graph.evaluate import evaluate_function
from hexane.graph.ir import Op
from hexane.graph.registry import op
from hexane.graph.types import Type
from hexane.graph.whole import HOST_OP


def _from_inside() -> Type:
    raise GraphError("the results are those of the op inside")


@op(HOST_OP, "values:any* reason:str", infer=_from_inside, special=True,
    derivative="the compiler puts it in an op's place: differentiate the network as it was given")  # fmt: skip
def host(run: Any, operation: Op) -> tuple[Any, ...]:
    """The op inside in float32, which Apple's compiler leaves to the host for the reason given."""
    inside = operation.inside
    if inside is None:
        raise GraphError("there is no op inside")
    inputs = {value.name: run.array(outer) for value, outer in zip(inside.inputs, operation.inputs["values"])}
    outputs = evaluate_function(inside, inputs)
    return tuple(outputs[value.name] for value in inside.outputs)
