"""A task's registers as the units see them: numbers by dotted name, with errors that know where they come from."""

from __future__ import annotations

from collections.abc import Iterable

from hexane import isa
from hexane.errors import EmulationError


class Registers:
    """Field values of one task (spec/engine-h13 §4.12), raw bits as in the stream.

    Parameters
    ----------
    index : the task's place in the chain, from 0.
    descriptor : the task; a field that it does not write reads 0, its reset value.
    """

    def __init__(self, index: int, descriptor: isa.Task) -> None:
        self.index = index
        self.descriptor = descriptor
        self.values = descriptor.fields()

    def __getitem__(self, name: str) -> int:
        return self.values.get(name, 0)

    def flag(self, name: str) -> bool:
        """A one-bit field."""
        return bool(self.values.get(name, 0))

    def addr(self, name: str) -> int:
        """A DMA address or stride field (31:6) in bytes."""
        return self[name] << 6

    def l2(self, name: str) -> int:
        """An L2 address or stride field (20:4) in bytes."""
        return self[name] << 4

    def error(
        self, message: str, register: str, *, address: int | None = None, hint: str | None = None
    ) -> EmulationError:
        """An error at one of this task's registers, for the caller to raise."""
        return EmulationError(message, task=self.index, register=register, address=address, hint=hint)

    def one_of(self, name: str, allowed: Iterable[int], meaning: str = "") -> int:
        """The field's value, which must be one whose effect is known."""
        value = self[name]
        choices = tuple(allowed)
        if value not in choices:
            listed = ", ".join(f"{c:#x}" for c in choices)
            what = f" ({meaning})" if meaning else ""
            raise self.error(f"value {value:#x} has no known effect{what}; known: {listed}", name)
        return value
