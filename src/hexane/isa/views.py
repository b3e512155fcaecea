"""Dotted access to a task: ``task.NE.MACCfg.NonlinearMode``, ``task.KernelDMASrc.CoeffBfrSize[3]``, ``task.Header[8]``.

Views hold no values: each read and write goes to the task by name.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex

from hexane.isa.schema import OUTSIDE, FieldError, Register, RegisterBlock

if TYPE_CHECKING:
    from hexane.isa.task import Task


class BlockView:
    """``task.NE``: the registers of one block."""

    __slots__ = ("_block", "_task")
    _task: Task
    _block: RegisterBlock

    def __init__(self, task: Task, block: RegisterBlock) -> None:
        object.__setattr__(self, "_task", task)
        object.__setattr__(self, "_block", block)

    def __getattr__(self, name: str) -> Any:
        register = self._block.by_name.get(name)
        if register is None:
            self._task.handle(f"{self._block.name}.{name}")  # raises, with the nearest names
            raise AttributeError(name)
        dotted = f"{self._block.name}.{name}"
        if register.count:
            return ArrayView(self._task, dotted, register)
        return RegisterView(self._task, dotted)

    def __setattr__(self, name: str, value: int) -> None:
        self._task.set(f"{self._block.name}.{name}", value)

    def __dir__(self) -> list[str]:
        return list(self._block.by_name)

    def __repr__(self) -> str:
        prefix = f"{self._block.name}."
        return "\n".join(f"{n} = {v:#x}" for n, v in self._task.registers().items() if n.startswith(prefix))


class ArrayView:
    """``task.KernelDMASrc.CoeffBfrSize``: registers in a row."""

    __slots__ = ("_name", "_register", "_task")

    def __init__(self, task: Task, name: str, register: Register) -> None:
        self._task, self._name, self._register = task, name, register

    def _element(self, index: int) -> str:
        if not isinstance(index, SupportsIndex) or not 0 <= operator.index(index) < self._register.words:
            raise FieldError(f"{self._name}[{index}]: the array has {self._register.words} elements")
        return f"{self._name}[{index}]"

    def __getitem__(self, index: int) -> RegisterView:
        return RegisterView(self._task, self._element(index))

    def __setitem__(self, index: int, value: int) -> None:
        self._task.set(self._element(index), value)

    def __len__(self) -> int:
        return self._register.words

    def __iter__(self) -> Iterator[RegisterView]:
        return (self[i] for i in range(len(self)))


class HeaderView(ArrayView):
    """``task.Header``: the header words."""

    __slots__ = ()

    def __init__(self, task: Task) -> None:
        self._task, self._name = task, "Header"

    def _element(self, index: int) -> str:
        return self._task.handle(f"Header[{index}]").name

    def __len__(self) -> int:
        return self._task.layout.header_words


class OutsideView:
    """``task.Outside``: registers at addresses that no block has."""

    __slots__ = ("_task",)
    _task: Task

    def __init__(self, task: Task) -> None:
        object.__setattr__(self, "_task", task)

    def __getattr__(self, name: str) -> RegisterView:
        self._task.handle(f"{OUTSIDE}.{name}")
        return RegisterView(self._task, f"{OUTSIDE}.{name}")

    def __setattr__(self, name: str, value: int) -> None:
        self._task.set(f"{OUTSIDE}.{name}", value)


class RegisterView:
    """``task.NE.MACCfg``: one register; its fields are attributes, ``int()`` gives the whole word."""

    __slots__ = ("_name", "_task")
    _task: Task
    _name: str

    def __init__(self, task: Task, name: str) -> None:
        object.__setattr__(self, "_task", task)
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name: str) -> int:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._task.read(self._task.handle(f"{self._name}.{name}"))

    def __setattr__(self, name: str, value: int | str) -> None:
        self._task.set(f"{self._name}.{name}", value)

    def __int__(self) -> int:
        return self._task.get(self._name)

    __index__ = __int__

    def __bool__(self) -> bool:
        return int(self) != 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RegisterView | int):
            return int(self) == int(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(int(self))

    def __dir__(self) -> list[str]:
        return list(self._task.handle(self._name).register.by_name)

    def __repr__(self) -> str:
        value = int(self)
        rows = self._task.handle(self._name).register.fields
        text = " ".join(f"{r.name}={value >> r.low & r.limit:#x}" for r in rows if r.known or value >> r.low & r.limit)
        return f"{self._name} = {value:#010x} ({text})"
