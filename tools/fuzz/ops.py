"""Random networks over every op of the vocabulary: ranks 0 to 5, all dtypes, several inputs and outputs, states."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

from fuzz.draws import Draw, Drawing, forms
from fuzz.sketch import Data, Input, Ref, Sketch, Step
from hexane.errors import HexaneError
from hexane.graph.registry import OpSpec, all_specs
from hexane.graph.types import DTYPES, ListType, StateType, TensorType

CHANGED = 0.4
"""How often a parameter of a known form is drawn anew."""
REPAIRS = 40
REFUSED = 0.1
"""Share of networks that may hold an op which the reference refuses to compute."""
RANGES = ((0.0, 0.0), (-1.0, 1.0), (-1.0, 1.0), (0.1, 2.0), (-30.0, 30.0), (-1e-6, 1e-6), (-6e4, 6e4))
"""Numbers of floats; zeros alone for a first operand only, since a scale of 0 says nothing."""
ACCEPTANCE: Counter[str] = Counter()
"""Draws and those that the type rules took, of all networks so far."""
RULE_CRASHES: list[tuple[str, Draw, BaseException]] = []
"""Draws at which a type rule raised something else than a HexaneError."""


@cache
def specs() -> tuple[OpSpec, ...]:
    """Every entry of the vocabulary but control flow, which needs blocks, and what only the compiler's passes make."""
    return tuple(
        spec for spec in all_specs() if spec.infer.__name__ != "_from_blocks" and not spec.name.startswith("engine.")
    )


def network(seed: int, index: int, most: int = 8) -> Sketch:
    """The network of a seed and an index, the same in every process."""
    chance = random.Random(f"ops {seed} {index}")
    grower = Grower(chance)
    for _ in range(chance.choice((1, 1, 2, 2, 3, 4, 5, most))):
        grower.grow(chance.choice(specs()))
    sketch = grower.finished()
    return sketch if chance.random() < REFUSED else computable(sketch)


def computable(sketch: Sketch) -> Sketch:
    """The network without ops that the reference refuses to compute (an index outside, sizes that contradict)."""
    for _ in range(len(sketch.steps)):
        try:
            sketch.graph().evaluate(sketch.numbers())
        except HexaneError as error:
            place = re.search(r"'(v\d+)", error.where or "")
            if place is None:
                break
            sketch = _without(sketch, place[1])
        else:
            break
    return sketch


def _without(sketch: Sketch, name: str) -> Sketch:
    """The network without a step and all that needs it; what it read becomes an output."""
    gone, kept, outputs = {name}, [], list(sketch.outputs)
    for step in sketch.steps:
        if step.name in gone or any(read.split(".")[0] in gone for read in step.refs()):
            gone.add(step.name)
            outputs += [read for read in step.refs() if read.startswith("v") and step.op != "write_state"]
        else:
            kept.append(step)
    outputs = [o for o in dict.fromkeys(outputs) if not (isinstance(o, str) and o.split(".")[0] in gone)]
    lists = {step.name for step in kept if "list" in step.op}
    outputs = [o for o in outputs if o not in lists]
    return replace(sketch, steps=tuple(kept), outputs=tuple(outputs), values={}).pruned()


def takes_constants(spec: OpSpec) -> bool:
    """Whether MIL allows nothing but constants as the op's operands, no values of the network."""
    return spec.name.startswith("constexpr_")


