"""Bytes that a compiled program moves between memory and the engine, task by task, and the least that it needs.

Operands, results and their places are read from the registers as the emulator reads them, so programs of every
generation that it runs are counted, whoever compiled them. Elements are counted, not the bursts that carry them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hexane.emulator.ends import TaskResult, TaskSource
from hexane.emulator.registers import Registers
from hexane.emulator.strides import last_byte
from hexane.emulator.task import EngineTask as Understood
from hexane.emulator.task import understand
from hexane.isa.channels import CONST
from hexane.isa.roles import roles_of
from hexane.rounding import ceil_div

if TYPE_CHECKING:
    from hexane.image import Image
    from hexane.isa import Task
    from hexane.program import Program


@dataclass(frozen=True)
class TaskTraffic:
    """Bytes of one task: operands that it reads from memory, its kernel streams, its result if it is sent there.

    ``l2_end`` is the end of the highest region of L2 that the task names.
    """

    read: int
    kernel: int
    written: int
    l2_end: int


@dataclass(frozen=True)
class Traffic:
    """Bytes of a whole program.

    ``read``, ``kernel`` and ``written`` are sums over tasks. ``compulsory`` is what no program of the same segments can
    do without: its inputs and outputs, and its constants and weights once. ``l2_end`` is the highest end of a region of
    L2, of the generation's ``l2_bytes``.
    """

    read: int
    kernel: int
    written: int
    compulsory: int
    l2_end: int

    @property
    def moved(self) -> int:
        """All bytes that cross."""
        return self.read + self.kernel + self.written

    @property
    def ratio(self) -> float:
        """Bytes moved over the compulsory ones; 1 is the least."""
        return self.moved / self.compulsory if self.compulsory else 1.0


def traffic(program: Program) -> Traffic:
    """The traffic of a program's engine segments. EmulationError for a task that the emulator does not know."""
    tasks = [task for image in program.images for task in traffic_of_tasks(image.tasks)]
    return Traffic(
        read=sum(task.read for task in tasks),
        kernel=sum(task.kernel for task in tasks),
        written=sum(task.written for task in tasks),
        compulsory=sum(map(_compulsory, program.images)),
        l2_end=max((task.l2_end for task in tasks), default=0),
    )


def traffic_of_tasks(tasks: list[Task]) -> list[TaskTraffic]:
    """The traffic of each task of one engine program, in order."""
    return [_of_task(Registers(index, task)) for index, task in enumerate(tasks)]


def _of_task(r: Registers) -> TaskTraffic:
    task = understand(r)
    operands = [task.source1, *([task.source2] if task.source2 is not None else [])]
    read = sum(prod(o.stored) * o.dtype.itemsize for o in operands if o.surface is not None)
    if task.source1.surface is not None:
        read += _read_again(task)
    result = task.result
    bytes_written = prod(result.stored) * result.dtype.itemsize if result.surface is not None else 0
    placed: list[TaskSource | TaskResult] = [*operands, *([] if result.automatic else [result])]
    ends = [last_byte(p.region.base, p.region.window(p.stored), p.region.strides(), p.dtype.itemsize) for p in placed]
    return TaskTraffic(read, _kernel(r, task), bytes_written, min(max(ends), r.limits.l2_bytes))


def _read_again(task: Understood) -> int:
    """Rows of the first source that two tiles share, read by both."""
    tiles = ceil_div(task.hout, task.tile_height)
    r = task.registers
    shared = max(0, r["Common.ConvCfg.Kh"] - r["Common.ConvCfg.Sy"]) if task.unit == "NE" else 0
    extent = task.source1.stored
    return (tiles - 1) * shared * prod(extent._replace(h=1)) * task.source1.dtype.itemsize


def _kernel(r: Registers, task: Understood) -> int:
    """Kernel streams of all cores; a stream that several cores share counts once."""
    if task.unit != "NE":
        return 0
    lanes = {}
    core = 0
    while r.has(f"KernelDMASrc.CoeffDMAConfig[{core}].En"):
        if r.flag(f"KernelDMASrc.CoeffDMAConfig[{core}].En"):
            lanes[r.addr(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr")] = r.addr(
                f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize"
            )
        core += 1
    return sum(lanes.values())


def _compulsory(image: Image) -> int:
    surfaces = sum(prod(s.shape) * (2 if s.dtype == "float16" else 1) for s in image.surfaces)
    roles = [(roles_of(task.generation), task) for task in image.tasks]
    channels = {roles_of_task.channel(task, side) for roles_of_task, task in roles for side in roles_of_task.channels}
    const = len(image.const) if CONST in channels else 0  # a program without constants has an empty page
    return surfaces + const + len(image.kernel_section)
