"""Pack a kernel into the streams of the cores, and take it out again (docs/reference/engine-h13.md 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.kernels import streams
from hexane.kernels.compressed import KernelParts, indices_of, pack_compressed, palette_head, unpack_compressed
from hexane.kernels.layout import CHUNK_ALIGN, PALETTE_BYTES, TABLE_BYTES, KernelLayout
from hexane.rounding import align

Buffer = bytes | bytearray | memoryview | np.ndarray

_NATIVE: dict[str, np.dtype] = {
    "float16": np.dtype("<f2"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
    "e4m3": np.dtype("u1"),
}
_ONE = np.float16(1.0)


@dataclass(frozen=True)
class PackedKernel:
    """The streams of one task as they stand in the constant section.

    ``data`` is a multiple of 64 bytes. ``offsets`` and ``sizes`` have one entry for each core that is switched on, in
    bytes; an offset counts from the start of ``data`` (several cores may share one).
    """

    data: bytes
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def registers(self, base: int = 0) -> tuple[list[int], list[int]]:
        """Field values of ``CoeffBaseAddr[].Addr`` and ``CoeffBfrSize[].MemBfrSize``, in units of 64 bytes.

        ``base`` is where ``data`` starts, in bytes from the task's kernel channel.
        """
        if base % 64:
            raise UsageError(f"a kernel cannot start at {base:#x}", hint="kernels start at multiples of 64 bytes")
        return [(base + offset) // 64 for offset in self.offsets], [size // 64 for size in self.sizes]


@dataclass(frozen=True, eq=False)
class KernelStreams:
    """Contents of a task's streams.

    ``weights`` is OIHW in the layout's format (None where the task has none; bits of E4M3 as uint8), ``bias`` and
    ``scales`` float16 [O] or None, ``table`` the 128 bytes of a look-up table or None. ``palette`` holds float16 [32]
    of a binary kernel, float16 [2^bits] of an indexed one, whose ``indices`` are uint8 OIHW and whose weights are the
    entries that they name; else None. ``consumed`` says how many bytes of its stream each core reads, padding included.
    """

    layout: KernelLayout
    weights: np.ndarray | None
    bias: np.ndarray | None = None
    table: bytes | None = None
    palette: np.ndarray | None = None
    consumed: tuple[int, ...] = ()
    scales: np.ndarray | None = None
    indices: np.ndarray | None = None


def pack(
    layout: KernelLayout,
    weights: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    table: Buffer | None = None,
    palette: np.ndarray | None = None,
    scales: np.ndarray | None = None,
) -> PackedKernel:
    """The kernel as the engine reads it.

    Parameters
    ----------
    weights : array of ``layout.weight_shape`` in ``layout.dtype``; None for a layout without weights. With
        ``layout.palette`` either the indices (uint8) or the values (float16), every one of which is in the palette.
    bias : float16 [O], with ``layout.bias``.
    table : 128 bytes (see :mod:`hexane.kernels.tables`), with ``layout.table``.
    palette : float16 [1..32], with ``layout.binary``; its first entry is the value of all weights that are not zero.
        When it is left out, the weights' own value is taken. float16 [1..2^bits] with ``layout.palette``.
    scales : float16 [O], with ``layout.scales``.

    Raises
    ------
    UsageError : something that the layout asks for is missing, or has another shape or dtype.
    UnsupportedError : the layout describes a tensor that the program computes.
    """
    if layout.runtime:
        raise UnsupportedError("a runtime kernel is written by the program, not packed", where="kernel")
    head = _table_bytes(layout, table)
    if not layout.weighted:
        _refuse(weights, "weights", "has none")
        _refuse(bias, "a bias", "has none")
        _refuse(scales, "a row of scales", "has none")
        data = head + bytes(len(head) * (layout.cores - 1))
        return PackedKernel(data, (0,) * layout.cores, (len(head),) * layout.cores)
    if layout.compressed:
        return _packed_compressed(layout, weights, bias, head, palette, scales)
    _refuse(scales, "a row of scales", "has none")
    values = _checked(weights, "weights", layout.weight_shape, layout.dtype).view(layout.element)
    start = None
    if layout.bias:
        start = _checked(bias, "bias", layout.weight_shape[:1], "float16").view("<u2")
    else:
        _refuse(bias, "a bias", "has none")
    if layout.binary:
        entries, values = _binary(values, palette)
        head += entries.tobytes()
    else:
        _refuse(palette, "a palette", "has none")
    if layout.sparse:
        chunks = streams.pack_sparse(layout, values, start, head)
        return _joined(chunks)
    active, sizes, _ = _sizes(layout)
    block = np.zeros((layout.cores, _room(layout)), np.uint8)
    block[:, : len(head)] = np.frombuffer(head, np.uint8)
    (streams.pack_unicast if layout.unicast else streams.pack_dense)(layout, values, start, block)
    if set(sizes) == {block.shape[1]}:
        offsets = tuple(range(0, block.shape[1] * active, block.shape[1]))
        return PackedKernel(block[:active].tobytes(), offsets, sizes)
    return _joined([block[core, :size].tobytes() for core, size in enumerate(sizes)])


def _packed_compressed(
    layout: KernelLayout,
    weights: np.ndarray | None,
    bias: np.ndarray | None,
    head: bytes,
    palette: np.ndarray | None,
    scales: np.ndarray | None,
) -> PackedKernel:
    rows = {}
    for name, row, required in (("bias", bias, layout.bias), ("scales", scales, layout.scales)):
        if required:
            rows[name] = _checked(row, name, layout.weight_shape[:1], "float16").view("<u2")
        else:
            _refuse(row, name, "has none")
    if layout.palette:
        elements, entries = _indexed(layout, weights, palette)
        head += palette_head(entries, layout)
    else:
        _refuse(palette, "a palette", "has none")
        elements = _checked(weights, "weights", layout.weight_shape, layout.dtype).view(layout.element)
    return _joined(pack_compressed(layout, KernelParts(elements, rows.get("bias"), rows.get("scales")), head))


def _indexed(
    layout: KernelLayout, weights: np.ndarray | None, palette: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Indices and palette of a kernel that is given as indices or as values."""
    most = 1 << layout.palette
    if not isinstance(palette, np.ndarray) or palette.dtype != np.float16 or not 1 <= palette.size <= most:
        raise UsageError(f"the layout needs a palette, float16 with 1 to {most} entries", where="kernel")
    palette = np.ascontiguousarray(palette.reshape(-1))
    if isinstance(weights, np.ndarray) and weights.dtype == np.float16:
        values = _checked(weights, "weights", layout.weight_shape, "float16")
        indices = indices_of(values, palette)
        if indices is None:
            raise UsageError(
                "a weight is no entry of the palette", where="kernel", hint="give indices, or other values"
            )
        return indices, palette
    indices = _checked(weights, "indices", layout.weight_shape, "uint8")
    if indices.size and int(indices.max()) >= palette.size:
        raise UsageError(f"index {int(indices.max())} of a palette of {palette.size} entries", where="kernel")
    return indices, palette