class Grower:
    """Adds ops to a network, on what it has or on new inputs and constants."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.types: dict[str, Any] = {}
        self.used: set[str] = set()
        self.constants: list[str] = []

    def grow(self, spec: OpSpec) -> None:
        """One op more, unless no draw is taken."""
        chance = self.chance
        drawing = Drawing(spec, chance)
        known = forms(spec)
        draw = chance.choice(known) if known else drawing.fresh()
        tensors = [param for param in spec.params if param.is_tensor or param.kind in ("state", "list", "any")]
        fixed: set[str] = set()
        bound: dict[str, str] = {}
        if takes_constants(spec):
            pass
        elif tensors and (tensors[0].kind == "list" or (self.types and chance.random() < 0.8)):
            draw, bound = self.bind(spec, draw, tensors[0])
            fixed = set(bound)
            drawing.settled = {tensors[0].group or tensors[0].name} if bound else set()
        if tensors and tensors[0].kind == "list" and not bound:
            return  # nothing but an op makes a list
        for param in spec.params:
            if param.name not in fixed and chance.random() < (CHANGED if param not in tensors else 0.15):
                draw = drawing.redrawn(draw, param)
        taken = drawing.search(draw, REPAIRS, frozenset(fixed))
        ACCEPTANCE.update(draws=drawing.tries, taken=drawing.taken)
        RULE_CRASHES.extend((spec.name, *crash) for crash in drawing.crashes)
        if taken is not None:
            self.add(spec, taken, drawing.results, bound)

    def bind(self, spec: OpSpec, draw: Draw, param: Any) -> tuple[Draw, dict[str, str]]:
        """The draw with its first tensor operand in the shape of a value that is there, and that value's name."""
        shape = draw.shapes.get(param.name)
        if shape is None:
            return draw, {}
        first = shape[0] if param.variadic else shape
        fresh = Drawing(spec, self.chance)
        domain = {fresh.dtype(param.group or param.name) for _ in range(12)}
        kind = {"state": StateType, "list": ListType}.get(param.kind, TensorType)
        fitting = [
            name
            for name, type_ in self.types.items()
            if isinstance(type_, kind)
            and type_.dtype in domain
            and (kind is ListType or len(type_.shape) == len(first))
            and None not in type_.shape
        ]
        if not fitting:
            return draw, {}
        name = self.chance.choice(fitting[-6:])
        type_ = self.types[name]
        dims: Any = type_.element.shape if kind is ListType else type_.shape
        if param.variadic:
            dims = (dims, *shape[1:])
        group = param.group or param.name
        draw = replace(draw, dtypes=draw.dtypes | {group: type_.dtype}, shapes=draw.shapes | {param.name: dims})
        return draw, {param.name: name}

    def add(self, spec: OpSpec, draw: Draw, results: tuple[Any, ...], bound: dict[str, str]) -> None:
        """The op with operands for what was drawn."""
        operands: dict[str, Any] = {}
        for param in spec.params:
            type_ = draw.types(spec).get(param.name)
            if type_ is not None:
                many = type_ if isinstance(type_, tuple) else (type_,)
                found = [
                    Ref(bound[param.name])
                    if index == 0 and param.name in bound
                    else self.operand(one, len(operands), takes_constants(spec))
                    for index, one in enumerate(many)
                ]
                operands[param.name] = tuple(found) if param.variadic else found[0]
            elif (value := draw.values.get(param.name)) is not None:
                operands[param.name] = value
        if "seed" in spec.by_name:
            operands["seed"] = self.chance.randrange(1, 100)  # without one the numbers differ from run to run
        step = Step(f"v{len(self.steps)}", spec.name, operands, spec.since)
        self.steps.append(step)
        self.used.update(step.refs())
        for index, result in enumerate(results):
            self.types[step.name if index == 0 else f"{step.name}.{index}"] = result

    def operand(self, type_: Any, position: int, constant: bool = False) -> Ref | Data:
        """A value of a type: one that is there, a constant, or a new input."""
        chance = self.chance
        alike = [name for name, other in self.types.items() if other == type_]
        if alike and not constant and chance.random() < 0.6:
            return Ref(chance.choice(alike))
        small = DTYPES[type_.dtype].kind in "iu"
        low, high = (-100.0, 100.0) if small else chance.choice(RANGES if position == 0 else RANGES[1:])
        if small and chance.random() < 0.8:
            low, high = 0.0, 3.0  # of an index, which mostly lies inside
        if isinstance(type_, TensorType) and (constant or chance.random() < (0.5 if position else 0.03)):
            return Data(type_.shape, type_.dtype, chance.randrange(1 << 16), low, high)
        state = isinstance(type_, StateType)
        item = Input(f"x{len(self.inputs)}", type_.shape, type_.dtype, low, high, state)
        self.inputs.append(item)
        self.types[item.name] = type_
        return Ref(item.name)

    def finished(self) -> Sketch:
        """The network with its outputs: what nothing reads, and now and then more."""
        chance = self.chance
        if chance.random() < 0.05:
            self.operand(TensorType("fp16", (2, 3)), 0)
        names = [name for name, type_ in self.types.items() if isinstance(type_, TensorType)]
        results = [name for name in names if name.startswith("v")]
        outputs: list[Any] = [name for name in results if name not in self.used]
        outputs += [name for name in results if name in self.used and chance.random() < 0.1]
        outputs += [name for name in names if not name.startswith("v") and chance.random() < 0.02]
        if not outputs and names:
            outputs.append(chance.choice(names))
        if chance.random() < 0.02:
            outputs.append(Data((2, 3), "fp16", chance.randrange(1 << 16)))
        return Sketch(tuple(self.inputs), tuple(self.steps), tuple(outputs), chance.randrange(1 << 16))
