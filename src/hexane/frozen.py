"""Frozen dataclasses and tuples that are quick to make: one compilation makes tens of thousands of them.

    @slot_init
    @dataclass(frozen=True, slots=True)
    class Region: ...

The ``__init__`` that ``dataclass`` writes for a frozen class gives every field to ``object.__setattr__``, which looks
its name up again; a third of that time is enough for the slots' own descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from dataclasses import replace as of_any
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")


class WithCache:
    """Base of such a class that has cached properties: they are kept in a dictionary beside the slots."""


def slot_init(cls: type[T]) -> type[T]:
    """Give a frozen dataclass with slots an ``__init__`` of the same signature that writes its slots directly.

    Raises TypeError for a class without slots, and for a field that is not simply a parameter of ``__init__``.
    """
    setters: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]
        slot = cls.__dict__.get(field.name)
        if not hasattr(slot, "__set__") or not _is_plain(field):
            raise TypeError(f"{cls.__name__}.{field.name} is no plain field in a slot")
        setters[f"set_{field.name}"] = slot.__set__  # type: ignore[union-attr]
    return _initialised(cls, "set_{0}(self, {0})", setters)


def dict_init(cls: type[T]) -> type[T]:
    """The same of a class without slots, whose fields go into the instance's dictionary.

    One that is no parameter of ``__init__`` is left to ``__post_init__``. Raises TypeError for any other that is not
    simply a parameter.
    """
    for field in fields(cls):  # type: ignore[arg-type]
        if field.init and not _is_plain(field):
            raise TypeError(f"{cls.__name__}.{field.name} is no plain field")
    return _initialised(cls, "own['{0}'] = {0}", {}, "own = self.__dict__")


if TYPE_CHECKING:  # its fields are checked as those of dataclasses' own
    from dataclasses import replace as replace
else:

    def replace(record: T, **changes: Any) -> T:
        """``dataclasses.replace``, quicker for a class of this module's."""
        own = vars(type(record)).get("__replace__")  # not the one of a base with fewer fields
        return of_any(record, **changes) if own is None else own(record, **changes)


def tuple_replace(cls: type[T]) -> type[T]:
    """Give a NamedTuple a ``_replace`` that is quicker than its own; TypeError for a field that there is not."""
    names = cls._fields  # type: ignore[attr-defined]
    keywords = ", ".join(f"{name}=SAME" for name in names)
    values = ", ".join(f"self[{at}] if {name} is SAME else {name}" for at, name in enumerate(names))
    scope: dict[str, Any] = {"SAME": MISSING, "new": tuple.__new__}
    exec(f"def _replace(self, *, {keywords}):\n return new(self.__class__, ({values},))", scope)
    cls._replace = scope["_replace"]  # type: ignore[attr-defined]
    return cls


def _initialised(cls: type[T], write: str, names: dict[str, Any], *first: str) -> type[T]:
    """The class with a ``__replace__``, and an ``__init__`` that does ``write`` for each field behind ``first``."""
    names["SAME"] = MISSING
    parameters, writes, same = ["self"], list(first), []
    plain = [field for field in fields(cls) if field.init]  # type: ignore[arg-type]
    for field in plain:
        names[f"default_{field.name}"] = field.default
        parameters.append(field.name if field.default is MISSING else f"{field.name}=default_{field.name}")
        writes.append(write.format(field.name))
        same.append(f"self.{field.name} if {field.name} is SAME else {field.name}")
    if hasattr(cls, "__post_init__"):
        writes.append("self.__post_init__()")
    keywords = ", ".join(f"{field.name}=SAME" for field in plain)
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(writes), names)
    exec(f"def __replace__(self, *, {keywords}):\n return self.__class__({', '.join(same)})", names)
    cls.__replace__ = names["__replace__"]  # type: ignore[attr-defined]
    initialiser: Callable[..., None] = names["__init__"]
    initialiser.__qualname__ = f"{cls.__qualname__}.__init__"
    initialiser.__annotations__ = dict(cls.__init__.__annotations__)
    cls.__init__ = initialiser  # type: ignore[method-assign]
    return cls


def _is_plain(field: Field[Any]) -> bool:
    return field.init and not field.kw_only and field.default_factory is MISSING
