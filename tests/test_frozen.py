"""Frozen dataclasses with a quick ``__init__`` are those of ``dataclass`` in all else."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from functools import cached_property
from inspect import signature
from typing import NamedTuple

import pytest

from hexane import frozen
from hexane.frozen import WithCache, dict_init, slot_init, tuple_replace


@dataclass(frozen=True, slots=True)
class Plain:
    rows: int
    step: float = 0.5
    name: str = "a"

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise ValueError("rows")


@slot_init
@dataclass(frozen=True, slots=True)
class Quick:
    rows: int
    step: float = 0.5
    name: str = "a"

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise ValueError("rows")


@slot_init
@dataclass(frozen=True, slots=True)
class Cached(WithCache):
    rows: int

    @cached_property
    def twice(self) -> list[int]:
        return [2 * self.rows]


def test_same_signature_and_values():
    plain, quick = signature(Plain).parameters, signature(Quick).parameters
    assert [(p.name, p.default, p.kind) for p in plain.values()] == [
        (p.name, p.default, p.kind) for p in quick.values()
    ]
    for given, named in (((3,), {}), ((3, 1.5), {"name": "b"}), ((), {"rows": 4, "step": 2.0})):
        a, b = Plain(*given, **named), Quick(*given, **named)
        assert (a.rows, a.step, a.name) == (b.rows, b.step, b.name)
        assert repr(a) == repr(b).replace("Quick", "Plain")


def test_it_is_checked_frozen_and_hashable():
    quick = Quick(3)
    with pytest.raises(FrozenInstanceError):
        quick.rows = 4  # type: ignore[misc]
    with pytest.raises(ValueError, match="rows"):
        Quick(-1)
    with pytest.raises(ValueError, match="rows"):
        replace(quick, rows=-1)
    with pytest.raises(TypeError):
        Quick()  # type: ignore[call-arg]
    assert {quick, Quick(3)} == {quick} and replace(quick, name="b") == Quick(3, name="b") != quick


def test_it_is_copied_and_pickled():
    quick = Quick(3, 1.5, "b")
    assert copy.copy(quick) == copy.deepcopy(quick) == pickle.loads(pickle.dumps(quick)) == quick


def test_cached_properties_stand_beside_the_slots():
    cached = Cached(3)
    assert cached.twice is cached.twice and cached.twice == [6]
    assert replace(cached, rows=4).twice == [8]
    assert pickle.loads(pickle.dumps(cached)).twice == [6]


def test_what_has_no_plain_slots_is_refused():
    @dataclass(frozen=True)
    class Open:
        rows: int = 0

    @dataclass(frozen=True, slots=True)
    class Made:
        rows: list[int] = field(default_factory=list)

    for kind in (Open, Made):
        with pytest.raises(TypeError, match=r"rows is no plain field in a slot"):
            slot_init(kind)


@dict_init
@dataclass(frozen=True)
class Wide:
    rows: int
    columns: int = 0

    def __post_init__(self) -> None:
        vars(self)["columns"] = self.columns or self.rows


def test_fields_in_a_dictionary_are_written_and_frozen_too():
    wide = Wide(3)
    with pytest.raises(FrozenInstanceError):
        wide.rows = 4  # type: ignore[misc]
    assert (wide.rows, wide.columns) == (3, 3) and Wide(rows=3, columns=3) == wide
    with pytest.raises(TypeError):
        Wide()  # type: ignore[call-arg]


@pytest.mark.parametrize("record", [Quick(3), Wide(3), Cached(3)], ids=lambda record: type(record).__name__)
def test_a_changed_copy_is_that_of_dataclasses(record):
    assert frozen.replace(record, rows=4) == replace(record, rows=4)
    assert frozen.replace(record) == record
    with pytest.raises(TypeError):
        frozen.replace(record, other=4)


def test_a_changed_copy_of_any_dataclass():
    @dataclass
    class Plain:
        rows: int = 0

    assert frozen.replace(Plain(), rows=4) == Plain(4)


def test_a_changed_copy_keeps_what_a_class_has_beyond_its_base():
    @dataclass(frozen=True)
    class Longer(Wide):
        depth: int = 0

    assert frozen.replace(Longer(3, depth=2), rows=4) == Longer(4, 3, 2)


def test_a_field_without_parameter_is_left_to_the_class():
    @dict_init
    @dataclass(frozen=True)
    class Doubled:
        rows: int
        both: int = field(init=False)

        def __post_init__(self) -> None:
            vars(self)["both"] = 2 * self.rows

    assert Doubled(3).both == 6 and frozen.replace(Doubled(3), rows=4).both == 8
    with pytest.raises(TypeError):
        Doubled(3, both=7)  # type: ignore[call-arg]


def test_what_is_no_parameter_is_refused_in_a_dictionary():
    @dataclass(frozen=True)
    class Open:
        rows: list[int] = field(default_factory=list)

    with pytest.raises(TypeError, match="rows is no plain field"):
        dict_init(Open)


@tuple_replace
class Pair(NamedTuple):
    first: int
    second: int = 2


def test_a_tuple_is_made_over():
    pair = Pair(1)._replace(second=0)
    assert pair == (1, 0) and type(pair) is Pair and pair._replace() == pair
    with pytest.raises(TypeError, match="third"):
        pair._replace(third=3)
