"""Making a failing network small: fewer ops, smaller extents, plainer parameters, as long as it fails alike."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fuzz.sketch import Data, Input, Ref, Sketch
from fuzz.trial import Failure, Plan, Trial, narrowed
from hexane.errors import HexaneError
from hexane.graph.registry import lookup
from hexane.graph.types import StateType, TensorType

SECONDS = 40.0


def outcome(sketch: Sketch, plan: Plan) -> Failure | None:
    """The failure of a network, None where it has none or is no network."""
    try:
        sketch.graph().verify()
    except Exception:
        return None
    try:
        Trial(sketch, plan, Counter()).run()
    except Failure as failure:
        return failure
    return None


def shrunk(sketch: Sketch, plan: Plan, failure: Failure, seconds: float = SECONDS) -> tuple[Sketch, Failure]:
    """The smallest network met in the time that fails as the given one does."""
    end, wanted, plan = time.monotonic() + seconds, failure.signature, narrowed(plan, failure)
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for change in CHANGES:
            again = True
            while again and time.monotonic() < end:
                again = False
                for smaller in change(sketch):
                    if time.monotonic() > end:
                        break
                    found = outcome(smaller, plan)
                    if found is not None and found.signature == wanted:
                        sketch, failure, again, progress = smaller, found, True, True
                        break
    sketch.graph()
    return sketch, failure


def _fewer_outputs(sketch: Sketch) -> Iterator[Sketch]:
    if len(sketch.outputs) > 1:
        for output in sketch.outputs:
            yield replace(sketch, outputs=(output,)).pruned()
        for index in range(len(sketch.outputs)):
            yield replace(sketch, outputs=sketch.outputs[:index] + sketch.outputs[index + 1 :]).pruned()


def _fewer_steps(sketch: Sketch) -> Iterator[Sketch]:
    """A step's results become inputs, or its first operand takes the place of its result."""
    try:
        sketch.graph()
    except HexaneError:
        return
    types = {name: value.type for name, value in sketch.values.items() if value is not None}
    for index in reversed(range(len(sketch.steps))):
        step = sketch.steps[index]
        names = [name for name in types if name.split(".")[0] == step.name]
        rest = sketch.steps[:index] + sketch.steps[index + 1 :]
        for operand in dict.fromkeys(step.refs()):
            if len(names) == 1 and types.get(operand) == types[names[0]] and operand not in sketch.outputs:
                yield _renamed(replace(sketch, steps=rest), {names[0]: operand}).pruned()
        read = {name for other in rest for name in other.refs()} | {o for o in sketch.outputs if isinstance(o, str)}
        wanted = [name for name in names if name in read]
        if all(isinstance(types[name], TensorType) and types[name].is_static for name in wanted):
            new = {name: f"in_{name.replace('.', '_')}" for name in wanted}
            inputs = tuple(
                Input(new[name], types[name].shape, types[name].dtype, *_range(types[name])) for name in wanted
            )
            outputs = tuple(o for o in sketch.outputs if o not in wanted)
            if outputs:
                yield _renamed(
                    replace(sketch, steps=rest, inputs=sketch.inputs + inputs, outputs=outputs), new
                ).pruned()
    for index in range(len(sketch.steps) - 1):  # an inner value as the only output
        name = sketch.steps[index].name
        if name not in sketch.outputs and not isinstance(types.get(name), StateType):
            yield replace(sketch, outputs=(name,)).pruned()


def _range(type_: TensorType) -> tuple[float, float]:
    return (0.0, 3.0) if type_.dtype.startswith(("int", "uint")) else (-1.0, 1.0)


def _renamed(sketch: Sketch, names: dict[str, str]) -> Sketch:
    def new(operand: Any) -> Any:
        if isinstance(operand, Ref):
            return Ref(names.get(operand.name, operand.name))
        return tuple(new(item) for item in operand) if isinstance(operand, tuple) else operand

    steps = tuple(replace(s, operands={k: new(v) for k, v in s.operands.items()}) for s in sketch.steps)
    outputs = tuple(dict.fromkeys(names.get(o, o) if isinstance(o, str) else o for o in sketch.outputs))
    return replace(sketch, steps=steps, outputs=outputs, values={})


def _plainer(sketch: Sketch) -> Iterator[Sketch]:
    """Without an optional parameter, with a constant for an input, an input for a constant, plain ranges of numbers."""
    for index, step in enumerate(sketch.steps):
        spec = lookup(step.op, step.since)
        for name in step.operands:
            if not spec.param(name).required:
                operands = {key: value for key, value in step.operands.items() if key != name}
                yield _with_step(sketch, index, operands).pruned()
        for name, operand in step.operands.items():
            if isinstance(operand, tuple) and len(operand) > 1 and isinstance(operand[0], (Ref, Data)):
                yield _with_step(sketch, index, step.operands | {name: operand[:-1]}).pruned()
    for index, item in enumerate(sketch.inputs):
        plain = replace(item, low=_range(TensorType(item.dtype))[0], high=_range(TensorType(item.dtype))[1])
        if plain != item:
            yield replace(sketch, inputs=(*sketch.inputs[:index], plain, *sketch.inputs[index + 1 :]), values={})


def _with_step(sketch: Sketch, index: int, operands: dict[str, Any]) -> Sketch:
    step = replace(sketch.steps[index], operands=operands)
    return replace(sketch, steps=(*sketch.steps[:index], step, *sketch.steps[index + 1 :]), values={})


def _smaller(sketch: Sketch) -> Iterator[Sketch]:
    """One extent smaller wherever it appears, in shapes and in parameters."""
    extents = sorted({extent for shape in _shapes(sketch) for extent in shape if extent > 1}, reverse=True)
    for extent in extents:
        for less in dict.fromkeys((1, 2, extent // 4, extent // 2, extent * 3 // 4, extent - 8, extent - 1)):
            if 0 < less < extent:
                yield _resized(sketch, extent, less)


def _shapes(sketch: Sketch) -> Iterator[tuple[int, ...]]:
    yield from (item.shape for item in sketch.inputs)
    for step in sketch.steps:
        for operand in step.operands.values():
            for item in operand if isinstance(operand, tuple) else (operand,):
                if isinstance(item, Data):
                    yield item.shape
                elif isinstance(item, list) and all(type(n) is int for n in item):
                    yield tuple(item)


def _resized(sketch: Sketch, old: int, new: int) -> Sketch:
    def shape(extents: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new if extent == old else extent for extent in extents)

    def changed(operand: Any) -> Any:
        if isinstance(operand, Data):
            return replace(operand, shape=shape(operand.shape))
        if isinstance(operand, list) and all(type(n) is int for n in operand):
            return list(shape(tuple(operand)))
        if type(operand) is int:
            return new if operand == old else operand
        return tuple(changed(item) for item in operand) if isinstance(operand, tuple) else operand

    steps = tuple(replace(s, operands={k: changed(v) for k, v in s.operands.items()}) for s in sketch.steps)
    inputs = tuple(replace(item, shape=shape(item.shape)) for item in sketch.inputs)
    return replace(sketch, inputs=inputs, steps=steps, values={})


CHANGES: tuple[Callable[[Sketch], Iterator[Sketch]], ...] = (_fewer_outputs, _fewer_steps, _plainer, _smaller)
