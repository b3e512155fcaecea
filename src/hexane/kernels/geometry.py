"""From a network's parameters to kernel layouts: which stream a convolution takes, and how it splits into tasks.

These are the choices of Apple's compiler (spec/engine-h13 §4.3, §4.3.1, §7.6, §9); the streams themselves follow from
the layout alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hexane.errors import UnsupportedError, UsageError
from hexane.kernels.layout import KernelLayout

KERNEL_MEMORY_BYTES = 1 << 16
"""Kernel bytes per core of a task whose output is larger than one patch (§7.6)."""
NATIVE_WIDTH = 7
"""The widest fp16 kernel that needs no rewriting (spec/limits §3)."""
WIDEST = 13
"""The widest fp16 kernel that the two-column rewriting takes (spec/limits §3)."""
MOST_CORES_LOG2 = 4


@dataclass(frozen=True)
class Block:
    """One task of a convolution that was split: output channels ``first .. first + layout.cout - 1``."""

    first: int
    layout: KernelLayout


def conv_layout(
    weight_shape: tuple[int, int, int, int],
    *,
    groups: int = 1,
    stride: tuple[int, int] = (1, 1),
    bias: bool = False,
    table: bool = False,
    dtype: str = "float16",
    small_source: bool = False,
    transposed: bool = False,
    dialect: str = "default",
) -> KernelLayout:
    """The layout of a convolution, or of a product with a constant (a 1 x 1 convolution), as one task.

    Parameters
    ----------
    weight_shape : OIHW; I is the input channels of one group.
    stride : (rows, columns).
    small_source, transposed : the task's `SmallSourceMode` and `OutTrans`; together they set how many lanes a pass has.
    dialect : "default" (compiler of macOS 26) or "early" (v4.2.1, §4.11).

    Raises
    ------
    UnsupportedError : strides above 2, kernels that are too wide, combinations whose stream is not known.
    UsageError : shape and groups that do not agree.
    """
    outputs, cin, kh, kw = weight_shape
    if groups < 1 or outputs % groups:
        raise UsageError(f"{outputs} output channels do not divide into {groups} groups", where="conv")
    if not set(stride) <= {1, 2}:
        raise UnsupportedError(
            f"the engine has strides 1 and 2, not {stride}", where="conv", hint="factorise the stride"
        )
    unicast = groups > 1 and outputs == groups
    widened = kw > NATIVE_WIDTH and dtype == "float16"
    if widened and (kw > WIDEST or stride != (1, 1)):
        raise UnsupportedError(f"a kernel {kw} wide with stride {stride} has no known stream", where="conv")
    cout = outputs if unicast else outputs // groups
    cores = cores_for(cout, dialect)
    return KernelLayout(
        cout=cout,
        cin=cin,
        kh=kh,
        kw=kw,
        groups=1 if unicast else groups,
        unicast=unicast,
        cores=cores,
        ocg=0 if unicast else ocg_for(cout, cores, wide=(small_source and not transposed) or dialect == "early"),
        dtype=dtype,
        stride=(1, 2) if widened else stride,
        sparse=stride != (1, 1),
        bias=bias,
        table=table,
        widened=widened,
    )


def table_layout(cores: int) -> KernelLayout:
    """The layout of a task that has a look-up table and no weights; ``cores`` read the same 128 bytes (§10)."""
    return KernelLayout(1, 1, unicast=True, weighted=False, table=True, cores=cores)


def runtime_layout(rows: int, inner: int, cores: int = 16) -> KernelLayout:
    """The layout of a kernel that is a tensor [rows, inner], ``rows / cores`` of them interleaved per core (§9.7)."""
    if rows % cores:
        raise UsageError(f"{rows} rows do not divide among {cores} cores", where="matmul")
    return KernelLayout(rows, inner, cores=cores, ocg=ocg_for(rows, cores, wide=False), runtime=True)


def cores_for(channels: int, dialect: str = "default") -> int:
    """2^ActiveNE: how many cores share ``channels`` outputs (§4.3.1; the early compiler rounds up, §4.11)."""
    bits = (channels - 1).bit_length() if dialect == "early" else channels.bit_length() - 1
    return 1 << min(MOST_CORES_LOG2, bits)


def ocg_for(channels: int, cores: int, wide: bool) -> int:
    """OCGSize: log2 of the lanes of a pass, up to 5 in ``wide`` tasks (small source, not transposed), else 4 (§4.3)."""
    lanes = -(-channels // cores)
    return min((lanes - 1).bit_length(), 5 if wide else 4)


def split_channels(
    layout: KernelLayout, *, one_patch: bool = False, transposed: bool = False, wide: bool = False
) -> list[Block]:
    """Divide a dense layout over its output channels into tasks whose kernels fit the cores' memory (§7.6).

    Parameters
    ----------
    layout : the whole convolution as one task.
    one_patch : the output is one patch of 128 pixels, so that a stream may be longer than the kernel memory.
    transposed : the output is transposed; then blocks ascend, else the highest channels come first.
    wide : as in `ocg_for`.

    Returns
    -------
    Blocks in the order of the tasks and of the constant section.

    Raises
    ------
    UnsupportedError : one lane alone is too large, or a grouped or depthwise kernel is.
    """
    lanes = -(-layout.cout // layout.cores)
    if one_patch or _lane_bytes(layout, lanes) <= KERNEL_MEMORY_BYTES:
        return [Block(0, layout)]
    if layout.unicast or layout.groups > 1:
        raise UnsupportedError("a grouped kernel beyond 64 KiB per core has no known split", where="conv")
    most = _most_lanes(layout, lanes)
    if most == 0:
        raise UnsupportedError(
            f"one output channel takes {_lane_bytes(layout, 1)} bytes, a core holds {KERNEL_MEMORY_BYTES}",
            where="conv",
            hint="divide the input channels and add the parts",
        )
    if most >= 16:
        most -= most % 16
    elif most > 1:
        most -= most % 2
    count = -(-lanes // most)
    step = most * layout.cores
    starts = [i * step for i in range(count)]
    if not transposed:
        starts.reverse()
    blocks = []
    for first in starts:
        channels = min(step, layout.cout - first)
        ocg = ocg_for(channels, layout.cores, wide)
        blocks.append(Block(first, replace(layout, cout=channels, ocg=ocg)))
    return blocks


def _lane_bytes(layout: KernelLayout, lanes: int) -> int:
    """Stream bytes of a core with so many lanes."""
    return replace(layout, cout=lanes * layout.cores).core_bytes() if not layout.unicast else layout.core_bytes()


def _most_lanes(layout: KernelLayout, lanes: int) -> int:
    """The most lanes whose stream fits; 0 where not even one does."""
    low, high = 0, lanes
    while low < high:
        middle = (low + high + 1) // 2
        if _lane_bytes(layout, middle) <= KERNEL_MEMORY_BYTES:
            low = middle
        else:
            high = middle - 1
    return low
