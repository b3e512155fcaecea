"""The vocabulary: one entry per operation, with its parameters, its type rule and its float32 reference.

An op is declared in one of the files of ``hexane/graph/ops`` by a decorator on its reference evaluation::

    @op("leaky_relu", "x:T alpha:float")
    def leaky_relu(x, alpha):
        return np.where(x >= 0, x, alpha * x)

The signature names the parameters as MIL does, one word each, ``name:kind``:

* an upper-case kind (``T``, ``U``) is a tensor operand; all operands of one letter share a dtype. ``T*`` is variadic
  (a tuple), ``V`` with a domain of its own is given as ``V=INTS`` to the decorator;
* ``int uint float bool str`` are compile-time scalars, ``ints floats bools strs`` compile-time vectors; rules see plain
  Python values. ``number`` is a scalar that keeps its dtype (a NumPy scalar). A trailing ``~`` lets the operand be
  computed at run time (the type rule then sees ``UNKNOWN``, or the TensorType of a ``number``);
* ``state`` is a state, ``list`` a list, ``any`` whatever comes;
* a compile-time text names its legal words by a keyword of the decorator: ``mode=("constant", "reflect")``;
* ``?`` makes it optional (None), ``=literal`` gives a default, ``@17`` says since which op set it exists.

The type rule (``infer=``) takes the same names, with TensorType in place of arrays, and returns a type or a tuple of
types; without one, the result has the type of the first tensor operand. Rule and reference may leave out parameters
that they do not read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, wraps
from inspect import signature as signature_of
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError, UnsupportedError
from hexane.graph.traits import NO_TRAITS, Trait
from hexane.graph.types import ANY, FLOATS, INTS, NUMBERS, ListType, StateType, TensorType, Type

if TYPE_CHECKING:
    from hexane.graph.constants import Constant
    from hexane.graph.parts import Op, Value

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "required"})()
UNKNOWN: Any = type(
    "Unknown", (), {"__repr__": lambda self: "unknown until run time", "__bool__": lambda self: False}
)()

_SCALARS = {"int": int, "uint": int, "float": float, "bool": bool, "str": str}
_CARRIED_BY = {"int": "iu", "uint": "iu", "float": "f", "bool": "b"}
"""Kinds of NumPy dtypes whose elements are such Python values as they are."""
_VECTORS = {kind + "s": cast for kind, cast in _SCALARS.items()}
_NUMBER = "number"
_WORD = re.compile(
    r"(?P<name>\w+):(?P<kind>\w+)(?P<star>\*?)(?P<run>~?)(?P<optional>\??)(?:=(?P<default>[^@\s]+))?(?:@(?P<since>\d+))?$"
)


Derivative = str | Callable[..., Any] | Mapping[str, Callable[..., Any]] | None
"""Rules of reverse-mode differentiation, by operand, or that of the first one; or the reason why there are none.

A rule takes a ``hexane.graph.gradient.Derivation`` and returns the gradient of its operand as a Formula, which is then
summed to the operand's shape and cast to its dtype; None for zero, a tuple for a variadic operand."""


