"""The engine's view of DRAM: one buffer behind each channel (docs/reference/engine-h13.md 5)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hexane.errors import EmulationError
from hexane.isa.granules import GRANULE
from hexane.rounding import ceil_div

DRAM_LIMIT = 0xE000_0000  # all buffers of a program end below it (docs/reference/engine-h13.md 4.2)


@dataclass
class DramBuffer:
    """Bytes behind one channel. ``written`` has one flag per 64-byte granule, for buffers that start undefined."""

    name: str
    data: np.ndarray
    writable: bool
    written: np.ndarray | None = None

    @classmethod
    def constant(cls, name: str, data: bytes) -> DramBuffer:
        """A buffer that tasks may only read."""
        return cls(name, np.frombuffer(data, np.uint8), writable=False)

    @classmethod
    def filled(cls, name: str, data: np.ndarray) -> DramBuffer:
        """An input surface: its bytes are all given by the caller."""
        return cls(name, data, writable=True)

    @classmethod
    def undefined(cls, name: str, size: int) -> DramBuffer:
        """Scratch or an output surface: zero, and a read before a write is an error."""
        return cls(name, np.zeros(size, np.uint8), writable=True, written=np.zeros(ceil_div(size, GRANULE), bool))

    def __len__(self) -> int:
        return self.data.size


@dataclass
class Memory:
    """The channel table of one program: channel number to buffer."""

    channels: dict[int, DramBuffer] = field(default_factory=dict)

    def buffer(self, channel: int, *, task: int, register: str) -> DramBuffer:
        """The buffer behind a channel, or an EmulationError that names the selector."""
        surface = self.channels.get(channel)
        if surface is None:
            channels = ", ".join(map(str, sorted(self.channels)))
            raise EmulationError(
                f"channel {channel} has no buffer (this program has {channels})", task=task, register=register
            )
        return surface

    def bytes(self, channel: int, start: int, size: int, *, task: int, register: str) -> np.ndarray:
        """``size`` bytes from ``start`` of a channel's buffer, read by a DMA engine."""
        buffer = self.buffer(channel, task=task, register=register)
        if start + size > len(buffer):
            raise EmulationError(
                f"DMA reads {size:#x} bytes at {start:#x} of {buffer.name}, which has {len(buffer):#x}",
                task=task,
                register=register,
                address=start + size,
            )
        self.require_written(buffer, start, size, task=task, register=register)
        return buffer.data[start : start + size]

    @staticmethod
    def require_written(buffer: DramBuffer, start: int, size: int, *, task: int, register: str) -> None:
        """Refuse to read what neither the host nor a task has written."""
        if buffer.written is None or size <= 0:
            return
        flags = buffer.written[start // GRANULE : ceil_div(start + size, GRANULE)]
        if not flags.all():
            hole = start // GRANULE + int(np.argmin(flags))
            raise EmulationError(
                f"DMA reads {buffer.name} where no task has written",
                task=task,
                register=register,
                address=hole * GRANULE,
            )
