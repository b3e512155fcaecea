"""Operands of an op that its type rule takes, drawn from the declaration alone.

Nothing here knows an op by name. A draw that the rule refuses is changed in one parameter and tried again, and a change
stays when the rule comes further than before, line by line: so shapes that depend on each other are met within some
hundred tries. Words come from what the rule says of a wrong one. Extents of an operand are
kept as multiples of another's, so that a draw fits tensors of other sizes too.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from hexane.errors import HexaneError
from hexane.graph.builder import wrap_operands
from hexane.graph.constants import Constant, constant_from
from hexane.graph.parts import Value
from hexane.graph.registry import DOMAINS, OpSpec, Param, result_types
from hexane.graph.types import ANY, ListType, StateType, TensorType

TRIES = 1200
"""Draws for an op's forms, all together."""
FORMS = 6
COMMON = ("fp16", "fp16", "fp16", "fp16", "fp32", "fp32", "int32", "bool", "int8", "uint8")
"""Dtypes that networks have, by how often; one in sixteen is any that the declaration allows."""
EXTENTS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 12, 16, 17)
ABSENT = None
_WRAPPED = {"state": StateType, "list": ListType}
LARGEST = 6000
"""Elements of a tensor of a random op."""
MOST = 1 << 26
"""Elements of a draw that no rule is asked to take."""


@dataclass(frozen=True)
class Extent:
    """A multiple of another operand's extent."""

    param: str
    axis: int
    factor: int = 1