@dataclass(frozen=True)
class Param:
    """One parameter: ``kind`` is "tensor", "state", "list", "any" or a compile-time kind ("int", "floats" ...)."""

    name: str
    kind: str
    group: str = ""
    default: Any = REQUIRED
    variadic: bool = False
    runtime: bool = False
    since: int = 15

    @cached_property
    def is_tensor(self) -> bool:
        return self.kind == "tensor"

    @cached_property
    def is_attribute(self) -> bool:
        """True where rules see a Python value instead of a tensor."""
        return self.kind in _SCALARS or self.kind in _VECTORS or self.kind == _NUMBER

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True)
class OpSpec:
    """One operation from op set ``since`` on. ``dynamic`` rules accept extents that depend on data."""

    name: str
    params: tuple[Param, ...]
    infer: Callable[..., Any]
    evaluate: Callable[..., Any] | None
    since: int = 15
    domains: Mapping[str, frozenset[str]] = field(default_factory=dict)
    dynamic: bool = False
    family: str = ""
    special: bool = False
    about: str = ""
    traits: Trait = NO_TRAITS
    derivative: Derivative = None
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensor operands."""
        return tuple(param.name for param in self.params if param.is_tensor)

    @property
    def doc(self) -> str:
        """Meaning of the op: the docstring of its reference, or the words of its table."""
        return self.about or (self.evaluate.__doc__ or "" if self.evaluate else "")

    @cached_property
    def domain_of(self) -> dict[str, tuple[str, frozenset[str]]]:
        """Letter of the signature and dtypes of each tensor parameter, in its order."""
        tensors = [param for param in self.params if param.is_tensor]
        return {p.name: (p.group, self.domains.get(p.group) or DOMAINS.get(p.group, ANY)) for p in tensors}

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Of each parameter, in the order of the signature; `REQUIRED` where there is none."""
        return {param.name: param.default for param in self.params}

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The parameters that an op must have."""
        return tuple(param.name for param in self.params if param.required)

    @cached_property
    def by_name(self) -> dict[str, Param]:
        return {param.name: param for param in self.params}

    def param(self, name: str) -> Param:
        entry = self.by_name.get(name)
        if entry is None:
            raise GraphError(f"{self.name} has no parameter {name!r}", hint=f"it has {', '.join(self.by_name)}")
        return entry


_SPECS: dict[str, list[OpSpec]] = {}

DOMAINS: dict[str, frozenset[str]] = {
    "T": FLOATS,
    "U": FLOATS,
    "N": NUMBERS,
    "A": ANY,
    "I": INTS,
    "B": frozenset({"bool"}),
}
DOMAINS |= {"M": NUMBERS, "C": ANY, "D": ANY, "J": INTS, "K": INTS}
"""Default dtypes of the letters: T, U floats; N, M numbers; A, C, D anything; I, J, K integers; B bool."""


def parse_signature(signature: str) -> tuple[Param, ...]:
    """Parameters of a signature text (see the module's docstring)."""
    params = []
    for word in signature.split():
        match = _WORD.match(word)
        if match is None:
            raise ValueError(f"bad signature word {word!r}")
        kind = match["kind"]
        default: Any = REQUIRED
        if match["optional"]:
            default = None
        elif match["default"] is not None:
            default = ast.literal_eval(match["default"])
        tensor = kind[0].isupper()
        params.append(
            Param(
                match["name"],
                "tensor" if tensor else kind,
                kind if tensor else "",
                default,
                bool(match["star"]),
                bool(match["run"]),
                int(match["since"] or 15),
            )
        )
    return tuple(params)


def _like_first(params: tuple[Param, ...]) -> Callable[..., Type]:
    first = next((param.name for param in params if param.is_tensor), None)

    def same(**types: Any) -> Type:
        assert first is not None
        return types[first]

    return same


def _with_all(function: Callable[..., Any], params: tuple[Param, ...]) -> Callable[..., Any]:
    """The function as it is called with all parameters; those that its signature leaves out are dropped."""
    own = signature_of(function).parameters
    names = [param.name for param in params if param.name in own]
    if len(names) == len(params) or any(one.kind is one.VAR_KEYWORD for one in own.values()):
        return function

    @wraps(function)
    def call(**arguments: Any) -> Any:
        return function(**{name: arguments[name] for name in names})

    return call


def op(
    name: str,
    signature: str = "",
    *,
    infer: Callable[..., Any] | None = None,
    since: int = 15,
    dynamic: bool | None = None,
    family: str = "",
    special: bool = False,
    about: str = "",
    traits: Trait = NO_TRAITS,
    derivative: Derivative = None,
    **domains: Iterable[str],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an op; the decorated function is its reference evaluation (arrays and Python values in, arrays out).

    ``special`` ops (control flow, states) get the running evaluation and the op instead. ``about`` says what the op
    computes where the function has no docstring, ``traits`` what passes may rely on (``hexane.graph.traits``),
    ``derivative`` how gradients pass it (``Derivative``).
    ``domains`` the dtypes of a letter, or the words that a parameter of kind ``str`` may be.
    """

    def declare(evaluate: Callable[..., Any]) -> Callable[..., Any]:
        params = parse_signature(signature)
        texts = {param.name for param in params if param.kind == "str"}
        if strange := domains.keys() - texts - {param.group for param in params}:
            raise ValueError(f"{name} has no letter and no text {sorted(strange)}")
        spec = OpSpec(
            name,
            params,
            _with_all(infer, params) if infer else _like_first(params),
            evaluate if special else _with_all(evaluate, params),
            since,
            {letter: frozenset(domain) for letter, domain in domains.items() if letter not in texts},
            dynamic if dynamic is not None else infer is None,
            family or getattr(evaluate, "__module__", "").rsplit(".", 1)[-1],
            special,
            about,
            traits,
            derivative,
            {name: tuple(words) for name, words in domains.items() if name in texts},
        )
        register(spec)
        return evaluate

    return declare


def register(spec: OpSpec) -> None:
    """Add an op to the vocabulary; a second entry of the same name must begin at a later op set."""
    for cached in (lookup, traits_of, with_trait):
        cached.cache_clear()
    versions = _SPECS.setdefault(spec.name, [])
    if any(version.since == spec.since for version in versions):
        raise ValueError(f"{spec.name} of op set {spec.since} is declared twice")
    versions.append(spec)
    versions.sort(key=lambda version: version.since)


@lru_cache(maxsize=64)
def opset_number(opset: str) -> int:
    """15 for "ios15" and "CoreML5" and so on; GraphError for another text."""
    match = re.fullmatch(r"(?i)ios(\d+)", opset)
    if match:
        return int(match[1])
    match = re.fullmatch(r"CoreML(\d+)", opset)
    if match:
        return int(match[1]) + 10
    raise GraphError(f"{opset!r} is no op set", hint="ios15, ios16, ios17 or ios18")


@cache
def lookup(name: str, opset: int | str = 18) -> OpSpec:
    """The op's entry in an op set; UnsupportedError when there is none."""
    number = opset_number(opset) if isinstance(opset, str) else opset
    versions = _SPECS.get(name)
    if not versions:
        raise UnsupportedError(f"hexane has no op {name!r}")
    fitting = [version for version in versions if version.since <= number]
    if not fitting:
        raise UnsupportedError(f"{name} exists from op set ios{versions[0].since} on, not in ios{number}")
    return fitting[-1]


def is_known(name: str) -> bool:
    return name in _SPECS


@cache
def traits_of(name: str) -> Trait:
    """The traits of an op by its name, none for a name that no op has."""
    versions = _SPECS.get(name)
    return versions[-1].traits if versions else NO_TRAITS


def has(operation: Op | None, traits: Trait) -> bool:
    """True where there is an op, and it has one of the traits."""
    return operation is not None and _has(operation.type, traits)


@cache
def _has(name: str, traits: Trait) -> bool:
    return bool(traits_of(name) & traits)


@cache
def with_trait(traits: Trait, operands: int | None = None) -> tuple[str, ...]:
    """Names of the ops that have one of the traits, or of those of them that take so many tensors."""
    latest = [versions[-1] for versions in _SPECS.values()]
    return tuple(s.name for s in latest if s.traits & traits and operands in (None, len(s.tensors)))


def all_specs() -> list[OpSpec]:
    """Every entry of the vocabulary, by name and op set."""
    return [spec for name in sorted(_SPECS) for spec in _SPECS[name]]


def spec_of(operation: Op) -> OpSpec:
    """The entry that rules an op, by its own op set or its function's."""
    return lookup(operation.type, opset_of(operation))


def opset_of(operation: Op) -> str:
    if operation.opset is not None:
        return operation.opset
    block = operation.block
    while block is not None:
        if block.opset is not None:
            return block.opset
        block = block.owner.block if block.owner is not None else None
    return "ios18"


def plain(value: np.ndarray, kind: str, where: str) -> Any:
    """A constant array as the Python value of a compile-time kind."""
    if kind in _SCALARS or kind == _NUMBER:
        if value.size != 1:
            raise GraphError(f"{where} must be one {kind}, not of shape {value.shape}")
        if kind == _NUMBER:
            return value.reshape(-1)[0]
        return _plain_scalar(value.reshape(()).item(), kind, where)
    cast = kind[:-1]
    if value.dtype.kind in _CARRIED_BY.get(cast, ""):
        return tuple(value.reshape(-1).tolist())
    return tuple(_plain_scalar(item, cast, where) for item in value.reshape(-1).tolist())


def _plain_scalar(item: Any, kind: str, where: str) -> Any:
    if kind in ("int", "uint") and not isinstance(item, (bool, str)) and isfinite(item) and item == int(item):
        return int(item)
    if kind == "float" and isinstance(item, (int, float)) and not isinstance(item, bool):
        return float(item)
    if kind == "bool" and isinstance(item, (bool, int)):
        return bool(item)
    if kind == "str" and isinstance(item, str):
        return item
    raise GraphError(f"{where} must be {kind}, not {item!r}")


def values_of(operand: Any) -> tuple[Value, ...]:
    """The values of an operand, which is one value or a tuple of them."""
    return operand if isinstance(operand, tuple) else (operand,)


def argument(operation: Op, name: str) -> Any:
    """See ``Op.arg``."""
    spec = lookup(operation.type, opset_of(operation))
    param = spec.by_name.get(name) or spec.param(name)
    operand = operation._inputs.get(name)
    if operand is None:
        if param.required:
            raise GraphError(f"{operation.describe()} lacks {name}")
        return param.default
    if not param.is_attribute:
        return operand
    if not isinstance(operand, tuple):
        return _read(operand, param.kind, operation, name)
    operands = tuple(_read(value, param.kind, operation, name) for value in operand)
    return operands if param.variadic else operands[0]


def _read(value: Value, kind: str, operation: Op, name: str) -> Any:
    """The Python value of a compile-time parameter, ``UNKNOWN`` where it is computed."""
    constant = value.constant
    if constant is None:
        return UNKNOWN
    if kind in constant.readings:
        return constant.readings[kind]
    return _reading(constant, kind, lambda: f"{name} of {operation.describe()}")


def _reading(constant: Constant, kind: str, where: Callable[[], str]) -> Any:
    """A constant as the Python value of a parameter, read once."""
    if kind not in constant.readings:
        constant.readings[kind] = plain(constant.array, kind, where())
    return constant.readings[kind]


def check_dtypes(spec: OpSpec, operands: Mapping[str, Any]) -> dict[str, str]:
    """The dtype of each letter of the signature; GraphError when operands disagree or are outside the domain."""
    bound: dict[str, tuple[str, str]] = {}
    for name, (letter, domain) in spec.domain_of.items():
        operand = operands.get(name)
        if operand is None:
            continue
        for value in operand if isinstance(operand, tuple) else (operand,):
            type_: Any = getattr(value, "type", value)  # a value, or a type itself
            if isinstance(type_, (StateType, ListType)):
                raise GraphError(f"{name} of {spec.name} is a {type_}, not a tensor")
            dtype = type_.dtype
            if dtype not in domain:
                raise GraphError(f"{name} of {spec.name} is {dtype}", hint=f"it may be {', '.join(sorted(domain))}")
            first = bound.setdefault(letter, (dtype, name))
            if first[0] != dtype:
                raise GraphError(
                    f"{name} of {spec.name} is {dtype} while {first[1]} is {first[0]}",
                    hint="operands of one op share a dtype; cast one of them",
                )
    return {letter: dtype for letter, (dtype, _) in bound.items()}


def _static(spec: OpSpec, param: Param, value: Value) -> Any:
    """A compile-time parameter as the type rule sees it."""
    constant = value.constant
    if constant is not None:
        if param.kind in constant.readings:
            return constant.readings[param.kind]
        return _reading(constant, param.kind, lambda: f"{param.name} of {spec.name}")
    if not param.runtime:
        raise GraphError(f"{param.name} of {spec.name} must be a constant")
    return value.type if param.kind == _NUMBER else UNKNOWN


def _legal(spec: OpSpec, param: Param, value: Any) -> Any:
    """The value; GraphError for a text that is none of the words that the op declares."""
    words = spec.words.get(param.name)
    if words and isinstance(value, str) and value not in words:
        raise GraphError(f"{param.name} of {spec.name} is {value!r}", hint=f"one of {', '.join(words)}")
    return value


def result_types(spec: OpSpec, operands: Mapping[str, Any], opset: int = 18) -> tuple[Type, ...]:
    """Types of an op's results from its operands (Values by parameter name). GraphError when they break its rules."""
    if not operands.keys() <= spec.by_name.keys():
        for name in operands:
            spec.param(name)
    check_dtypes(spec, operands)
    for name in spec.required:
        if operands.get(name) is None:
            raise GraphError(f"{spec.name} lacks {name}")
    arguments = dict(spec.defaults)
    for name, operand in operands.items():
        if operand is None:
            continue
        param = spec.by_name[name]
        if param.since > opset:
            raise GraphError(f"{param.name} of {spec.name} exists from op set ios{param.since} on")
        if param.variadic != isinstance(operand, tuple):
            raise GraphError(
                f"{param.name} of {spec.name} must be {'a tuple of values' if param.variadic else 'one value'}"
            )
        if param.is_attribute and param.variadic:
            arguments[name] = tuple(_static(spec, param, value) for value in operand)
        elif param.is_attribute:
            arguments[name] = _legal(spec, param, _static(spec, param, operand))
        else:
            arguments[name] = tuple(value.type for value in operand) if param.variadic else operand.type
    if not spec.dynamic:
        for name in operands:
            argument_ = arguments[name]
            for type_ in argument_ if isinstance(argument_, tuple) else (argument_,):
                if isinstance(type_, TensorType) and not type_.is_static:
                    raise UnsupportedError(f"{name} of {spec.name} has an extent that depends on data: {type_}")
    results = spec.infer(**arguments)
    return results if isinstance(results, tuple) else (results,)
