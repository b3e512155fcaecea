"""A task's registers as the units see them: numbers by role, with errors that know where they come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache

from hexane import chips, isa
from hexane.errors import EmulationError
from hexane.isa.fields import FieldPlan, FieldRow
from hexane.isa.roles import CHANNEL, Roles, roles_of

CHANNELS = {side: CHANNEL.format(side) for side in ("source1", "source2", "result", "kernel", "table")}

TURN = re.compile(
    r"(Task|Header\[\d+\])\.(D?TID|NextPointer|NextSize)|.*\.Tag|KernelDMASrc\.(CoeffBaseAddr\[\d+\]|KernelBase)\.Addr"
)
"""Fields that say where in its program a task stands: its number, its link, the place of its kernel."""


class Registers:
    """Values of one task by role (`hexane.isa.roles`) and by field name, raw bits as in the stream.

    Parameters
    ----------
    index : the task's place in the chain, from 0.
    descriptor : the task; a field that it does not write reads as its reset value, 0 where none is known.
    """

    def __init__(self, index: int, descriptor: isa.Task) -> None:
        self.index = index
        self.descriptor = descriptor
        self.generation = descriptor.generation
        self.roles: Roles = roles_of(self.generation)
        self.linked = not self.roles.family.packed
        """H13: channels and links stand in the header, every register is written."""
        self.values = self.roles.values(descriptor)
        self._plan, self._row, self._more = self.values.plan, self.values.row, self.values.more
        self._index = self._plan.index
        self._fields, self._channels = self.roles.fields, self.roles.channels

    def __getitem__(self, name: str) -> int:
        at = self._index.get(name)
        return self._more.get(name, 0) if at is None else self._row[at]

    def several(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """The values of two or more names."""
        if self._more and not self._more.keys().isdisjoint(names):
            return tuple(self[name] for name in names)
        return self._plan.picker(names)(self._row)

    @property
    def form(self) -> Hashable:
        """One for tasks that differ in fields of their turn (``TURN``) alone, where ``RegisterForms`` read them."""
        return self

    @property
    def limits(self) -> chips.Generation:
        """Limits of the engine of the task's generation."""
        return chips.generation(self.generation)

    def has(self, role: str) -> bool:
        """True where the generation has the role at all."""
        return role in self._fields

    def flag(self, name: str) -> bool:
        """A one-bit field."""
        return bool(self[name])

    def addr(self, name: str) -> int:
        """A DMA address or stride field (31:6) in bytes."""
        return self[name] << 6

    def l2(self, name: str) -> int:
        """An L2 address or stride field (20:4) in bytes."""
        return self[name] << 4

    def number(self, role: str) -> float:
        """The number in a field of fp16, fp32 or the upper bits of an fp32, as the generation has it."""
        return self.roles.number(role, self[role])

    def neutral(self, role: str) -> int:
        """The value in a task that makes no use of the role: 0 on H13, the reset value from H14 on."""
        return self.roles.neutral(role)

    def channel(self, side: str) -> int | None:
        """The channel, from H14 on the slot, behind a DMA engine; see `hexane.isa.roles.Roles.channel`."""
        place = self._channels.get(side)
        if place is None or not place.enable:
            number = self[CHANNELS[side]]
            return number - 1 if number else None
        return self[place.number] if self[place.enable] else None

    def channel_register(self, side: str) -> str:
        """The register that names the channel, for messages."""
        return self.roles.channels[side].shown

    def error(
        self, message: str, register: str, *, address: int | None = None, hint: str | None = None
    ) -> EmulationError:
        """An error at one of this task's registers, for the caller to raise."""
        return EmulationError(message, task=self.index, register=self.roles.field(register), address=address, hint=hint)

    def one_of(self, name: str, allowed: Iterable[int], meaning: str = "") -> int:
        """The field's value, which must be one whose effect is known."""
        value = self[name]
        choices = tuple(allowed)
        if value not in choices:
            listed = ", ".join(f"{c:#x}" for c in choices)
            what = f" ({meaning})" if meaning else ""
            raise self.error(f"value {value:#x} has no known effect{what}; known: {listed}", name)
        return value

    def expect(self, name: str, value: int, because: str) -> None:
        """Refuse a value that does not agree with the rest of the task; nothing to ask where the role is absent."""
        if name in self._fields:
            self.expect_field(name, value, because)

    def expect_field(self, name: str, value: int, because: str) -> None:
        """The same for a field of this generation's own table."""
        if self[name] != value:
            raise self.error(
                f"value {self[name]:#x} does not agree with the rest of the task ({because}: {value:#x})", name
            )


RegisterReader = Callable[[int, isa.Task], Registers]
"""What gives the registers of a task, by its place in the chain and its descriptor."""


class RegisterForms:
    """Registers of the tasks of one program, decoded once for all tasks of a form."""

    def __init__(self) -> None:
        self._known: dict[tuple[FieldPlan, int], Registers] = {}

    def of(self, index: int, descriptor: isa.Task) -> Registers:
        """Those of a task at a place in the chain."""
        plan = roles_of(descriptor.generation).plan_of(descriptor)
        turn, mask = _turn(plan)
        key = plan, descriptor.number & ~mask
        if key not in self._known:
            self._known[key] = Registers(index, descriptor)
        return _RegistersOfForm(index, descriptor, self._known[key], turn)


@lru_cache(1024)
def _turn(plan: FieldPlan) -> tuple[dict[str, FieldRow], int]:
    """The fields of a layout that say something of a task's turn, and their bits."""
    rows = {name: row for name, row in plan.listed.items() if TURN.fullmatch(name)}
    return rows, plan.mask(rows)


class _RegistersOfForm(Registers):
    """Those of a task like one that was decoded, but for fields of its turn, which are read from its own words."""

    def __init__(self, index: int, descriptor: isa.Task, first: Registers, turn: dict[str, FieldRow]) -> None:
        self.__dict__.update(first.__dict__, index=index, descriptor=descriptor, _first=first, _turn=turn)

    _first: Registers
    _turn: dict[str, FieldRow]

    def __getitem__(self, name: str) -> int:
        row = self._turn.get(name)
        return super().__getitem__(name) if row is None else self.descriptor.value_of(row)

    def several(self, names: tuple[str, ...]) -> tuple[int, ...]:
        if self._turn.keys().isdisjoint(names):
            return super().several(names)
        return tuple(self[name] for name in names)

    @property
    def form(self) -> Hashable:
        return self._first


class FormRegisters(Registers):
    """The registers of all tasks of one form: they do not tell what differs between these."""

    @classmethod
    def of(cls, r: Registers) -> FormRegisters:
        form = cls.__new__(cls)
        form.__dict__.update(r.__dict__)
        return form

    def __getitem__(self, name: str) -> int:
        _require_lasting((name,))
        return super().__getitem__(name)

    def several(self, names: tuple[str, ...]) -> tuple[int, ...]:
        _require_lasting(names)
        return super().several(names)


@lru_cache(None)
def _require_lasting(names: tuple[str, ...]) -> None:
    for name in names:
        if TURN.fullmatch(name):
            raise AssertionError(f"a check that is made once for tasks of one form reads {name}")
