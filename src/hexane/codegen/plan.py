"""Task plans: what one task does and where its operands stand, in the field's words.

A recipe makes plans, ``link`` joins them to a program, and ``encode`` writes each as a task of the target's
generation. Sizes and offsets are bytes, extents are elements, shapes of patches are logarithms to base 2.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, NamedTuple

from hexane.chips import Evidence
from hexane.codegen.operations import (
    COPY,
    IN_L2,
    MAC_CONV,
    PLAIN_KERNEL,
    STAYS,
    UNHINTED,
    After,
    Axes,
    Element,
    Hint,
    KernelFormat,
    Mac,
    PeKind,
    Planar,
    ReadHint,
    Reads,
    WriteHint,
    Writes,
)
from hexane.frozen import slot_init
from hexane.isa import channels

SOURCE, SECOND, RESULT = SIDES = ("source", "source2", "result")
"""The sides of a task."""

WALKS = {SOURCE: "src", SECOND: "src2", RESULT: "dst"}
"""The field of each with its walk through DRAM."""

OWN_DMA = "a broadcast operand by its own DMA"
"""The note of a planar task of H13 whose second operand is so; found in L2, it is as in Apple's chains."""


class Space(IntEnum):
    """Base of a DMA offset: a channel of docs/reference/engine-h13.md 5."""

    CONST = channels.CONST
    SCRATCH = channels.SCRATCH
    SURFACE = channels.FIRST_SURFACE


@slot_init
@dataclass(frozen=True, slots=True)
class Buffer:
    """A run of DRAM: a surface (by tensor name), a scratch buffer or constant data (both by their own name)."""

    name: str
    space: Space


@slot_init
@dataclass(frozen=True, slots=True)
class Dma:
    """One operand in DRAM as one task walks it: ``offset`` from the buffer, strides per axis, element size."""

    buffer: Buffer
    offset: int
    row: int
    plane: int
    depth: int
    group: int
    element: int = 2
    interleave: int = 1

    def moved(self, by: int) -> Dma:
        """The same walk, ``by`` bytes further."""
        return Dma(
            self.buffer,
            self.offset + by,
            self.row,
            self.plane,
            self.depth,
            self.group,
            self.element,
            self.interleave,
        )


class EarlierReader(NamedTuple):
    """An earlier task that read a place in DRAM: how many tasks lie between, and whether it read a kernel there."""

    between: int
    as_kernel: bool


@slot_init
@dataclass(frozen=True, slots=True)
class Region:
    """A place in L2 as one task walks it; all zero behind an automatic result buffer.

    Source: docs/reference/engine-h13.md 7.1.
    """

    base: int = 0
    channel: int = 0
    row: int = 0
    depth: int = 0
    group: int = 0

    def at(self, base: int) -> Region:
        """The same elsewhere."""
        return Region(base, self.channel, self.row, self.depth, self.group)


@slot_init
@dataclass(frozen=True, slots=True, eq=False)
class TaskKernel:
    """The kernel streams of one task: bytes, and per enabled core its offset inside them and its size.

    ``source`` is None for data of the const section. A runtime kernel (docs/reference/engine-h13.md 9.7) has no data;
    it names the buffer that it is read from, and ``offset`` is the first core's distance from that buffer.
    """

    data: bytes
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    sparse: bool = False
    source: Buffer | None = None
    offset: int = 0
    name: str | None = None
    group_stride: int = 0  # bytes to the next group's kernels, of a runtime kernel that serves several
    pass_stride: int = 0  # bytes from one pass of the cores to the next
    total: int = 0  # bytes of one group, 0: of one pass
    inferred: tuple[str, ...] = ()  # what of the layout follows by analogy only

    @property
    def bytes_read(self) -> int:
        """Bytes that the cores fetch; a table that all of them share counts once (docs/reference/engine-h13.md 16)."""
        return self.total or sum(dict(zip(self.offsets, self.sizes)).values())


