"""Another function in the place of a task's non-linearity: the table, and every field that goes with it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from hexane import isa
from hexane.errors import UnsupportedError, UsageError
from hexane.image.edit import unshared
from hexane.image.image import Image
from hexane.image.kernels import read_kernels, with_kernels
from hexane.isa.channels import CONST
from hexane.isa.roles import STREAMS
from hexane.kernels.tables import known_table

_OPTION = re.compile(r"(?:task\[(\d{1,9})\]=)?([a-z0-9_]+)")
_STREAM = ("CoeffDMAConfig[{}].En", "CoeffBaseAddr[{}].Addr", "CoeffBfrSize[{}].MemBfrSize")
_UNIT = 64
"""Bytes of one step of a stream's address and size."""


def with_tables(image: Image, options: Iterable[str]) -> Image:
    """``task[0]=sigmoid``, or ``sigmoid`` for a program of one task: the function is that of a known table.

    A task with a table gets the other one; an H13 task without a kernel gets the table, the switches of the kernel DMA,
    and a stream of 128 bytes for each core that works, which is what Apple's sigmoid differs from its relu in.

    Raises
    ------
    UsageError : another text, or no such task.
    UnsupportedError : no such table; a task with weights and no table, whose streams a table would lengthen; a later
        generation's task without a table, which has further registers.
    """
    for option in options:
        match = _OPTION.fullmatch(option)
        if match is None or (match[1] is None and len(image.tasks) != 1):
            raise UsageError(f"--table {option!r}", hint="task[N]=FUNCTION; FUNCTION alone for a program of one task")
        index = int(match[1] or 0)
        if index >= len(image.tasks):
            raise UsageError(f"there is no task {index}; the program has {len(image.tasks)}")
        image = _with_table(image, index, known_table(match[2]))
    return image


def _with_table(image: Image, index: int, table: object) -> Image:
    halfwords = np.asarray(table, "<u2")
    kernel = next((reading for reading in read_kernels(image) if reading.task == index), None)
    if kernel is not None:
        if "table" not in kernel.arrays:
            raise UnsupportedError(
                "the task has weights and no table",
                where=f"task[{index}]",
                hint="compile the network with the function",
            )
        return with_kernels(image, {index: {"table": halfwords}})
    image = unshared(image)
    tasks = image.tasks
    task = tasks[index]
    if not task.family.linked:
        raise UnsupportedError(
            f"a table for a task of {image.generation} that has none", where=f"task[{index}]",
            hint="compile the network with the function",
        )  # fmt: skip
    before = image.const if image.kernels else b""
    before += bytes(-len(before) % _UNIT)
    sizes = [t.size for t in tasks]
    task.set("Header[9].KBase0", CONST)
    task.set("Header[9].KBE0", 1)
    task.set("KernelDMASrc.MasterConfig.MasterEnable", 1)
    working = min(1 << task.get("Common.Cfg.ActiveNE"), task.get("Common.Cout.Cout"))
    for core in range(STREAMS):
        stream = (1, len(before) // _UNIT, halfwords.nbytes // _UNIT) if core < working else (0, 0, 1)
        for field, value in zip(_STREAM, stream):
            task.set(f"KernelDMASrc.{field.format(core)}", value)
    task.set("NE.MACCfg.NonlinearMode", "table")
    changed = [t.size for t in tasks] != sizes
    return image.replace(tasks=isa.link(tasks) if changed else tasks, const=before + halfwords.tobytes())
