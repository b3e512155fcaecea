"""Layout of a kernel stream: the numbers that fix the place of every weight, and nothing about their values.

A task's kernel is one byte stream per neural core (docs/reference/engine-h13.md 9). A core works in *passes*: in one
pass it holds a few output channels (*lanes*) in its accumulators and reads every coefficient of those lanes. The stream
is the passes' coefficients in the order in which the core needs them, each pass preceded by the bias of its lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.frozen import slot_init
from hexane.rounding import align, ceil_div

CHUNK_ALIGN = 64
"""Every core's stream starts and ends on 64 bytes (§9)."""
TABLE_BYTES = 128
"""A look-up table at the head of a core's stream (§9.1)."""
PALETTE_BYTES = 64
"""A palette at the head of a core's stream (§9.10)."""
SPARSE_LANES = 4
"""A sparse stream holds lanes in fours; lanes that do not exist are zero (§9.6)."""

PALETTE_BITS = (1, 2, 3, 4, 6, 8)
"""Widths of a palette's indices that the formats know."""

_FORMATS: dict[str, np.dtype] = {
    "float16": np.dtype("<u2"),
    "int8": np.dtype("u1"),
    "uint8": np.dtype("u1"),
    "e4m3": np.dtype("u1"),
}
_MOST_CHANNELS = 1 << 17
_MOST_WEIGHTS = 1 << 31


@dataclass(frozen=True)
class Pass:
    """One pass of a dense kernel: output channels ``first + core * lanes + lane``, counted within the group."""

    first: int
    lanes: int


