"""The kernel DMA: which bytes each core gets, and what the neural cores make of them (spec/engine-h13 §4.9, §9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hexane.emulator.memory import Memory
from hexane.emulator.registers import Registers
from hexane.emulator.task import Task
from hexane.errors import FormatError, HexaneError
from hexane.isa.channels import CONST
from hexane.kernels import Kernel, KernelLayout, layout_of, unpack

CORES = 16
TABLE_BYTES = 128
TABLE = 2  # NE.MACCfg.NonlinearMode


T = TypeVar("T")


@dataclass(frozen=True)
class Fetched:
    """A task's kernel: constant, or to be read anew in every run because a task or the host writes it.

    ``layout`` and what ``read`` gives are None where the kernel DMA is off.
    """

    layout: KernelLayout | None
    read: Callable[[], Kernel | None]
    constant: bool

    def when_read(self, make: Callable[[Kernel | None], T]) -> Callable[[], T]:
        """What ``make`` makes of the kernel: once and now of a constant one, else at every call."""
        if not self.constant:
            return lambda: make(self.read())
        made = make(self.read())
        return lambda: made


def fetch(task: Task, memory: Memory) -> Fetched:
    """A neural core task's streams, checked.

    A stream that is longer than what the cores consume hangs the engine (spec/engine-h13 §4.9), so it is an error,
    and so is a shorter one; what is wrong inside a stream shows when it is read.
    """
    r = task.registers
    if not r.flag("KernelDMASrc.MasterConfig.MasterEnable"):
        _require_off(r)
        return Fetched(None, lambda: None, constant=True)
    if not r.flag("Header[9].KBE0"):
        raise r.error("the kernel DMA is on and has no channel", "Header[9].KBE0")
    cores = _cores(r)
    _require_agreement(r)
    layout = _layout(task)
    _require_cores(task, layout, cores)
    return Fetched(layout, lambda: _read(r, layout, memory, cores), constant=r["Header[9].KBase0"] == CONST)


def _read(r: Registers, layout: KernelLayout, memory: Memory, cores: list[int]) -> Kernel:
    chunks = [_stream(r, memory, core) for core in cores]
    if not layout.weighted:
        return _table_only(r, layout, chunks)
    try:
        kernel = unpack(layout, chunks, where=f"task[{r.index}]")
    except FormatError as error:
        raise r.error(
            f"the cores cannot read their streams: {error}", "KernelDMASrc.CoeffBfrSize[0].MemBfrSize"
        ) from error
    for core, used in enumerate(kernel.consumed):
        if chunks[core].size != used:
            raise r.error(
                f"the stream has {chunks[core].size:#x} bytes and the core consumes {used:#x}; the engine would hang",
                f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize",
                address=r.addr(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr"),
            )
    if layout.table:
        _require_same_tables(r, chunks)
    return kernel


def _require_agreement(r: Registers) -> None:
    """The DMA and the cores are told the same of the stream."""
    if r["KernelDMASrc.MasterConfig.SparseFmt"] != r["NE.KernelCfg.SparseFmt"]:
        raise r.error("must agree with NE.KernelCfg.SparseFmt", "KernelDMASrc.MasterConfig.SparseFmt")
    if r.flag("NE.KernelCfg.KernelAlign") != (r["Header[9].KBase0"] != CONST):
        raise r.error("set exactly when the kernel is a tensor, not a constant", "NE.KernelCfg.KernelAlign")
    if r.flag("NE.MACCfg.KernelMode"):
        for name in _OF_WEIGHTS:
            r.one_of(name, (0,), "the task has no weights")


_OF_WEIGHTS = (
    "NE.KernelCfg.PalettizedEn",
    "NE.KernelCfg.SparseFmt",
    "NE.KernelCfg.SparseBinary",
    "NE.MACCfg.BiasMode",
)


def _layout(task: Task) -> KernelLayout:
    r = task.registers
    try:
        layout = layout_of(r.descriptor)
    except HexaneError as error:
        raise r.error(f"the kernel has no known layout: {error}", "NE.KernelCfg.KernelFmt") from error
    assert layout is not None  # the kernel DMA is on
    lanes = -(-layout.cout // layout.cores)
    if layout.weighted and not layout.unicast and layout.ocg > (lanes - 1).bit_length():
        raise r.error(f"passes of {1 << layout.ocg} lanes, and a core has {lanes}", "Common.ConvCfg.OCGSize")
    return layout


def _cores(r: Registers) -> list[int]:
    return [core for core in range(CORES) if r.flag(f"KernelDMASrc.CoeffDMAConfig[{core}].En")]


def _require_off(r: Registers) -> None:
    for name in (
        "Header[9].KBE0",
        "Header[9].KBase0",
        "KernelDMASrc.MasterConfig.SparseFmt",
        "NE.KernelCfg.KernelAlign",
    ):
        if r[name]:
            raise r.error("the task has no kernel DMA", name)
    for name in _OF_WEIGHTS:
        r.one_of(name, (0,), "the task has no kernel")
    if not r.flag("NE.MACCfg.KernelMode") or r["NE.MACCfg.NonlinearMode"] == TABLE or r.flag("NE.MACCfg.BiasMode"):
        raise r.error(
            "the task needs a kernel stream and the kernel DMA is off", "KernelDMASrc.MasterConfig.MasterEnable"
        )


def _require_cores(task: Task, layout: KernelLayout, cores: list[int]) -> None:
    """The enabled cores are the first ones, as many as have an output channel to compute."""
    r = task.registers
    wanted = layout.active if layout.weighted else min(1 << r["Common.Cfg.ActiveNE"], task.cout)
    if cores != list(range(wanted)):
        odd = min(set(range(wanted)).symmetric_difference(cores))
        raise r.error(
            f"{len(cores)} cores have a stream, {wanted} have channels to compute",
            f"KernelDMASrc.CoeffDMAConfig[{odd}].En",
        )


def _stream(r: Registers, memory: Memory, core: int) -> np.ndarray:
    size = r.addr(f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize")
    start = r.addr(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr")
    register = f"KernelDMASrc.CoeffBaseAddr[{core}].Addr"
    return memory.bytes(r["Header[9].KBase0"], start, size, task=r.index, register=register)


def _table_only(r: Registers, layout: KernelLayout, chunks: list[np.ndarray]) -> Kernel:
    wanted = TABLE_BYTES if layout.table else 0
    for core, chunk in enumerate(chunks):
        if chunk.size != wanted:
            raise r.error(
                f"the stream has {chunk.size:#x} bytes and the core consumes {wanted:#x}; the engine would hang",
                f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize",
                address=r.addr(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr"),
            )
    _require_same_tables(r, chunks)
    return Kernel(layout, None, table=chunks[0].tobytes() if layout.table else None, consumed=(wanted,) * len(chunks))


def _require_same_tables(r: Registers, chunks: list[np.ndarray]) -> None:
    """Each core has its own copy of the table; with different copies the result would depend on the core."""
    first = chunks[0][:TABLE_BYTES]
    for core, chunk in enumerate(chunks):
        if not np.array_equal(chunk[:TABLE_BYTES], first):
            raise r.error(
                "the core's look-up table differs from that of core 0", f"KernelDMASrc.CoeffBaseAddr[{core}].Addr"
            )