def unpack(layout: KernelLayout, chunks: Sequence[Buffer], where: str = "kernel") -> KernelStreams:
    """Read the streams as the cores do.

    Parameters
    ----------
    chunks : the bytes of each core that is switched on, in core order. They may be longer than what is read; how much
        is read is reported in ``consumed``.
    where : names the kernel in error messages.

    Raises
    ------
    FormatError : a stream is too short, or holds what no kernel of this layout can be.
    """
    arrays = [np.frombuffer(chunk, np.uint8) for chunk in chunks]
    active, most_sizes, least_sizes = _sizes(layout)
    if len(arrays) < (active if layout.weighted else 1):
        raise FormatError(
            f"{len(arrays)} cores have a stream, the layout needs {active}", where=where, hint=f"{layout}"
        )
    arrays = arrays[:active]
    for core, (array, least) in enumerate(zip(arrays, least_sizes)):
        if array.size < least:
            raise FormatError(
                f"core {core} has a stream of {array.size} bytes and reads {least}", where=where, offset=array.size
            )
    table = arrays[0][:TABLE_BYTES].tobytes() if layout.table else None
    if table and any(array[:TABLE_BYTES].tobytes() != table for array in arrays):
        raise FormatError("the cores have different look-up tables", where=where)
    if not layout.weighted:
        return KernelStreams(layout, None, table=table, consumed=(align(layout.prefix, CHUNK_ALIGN),) * len(arrays))
    if layout.compressed:
        return _unpacked_compressed(layout, arrays, table, where)
    palette = None
    if layout.binary:
        palette = np.frombuffer(arrays[0][layout.prefix - PALETTE_BYTES : layout.prefix].tobytes(), "<f2")
    if layout.sparse:
        (weights, bias), consumed = streams.unpack_sparse(layout, arrays, where)
        if palette is not None:
            weights *= palette[:1].view(np.uint16)
    else:
        consumed = most_sizes
        block = _stacked(layout, arrays)
        if layout.unicast:
            weights, bias = streams.unpack_unicast(layout, block, where)
        else:
            weights, bias = streams.unpack_dense(layout, block)
    return KernelStreams(
        layout,
        weights.view(_NATIVE[layout.dtype]),
        None if bias is None else bias.view("<f2"),
        table,
        palette,
        consumed,
    )


