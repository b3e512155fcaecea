"""Weights renewed without compiling again: the packed kernels of a compiled program are patched in place.

Where a constant's elements went is found out once per program and constant, by compiling it again with numbered
elements in the constant's place: three or four times, one digit of each element's number at a time and a check digit.
An element that comes out as it went in was only moved, and the place it came out at is its place. A constant that is
not only moved (folded into another, rounded to a palette, stored sparse) cannot be patched, and the program is compiled
again; the update says so. The map is trusted only when it gives the program's own bytes from its own weights.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.graph.constants import Constant
from hexane.graph.ir import Graph, Value
from hexane.graph.types import TensorType
from hexane.image import Image, build_image
from hexane.image.rebuild import with_contents
from hexane.mil.grids import Grids, grids_of
from hexane.rounding import ceil_div

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.mil.model import Model
    from hexane.mil.on_mac import OnMac
    from hexane.program import Program, Segment
    from hexane.runtime.executable import Executable

ENGINE = "engine"
PATCHED, REPLACED, RECOMPILED, IGNORED = "patched", "replaced", "recompiled", "ignored"
MOST_TRIES = 2
_DIGIT_BITS = 10
_ONE = 0x3C00
"""fp16 of 1.0; digits stand in the ten bits below."""
_DIGITS = 1 << _DIGIT_BITS
_FACTORS = (7, 12, 26, 34)
"""Of the check digit: their sums are odd, so that no halfword that is the same in all compilations is an element."""
_MIX = ((1, 5, 11, 9), (2, 1, 7, 13), (4, 6, 1, 15), (8, 10, 12, 1))
"""How the digits of a number make its codes. Odd on and above the diagonal and even below, so that the corner for any
count of digits has an inverse modulo 1024; mixed, so that no constant is uniform or equal to another one: the compiler
would store such constants in other ways."""


@dataclass(frozen=True)
class Update:
    """Record of an update.

    how : "patched" (the bytes of the engine program), "replaced" (constants of the graph, at level "graph"),
        "recompiled" (``reason`` says why), "ignored" (with quirks: the real runtime keeps its snapshot).
    seconds : of the update itself; ``prepared_seconds`` of finding the places, which later updates need no more.
    elements : halfwords that were written.
    """

    how: str
    seconds: float
    prepared_seconds: float = 0.0
    elements: int = 0
    reason: str = ""


@dataclass(frozen=True, eq=False)
class ConstantPlaces:
    """Places of the elements of some constants in each segment's constant section: halfword ``at`` holds element
    ``element`` of all of them, counted one after the other in the order of ``names``."""

    names: tuple[str, ...]
    at: tuple[np.ndarray, ...]
    element: tuple[np.ndarray, ...]
    grids: tuple[Grids, ...]


@dataclass(frozen=True)
class NoPlaces:
    """Reasons why some constants cannot be patched, and the number of tries: first weights may be all zeros."""

    reason: str
    tries: int


def update(model: Model, weights: Mapping[str, np.ndarray]) -> Update:
    """Give constants of a compiled model other values.

    Parameters
    ----------
    weights : the result name of each const (or its constexpr op's result at level "graph") to an array of its shape;
        converted to its dtype.

    Raises
    ------
    UsageError : a name that is no constant of the program, another shape, a model that is not compiled.
    """
    names = [{value.name for value in each.graph.main.constants()} for each in model.executables()]
    nowhere = set(weights).difference(*names)
    names[0] |= nowhere  # for the first function to refuse
    parts = [
        (each, checked_weights(each.graph, {name: weights[name] for name in weights if name in own}))
        for each, own in zip(model.executables(), names)
    ]
    if model.quirks:
        return Update(IGNORED, 0.0, reason="the real runtime keeps the weights of compile time (restriction W8)")
    updates = [_renew(each, arrays) for each, arrays in parts if arrays or each is parts[0][0]]
    model.statistics.updates += 1
    first = next((u for u in updates if u.how == RECOMPILED), updates[0])
    return replace(
        first,
        seconds=sum(u.seconds for u in updates),
        prepared_seconds=sum(u.prepared_seconds for u in updates),
        elements=sum(u.elements for u in updates),
    )


def _renew(each: Executable | OnMac, arrays: dict[str, np.ndarray]) -> Update:
    """Give constants of one function other values."""
    if each.program is None:
        start = time.perf_counter()
        _replace(each.graph, arrays)
        return Update(REPLACED, time.perf_counter() - start, elements=sum(a.size for a in arrays.values()))
    return renewed(each, arrays)


def checked_weights(graph: Graph, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    by_name = {value.name: value for value in graph.main.constants()}
    arrays = {}
    for name, array in weights.items():
        if name not in by_name:
            near = ", ".join(n for n, v in by_name.items() if v.rank > 1) or "none"
            raise UsageError(f"there is no constant {name!r}", hint=f"the tensors among the constants are: {near}")
        value = by_name[name]
        array = np.asarray(array)
        if array.shape != value.shape:
            raise UsageError(f"{name!r} has shape {value.shape}, the array {array.shape}")
        with np.errstate(over="ignore"):
            arrays[name] = array.astype(value.data.dtype)
    return arrays


def _replace(graph: Graph, arrays: Mapping[str, np.ndarray]) -> None:
    """Other values for constants of a graph."""
    for value in list(graph.main.constants()):
        if value.name in arrays:
            assert isinstance(value.type, TensorType)
            value.constant = Constant(value.type, arrays[value.name].copy())


class Renewable(Protocol):
    """A compiled network whose weights can be renewed: ``hexane.runtime.executable.Executable`` is one.

    ``level`` "engine": the bytes of engine programs are patched; "graph": the constants of the networks that they were
    compiled from. Segments on the host have their constants patched at both.
    """

    graph: Graph
    chip: Chip
    level: str
    program: Program | None
    places: dict[tuple[str, ...], Any]

    @property
    def is_loaded(self) -> bool: ...
    def load(self) -> None: ...
    def close(self) -> None: ...


def renewed(program: Renewable, arrays: Mapping[str, np.ndarray]) -> Update:
    """Give constants of a compiled network other values: patched, or compiled again where they are not only moved.

    ``arrays``: of the constants' shapes and dtypes, by name (`checked_weights`).
    """
    start = time.perf_counter()
    names = tuple(sorted(arrays))
    places: ConstantPlaces | NoPlaces | None = program.places.get(names)
    if not isinstance(places, ConstantPlaces) and (places is None or places.tries < MOST_TRIES):
        try:
            places = _find(program, names)
        except UnsupportedError as error:
            places = NoPlaces(error.message, 1 + (places.tries if isinstance(places, NoPlaces) else 0))
    program.places[names] = places
    prepared = time.perf_counter() - start
    start = time.perf_counter()
    _replace(program.graph, arrays)
    if isinstance(places, NoPlaces):
        _compile_again(program)
        program.places[names] = places
        return Update(RECOMPILED, time.perf_counter() - start, prepared, reason=places.reason)
    flat = np.concatenate([arrays[name].astype(np.float16).reshape(-1) for name in names]).view(np.uint16)
    seconds = _write(program, places, flat)
    return Update(PATCHED, time.perf_counter() - start, prepared, seconds)


def _write(executable: Renewable, places: ConstantPlaces, flat: np.ndarray) -> int:
    """Put elements into the constant sections; how many halfwords were written."""
    assert executable.program is not None
    segments = []
    for segment, grids in zip(executable.program.segments, places.grids):
        data = np.frombuffer(bytearray(_data(segment, executable.level)), "<u2")
        grids.copy(flat, data)
        segments.append(_with_data(segment, executable.level, data.tobytes()) if data.size else segment)
    loaded = executable.is_loaded
    executable.close()
    executable.program = replace(executable.program, segments=tuple(segments))
    if loaded:
        executable.load()
    return sum(at.size for at in places.at)


def _data(segment: Segment, level: str) -> bytes:
    """Constants, then the section of kernels where a generation has one; of a graph all constants of fp16."""
    if segment.image is not None and level == ENGINE:
        return segment.image.const + segment.image.kernel_section
    return b"".join(value.data.tobytes() for value in _halves(_graph_of(segment)))


def _graph_of(segment: Segment) -> Graph:
    graph = segment.source if segment.image is not None else segment.graph
    assert graph is not None
    return graph


def _halves(graph: Graph) -> list[Value]:
    return [v for v in graph.main.constants() if isinstance(v.type, TensorType) and v.dtype == "fp16"]


def _with_data(segment: Segment, level: str, data: bytes) -> Segment:
    """The segment with other constants and kernels of the same sizes."""
    if segment.image is not None and level == ENGINE:
        return replace(segment, image=_image_with(segment.image, data))
    graph, at = _graph_of(segment).clone(), 0
    for value in _halves(graph):
        assert isinstance(value.type, TensorType)
        array = np.frombuffer(data, np.float16, value.type.count, at).reshape(value.shape)
        value.constant, at = Constant(value.type, array), at + array.nbytes
    return replace(segment, source=graph) if segment.image is not None else replace(segment, graph=graph)


def _image_with(image: Image, data: bytes) -> Image:
    """The program with other constants and kernels of the same sizes."""
    cut = len(image.const)
    if not image.kernel_section:
        return Image(with_contents(image.parts, image.text() if image.tasks_changed else image.contents.text, data))
    return build_image(
        image.tasks,
        data[:cut],
        image.surfaces,
        image.generation,
        image.scratch_bytes,
        dialect=image.dialect,
        ident=image.ident,
        procedure=image.procedure,
        kernels=data[cut:],
    )


def _compile_again(executable: Renewable) -> None:
    from hexane.codegen import compile

    loaded = executable.is_loaded
    executable.close()
    executable.program = compile(executable.graph, chip=executable.chip)
    executable.places.clear()
    if loaded:
        executable.load()


# -- where the elements are -------------------------------------------------------------------------------------------


def _find(executable: Renewable, names: tuple[str, ...]) -> ConstantPlaces:
    """The places of constants. UnsupportedError where they are not only moved."""
    from hexane.codegen import compile

    assert executable.program is not None
    values = {v.name: v for v in executable.graph.main.constants()}
    sizes = [values[name].data.size for name in names]
    total = sum(sizes)
    digits = max(1, ceil_div((total - 1).bit_length(), _DIGIT_BITS))
    if total >= 1 << 32:
        raise UnsupportedError(f"{total} elements are too many to number")
    numbers = np.arange(total, dtype=np.uint32)
    images: list[list[np.ndarray]] = []
    for turn in range(digits + 1):
        probe = executable.graph.clone()
        if turn < digits:
            part = _code(numbers, digits, turn)
        else:
            part = _check_digit([_code(numbers, digits, i) for i in range(digits)])
        coded = (part + np.uint16(_ONE)).view(np.float16)
        pieces = np.split(coded, np.cumsum(sizes)[:-1])
        _replace(probe, {n: p.reshape(values[n].shape).astype(values[n].data.dtype) for n, p in zip(names, pieces)})
        program = compile(probe, chip=executable.chip)
        if [s.kind for s in program.segments] != [s.kind for s in executable.program.segments]:
            raise UnsupportedError("other weights make a program of other segments")
        for old, new in zip(executable.program.segments, program.segments):
            texts = [segment.image.text() if segment.image is not None else b"" for segment in (old, new)]
            if texts[0] != texts[1] or len(_data(old, executable.level)) != len(_data(new, executable.level)):
                raise UnsupportedError("the program's tasks depend on the values of the weights")
        words = [np.frombuffer(_data(s, executable.level), "<u2") for s in program.segments]
        images.append([each - np.uint16(_ONE) for each in words])  # what is no digit wraps round to a large number
    at, element = [], []
    for number in range(len(executable.program.segments)):
        there, which = _decoded([words[number] for words in images], total)
        at.append(there)
        element.append(which)
    places_known = np.zeros(total, bool)
    for elements in element:
        places_known[elements] = True
    missing = np.flatnonzero(~places_known)
    if missing.size:
        name = names[int(np.searchsorted(np.cumsum(sizes), missing[0], side="right"))]
        raise UnsupportedError(
            f"{missing.size} elements of {name!r} are not stored as they are: it is folded into others"
        )
    places = ConstantPlaces(names, tuple(at), tuple(element), tuple(map(grids_of, at, element)))
    _confirm(executable, places, [values[name] for name in names])
    return places


def _digit(numbers: np.ndarray, place: int) -> np.ndarray:
    """A digit of each number, as uint16."""
    return ((numbers >> np.uint32(_DIGIT_BITS * place)) & np.uint32(_DIGITS - 1)).astype(np.uint16)


def _code(numbers: np.ndarray, digits: int, row: int) -> np.ndarray:
    """One code of each number: a mixture of its digits, as uint16."""
    code = np.zeros(numbers.shape, np.uint16)
    for place in range(digits):
        code += np.uint16(_MIX[row][place]) * _digit(numbers, place)  # sums wrap, and their low bits are right
    return code & np.uint16(_DIGITS - 1)


def _unmix(digits: int) -> list[list[int]]:
    """The inverse of the corner of the mixture, modulo 1024, by elimination; its pivots are odd."""
    rows = [[*_MIX[i][:digits], *(int(i == j) for j in range(digits))] for i in range(digits)]
    for i in range(digits):
        scale = pow(rows[i][i], -1, _DIGITS)
        rows[i] = [value * scale % _DIGITS for value in rows[i]]
        for j in range(digits):
            if j != i:
                rows[j] = [(b - rows[j][i] * a) % _DIGITS for a, b in zip(rows[i], rows[j])]
    return [row[digits:] for row in rows]


def _check_digit(parts: list[np.ndarray]) -> np.ndarray:
    """A last digit that no halfword which never changes has: k = 7 k + 12 k + ... + 5 has no answer."""
    total = np.full(parts[0].shape, 5, np.uint16)
    for factor, part in zip(_FACTORS, parts):
        total += np.uint16(factor) * part  # at most 34 * 1023 and more: the sum wraps, and its low bits are right
    return total & np.uint16(_DIGITS - 1)


def _decoded(halfwords: list[np.ndarray], total: int) -> tuple[np.ndarray, np.ndarray]:
    """Halfwords that carry an element's number, and the numbers."""
    valid = np.ones(halfwords[0].shape, bool)
    for words in halfwords:
        valid &= words < _DIGITS
    at = np.flatnonzero(valid)
    *codes, check = [words[at] for words in halfwords]
    number = np.zeros(at.shape, np.uint64)
    for place, row in enumerate(_unmix(len(codes))):
        digit = np.zeros(at.shape, np.uint16)
        for factor, code in zip(row, codes):
            digit += np.uint16(factor) * code
        number |= (digit & np.uint16(_DIGITS - 1)).astype(np.uint64) << np.uint64(_DIGIT_BITS * place)
    right = (_check_digit(codes) == check) & (number < total)
    return at[right].astype(np.uint32), number[right].astype(np.uint32)


def _confirm(executable: Renewable, places: ConstantPlaces, values: list[Value]) -> None:
    """The program's own weights, put to these places, give the program's own bytes."""
    assert executable.program is not None
    flat = np.concatenate([value.data.astype(np.float16).reshape(-1) for value in values]).view(np.uint16)
    for segment, at, element in zip(executable.program.segments, places.at, places.element):
        if not np.array_equal(np.frombuffer(_data(segment, executable.level), "<u2")[at], flat[element]):
            raise UnsupportedError("the weights are not stored as they are given")