@slot_init
@dataclass(frozen=True, slots=True)
class KernelLayout:
    """The geometry of one task's kernel (docs/reference/engine-h13.md 9).

    Parameters
    ----------
    cout, cin : output and input channels *per group*; with ``unicast`` all output channels, and the inputs of one.
    kh, kw : kernel height and width in pixels.
    groups : how often the task runs over its channels (register ``Common.GroupConvCfg.NumGroups``).
    unicast : each output channel has ``cin`` inputs of its own (depthwise: ``cin`` = 1).
    cores : neural cores that share the output channels, a power of two up to 16.
    ocg : log2 of the most lanes of a pass (register ``Common.ConvCfg.OCGSize``); of no meaning with ``unicast``.
    dtype : what the core multiplies with, or what the palette holds: "float16", "int8", "uint8" or "e4m3".
    palette : bits of an index (1, 2, 3, 4, 6 or 8) of a stream of indices into a palette; 0 of a stream of values.
    scales : one fp16 factor per output channel stands before the coefficients of its pass.
    stride : (rows, columns) as in the task's registers; orders the positions of sparse and widened kernels.
    sparse : mask-compressed (§9.6).
    binary : sparse with masks only; a set bit stands for the one entry of a palette of one bit (§9.10).
    bias : a bias per output channel stands before the coefficients of its pass.
    table : a 128-byte look-up table stands at the head of every core's stream.
    widened : two output columns per step, the rewrite of kernels wider than 7 (§9.8).
    weighted : False for a task whose stream holds nothing but a table (implicit kernel of ones, copies).
    runtime : the stream is a tensor that an earlier task or the host wrote (§9.7); the same order, nothing to pack.
    mask_elements : elements that share one mask of a sparse stream: 8 on H13, 16 from H14 on.
    """

    cout: int
    cin: int
    kh: int = 1
    kw: int = 1
    groups: int = 1
    unicast: bool = False
    cores: int = 16
    ocg: int = 4
    dtype: str = "float16"
    palette: int = 0
    scales: bool = False
    stride: tuple[int, int] = (1, 1)
    sparse: bool = False
    binary: bool = False
    bias: bool = False
    table: bool = False
    widened: bool = False
    weighted: bool = True
    runtime: bool = False
    mask_elements: int = 8

    def __post_init__(self) -> None:
        if self.dtype not in _FORMATS:
            raise UsageError(f"kernel format {self.dtype!r} is none of {', '.join(_FORMATS)}", where="KernelLayout")
        for name, low, high in (
            ("cout", 1, _MOST_CHANNELS),
            ("cin", 1, _MOST_CHANNELS),
            ("kh", 1, 32),
            ("kw", 1, 32),
            ("groups", 1, 8192),
            ("ocg", 0, 7),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise UsageError(f"{name} = {value} is outside {low}..{high}", where="KernelLayout")
        if self.cores not in (1, 2, 4, 8, 16):
            raise UsageError(f"cores = {self.cores} is not a power of two up to 16", where="KernelLayout")
        if not set(self.stride) <= {1, 2}:
            raise UsageError(f"stride {self.stride} has a part other than 1 and 2", where="KernelLayout")
        if prod(self.weight_shape) > _MOST_WEIGHTS:
            raise UsageError(f"a kernel of {self.weight_shape} is larger than any program holds", where="KernelLayout")
        if self.weighted:
            self._refuse_unknown()

    def _refuse_unknown(self) -> None:
        """Combinations whose bytes nobody has decoded (docs/reference/engine-h13.md 9.8, 9.10, 17)."""

        def refuse(what: str, hint: str) -> None:
            raise UnsupportedError(f"the layout of {what} is not known", where="kernel", hint=hint)

        if self.unicast and self.groups > 1:
            refuse("a unicast kernel with groups", "use one task per group")
        if self.dtype != "float16" and (self.sparse or self.widened or self.palette):
            refuse("an 8-bit kernel with mask, palette or widening", "use float16 weights")
        if self.dtype != "float16" and self.unicast and (self.bias or self.scales):
            refuse("a depthwise 8-bit kernel with bias or scales", "use float16 weights")
        if self.binary and (not self.sparse or self.bias or self.table or self.palette):
            refuse("a mask of one value with bias, with a table or without a mask", "use plain float16 weights")
        if self.palette and (self.unicast or self.sparse):
            refuse("a palette with a mask or in a depthwise kernel", "use plain float16 weights")
        if self.scales and (self.unicast or self.sparse or not (self.palette or self.dtype != "float16")):
            refuse("scales of outputs in a plain, sparse or depthwise kernel", "multiply them into float16 weights")
        if self.widened and (not self.unicast or self.sparse or self.cin != 1 or self.kh != 1):
            refuse("a widened kernel other than depthwise 1 x k", "use kernels up to 7 wide, or put the long axis on H")
        if self.palette not in (0, *PALETTE_BITS):
            raise UsageError(f"palette = {self.palette} is none of {PALETTE_BITS}", where="KernelLayout")
        if self.stride != (1, 1) and not (self.sparse or self.widened):
            refuse("a dense stream with stride 2", "kernels with stride 2 are sparse streams")
        full, last, rest = self._cut
        if (
            self.groups > 1
            and not self.runtime
            and full + (last > 0) > 1
            and (self.sparse or rest != last * self.cores)
        ):
            refuse("groups of several passes with mask or with idle cores", "use one task per group")

    # ---- shape ---------------------------------------------------------------------------------------------------

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """Shape of the weights, OIHW; O counts the channels of all groups."""
        return (self.groups * self.cout, self.cin, self.kh, self.kw)

    @property
    def element(self) -> np.dtype:
        """Weights as unsigned integers for packing, so that every bit pattern survives; of a palette the index."""
        return np.dtype("u1") if self.palette else _FORMATS[self.dtype]

    @property
    def bits(self) -> int:
        """Bits of the stream that a coefficient takes."""
        return self.palette or 8 * self.element.itemsize

    @property
    def palette_bytes(self) -> int:
        """Bytes of the palette: as many units of 64 as its fp16 entries fill (docs/reference/kernels.md)."""
        return align(2 << self.palette, CHUNK_ALIGN) if self.palette else PALETTE_BYTES * self.binary

    @property
    def compressed(self) -> bool:
        """True where something other than one element after another stands in the stream: rows are packed by bits."""
        return bool(self.palette or self.scales or (self.dtype != "float16" and self.bias))

    @property
    def form(self) -> str:
        """The stream in words: "fp16", "int8 with scales", "palette of 4 bits", "mask and fp16", "table" ..."""
        if not self.weighted:
            return "table"
        name = {"float16": "fp16"}.get(self.dtype, self.dtype)
        if self.binary:
            name = "mask of one value"
        elif self.sparse:
            name = f"mask and {name}"
        elif self.palette:
            name = f"palette of {self.palette} bits"
        elif self.runtime:
            name = f"{name}, computed"
        return name + " with scales" * self.scales

    @property
    def taps(self) -> int:
        """Coefficients of one output channel."""
        return self.cin * self.kh * self.kw

    @property
    def positions(self) -> int:
        """Kernel positions of a sparse stream, those outside the kernel that fill up the parity phases included."""
        sy, sx = self.stride
        return align(self.kh, sy) * align(self.kw, sx)

    def passes(self) -> Iterator[Pass]:
        """The passes of a dense kernel, in stream order (§9.2, §8.6).

        A pass holds 2^ocg lanes, the last one what remains. Apple's sections show one pass of any number of lanes (14),
        and full passes with a power of two behind them. For another remainder behind full passes §9.2 may be read as
        powers of two as well; one pass is INFERRED from the single pass of 14.
        """
        full, last, _ = self._cut
        most = 1 << self.ocg
        for i in range(full):
            yield Pass(i * most * self.cores, most)
        if last:
            yield Pass(full * most * self.cores, last)

    @property
    def _cut(self) -> tuple[int, int, int]:
        """Number of full passes, the lanes of the one behind them (0 where there is none), and its channels."""
        full, rest = divmod(self.cout, self.cores << self.ocg)
        return full, ceil_div(rest, self.cores), rest

    @property
    def prefix(self) -> int:
        """Bytes of one core's stream before the first pass."""
        return TABLE_BYTES * self.table + self.palette_bytes

    def core_channels(self, core: int) -> int:
        """Number of output channels (of one group) that the core computes."""
        if self.unicast:
            return len(range(core, self.cout, self.cores))
        full, last, rest = self._cut
        return (full << self.ocg) + min(max(rest - core * last, 0), last)

    @property
    def active(self) -> int:
        """Cores that have anything to read; the others stay switched off."""
        full, last, rest = self._cut
        if not self.weighted or (full and not self.unicast):
            return self.cores
        return min(self.cores, self.cout if self.unicast else ceil_div(rest, last))

    def core_bytes(self, core: int = 0) -> int:
        """Size of the core's stream in bytes; of a sparse stream the size when no weight is zero."""
        return self._stream_bytes(core, 2)

    def least_bytes(self, core: int = 0) -> int:
        """The same; of a sparse stream the size when every weight is zero."""
        return self._stream_bytes(core, 0)

    def _stream_bytes(self, core: int, value: int) -> int:
        """``value``: the bytes that an element of a sparse body takes beside its mask."""
        if not self.weighted:
            return align(self.prefix, CHUNK_ALIGN)
        if self.unicast:
            body = self._body_bytes(1, value) + 2 * self.bias if self.sparse else self.channel_bytes
            return align(self.prefix + self.core_channels(core) * body, CHUNK_ALIGN)
        full, last, rest = self._cut
        part = full * self._pass_bytes(1 << self.ocg, value)
        if core * last < rest:
            part += self._pass_bytes(last, value)
        return self.prefix + self.groups * align(part, CHUNK_ALIGN) if part else 0

    def _pass_bytes(self, lanes: int, value: int) -> int:
        body = self._body_bytes(lanes, value) if self.sparse else ceil_div(lanes * self.taps * self.bits, 8)
        return lanes * 2 * (self.bias + self.scales) + body

    @property
    def channel_bytes(self) -> int:
        """Stream bytes of one channel of a unicast kernel that is not sparse."""
        if self.widened:
            return 2 * (2 * self.bias + 2 * (self.kw + 1))
        return 2 * self.bias + self.taps * self.element.itemsize

    def _body_bytes(self, lanes: int, value: int) -> int:
        elements = self.cin * self.positions * align(lanes, SPARSE_LANES)
        values = 0 if self.binary else value * lanes * self.taps
        return 3 + ceil_div(elements, self.mask_elements) * (self.mask_elements // 8) + values

    @property
    def inferred(self) -> tuple[str, ...]:
        """Part of this layout that follows by analogy only; empty where Apple's bytes show it (§9)."""
        reasons = []
        if not self.weighted or self.runtime:
            return ()
        if not self.unicast and self.cout % self.cores and self.cout > self.cores:
            reasons.append("output channels are not a multiple of the cores")
        full, last, _ = (0, 1, 1) if self.unicast else self._cut
        if full + (last > 0) > 1:
            if last & (last - 1):
                reasons.append("a last pass whose lanes are no power of two")
            if self.bias:
                reasons.append("bias in front of every pass")
            if self.sparse:
                reasons.append("a sparse stream of several passes")
            if self.groups > 1:
                reasons.append("groups of several passes")
        if self.table and self.bias:
            reasons.append("table before bias")
        if self.table and self.groups > 1:
            reasons.append("one table before all groups")
        if self.sparse and self.mask_elements != 8 and (self.kh, self.kw) != (1, 1):
            reasons.append("masks of sixteen elements of a kernel other than 1 x 1")
        if self.sparse and self.stride == (1, 1) and (self.kh, self.kw) != (1, 2):
            reasons.append("a sparse stream at stride 1")
        if self.stride in ((1, 2), (2, 1)) and self.sparse:
            reasons.append("a sparse stream with stride 2 along one axis")
        lanes = 1 << self.ocg if full else last
        if self.sparse and lanes % SPARSE_LANES and lanes != 1:
            which = (
                "sparse streams" if self.stride == (1, 1) else "strided kernels, sparse streams even of dense weights,"
            )
            reasons.append(f"{which} of {lanes} lanes a core: programs show one and multiples of four")
        if self.widened and (self.kw != 9 or not self.bias):
            reasons.append("a widened kernel other than 1 x 9 with bias")
        if self.dtype == "e4m3":
            reasons.append("a kernel of E4M3 numbers")
        elif self.dtype != "float16" and not self.unicast:
            reasons.append("an 8-bit kernel that is not unicast")
        if self.palette:
            if self.bias:
                reasons.append("bias beside a palette")
            if self.table:
                reasons.append("a table beside a palette")
            if self.palette in (3, 6, 8):
                reasons.append(f"indices of {self.palette} bits")
            if self.groups > 1:
                reasons.append("a palette with groups")
        if self.scales and not self.palette:
            reasons.append("scales of outputs beside integer weights")
        return tuple(reasons)
