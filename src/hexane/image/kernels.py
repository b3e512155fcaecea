"""Which constants each task's kernel DMA reads, from the registers alone (spec/engine-h13 §4.9, §9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from hexane.isa import Task

CORES = 16
CONST_CHANNEL = 1

_TABLE_MODE = 2  # NE.MACCfg.NonlinearMode: look-up table (spec/engine-h13 §4.8)


@dataclass(frozen=True)
class KernelChunk:
    """What one core reads: byte offset from the channel's base, and bytes."""

    core: int
    offset: int
    size: int


@dataclass(frozen=True)
class Kernel:
    """The kernel stream of one task.

    task : index of the task.
    channel : DMA channel that the offsets count from; 1 is the constant section.
    kind : ``"table"`` where the task has only a look-up table, else ``"weights"``.
    chunks : one per enabled core, in core order.
    """

    task: int
    channel: int
    kind: str
    chunks: tuple[KernelChunk, ...]

    @property
    def is_constant(self) -> bool:
        """Whether the bytes stand in the constant section, not in a runtime buffer."""
        return self.channel == CONST_CHANNEL

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Different (offset, size) pairs in the order of their first use."""
        return tuple(dict.fromkeys((chunk.offset, chunk.size) for chunk in self.chunks))


@cache
def _names(core: int) -> tuple[str, str, str]:
    block = "KernelDMASrc"
    return (
        f"{block}.CoeffDMAConfig[{core}].En",
        f"{block}.CoeffBaseAddr[{core}].Addr",
        f"{block}.CoeffBfrSize[{core}].MemBfrSize",
    )


def kernels_of(tasks: Sequence[Task]) -> tuple[Kernel, ...]:
    """The kernels of H11 to H13 tasks, in task order; a task whose kernel DMA is off has none."""
    found = []
    for index, task in enumerate(tasks):
        kernel = kernel_of(task, index)
        if kernel is not None:
            found.append(kernel)
    return tuple(found)


def kernel_of(task: Task, index: int = 0) -> Kernel | None:
    """The kernel of one task, or None."""
    if not task.get("KernelDMASrc.MasterConfig.MasterEnable", 0):
        return None
    chunks = []
    for core in range(CORES):
        enable, base, size = _names(core)
        if task.get(enable, 0):
            chunks.append(KernelChunk(core, task.get(base, 0) << 6, task.get(size, 0) << 6))
    if not chunks:
        return None
    channel = task.get("Header[9].KBase0") if task.get("Header[9].KBE0") else CONST_CHANNEL
    return Kernel(index, channel, "table" if _is_table_only(task) else "weights", tuple(chunks))


def _is_table_only(task: Task) -> bool:
    """A table task multiplies by no weights: KernelMode 1 with NonlinearMode 2 (spec/engine-h13 §4.11)."""
    return bool(task.get("NE.MACCfg.KernelMode", 0)) and task.get("NE.MACCfg.NonlinearMode", 0) == _TABLE_MODE