@dataclass(frozen=True)
class Draw:
    """Operands of one op: dtypes by letter, shapes by tensor parameter, values by the other parameters."""

    dtypes: dict[str, str]
    shapes: dict[str, Any]
    values: dict[str, Any]

    def types(self, spec: OpSpec) -> dict[str, Any]:
        """The tensor operands' types by parameter name."""
        found: dict[str, Any] = {}
        for param in spec.params:
            shape = self.shapes.get(param.name)
            if shape is None:
                continue
            group = param.group or param.name
            many = [self._type(group, one, found) for one in (shape if param.variadic else (shape,))]
            if param.kind in _WRAPPED:
                many = [_WRAPPED[param.kind](type_) for type_ in many]
            found[param.name] = tuple(many) if param.variadic else many[0]
        return found

    def _type(self, group: str, dims: tuple[Any, ...], known: dict[str, Any]) -> TensorType:
        shape = []
        for dim in dims:
            if isinstance(dim, Extent):
                other = known.get(dim.param)
                other = other[0] if isinstance(other, tuple) else other
                dim = other.shape[dim.axis] * dim.factor if other is not None and dim.axis < len(other.shape) else 1
            shape.append(min(dim, 1 << 16, max(1, MOST // max(1, prod(shape)))))
        return TensorType(self.dtypes[group], tuple(shape))


class Drawing:
    """Draws for one op from one source of chance."""

    def __init__(self, spec: OpSpec, chance: random.Random) -> None:
        self.spec = spec
        self.chance = chance
        self.words = dict.fromkeys(_words_of(spec), 1)
        self.extents = EXTENTS + tuple(n for n in _constants(spec.infer) if type(n) is int and 1 < n < 32)
        self.tries = self.taken = 0
        self.results: tuple[Any, ...] = ()
        self.blamed: str | None = None
        self.settled: set[str] = set()
        self.crashes: list[tuple[Draw, BaseException]] = []

    def fresh(self) -> Draw:
        """A first draw."""
        draw = Draw({}, {}, {})
        for param in self.spec.params:
            draw = self.redrawn(draw, param)
        return draw

    def redrawn(self, draw: Draw, param: Param) -> Draw:
        """The same with another draw for one parameter."""
        optional = not param.required and self.chance.random() < 0.5
        if param.is_tensor or param.kind in (*_WRAPPED, "any"):
            group = param.group or param.name
            dtypes = draw.dtypes
            if group not in dtypes or (group not in self.settled and self.chance.random() < 0.3):
                dtypes = dtypes | {group: self.dtype(group)}
            shape: Any = ABSENT
            if not optional:
                count = self.chance.randint(1, 3) if param.variadic else 1
                first = self.shape(draw, param)
                shapes = tuple(
                    first if i == 0 or self.chance.random() < 0.7 else self.shape(draw, param) for i in range(count)
                )
                shape = shapes if param.variadic else first
            return replace(draw, dtypes=dtypes, shapes=draw.shapes | {param.name: shape})
        value: Any = ABSENT
        if not optional:
            value = self.value(draw, param)
            if param.variadic:
                value = tuple(value for _ in range(self.chance.randint(1, 4)))
        return replace(draw, values=draw.values | {param.name: value})

    def dtype(self, group: str) -> str:
        domain = self.spec.domains.get(group) or DOMAINS.get(group, ANY)
        common = [dtype for dtype in COMMON if dtype in domain]
        if common and self.chance.random() < 15 / 16:
            return self.chance.choice(common)
        return self.chance.choice(sorted(domain))

    def shape(self, draw: Draw, param: Param) -> tuple[Any, ...]:
        """Extents; of later operands often other operands' extents."""
        earlier = {}
        for other in self.spec.params:
            if other.name == param.name:
                break
            if draw.shapes.get(other.name) is not None:
                earlier[other.name] = draw.shapes[other.name][0] if other.variadic else draw.shapes[other.name]
        chance = self.chance
        if earlier and chance.random() < 0.15:
            name = chance.choice(list(earlier))
            if earlier[name]:
                return (Extent(name, chance.randrange(len(earlier[name])), chance.choice((1, 1, 1, 2, 4))),)
        if earlier and chance.random() < 0.45:
            alike = [other.name for other in self.spec.params if other.group == param.group and other.name in earlier]
            name = chance.choice(alike if alike and chance.random() < 0.5 else list(earlier))
            dims: list[Any] = [Extent(name, axis) for axis in range(len(earlier[name]))]
            if dims and chance.random() < 0.5:
                for _ in range(chance.choice((1, 1, 2))):
                    dims[chance.randrange(len(dims))] = self.extent(earlier)
            if dims and chance.random() < 0.2:
                dims = dims[chance.randrange(len(dims) + 1) :]
            return tuple(dims)
        rank = chance.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5))
        return tuple(self.extent(earlier) for _ in range(rank))

    def extent(self, earlier: dict[str, tuple[Any, ...]]) -> Any:
        chance = self.chance
        places = [(name, axis) for name, dims in earlier.items() for axis in range(len(dims))]
        if places and chance.random() < 0.6:
            return Extent(*chance.choice(places), chance.choice((1, 1, 1, 1, 1, 2, 3, 4, 8)))
        return 0 if chance.random() < 0.005 else chance.choice(self.extents)

    def value(self, draw: Draw, param: Param) -> Any:
        """A value of a compile-time parameter."""
        chance, kind = self.chance, param.kind
        types = [
            one for type_ in draw.types(self.spec).values() for one in (type_ if isinstance(type_, tuple) else (type_,))
        ]
        shapes = [one.shape for one in types if not isinstance(one, ListType)]
        shape = chance.choice(shapes) if shapes else (2, 3)
        if kind == "int":
            return chance.choice((0, 1, 1, 2, 2, 3, 4, -1, -2, chance.randint(-5, 9), *shape[:2]))
        if kind == "uint":
            return chance.choice((1, 2, 3, 4, *shape[:2]))
        if kind == "float":
            return chance.choice((0.0, 0.5, 1.0, 2.0, -1.0, 0.1, 6.0, 1e-5, 3.0))
        if kind == "bool":
            return chance.random() < 0.5
        if kind == "str":
            words = self.spec.words.get(param.name)
            return chance.choice(words) if words and chance.random() < 0.95 else self.word()
        if kind == "number":
            return chance.choice((0.5, 1.0, 0.0, 3, 2, 1))
        if kind == "strs":
            return [self.word() for _ in range(chance.choice((1, 1, 2, 3)))]
        rank = len(shape)
        if kind in ("floats", "bools"):
            return [self.value(draw, replace(param, kind=kind[:-1])) for _ in range(chance.choice((1, 2, rank, rank)))]
        return self.integers(shape, signed=kind == "ints")

    def integers(self, shape: tuple[int, ...], signed: bool) -> list[int]:
        chance, rank = self.chance, len(shape)
        form = chance.randrange(8)
        if form == 0:
            return chance.sample(range(rank), rank)
        if form == 1 and rank:
            axes = chance.sample(range(rank), chance.randint(1, rank))
            return [axis - rank if signed and chance.random() < 0.3 else axis for axis in axes]
        if form == 2:
            return [chance.choice((1, 1, 2, 2, 3)) for _ in range(chance.choice((1, 2, 2, max(1, rank - 2), rank)))]
        if form == 3:
            return [
                chance.choice((0, 0, 1, 1, 2)) for _ in range(chance.choice((rank, 2 * max(1, rank - 2), 2 * rank, 4)))
            ]
        if form == 4:
            cut = chance.randrange(rank + 1)
            merged = (
                [prod(shape[:cut]), prod(shape[cut:])] if chance.random() < 0.5 else [*shape[:cut], prod(shape[cut:])]
            )
            return chance.choice((merged, list(shape), [-1] if signed else merged, list(shape[2:]), [*shape, 1]))
        if form == 5:
            return [chance.randrange(max(1, extent)) for extent in shape]
        if form == 6:
            return [chance.randint(1, max(1, extent)) for extent in shape]
        return [chance.randint(-3 if signed else 0, 4) for _ in range(chance.choice((1, 2, rank)))]

    def word(self) -> str:
        return self.chance.choice(list(self.words)) if self.words else "?"

    def progress(self, draw: Draw) -> tuple[int, ...] | None:
        """How far the rule comes, as the lines where it stopped; None where it takes the draw."""
        self.tries += 1
        try:
            types = draw.types(self.spec)
            operands: dict[str, Any] = {}
            for param in self.spec.params:
                type_, value = types.get(param.name), draw.values.get(param.name)
                if type_ is not None:
                    many = type_ if isinstance(type_, tuple) else (type_,)
                    values = tuple(Value("v", one) for one in many)
                    operands[param.name] = values if param.variadic else values[0]
                elif value is not None:
                    operands[param.name] = value
            wrapped = wrap_operands(self.spec, operands, _constant)
            results = result_types(self.spec, wrapped)
        except Exception as error:
            if not isinstance(error, HexaneError):
                self.crashes.append((draw, error))
            return self._refused(error)
        for result in results:
            if isinstance(result, TensorType) and (result.rank > 5 or (result.is_static and result.count > LARGEST)):
                return (1 << 20,)
        for type_ in types.values():
            if any(
                isinstance(one, TensorType) and one.count > LARGEST
                for one in (type_ if isinstance(type_, tuple) else (type_,))
            ):
                return (1 << 20,)
        self.taken += 1
        self.results = results
        return None

    def _refused(self, error: Exception) -> tuple[int, ...]:
        """The lines where the rule stopped and the parameter that it names; its words are kept for other draws."""
        if len(self.words) < 400:
            self.words |= dict.fromkeys(re.findall(r"[A-Za-z_][A-Za-z_0-9]*", getattr(error, "hint", None) or ""), 1)
        said = set(re.findall(r"\w+", getattr(error, "message", "")))
        place = next((i for i, param in enumerate(self.spec.params) if param.name in said), -1)
        self.blamed = self.spec.params[place].name if place >= 0 else None
        lines, trace, inside = [], error.__traceback__, False
        while trace is not None:
            if inside:
                lines.append(trace.tb_lineno)
            inside = inside or trace.tb_frame.f_code is result_types.__code__
            trace = trace.tb_next
        return (len(lines) > 1, *lines[1:], place)

    def search(self, draw: Draw, tries: int, fixed: frozenset[str] = frozenset()) -> Draw | None:
        """A draw that the rule takes, by changes of this one; parameters of ``fixed`` stay."""
        reached = self.progress(draw)
        free = [param for param in self.spec.params if param.name not in fixed]
        while reached is not None and free and tries > 0:
            tries -= 1
            changed = draw
            blamed = [param for param in free if param.name == self.blamed]
            if blamed and self.chance.random() < 0.5:
                changed = self.redrawn(draw, blamed[0])
            for param in (
                ()
                if changed is not draw
                else self.chance.sample(free, min(len(free), self.chance.choice((1, 1, 1, 2))))
            ):
                changed = self.redrawn(changed, param)
            further = self.progress(changed)
            if further is None or further >= reached:
                draw, reached = changed, further
        return draw if reached is None else None


_forms: dict[tuple[str, int], tuple[Draw, ...]] = {}


def forms(spec: OpSpec) -> tuple[Draw, ...]:
    """Some draws that an op's rule takes, the same in every process."""
    key = (spec.name, spec.since)
    if key not in _forms:
        _forms[key] = _learn_forms(spec)
    return _forms[key]


def _learn_forms(spec: OpSpec) -> tuple[Draw, ...]:
    drawing = Drawing(spec, random.Random(f"forms of {spec.name} {spec.since}"))
    found: list[Draw] = []
    left = TRIES
    while left > 0 and len(found) < FORMS:
        before = drawing.tries
        draw = drawing.search(drawing.fresh(), min(left, 600))
        if draw is not None:
            found.append(draw)
        left -= drawing.tries - before
    return tuple(found)


def _constant(data: Any, dtype: str | None = None, *, name: str = "") -> Value:
    constant = data if isinstance(data, Constant) else constant_from(data, dtype)
    return Value(name, constant.type, constant=constant)


def _constants(function: Any) -> list[Any]:
    code = getattr(function, "__code__", None)
    return [
        one
        for item in (code.co_consts if code else ())
        for one in (item if isinstance(item, (tuple, frozenset)) else (item,))
    ]


def _words_of(spec: OpSpec) -> list[str]:
    """Words in the code of the type rule and the reference."""
    found: list[str] = []
    for function in (spec.infer, spec.evaluate):
        constants = _constants(function)
        for name in getattr(getattr(function, "__code__", None), "co_names", ()):
            table = getattr(function, "__globals__", {}).get(name)
            if isinstance(table, (dict, tuple, list, frozenset, set)):
                constants.extend(sorted(item for item in table if isinstance(item, str)))
        found += [word for word in constants if isinstance(word, str) and re.fullmatch(r"[\w.]{1,40}", word)]
    return list(dict.fromkeys(sorted(found)))
