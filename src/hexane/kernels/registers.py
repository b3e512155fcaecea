"""From a task's registers to its kernel: the layout, the cores' windows, the values; and changed values back in place.

Everything here follows from the registers of one task and the bytes of its kernel channel (docs/emulator.md),
as the engine itself would. From H14 on dense, grouped and depthwise kernels are packed as on H13; tables have a side
channel and stand there once, sparse bodies have masks of sixteen elements, and a kernel that a task computes is read
pass by pass and group by group with strides of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hexane.chips import generation
from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.frozen import slot_init
from hexane.isa import WRITTEN, Task
from hexane.isa.roles import STREAMS, roles_of
from hexane.isa.schema import Handle
from hexane.kernels.layout import PALETTE_BITS, TABLE_BYTES, KernelLayout
from hexane.kernels.packing import Buffer, KernelStreams, pack, unpack

_FORMATS = {0: "uint8", 1: "int8", 2: "float16"}
_E4M3 = 3
"""Code of E4M3 weights, on generations that have fp8 (docs/reference/compressed.md 2)."""
CONST_CHANNEL = 1
_SHARED = "Common.Cfg.FatTile"
"""log2 of the cores that share a tile (from H16 on); each has its own outputs and its own stream."""
_TABLE = 2
"""NE.MACCfg.NonlinearMode of a look-up table (§4.8)."""


@slot_init
@dataclass(frozen=True, slots=True)
class StreamWindow:
    """Stream of one core: ``size`` bytes at ``offset`` from the task's kernel channel (from its slot, later)."""

    core: int
    offset: int
    size: int


def layout_of(task: Task) -> KernelLayout | None:
    """The geometry of the task's kernel, or None where its kernel DMA is off; raises as `layout_from` does."""
    if not _switched_on(task):
        return None
    streams = Streams(task.generation, is_runtime(task), len(windows_of(task)), side_table(task) is not None)
    return layout_from(_getter(task), streams)


class Streams(NamedTuple):
    """Of a task's kernel: its generation, whether a task or the host writes it, what is read, a table beside it."""

    generation: str
    runtime: bool
    windows: int
    beside: bool


def layout_from(get: Callable[[str], int], streams: Streams) -> KernelLayout:
    """The geometry of a kernel; ``get`` gives the task's values by role.

    Raises
    ------
    UnsupportedError : registers whose stream order is not known (multi-bit palettes, 3-D kernels, ...).
    UsageError : registers that no kernel can have (a kernel height of 0).
    """
    table, roles = get("NE.MACCfg.NonlinearMode") == _TABLE, roles_of(streams.generation)
    if get("NE.MACCfg.KernelMode"):
        cores = _power_of_two(streams.windows)
        return KernelLayout(1, 1, unicast=True, weighted=False, table=table, cores=cores)
    if get("NE.KernelCfg.GroupKernelReuse") or get("KernelDMASrc.MasterConfig.GroupKernelReuse"):
        raise UnsupportedError("the stream of a kernel that groups share is not known", where="NE.KernelCfg")
    sparse = bool(get("NE.KernelCfg.SparseFmt"))
    if get("Common.ConvCfg3d.Kd") > 1:
        raise UnsupportedError("the stream of a 3-D kernel is not known", where="Common.ConvCfg3d.Kd")
    unicast = bool(get("Common.GroupConvCfg.UnicastEn"))
    binary = bool(get("NE.KernelCfg.SparseBinary"))
    palette = _index_bits(get, binary)
    code = get("NE.KernelCfg.KernelFmt")
    formats = {**_FORMATS, _E4M3: "e4m3"} if generation(streams.generation).fp8 else _FORMATS
    if code not in formats:
        raise UnsupportedError(f"kernel format {code} is not known", where="NE.KernelCfg.KernelFmt")
    step = (get("Common.ConvCfg.Oy"), get("Common.ConvCfg.Ox"))
    stride = (get("Common.ConvCfg.Sy"), get("Common.ConvCfg.Sx"))
    widened = step == (1, 2) and stride == (1, 2)
    if step != (1, 1) and not widened:
        raise UnsupportedError(
            f"the kernel of a task with {step[0]} x {step[1]} outputs per step is not known", where="Common.ConvCfg"
        )
    return KernelLayout(
        cout=get("Common.Cout.Cout"),
        cin=get("Common.GroupConvCfg.UnicastCin") if unicast else get("Common.Cin.Cin"),
        kh=get("Common.ConvCfg.Kh"),
        kw=get("Common.ConvCfg.Kw"),
        groups=get("Common.GroupConvCfg.NumGroups"),
        unicast=unicast,
        cores=1 << get("Common.Cfg.ActiveNE") + (get(_SHARED) if roles.has(_SHARED) else 0),
        ocg=get("Common.ConvCfg.OCGSize"),
        dtype=formats[code],
        palette=palette,
        scales=bool(get("NE.MACCfg.PostScaleMode")),
        stride=stride,
        sparse=sparse,
        binary=binary,
        bias=bool(get("NE.MACCfg.BiasMode")),
        table=table and not streams.beside,
        widened=widened,
        runtime=streams.runtime,
        mask_elements=16 if sparse and roles.family.packed else 8,
    )


