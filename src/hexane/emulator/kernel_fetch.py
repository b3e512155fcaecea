"""The kernel DMA: which bytes each core gets, and what the neural cores make of them (docs/emulator.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np

from hexane.arithmetic.plain_convolution import WindowPlaces
from hexane.emulator.ends import require_no_channel
from hexane.emulator.memory import Memory
from hexane.emulator.once import once
from hexane.emulator.registers import Registers
from hexane.emulator.task import EngineTask
from hexane.errors import FormatError, HexaneError
from hexane.frozen import dict_init
from hexane.isa.roles import STREAMS
from hexane.kernels import KernelLayout, KernelStreams, Streams, layout_from, side_table, unpack
from hexane.kernels.layout import TABLE_BYTES
from hexane.rounding import align, ceil_div

TABLE = 2  # NE.MACCfg.NonlinearMode


T = TypeVar("T")


def _nowhere() -> WindowPlaces | None:
    return None


@dict_init
@dataclass(frozen=True)
class Fetched:
    """A task's kernel: constant, or to be read anew in every run because a task or the host writes it.

    ``layout`` and what ``read`` gives are None where the kernel DMA is off. ``places`` says where weights that are read
    in every run stand; None where not all of them are plain fp16 numbers in memory.
    """

    layout: KernelLayout | None
    read: Callable[[], KernelStreams | None]
    constant: bool
    places: Callable[[], WindowPlaces | None] = _nowhere

    def when_read(self, make: Callable[[KernelStreams | None], T]) -> Callable[[], T]:
        """Result of ``make`` on the kernel: once and now of a constant one, else at every call."""
        if not self.constant:
            return lambda: make(self.read())
        kernel = make(self.read())
        return lambda: kernel


def fetch(task: EngineTask, memory: Memory) -> Fetched:
    """A neural core task's streams, checked.

    A stream that is longer than what the cores consume hangs the engine (docs/reference/engine-h13.md 4.9), so it is an
    error, and so is a shorter one; what is wrong inside a stream shows when it is read.
    """
    r = task.registers
    if not r.flag("KernelDMASrc.MasterConfig.MasterEnable"):
        _require_off(r)
        return Fetched(None, lambda: None, constant=True)
    channel, beside = r.channel("kernel"), r.has("KernelDMASrc.TableDMAConfig.En") and side_table(r.descriptor)
    if channel is None and not beside:
        raise r.error("the kernel DMA is on and has no channel", r.channel_register("kernel"))
    constant = (
        channel is None or not memory.buffer(channel, task=r.index, register=r.channel_register("kernel")).writable
    )
    cores = _cores(r)
    _require_agreement(r, not constant or bool(beside))
    layout = _layout(r, Streams(r.generation, not constant, len(cores) or bool(beside), bool(beside)))
    if constant:
        for name in ("GroupStride", "OCGStride"):
            r.expect(f"KernelDMASrc.{name}.Stride", 0, "a constant kernel is one stream per core")
    if beside:
        _require_beside(r, cores, layout)
    if layout.weighted or not beside:
        _require_cores(task, layout, cores)
    table = _side_table(r, memory) if beside else None
    if not r.linked and not constant:

        def runtime(where: Memory) -> KernelStreams:
            return read_runtime(r, layout, where, cores, table)

        return Fetched(
            layout, lambda: runtime(memory), constant=False, places=lambda: _places(r, layout, memory, runtime)
        )
    if not layout.weighted and table is not None:
        return Fetched(layout, lambda: KernelStreams(layout, None, table=table), constant=constant)

    @cache  # views, checked when the task runs first
    def chunks() -> list[np.ndarray]:
        return [_stream(r, memory, core) for core in cores]

    def streams(where: Memory) -> KernelStreams:
        return _read(r, layout, [_stream(r, where, core) for core in cores], table)

    def places() -> WindowPlaces | None:
        return None if constant else _places(r, layout, memory, streams)

    return Fetched(layout, lambda: _read(r, layout, chunks(), table), constant=constant, places=places)


@dataclass
class _Numbered(Memory):
    """A memory whose halfwords say which they are, from 1 on: a part of that number."""

    shift: int = 0

    def bytes(self, channel: int, start: int, size: int, *, task: int, register: str) -> np.ndarray:
        if start % 2:  # no halfword of the buffer: nothing is found
            return np.zeros(size, np.uint8)
        numbers = np.arange(start // 2 + 1, (start + size) // 2 + 1) >> self.shift
        return numbers.astype(np.uint16).view(np.uint8)


def _places(
    r: Registers, layout: KernelLayout, memory: Memory, read: Callable[[Memory], KernelStreams]
) -> WindowPlaces | None:
    """Places where ``read`` finds each weight, learned from what it reads of memories that are numbered."""
    channel = r.channel("kernel")
    plain = layout.weighted and layout.dtype == "float16" and not (layout.compressed or layout.palette or layout.sparse)
    if channel is None or not plain or layout.bias or layout.table or layout.scales or layout.unicast:
        return None
    low, high = (read(numbered).weights for numbered in (_Numbered(), _Numbered(shift=16)))
    if low is None or high is None:
        return None
    data = memory.buffer(channel, task=r.index, register=r.channel_register("kernel")).data
    index = low.view(np.uint16) + (high.view(np.uint16).astype(np.int64) << 16) - 1
    if index.min(initial=0) < 0 or index.max(initial=0) >= min(data.size // 2, 1 << 31) or not data.flags.c_contiguous:
        return None
    return WindowPlaces(data, index.astype(np.int32))


def _read(r: Registers, layout: KernelLayout, chunks: list[np.ndarray], table: bytes | None) -> KernelStreams:
    if not layout.weighted:
        return _table_only(r, layout, chunks)
    try:
        kernel = unpack(layout, chunks, where=f"task[{r.index}]")
    except FormatError as error:
        raise r.error(
            f"the cores cannot read their streams: {error}", "KernelDMASrc.CoeffBfrSize[0].MemBfrSize"
        ) from error
    for core, size in enumerate(kernel.consumed):
        if chunks[core].size != size:
            raise r.error(
                f"the stream has {chunks[core].size:#x} bytes and the core consumes {size:#x}; the engine would hang",
                f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize",
                address=r.addr(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr"),
            )
    if layout.table:
        _require_same_tables(r, chunks)
    return kernel if table is None else replace(kernel, table=table)


def _require_beside(r: Registers, cores: tuple[int, ...], layout: KernelLayout) -> None:
    """A table in a channel of its own is for a task that uses one."""
    if r["NE.MACCfg.NonlinearMode"] != TABLE:
        raise r.error("the task uses no table", "KernelDMASrc.TableDMAConfig.En")
    if cores and not layout.weighted:
        raise r.error("a core has a stream, and the task has no weights", f"KernelDMASrc.CoeffDMAConfig[{cores[0]}].En")


def _side_table(r: Registers, memory: Memory) -> bytes:
    window, channel = side_table(r.descriptor), r.channel("table")
    register = r.channel_register("table")
    assert window is not None  # the caller asked
    if channel is None:
        raise r.error("the table has no channel", register)
    if window.size != TABLE_BYTES:
        raise r.error(
            f"a table of {window.size:#x} bytes, and the cores read {TABLE_BYTES:#x}",
            "KernelDMASrc.TableSize.MemBfrSize",
        )
    if memory.buffer(channel, task=r.index, register=register).writable:
        raise r.error("a table that a task could write has no known effect", register)
    return memory.bytes(channel, window.offset, TABLE_BYTES, task=r.index, register=register).tobytes()


def read_runtime(
    r: Registers, layout: KernelLayout, memory: Memory, cores: tuple[int, ...], table: bytes | None = None
) -> KernelStreams:
    """A kernel that a task or the host wrote, from H14 on: blocks of lanes by core, pass and group.

    Block ``b`` holds the coefficients of 2^OCGSize output channels side by side; it belongs to core ``b % 16`` in pass
    ``b // 16``. Passes and groups lie ``OCGStride`` and ``GroupStride`` bytes apart.
    """
    if layout.compressed or layout.bias or layout.sparse or layout.table or layout.dtype != "float16":
        raise r.error("a computed kernel is plain fp16, without a bias row", "NE.KernelCfg.KernelFmt")
    lanes = 1 << layout.ocg
    size = align(layout.taps * lanes * 2, 64)
    values = np.zeros((layout.groups, ceil_div(layout.cout, lanes), lanes, layout.taps), np.uint16)
    starts = [r.addr(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr") for core in cores]
    for core in cores:
        address = r.addr(f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize")
        if address != size:
            raise r.error(
                f"the stream has {address:#x} bytes a pass and the core consumes {size:#x}; the engine would hang",
                f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize",
            )
    channel, base = r.channel("kernel"), r.addr("KernelDMASrc.KernelBase.Addr")
    assert channel is not None  # a runtime kernel has one
    register = r.channel_register("kernel")
    group_stride, pass_stride = (r.addr(f"KernelDMASrc.{name}.Stride") for name in ("GroupStride", "OCGStride"))
    for group in range(layout.groups):
        for block in range(values.shape[1]):
            step, core = divmod(block, len(cores))
            start = base + group * group_stride + step * pass_stride + starts[core]
            raw = memory.bytes(channel, start, layout.taps * lanes * 2, task=r.index, register=register)
            values[group, block] = raw.view(np.uint16).reshape(layout.taps, lanes).T
    weights = values.reshape(layout.groups, -1, layout.taps)[:, : layout.cout]
    weights = np.ascontiguousarray(weights).reshape(layout.weight_shape).view(np.float16)
    return KernelStreams(layout, weights, table=table, consumed=(size,) * len(cores))


@once
def _require_agreement(r: Registers, aligned: bool) -> None:
    """The DMA and the cores are told the same of the stream."""
    if r["KernelDMASrc.MasterConfig.SparseFmt"] != r["NE.KernelCfg.SparseFmt"]:
        raise r.error("must agree with NE.KernelCfg.SparseFmt", "KernelDMASrc.MasterConfig.SparseFmt")
    if r.flag("NE.KernelCfg.KernelAlign") != aligned:
        beside = "" if r.linked else ", and with a table beside the streams"
        why = f"set exactly when the kernel is a tensor, not a constant{beside}"
        raise r.error(why, "NE.KernelCfg.KernelAlign")
    if r.flag("NE.MACCfg.KernelMode"):
        for name in _OF_WEIGHTS:
            r.one_of(name, (0,), "the task has no weights")


_OF_WEIGHTS = (
    "NE.KernelCfg.PalettizedEn",
    "NE.KernelCfg.SparseFmt",
    "NE.KernelCfg.SparseBinary",
    "NE.MACCfg.BiasMode",
    "NE.MACCfg.PostScaleMode",
)


@once
def _layout(r: Registers, streams: Streams) -> KernelLayout:
    try:
        layout = layout_from(r.__getitem__, streams)
    except HexaneError as error:
        raise r.error(f"the kernel has no known layout: {error}", "NE.KernelCfg.KernelFmt") from error
    lanes = ceil_div(layout.cout, layout.cores)
    shared = r["Common.Cfg.FatTile"]  # two cores work on one tile: a pass has the lanes of both
    if layout.weighted and not layout.unicast and layout.ocg > (lanes - 1).bit_length() + shared:
        raise r.error(f"passes of {1 << layout.ocg} lanes, and a core has {lanes}", "Common.ConvCfg.OCGSize")
    return layout


@once
def _cores(r: Registers) -> tuple[int, ...]:
    return tuple(core for core in range(STREAMS) if r.flag(f"KernelDMASrc.CoeffDMAConfig[{core}].En"))


@once
def _require_off(r: Registers) -> None:
    for name in ("KernelDMASrc.MasterConfig.SparseFmt", "NE.KernelCfg.KernelAlign"):
        r.expect(name, 0, "the task has no kernel DMA")
    for side in ("kernel", "table"):
        if side in r.roles.channels:
            require_no_channel(r, side, "the task has no kernel DMA")
    for name in _OF_WEIGHTS:
        r.one_of(name, (0,), "the task has no kernel")
    if not r.flag("NE.MACCfg.KernelMode") or r["NE.MACCfg.NonlinearMode"] == TABLE or r.flag("NE.MACCfg.BiasMode"):
        raise r.error(
            "the task needs a kernel stream and the kernel DMA is off", "KernelDMASrc.MasterConfig.MasterEnable"
        )


def _require_cores(task: EngineTask, layout: KernelLayout, cores: tuple[int, ...]) -> None:
    """The enabled cores are the first ones, as many as have an output channel to compute."""
    r = task.registers
    cores_needed = layout.active if layout.weighted else min(1 << r["Common.Cfg.ActiveNE"], task.cout)
    if layout.runtime and not r.linked:
        cores_needed = min(r.limits.cores, ceil_div(task.cout, 1 << layout.ocg))
    if cores != tuple(range(cores_needed)):
        odd = min(set(range(cores_needed)).symmetric_difference(cores))
        raise r.error(
            f"{len(cores)} cores have a stream, {cores_needed} have channels to compute",
            f"KernelDMASrc.CoeffDMAConfig[{odd}].En",
        )


def _stream(r: Registers, memory: Memory, core: int) -> np.ndarray:
    size = r.addr(f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize")
    start = r.addr(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr")
    register = f"KernelDMASrc.CoeffBaseAddr[{core}].Addr"
    channel = r.channel("kernel")
    assert channel is not None  # a stream has one
    base = r.addr("KernelDMASrc.KernelBase.Addr") if not r.linked else 0
    return memory.bytes(channel, base + start, size, task=r.index, register=register)


def _table_only(r: Registers, layout: KernelLayout, chunks: list[np.ndarray]) -> KernelStreams:
    expected = TABLE_BYTES if layout.table else 0
    for core, chunk in enumerate(chunks):
        if chunk.size != expected:
            raise r.error(
                f"the stream has {chunk.size:#x} bytes and the core consumes {expected:#x}; the engine would hang",
                f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize",
                address=r.addr(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr"),
            )
    _require_same_tables(r, chunks)
    return KernelStreams(
        layout, None, table=chunks[0].tobytes() if layout.table else None, consumed=(expected,) * len(chunks)
    )


def _require_same_tables(r: Registers, chunks: list[np.ndarray]) -> None:
    """Each core has its own copy of the table; with different copies the result would depend on the core."""
    first = chunks[0][:TABLE_BYTES]
    for core, chunk in enumerate(chunks):
        if not np.array_equal(chunk[:TABLE_BYTES], first):
            raise r.error(
                "the core's look-up table differs from that of core 0", f"KernelDMASrc.CoeffBaseAddr[{core}].Addr"
            )
