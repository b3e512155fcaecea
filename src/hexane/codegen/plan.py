"""Task plans: what one task does and where its operands stand, in the field's words.

A recipe makes plans, ``link`` joins them to a program, and ``encode`` writes each as a task of the target's
generation. Sizes and offsets are bytes, extents are elements, shapes of patches are logarithms to base 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, NamedTuple

from hexane.chips import Evidence
from hexane.codegen.geometry import patch_count
from hexane.codegen.operations import (
    MAC_CONV,
    NE_TASK,
    PIXEL,
    PLAIN_KERNEL,
    UNHINTED,
    After,
    Axes,
    Element,
    Hint,
    KernelFormat,
    KernelWindow,
    Mac,
    NeNonlinear,
    PeKind,
    Planar,
    ReadHint,
    ResultType,
    SourceType,
    WriteHint,
)
from hexane.frozen import dict_init, replace, slot_init, tuple_replace
from hexane.isa import channels
from hexane.rounding import ceil_div

SOURCE, SECOND, RESULT = SIDES = ("source", "source2", "result")
"""The sides of a task."""

NO_EXAMPLE = "no program of Apple's compiler is known to show it"
"""Of a task, until its recipe is looked up among those that programs of the target show (`Target.examples`)."""

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
            self.buffer, self.offset + by, self.row, self.plane, self.depth, self.group, self.element, self.interleave
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


@tuple_replace
class Operand(NamedTuple):
    """A source of a task: its place in DRAM and in L2, and the walk through it.

    ``type`` and ``after`` are the first source's: where it is, and what both wait for. ``besides``: what a source waits
    for alone, where each says its own. ``staged``: the consumer of a staging pair, whose walk is kept while its DMA is
    off.
    """

    dma: Dma | None = None
    region: Region = Region()
    element: Element = Element.FP16
    broadcast: Axes = Axes.NONE
    transposed: bool = False
    hint: Hint = UNHINTED
    type: SourceType = SourceType.RESIDENT
    after: After = After.NOTHING
    besides: After = After.NOTHING
    staged: bool = False

    @property
    def transfer(self) -> Dma | None:
        """The walk by which the task brings it from DRAM, if it does."""
        return None if self.staged else self.dma

    def at(self, region: Region, dma: Dma | None = None) -> Operand:
        """The same at another place in L2, and in DRAM or not."""
        return Operand(dma, region, *self[2:])


@tuple_replace
class Destination(NamedTuple):
    """The result of a task: its place in DRAM and in L2, and what it waits for (``after``).

    ``automatic``: a buffer in L2 that has only a base. ``reader`` is the last that read the place in DRAM. ``staged``:
    the producer of a staging pair.
    """

    dma: Dma | None = None
    region: Region = Region()
    element: Element = Element.FP16
    transposed: bool = False
    hint: WriteHint | None = None
    type: ResultType = ResultType.STAYS
    automatic: bool = False
    after: After = After.NOTHING
    reader: EarlierReader | None = None
    staged: bool = False

    @property
    def transfer(self) -> Dma | None:
        """The walk by which the task sends it to DRAM, if it does."""
        return None if self.staged else self.dma

    def at(self, region: Region, dma: Dma | None = None) -> Destination:
        """The same at another place in L2, and in DRAM or not."""
        return Destination(dma, region, *self[2:])


NO_OPERAND, NO_DESTINATION = Operand(), Destination()


@dict_init
@dataclass(eq=False, frozen=True)
class Plan:
    """One task. Defaults are the values of a register that the task has no use for; a plan equals itself alone.

    A plan never changes: what a later step knows better is another plan (``but``) in its place.
    """

    pe: Planar = NE_TASK  # any other: a task of the planar engine
    ne: Mac = MAC_CONV
    w: int = 1
    h: int = 1
    c: int = 1
    d: int = 1
    wout: int = 0  # 0: as the input
    hout: int = 0
    cout: int = 0
    dout: int = 0
    window: KernelWindow = PIXEL
    ocg: int = 0
    groups: int = 1
    unicast: int = 0  # input channels per output channel, 0 = dense
    tile: int = 0  # 0: the whole output height
    patch: tuple[int, int] = (0, 0)
    small_source: bool = False
    shape: tuple[int, int, int] = (0, 0, 0)  # ShPref, ShMin, ShMax
    cores_log2: int = 0
    fat_tile: bool = False  # two cores share a tile of twice the width and the outputs of both
    stack_log2: int = 0  # work units that each core takes one above the other
    double_buffer: bool = False
    out_trans: bool = False
    power_category: int = 0  # for power estimation
    # operands
    source: Operand = NO_OPERAND
    second: Operand = NO_OPERAND
    result: Destination = NO_DESTINATION
    # kernel
    kernel_format: KernelFormat = PLAIN_KERNEL
    kernel: TaskKernel | None = None
    kernel_hint: ReadHint = ReadHint.NOALLOC
    # program
    holds: bool = False  # L2 content is needed by the next task: the L2 group goes on
    streams: bool = False  # strips go to the next task, which runs at the same time (§12.1)
    goes_beside: bool = False  # the next task is the other unit's, and its first source waits for nothing
    streams_in: bool = False  # the other end of such a pair
    dtid: int | None = None  # plan index of the task that staged this task's kernel
    table: str = ""  # behind the sums
    time_ns: float = 0.0  # engine-bound time where a rule is known (§16)
    read_rows: int = 0  # source rows that the tiles read again
    op: str = ""
    note: str = ""  # what of the task no program of Apple's shows
    recipe_doubt: str = NO_EXAMPLE  # the same of its recipe, as `select` knows it
    macs: int = 0

    unit: str = field(init=False)  # "NE" or "PE", as ``pe`` says

    def __post_init__(self) -> None:
        own = vars(self)
        own["unit"] = UNITS[self.pe.kind]
        for result, source in (("wout", "w"), ("hout", "h"), ("cout", "c"), ("dout", "d"), ("tile", "hout")):
            own[result] = own[result] or own[source]

    def but(self, **changes: Any) -> Plan:
        """The same task with other values of some fields; TypeError for a field that there is not."""
        own = vars(self) | changes  # a copy of the whole table of fields, whatever their number
        if len(own) != FIELDS or "unit" in changes:  # that follows from ``pe``
            raise TypeError(f"no field of a plan: {', '.join(changes.keys() - vars(self).keys()) or 'unit'}")
        if "pe" in changes:
            own["unit"] = UNITS[own["pe"].kind]
        plan = object.__new__(Plan)
        object.__setattr__(plan, "__dict__", own)
        return plan

    @property
    def unicast_pixel(self) -> bool:
        """True where every output takes the same pixel of a few inputs of its own, as in copies and tables."""
        return self.unicast > 0 and self.window.taps == 1

    @property
    def doubt(self) -> str:
        """Why no program of Apple's is an example of the task; empty where one is."""
        return self.note or self.recipe_doubt

    @property
    def evidence(self) -> Evidence:
        return Evidence.INFERRED if self.doubt else Evidence.APPLE

    @property
    def kernel_buffer(self) -> Buffer | None:
        """The buffer of a kernel that other tasks compute."""
        return self.kernel.source if self.kernel is not None else None

    @property
    def columns(self) -> int:
        """Of the result."""
        return self.wout * self.window.ox

    @property
    def lanes(self) -> int:
        """Output channels of a core."""
        return ceil_div(self.cout, 1 << self.cores_log2)

    @property
    def patches(self) -> int:
        """Of the neural cores, in the result."""
        return patch_count(self.wout, self.hout, self.shape[2])

    @property
    def patch_rows(self) -> int:
        """Height of a patch of either unit; tiles are multiples of it."""
        return 1 << (self.patch[1] if self.unit == "PE" else self.shape[2])

    def inferred(self, note: str) -> Plan:
        """The same task, no example of which is Apple's; ``note`` says what of it, if nothing does yet."""
        return self.but(note=self.note or note)

    def through(self, table: str) -> Plan:
        """The same task of the neural cores with a look-up table behind its sums, by name."""
        return self.computing(nonlinear=NeNonlinear.TABLE).but(table=table)

    def computing(self, **changes: Any) -> Plan:
        """The same task with other settings of its unit; TypeError for one that there is not."""
        if self.unit == "NE":
            return self.but(ne=replace(self.ne, **changes))
        return self.but(pe=replace(self.pe, **changes))

    def reading(self, **changes: Any) -> Plan:
        """The same task with another first source; TypeError for a field that there is not, as of the next two."""
        return self.but(source=self.source._replace(**changes))

    def against(self, **changes: Any) -> Plan:
        """The same task with another second source."""
        return self.but(second=self.second._replace(**changes))

    def writing(self, **changes: Any) -> Plan:
        """The same task with another result."""
        return self.but(result=self.result._replace(**changes))

    def waiting(self, sources: After = After.NOTHING, *, result: After = After.NOTHING) -> Plan:
        """The same task, whose sources and result wait for this, too."""
        source = self.source._replace(after=self.source.after | sources)
        return self.but(source=source, result=self.result._replace(after=self.result.after | result))

    def leaving(self, region: Region, *, after: After = After.NOTHING, **changes: Any) -> Plan:
        """The same task, whose result stays in L2."""
        return self.writing(region=region, type=ResultType.STAYS, automatic=False, after=after, **changes)

    def streaming(
        self, region: Region, *, automatic: bool = False, after: After = After.NOTHING, **changes: Any
    ) -> Plan:
        """The same task, whose result goes to DRAM through L2."""
        return self.writing(region=region, type=ResultType.DMA_STREAM, automatic=automatic, after=after, **changes)

    def sending(self, base: int, **changes: Any) -> Plan:
        """The same task, whose result goes to DRAM through an automatic buffer at ``base``."""
        return self.streaming(Region(base), automatic=True, **changes)

    def operand(self, side: str) -> Operand | Destination:
        """The operand of a side."""
        return self.source if side == SOURCE else self.second if side == SECOND else self.result

    def hint(self, side: str) -> Hint:
        """The cache hint of a source."""
        return self.second.hint if side == SECOND else self.source.hint

    def on(self, side: str, **changes: Any) -> Plan:
        """The same task with another operand on a side."""
        return (self.reading if side == SOURCE else self.against if side == SECOND else self.writing)(**changes)


UNITS = {kind: "NE" if kind is PeKind.NE_TASK else "PE" for kind in PeKind}
FIELDS = len(fields(Plan))