def _getter(task: Task) -> Callable[[str], int]:
    """The task's values by role (`hexane.isa.roles`)."""
    handle = roles_of(task.generation).handle
    return lambda role: task.read(handle(role))


def is_runtime(task: Task) -> bool:
    """True where the kernel is a tensor that a task or the host writes, as the task's words tell.

    H13 has a bit for it. On H14 the kernel has another slot than the constants; later kernels have a section of their
    own behind the surfaces, but lanes that read a tensor are switched on by an address record, as all DMA engines of
    tensors are.
    """
    if task.family.linked:
        return bool(task.get("NE.KernelCfg.KernelAlign"))
    if not task.family.switched:
        return roles_of(task.generation).channel(task, "kernel") not in (None, CONST_CHANNEL)
    return task.slot("KernelDMASrc.CoeffDMAConfig[0]") is not None


def _index_bits(get: Callable[[str], int], binary: bool) -> int:
    """Bits of a palette index, 0 for a stream of values or of masks alone."""
    bits = get("NE.KernelCfg.PalettizedBits") if get("NE.KernelCfg.PalettizedEn") else 0
    if (binary and bits != 1) or bits not in (0, *PALETTE_BITS):
        raise UnsupportedError(
            f"the stream of {bits}-bit palette indices{' behind masks' * binary} is not known",
            where="NE.KernelCfg.PalettizedBits",
            hint=f"known are {', '.join(map(str, PALETTE_BITS))}, and 1 behind masks",
        )
    return 0 if binary else bits


def windows_of(task: Task) -> list[StreamWindow]:
    """Streams of the enabled cores, in core order; empty where the kernel DMA is off.

    A table in the side channel (H14) counts as core 0's where no core has a stream.
    """
    if not _switched_on(task):
        return []
    base = 0 if task.family.linked else task.get("KernelDMASrc.KernelBase.Addr")
    values = task.read_each("streams", _stream_handles(task))
    windows = [
        StreamWindow(core, 64 * (base + values[3 * core + 1]), 64 * values[3 * core + 2])
        for core in range(STREAMS)
        if values[3 * core]
    ]
    side = side_table(task)
    return windows or ([side] if side else [])


_STREAM_HANDLES: dict[str, list[Handle]] = {}


def _stream_handles(task: Task) -> list[Handle]:
    """Switch, address and size of every core's stream, resolved once per generation."""
    handles = _STREAM_HANDLES.get(task.generation)
    if handles is None:
        fields = ("CoeffDMAConfig[{}].En", "CoeffBaseAddr[{}].Addr", "CoeffBfrSize[{}].MemBfrSize")
        names = ([f"KernelDMASrc.{field.format(core)}" for field in fields] for core in range(STREAMS))
        handles = [task.handle(name) for row in names for name in row]
        _STREAM_HANDLES[task.generation] = handles
    return handles


def side_table(task: Task) -> StreamWindow | None:
    """Place of a look-up table that has a DMA channel of its own (from H14 on); None where the task has none."""
    if task.family.linked or not _switched_on(task):
        return None
    get = _getter(task)
    if not get("KernelDMASrc.TableDMAConfig.En"):
        return None
    return StreamWindow(0, 64 * get("KernelDMASrc.TableBase.Addr"), 64 * get("KernelDMASrc.TableSize.MemBfrSize"))


