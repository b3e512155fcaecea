"""Frozen dataclasses that are quick to make: one compilation makes tens of thousands of them.

    @slot_init
    @dataclass(frozen=True, slots=True)
    class Region: ...

The ``__init__`` that ``dataclass`` writes for a frozen class gives every field to ``object.__setattr__``, which looks
its name up again; a third of that time is enough for the slots' own descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")


class WithCache:
    """Base of such a class that has cached properties: they are kept in a dictionary beside the slots."""


def slot_init(cls: type[T]) -> type[T]:
    """Give a frozen dataclass with slots an ``__init__`` of the same signature that writes its slots directly.

    Raises TypeError for a class without slots, and for a field that is not simply a parameter of ``__init__``.
    """
    names: dict[str, Any] = {}
    parameters, writes = ["self"], []
    for field in fields(cls):  # type: ignore[arg-type]
        if not hasattr(cls.__dict__.get(field.name), "__set__") or not _is_plain(field):
            raise TypeError(f"{cls.__name__}.{field.name} is no plain field in a slot")
        names[f"set_{field.name}"] = cls.__dict__[field.name].__set__
        names[f"default_{field.name}"] = field.default
        parameters.append(field.name if field.default is MISSING else f"{field.name}=default_{field.name}")
        writes.append(f"set_{field.name}(self, {field.name})")
    if hasattr(cls, "__post_init__"):
        writes.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(writes), names)
    initialiser: Callable[..., None] = names["__init__"]
    initialiser.__qualname__ = f"{cls.__qualname__}.__init__"
    initialiser.__annotations__ = dict(cls.__init__.__annotations__)
    cls.__init__ = initialiser  # type: ignore[method-assign]
    return cls


def _is_plain(field: Field[Any]) -> bool:
    return field.init and not field.kw_only and field.default_factory is MISSING
