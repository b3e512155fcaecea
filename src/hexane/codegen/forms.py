"""Tasks by form: records that differ in the names of buffers alone get theirs worked out once in a compilation.

The layers of a network are few forms again and again, but for their weights: attention has none, sums of norms have the
same small ones, and what has weights of its own would gain nothing. A function that is marked ``by_form`` is given
records without names, and the tasks that it makes get the names afterwards: so they cannot depend on what a form leaves
out. A form has every field of every record in it, numbers and small arrays by their bits, large arrays by their place
in memory, where they stay as long as the form is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from operator import attrgetter
from struct import pack
from typing import Any

import numpy as np

from hexane.codegen.bare import through
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment
from hexane.codegen.plan import Buffer, Plan, TaskKernel
from hexane.frozen import replace

BY_BITS = 2000
"""Bytes of an array that is told by its bits."""

PLAIN = frozenset((int, str, type(None)))
"""Types of which equal values are the same."""

Lower = Callable[..., Fragment]
"""Of records and, last, the context."""


@dataclass(frozen=True)
class _Entry:
    """The records of a form, which keep their arrays where they are, and the fragment's parts."""

    records: tuple[Any, ...]
    plans: tuple[Plan, ...]
    constants: dict[str, bytes]
    scratch: dict[str, int]


def by_form(lower: Lower) -> Lower:
    """The function, called once for each form in a context; what it refuses it is asked again."""

    @wraps(lower)
    def once(*args: Any) -> Fragment:
        *records, context = args
        assert isinstance(context, Context)
        numbers: dict[Buffer, Buffer] = {}
        form = lower, _form(tuple(records), numbers)
        entry = context.forms.get(form)
        if entry is None:
            nameless = _renamed(tuple(records), numbers)
            fragment = lower(*nameless, context)
            entry = _Entry(nameless, tuple(fragment.plans), fragment.constants, fragment.scratch)
            context.forms[form] = entry
        names = {number: buffer for buffer, number in numbers.items()}
        kernels = {plan.kernel: _own(plan.kernel, names) for plan in entry.plans if plan.kernel is not None}
        plans = [
            through(plan, lambda buffer: names.get(buffer, buffer), kernel=plan.kernel and kernels[plan.kernel])
            for plan in entry.plans
        ]
        return Fragment(context, plans, entry.constants.copy(), entry.scratch.copy())

    return once


@cache
def _parts_of(kind: type) -> tuple[list[str], Callable[[Any], tuple[Any, ...]]] | None:
    """Names of a record's fields, and all of them as a tuple; None for what is no record."""
    if not is_dataclass(kind):
        return None
    names = [field.name for field in fields(kind)]
    return names, attrgetter(*names) if len(names) > 1 else lambda record: (getattr(record, names[0]),)


def _form(value: Any, numbers: dict[Buffer, Buffer]) -> Any:
    """A value without names, hashable; buffers are counted in ``numbers``, which gives each one without its name.

    Anything that is no record, array or number stands for itself.
    """
    kind: Any = type(value)
    if kind in PLAIN:
        return value
    if kind is float:
        return pack("d", value)
    if kind is Buffer:
        return numbers.get(value) or numbers.setdefault(value, Buffer(f"buffer {len(numbers)}", value.space))
    record = _parts_of(kind)
    if record is not None:
        return kind, *[part if type(part) in PLAIN else _form(part, numbers) for part in record[1](value)]
    if isinstance(value, np.ndarray):
        where = value.tobytes() if value.nbytes <= BY_BITS else value.__array_interface__["data"][0]
        return kind, value.dtype, value.shape, value.strides, where
    if isinstance(value, np.generic):
        return kind, value.tobytes()
    if isinstance(value, tuple):
        return kind, *[_form(part, numbers) for part in value]
    return kind, value


def _renamed(value: Any, names: Mapping[Buffer, Buffer]) -> Any:
    """The value with other buffers, wherever ``_form`` sees one."""
    kind: Any = type(value)
    if kind is Buffer:
        return names.get(value, value)
    record = _parts_of(kind)
    if record is not None:
        changes = {}
        for name, part in zip(record[0], record[1](value)):
            other = part if type(part) in PLAIN else _renamed(part, names)
            if other is not part:
                changes[name] = other
        return replace(value, **changes) if changes else value
    if isinstance(value, tuple) and value:
        parts = [_renamed(part, names) for part in value]
        return tuple(parts) if kind is tuple else kind(*parts)
    return value


def _own(kernel: TaskKernel, names: Mapping[Buffer, Buffer]) -> TaskKernel:
    """A kernel of this fragment's own, since which tasks share one decides where it is stored."""
    return replace(kernel, source=None if kernel.source is None else names.get(kernel.source, kernel.source))