def read_kernel(task: Task, memory: Buffer, where: str = "kernel") -> KernelStreams | None:
    """Contents of the task's streams; None for a task without a kernel.

    Parameters
    ----------
    memory : the bytes from the task's kernel channel on: the constant section, or the tensor of a runtime kernel.
    where : names the task in error messages.

    Raises
    ------
    FormatError : a stream reaches beyond ``memory``, is too short, or is no kernel of the task's layout.
    """
    layout = layout_of(task)
    if layout is None:
        return None
    windows = windows_of(task)
    for place, window in enumerate(windows):
        if layout.weighted and window.core != place:
            raise FormatError(f"core {place} is switched off and core {window.core} is on", where=where)
    kernel = unpack(layout, [_slice(memory, window, where) for window in windows], where)
    side = side_table(task)
    if side is None or kernel.table is not None:
        return kernel
    return replace(kernel, table=_slice(memory, side, where)[:TABLE_BYTES].tobytes())


def replace_kernel(
    task: Task,
    memory: Buffer,
    weights: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    table: Buffer | None = None,
    where: str = "kernel",
    palette: np.ndarray | None = None,
    scales: np.ndarray | None = None,
) -> tuple[Task, bytes]:
    """The memory with other values in the task's streams; parts that are not given stay as they are.

    Returns
    -------
    The task and the new memory, as long as the old one. The task is the same object unless a sparse stream became
    shorter: then it is a copy with the new sizes.

    Raises
    ------
    UsageError : a part that the task does not have, one of another shape or dtype, or a sparse kernel that needs more
        room than the old one.
    UnsupportedError : the task has no kernel, or one that the program computes.
    """
    kernel = read_kernel(task, memory, where)
    if kernel is None:
        raise UnsupportedError("the task has no kernel to replace", where=where)
    layout, windows = kernel.layout, windows_of(task)
    values = (kernel.weights if kernel.indices is None else kernel.indices) if weights is None else weights
    new_table = kernel.table if table is None else bytes(table)
    result = bytearray(memory)
    side = None if layout.table else side_table(task)
    if side is not None:
        result[side.offset : side.offset + TABLE_BYTES] = _table_bytes(new_table, where)
        new_table = None
    packed = pack(
        layout,
        values,
        kernel.bias if bias is None else bias,
        new_table,
        kernel.palette if palette is None and (weights is None or layout.palette) else palette,
        kernel.scales if scales is None else scales,
    )
    if not layout.weighted:
        for window in windows:
            result[window.offset : window.offset + packed.sizes[0]] = packed.data[: packed.sizes[0]]
        return task, bytes(result)
    changed = task
    for window, offset, size in zip(windows, packed.offsets, packed.sizes):
        if size > window.size:
            raise UsageError(
                f"core {window.core} would need {size} bytes and has {window.size}",
                where=where,
                hint="a sparse stream cannot grow in place; keep as many zeros as before",
            )
        piece = packed.data[offset : offset + size]
        if size != kernel.consumed[window.core]:
            changed = changed.copy() if changed is task else changed
            changed.set(f"KernelDMASrc.CoeffBfrSize[{window.core}].MemBfrSize", size // 64)
            piece += bytes(window.size - size)
        result[window.offset : window.offset + len(piece)] = piece
    return changed, bytes(result)


def _switched_on(task: Task) -> bool:
    if task.generation not in WRITTEN:
        raise UnsupportedError(
            f"kernels of {task.generation} tasks are not read",
            where="kernel",
            hint=f"known are {' and '.join(WRITTEN)}",
        )
    return bool(task.get("KernelDMASrc.MasterConfig.MasterEnable"))


def _table_bytes(table: bytes | None, where: str) -> bytes:
    if table is None or len(table) != TABLE_BYTES:
        raise UsageError("a table has 128 bytes", where=where)
    return table


def _power_of_two(count: int) -> int:
    """The cores of a table task; the layout only asks how many share the table."""
    if not count:
        raise FormatError("the kernel DMA is on and no core is", where="KernelDMASrc.CoeffDMAConfig")
    return 1 << (count - 1).bit_length()


def _slice(memory: Buffer, window: StreamWindow, where: str) -> np.ndarray:
    view = np.frombuffer(memory, np.uint8) if not isinstance(memory, np.ndarray) else memory.reshape(-1).view(np.uint8)
    if window.offset + window.size > view.size:
        raise FormatError(
            f"core {window.core} reads {window.size:#x} bytes at {window.offset:#x}, behind the end at {view.size:#x}",
            where=where,
            offset=window.offset,
        )
    return view[window.offset : window.offset + window.size]
