"""Constants that each task's kernel DMA reads, their values, and how to change them.

Source: docs/reference/engine-h13.md 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexane import kernels as streams
from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.isa import WRITTEN, Task
from hexane.isa.channels import CONST
from hexane.isa.roles import roles_of
from hexane.kernels import StreamWindow

if TYPE_CHECKING:
    from hexane.image.image import Image


PARTS = ("weights", "indices", "palette", "scales", "bias", "table")
"""What can be put into a kernel: weights or a palette's indices (uint8) OIHW, palette [2^bits], scales and bias [O] in
float16, table as 64 halfwords in uint16."""

GENERATIONS = WRITTEN
"""Generations whose kernel DMA is known well enough."""

_TABLE_MODE = 2  # NE.MACCfg.NonlinearMode: look-up table (docs/reference/engine-h13.md 4.8)


@dataclass(frozen=True)
class Kernel:
    """The kernel stream of one task.

    task : index of the task.
    channel : DMA channel, from H14 on slot, that the offsets count from; 1 is the constant section.
    kind : ``"table"`` where the task has only a look-up table, else ``"weights"``.
    chunks : what each enabled core reads (core, byte offset, bytes), in core order.
    computed : a task or the host writes it.
    """

    task: int
    channel: int
    kind: str
    chunks: tuple[StreamWindow, ...]
    computed: bool = False

    @property
    def is_constant(self) -> bool:
        """True where the bytes stand in the constants (H16 and later: in the section of kernels), not in a buffer."""
        return not self.computed

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Different (offset, size) pairs in the order of their first use."""
        return tuple(dict.fromkeys((chunk.offset, chunk.size) for chunk in self.chunks))

    @property
    def size(self) -> int:
        """Bytes of all different chunks."""
        return sum(size for _, size in self.spans)


def kernels_of(tasks: Sequence[Task]) -> tuple[Kernel, ...]:
    """The kernels of tasks, in task order; a task whose kernel DMA is off has none."""
    kernels = []
    for index, task in enumerate(tasks):
        chunks = streams.windows_of(task)
        if chunks:
            kind = "table" if _is_table_only(task) else "weights"
            channel = _channel(task)
            linked = task.family.linked
            computed = channel != CONST if linked else kind == "weights" and streams.is_runtime(task)
            kernels.append(Kernel(index, channel, kind, tuple(chunks), computed))
    return tuple(kernels)


def _channel(task: Task) -> int:
    """The channel (H14 and later: slot) that the offsets count from; a table alone has one of its own."""
    roles = roles_of(task.generation)
    channels = (roles.channel(task, side) for side in ("kernel", "table"))
    return next((channel for channel in channels if channel is not None), CONST)


def _is_table_only(task: Task) -> bool:
    """A table task multiplies by no weights: KernelMode 1 with NonlinearMode 2 (docs/reference/engine-h13.md 4.11)."""
    return bool(task.get("NE.MACCfg.KernelMode")) and task.get("NE.MACCfg.NonlinearMode") == _TABLE_MODE


@dataclass(frozen=True)
class KernelReading:
    """One task's constant kernel, taken apart; ``problem`` says why where it could not be."""

    task: int
    value: streams.KernelStreams | None
    problem: HexaneError | None = None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The parts by name, only those that the kernel has.

        ``weights`` OIHW, or ``indices`` (uint8) and ``palette``, whose entries they name; ``bias`` and ``scales`` [O],
        ``table`` [64] uint16.
        """
        if self.value is None:
            return {}
        table = self.value.table
        arrays_by_name = {
            "weights": self.value.weights if self.value.indices is None else None,
            "bias": self.value.bias,
            "scales": self.value.scales,
            "palette": self.value.palette,
            "indices": self.value.indices,
            "table": None if table is None else np.frombuffer(bytes(table), "<u2"),
        }
        return {name: array for name, array in arrays_by_name.items() if array is not None}


def read_kernels(image: Image) -> list[KernelReading]:
    """Every constant kernel of the program, in task order; a layout that is not known is reported, not raised.

    Raises `UnsupportedError` for a generation whose kernel DMA is not known, and for tasks that cannot be decoded.
    """
    _ = image.tasks
    if image.generation not in GENERATIONS:
        raise UnsupportedError(
            f"the kernels of a {image.generation} program cannot be found",
            hint=f"the kernel DMA of {' and '.join(GENERATIONS)} is known",
        )
    kernels = []
    for kernel in image.kernels:
        if not kernel.is_constant:
            continue
        where = f"task[{kernel.task}]"
        try:
            section = image.const if kernel.channel == CONST else image.kernel_section
            value = streams.read_kernel(image.tasks[kernel.task], section, where)
        except HexaneError as error:
            kernels.append(KernelReading(kernel.task, None, error))
        else:
            kernels.append(KernelReading(kernel.task, value))
    return kernels


def with_kernels(image: Image, changes: Mapping[int, Mapping[str, np.ndarray]]) -> Image:
    """The program with other values in its kernels; ``changes`` maps a task's index to arrays by the names of `PARTS`.

    The constant section keeps its size and its order. Tasks that share a kernel share the change.

    Raises
    ------
    UsageError : a task without a kernel, a part that it does not have, another shape or dtype, or a sparse kernel that
        would not fit its place.
    UnsupportedError : a kernel whose layout is not known, or that the program computes itself.
    """
    tasks = list(image.tasks)
    constant = {kernel.task: kernel for kernel in image.kernels if kernel.is_constant}
    sections = {True: image.const, False: image.kernel_section}
    for index, arrays in changes.items():
        where = f"task[{index}]"
        if index not in constant:
            raise UsageError("the task has no kernel in the constant section", where=where)
        unknown = sorted(set(arrays) - set(PARTS))
        if unknown:
            raise UsageError(f"a kernel has no {', '.join(unknown)}", where=where, hint=f"it has {', '.join(PARTS)}")
        table, place = arrays.get("table"), constant[index].channel == CONST
        changed, sections[place] = streams.replace_kernel(
            tasks[index],
            sections[place],
            arrays.get("indices", arrays.get("weights")),
            arrays.get("bias"),
            None if table is None else np.ascontiguousarray(table, "<u2").tobytes(),
            where,
            palette=arrays.get("palette"),
            scales=arrays.get("scales"),
        )
        if changed is not tasks[index]:
            changed.place = tasks[index].place
            tasks[index] = changed
    return image.patched(tasks, sections[True], sections[False])