@dataclass(eq=False, frozen=True)
class Plan:
    """One task. Defaults are the values of a register that the task has no use for; a plan equals itself alone.

    A plan never changes: what a later step knows better is another plan (``but``) in its place.
    """

    unit: str  # "NE" or "PE"
    w: int = 1
    h: int = 1
    c: int = 1
    d: int = 1
    wout: int = 0  # 0: as the input
    hout: int = 0
    cout: int = 0
    dout: int = 0
    in_format: Element = Element.FP16
    out_format: Element = Element.FP16
    kw: int = 1
    kh: int = 1
    sx: int = 1
    sy: int = 1
    px: int = 0
    py: int = 0
    ox: int = 1
    ocg: int = 0
    groups: int = 1
    unicast: int = 0  # input channels per output channel, 0 = dense
    pairs: bool = False  # ElemMultMode
    tile: int = 0  # 0: the whole output height
    patch: tuple[int, int] = (0, 0)
    broadcast1: Axes = Axes.NONE
    broadcast2: Axes = Axes.NONE
    transpose1: bool = False
    transpose2: bool = False
    transpose_out: bool = False
    small_source: bool = False
    kind: PeKind = PeKind.NE_TASK
    shape: tuple[int, int, int] = (0, 0, 0)  # ShPref, ShMin, ShMax
    cores_log2: int = 0
    fat_tile: bool = False  # two cores share a tile of twice the width and the outputs of both
    stack_log2: int = 0  # work units that each core takes one above the other
    double_buffer: bool = False
    out_trans: bool = False
    power_category: int = 0  # for power estimation
    # DRAM side
    src: Dma | None = None
    src_hint: Hint = UNHINTED
    src2: Dma | None = None
    src2_hint: Hint = UNHINTED
    src_staged: bool = False  # consumer of a staging pair: the walk is kept, the DMA is off
    dst: Dma | None = None
    dst_hint: WriteHint | None = None
    dst_after: EarlierReader | None = None  # the last to read the place that is written
    dst_staged: bool = False
    # L2 side
    relu_second: bool = False  # source 2 is clamped at 0 on its way out of L2
    pad_lowest: bool = False  # padding reads as the most negative number
    reads: Reads = IN_L2
    first_after: After = After.NOTHING  # what source 1 waits for besides, where each source says its own
    second_after: After = After.NOTHING  # and source 2
    source: Region = Region()
    source2: Region = Region()
    writes: Writes = STAYS
    result: Region = Region()
    # planar engine
    pe: Planar = COPY
    bias: float = 0.0  # this and the next three are rounded to fp16
    scale: float = 1.0
    epsilon: float = 0.0
    prescale: float = 1.0
    final: float = 1.0
    # neural engine
    kernel_format: KernelFormat = PLAIN_KERNEL
    mac: Mac = MAC_CONV
    acc_bias: float = 0.0  # rounded to fp16, as the next
    post_scale: float = 1.0
    kernel: TaskKernel | None = None
    kernel_hint: ReadHint = ReadHint.NOALLOC
    # program
    holds: bool = False  # L2 content is needed by the next task: the L2 group goes on
    streams: bool = False  # strips go to the next task, which runs at the same time (§12.1)
    goes_beside: bool = False  # the next task is the other unit's, and its first source waits for nothing
    streams_in: bool = False  # the other end of such a pair
    dtid: int | None = None  # plan index of the task that staged this task's kernel
    tables: tuple[str, ...] = ()
    time_ns: float = 0.0  # engine-bound time where a rule is known (§16)
    read_rows: int = 0  # source rows that the tiles read again
    evidence: Evidence = Evidence.APPLE
    op: str = ""
    note: str = ""
    macs: int = 0

    def __post_init__(self) -> None:
        own = vars(self)
        for result, source in (("wout", "w"), ("hout", "h"), ("cout", "c"), ("dout", "d"), ("tile", "hout")):
            own[result] = own[result] or own[source]

    def but(self, **changes: Any) -> Plan:
        """The same task with other values of some fields; TypeError for a field that there is not."""
        plan = object.__new__(Plan)
        own = vars(plan)
        own.update(vars(self))
        own.update(changes)
        if len(own) != FIELDS:
            raise TypeError(f"no field of a plan: {', '.join(changes.keys() - vars(self).keys())}")
        return plan

    def inferred(self, note: str) -> Plan:
        """The same task, of which no program of Apple's is an example; ``note`` says what of it."""
        return self.but(evidence=Evidence.INFERRED, note=note)

    def dma(self, side: str) -> Dma | None:
        """The walk of a side through DRAM; None where it has none. A staged side keeps its walk."""
        return self.src if side == SOURCE else self.src2 if side == SECOND else self.dst

    def region(self, side: str) -> Region:
        """The region of a side in L2."""
        return self.source if side == SOURCE else self.source2 if side == SECOND else self.result

    def hint(self, side: str) -> Hint:
        """The cache hint of a source."""
        return self.src2_hint if side == SECOND else self.src_hint

    def walk(self, side: str, dma: Dma | None) -> Plan:
        """The same with a side elsewhere in DRAM, or nowhere."""
        return self.but(**{WALKS[side]: dma})

    def put(self, side: str, region: Region) -> Plan:
        """The same with a side elsewhere in L2."""
        return self.but(**{side: region})

    def advise(self, side: str, hint: Hint) -> Plan:
        """The same with a cache hint for a source."""
        return self.but(**{"src2_hint" if side == SECOND else "src_hint": hint})


FIELDS = len(fields(Plan))