def _unpacked_compressed(
    layout: KernelLayout, arrays: list[np.ndarray], table: bytes | None, where: str
) -> KernelStreams:
    parts = unpack_compressed(layout, arrays)
    palette = indices = None
    weights = parts.elements.view(_NATIVE[layout.dtype]) if not layout.palette else None
    if layout.palette:
        behind = layout.prefix - layout.palette_bytes
        head = arrays[0][behind : layout.prefix]
        if any((array[behind : layout.prefix] != head).any() for array in arrays):
            raise FormatError("the cores have different palettes", where=where)
        indices = parts.elements
        palette = np.frombuffer(head[: 2 << layout.palette].tobytes(), "<f2")
        weights = palette[indices]
    return KernelStreams(
        layout,
        weights,
        None if parts.bias is None else parts.bias.view("<f2"),
        table,
        palette,
        tuple(layout.core_bytes(core) for core in range(layout.active)),
        None if parts.scales is None else parts.scales.view("<f2"),
        indices,
    )


# ---- parts ---


@lru_cache(maxsize=4096)
def _sizes(layout: KernelLayout) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Number of active cores, and of each the bytes of its stream, and the fewest of a sparse one."""
    cores = range(layout.active)
    return layout.active, tuple(map(layout.core_bytes, cores)), tuple(map(layout.least_bytes, cores))


def _room(layout: KernelLayout) -> int:
    """Bytes of one core's row when all cores are given the room of the fullest, every lane included."""
    return layout.core_bytes(0)


def _stacked(layout: KernelLayout, arrays: list[np.ndarray]) -> np.ndarray:
    """The streams as one array [core, byte]; idle cores and missing ends are zero."""
    room = _room(layout)
    block = np.zeros((layout.cores, room), np.uint8)
    for core, array in enumerate(arrays):
        count = min(room, array.size)
        block[core, :count] = array[:count]
    return block


def _joined(chunks: list[bytes]) -> PackedKernel:
    sizes = tuple(len(chunk) for chunk in chunks)
    offsets = tuple(int(end) for end in np.cumsum((0, *sizes[:-1])))
    return PackedKernel(b"".join(chunks), offsets, sizes)


def _checked(array: np.ndarray | None, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if not isinstance(array, np.ndarray):
        raise UsageError(f"the layout needs {name} of shape {shape}", where="kernel")
    if array.shape != shape or array.dtype != _NATIVE[dtype]:
        raise UsageError(
            f"{name} are {array.dtype} {array.shape}, the layout has {dtype} {shape}",
            where="kernel",
            hint="convert them first; a kernel stores exactly what it is given",
        )
    return np.ascontiguousarray(array)


def _refuse(value: object, name: str, reason: str) -> None:
    if value is not None:
        raise UsageError(f"{name} was given, and the layout {reason}", where="kernel")


def _table_bytes(layout: KernelLayout, table: Buffer | None) -> bytes:
    if not layout.table:
        _refuse(table, "a table", "has none")
        return b""
    if table is None:
        raise UsageError("the layout needs a table of 128 bytes", where="kernel")
    data = bytes(table)
    if len(data) != TABLE_BYTES:
        raise UsageError(f"a table has 128 bytes, not {len(data)}", where="kernel")
    return data


def _binary(values: np.ndarray, palette: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The palette as 32 entries and the weights as zeros and ones (§9.10)."""
    levels = np.unique(values[values != 0])
    entries = np.zeros(PALETTE_BYTES // 2, "<f2")
    if palette is None:
        entries[:1].view("<u2")[:] = levels[:1] if levels.size else _ONE.view("<u2")
    else:
        if palette.ndim != 1 or not 1 <= palette.size <= entries.size or palette.dtype != np.float16:
            raise UsageError("a palette is a float16 array of 1 to 32 entries", where="kernel")
        entries[: palette.size] = palette
    if levels.size > 1 or (levels.size and levels[0] != entries[:1].view("<u2")[0]):
        raise UsageError("a binary kernel has one value besides zero, the palette's first entry", where="kernel")
    return entries, (values != 0).astype("<u2")
