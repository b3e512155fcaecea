"""The engine behind a virtual driver: bytes in buffers, run by the emulator.

Only text, constants and the memory behind channels count; a run that is repeated on the same buffers with the same
bytes is prepared once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexane.chips import get
from hexane.emulator.engine import Engine
from hexane.emulator.memory import DramBuffer, Memory
from hexane.emulator.ready import PreparedChain
from hexane.emulator.registers import Registers
from hexane.errors import EmulationError
from hexane.isa.channels import CONST, TEXT

Channels = dict[int, np.ndarray]
LIMIT_NS = 1_000_000_000
"""A program that the model takes to run longer than this has timed out, however long the emulator took."""
MOST_PREPARED, PREPARED_BYTES = 8, 1 << 28
"""How many programs stay prepared beside the one that runs, and bytes of text and constants of all of them."""


@dataclass
class _Prepared:
    key: tuple[Any, ...]
    chain: PreparedChain
    modelled_ns: int

    @property
    def nbytes(self) -> int:
        return len(self.key[0]) + len(self.key[1])


@dataclass
class EmulatedEngine:
    """Runs programs; keeps the last few prepared."""

    limit_ns: int | None = LIMIT_NS
    prepared: list[_Prepared] = field(default_factory=list)

    def run(self, chain: Iterable[Registers], text: bytes, const: bytes, channels: Channels) -> int:
        """Run tasks to their end; modelled nanoseconds. ``channels``: number -> bytes that the host shares.

        Raises EmulationError (or another HexaneError) for what a real engine would hang on.
        """
        places = tuple((number, data.ctypes.data, data.nbytes) for number, data in sorted(channels.items()))
        key = (text, const, places)
        prepared = next((p for p in self.prepared if p.key == key), None)
        if prepared is not None:
            prepared.chain.run(())
            return prepared.modelled_ns
        memory = Memory({TEXT: DramBuffer.constant("text", text), CONST: DramBuffer.constant("const", const)})
        for number, data in channels.items():
            memory.channels[number] = DramBuffer.filled(f"channel {number}", data)
        registers = list(chain)
        modelled = modelled_ns(registers)
        if self.limit_ns is not None and modelled > self.limit_ns:
            raise EmulationError(f"the program is modelled to take {modelled / 1e9:.2f} s, the driver waits 1 s")
        engine = Engine(memory, registers[0].limits.l2_bytes if registers else 0)
        prepared = _Prepared(key, PreparedChain(engine), modelled)
        prepared.chain.run(registers)
        self.prepared = [*self.prepared[-MOST_PREPARED + 1 :], prepared]
        while len(self.prepared) > 1 and sum(p.nbytes for p in self.prepared) > PREPARED_BYTES:
            self.prepared.pop(0)
        return modelled

    def forget(self) -> None:
        """Let prepared programs and the buffers that they look at go."""
        self.prepared.clear()


def modelled_ns(registers: list[Registers]) -> int:
    """Time on the engine by the model of ``hexane.timing``, for generations whose tasks it knows; 0 for others."""
    from hexane.chips.measured import constants
    from hexane.cost.model import time_work
    from hexane.timing.from_tasks import work_of_tasks

    tasks = [r.descriptor for r in registers]
    if not tasks or tasks[0].family.packed:
        return 0
    chip = get("M1")
    numbers = {name: constant.value for name, constant in constants(chip).items()}
    return round(1000 * sum(timed.us for timed in time_work(work_of_tasks(tasks), chip, numbers)))
