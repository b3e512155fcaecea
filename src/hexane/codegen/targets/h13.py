"""H13 (A14, M1 family): every register of every block in every task, as Apple's compiler of macOS 26 writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from hexane.chips import generation
from hexane.codegen import encode
from hexane.codegen.cost import duration_us
from hexane.codegen.encode import Fields, FieldWriter
from hexane.codegen.operations import NO_KERNEL, Element, Hint, ReadHint, WriteHint
from hexane.codegen.plan import Plan, Space, TaskKernel
from hexane.codegen.targets.base import Places, Target
from hexane.isa import Task, task_from_words
from hexane.isa import link as link_tasks
from hexane.isa.channels import FIRST_SURFACE
from hexane.isa.roles import HEADER_CHANNELS

CORES = generation("h13").cores
SIDES = 4
BUFFER_OFF_BYTES = 0x40  # length of a stream that is off

SLOW_TABLES = ("log2", "sqrt", "rsqrt", "reciprocal")
"""Tables whose tasks log one event less when debugging (docs/reference/engine-h13.md 4.2)."""

LOG_ONLY, LOG_FIRST, LOG_MIDDLE, LOG_LAST = 0x42A, 0x408, 0x400, 0x422
DEBUG_FIRST, DEBUG_LAST = 0x068, 0x06A
DEBUG_PLAIN, DEBUG_SLOW, DEBUG_BUSY = 0xFFF, 0xFFD, 0x800

NOT_READ_AGAIN = {
    ReadHint.NOALLOC: ReadHint.DEPRI,
    ReadHint.DROP: ReadHint.DROP,
    ReadHint.DEPRI: ReadHint.DEPRI,
    ReadHint.ALLOC: ReadHint.ALLOC,
}
"""CacheHintNoReuse of a reader with this hint (docs/reference/engine-h13.md 4.4)."""

EXAMPLES = frozenset(
    """
    add_own_relu attention batched_product cast comparison concat convolution elementwise floor layer_norm leaky_relu
    logical_not matrix_chain norm_projection planar_function power product real_div reduction relu reshape
    runtime_product select slices softmax table_function tile transpose two_products
    """.split()
)
"""Recipes of which programs of Apple's are known (docs/reference/engine-h13.md 13)."""

COMPOSED = frozenset(
    """
    batch_norm composed_reduction heads_in_l2 max_pool pad products_of_same_rows regroup repeat_pixels shuffle
    slice_update split to_channels to_pixels
    """.split()
)
"""Recipes that compose tasks of those (docs/reference/engine-h13.md 14); what is new in a task has a note."""


class Around(NamedTuple):
    """The program around a task, as far as its words tell; ``channels`` are those of `CHANNEL_SIDES`."""

    first: bool
    last: bool
    begins: bool
    """No task before it holds what they share."""
    behind_planar: bool
    before_planar: bool
    channels: tuple[int | None, ...]

    @classmethod
    def of(cls, plans: Sequence[Plan], index: int, places: Places) -> Around:
        plan, last = plans[index], index == len(plans) - 1
        before, after = plans[index - 1] if index else None, None if last else plans[index + 1]
        buffers = [None if dma is None else dma.buffer for dma in (plan.source.dma, plan.second.dma, plan.result.dma)]
        channels = [None if buffer is None else places.channel(buffer) for buffer in buffers]
        if plan.kernel is not None:
            source = plan.kernel.source
            channels.append(Space.CONST.value if source is None else places.channel(source))
        return cls(
            before is None,
            last,
            before is None or not before.holds,
            before is not None and before.unit == "PE",
            after is not None and after.unit == "PE",
            tuple(channels),
        )


CHANNEL_SIDES = ("source1", "source2", "result", "kernel")


class H13(Target):
    """Links by NextPointer, channels from 4 on."""

    name = generation = "h13"
    first_surface = FIRST_SURFACE
    waits_for_readers = True
    examples = EXAMPLES | COMPOSED

    def assemble(self, plans: Sequence[Plan], places: Sequence[Places]) -> list[Task]:
        around = [Around.of(plans, i, place) for i, place in enumerate(places)]
        forms = encode.each_form(plans, around, self._form)
        return link_tasks(encode.each_task(plans, lambda i: forms[i].filled(self.addresses(plans[i], places[i]))))

    def _form(self, plan: Plan, around: Around) -> Blank:
        """The words of a task but for its addresses."""
        return self.blank(plan).but(self.task_fields(plan, around))

    def all_lanes(self, plan: Plan) -> bool:
        """True where the task writes the kernel DMA's lanes; one without kernel data leaves them out."""
        return plan.kernel is not None

    def fetched(self, plan: Plan) -> TaskKernel | None:
        """The kernel whose lanes a task writes."""
        return plan.kernel

    def task_fields(self, plan: Plan, around: Around) -> Fields:
        """All fields of one task but its addresses."""
        values = encode.fields(plan)
        values["Common.Cfg.One"] = not (plan.source.dma is None and plan.second.dma is not None)
        values["Common.Cfg.Src2Dma"] = plan.unit == "PE" and plan.second.dma is not None
        if plan.unit == "NE":
            values["NE.MACCfg.Bit20"] = 1
        _source(plan, values)
        _destination(plan, values)
        self.kernel_dma(plan, values)
        self.unit_rest(plan, around, values)
        self.header(plan, around, values)
        return values

    def addresses(self, plan: Plan, places: Places) -> Fields:
        """Addresses of the operands, and of the kernel's lanes: its place plus their offsets.

        Source: docs/reference/engine-h13.md 4.9.
        """
        values: Fields = {}
        ends = (plan.source.dma, plan.second.dma, plan.result.dma)
        for name, dma in zip(("TileDMASrc.BaseAddr", "TileDMASrc.Src2BaseAddr", "TileDMADst.BaseAddr"), ends):
            if dma is not None:
                values[f"{name}.Addr"] = dma.offset + places.offset(dma.buffer)
        kernel = self.fetched(plan)
        if kernel is not None:
            for (_, address, _), offset in zip(LANE_FIELDS, kernel.offsets):
                values[address] = places.kernel_offset + offset
        return values

    def unit_rest(self, plan: Plan, around: Around, values: Fields) -> None:
        """Words of a PE task to the neural cores: no kernel, and whether PE tasks stand around it.

        Source: docs/reference/engine-h13.md 4.8.
        """
        values["TileDMASrc.Unk13840.Bit8"] = 1
        if plan.unit == "PE":
            encode.kernel_format(NO_KERNEL, values)
            values["NE.MACCfg.Bit20"] = 1
            values["NE.KernelCfg.KernelKeep"] = around.before_planar
            values["NE.KernelCfg.UsePrevKernel"] = around.behind_planar

    def kernel_dma(self, plan: Plan, values: Fields) -> None:
        """Lanes of the kernel (docs/reference/engine-h13.md 4.9)."""
        kernel = self.fetched(plan)
        if kernel is None:
            return
        values["KernelDMASrc.MasterConfig.MasterEnable"] = 1
        values["KernelDMASrc.MasterConfig.SparseFmt"] = kernel.sparse
        for (enable, _, size), length in zip(LANE_FIELDS, kernel.sizes):
            values[enable] = 1
            values[size] = length

    def blank(self, plan: Plan) -> Blank:
        """The plan's task before its fields are written: all of its kernel DMA rests but the lanes of its kernel."""
        on = 0 if plan.kernel is None else len(plan.kernel.offsets)
        return blank(self.all_lanes(plan), plan.dtid is not None, on, BUFFER_OFF_BYTES)

    def duration(self, plan: Plan) -> int:
        return duration_us(plan)

    def log_events(self, around: Around) -> int:
        if around.first:
            return LOG_ONLY if around.last else LOG_FIRST
        return LOG_LAST if around.last else LOG_MIDDLE

    def header(self, plan: Plan, around: Around, values: Fields) -> None:
        """Header fields; position, size and the link to the next task are ``isa.link``'s.

        Source: docs/reference/engine-h13.md 4.2, 5, 12.
        """
        values["Header[1].ExeCycles"] = self.duration(plan)
        values["Header[2].LogEvents"] = self.log_events(around)
        values["Header[4].DebugLogEvents"] = _debug_events(plan, around)
        ends = not plan.holds
        planar_run = plan.unit == "PE" and not around.last and (around.before_planar or plan.streams)
        values["Header[6].DisallowAbort"] = planar_run
        values["Header[6].SPL"] = around.begins
        values["Header[6].TSR"] = values["Header[6].TSE"] = ends
        values["Header[6].SPC"], values["Header[6].DPC"] = plan.source.staged, plan.result.staged
        values["Header[6].TDE"] = plan.dtid is not None
        values["Header[6].SrcLoc"] = plan.source.transfer is not None or plan.second.dma is not None
        values["Header[6].DstLoc"] = plan.result.transfer is not None
        if plan.unit == "NE":
            values["Header[8].ENE"] = plan.cores_log2 + 1
        for side, number in zip(CHANNEL_SIDES, around.channels):
            if number is not None:
                values[HEADER_CHANNELS[side].number], values[HEADER_CHANNELS[side].enable] = number, 1
        if plan.dtid is not None:
            values["Header[10].DTID"] = plan.dtid


def _debug_events(plan: Plan, around: Around) -> int:
    pure_copy = plan.unit == "NE" and plan.ne.plain_copy and plan.kernel is None
    slow = plan.table in SLOW_TABLES
    high = 0 if pure_copy else DEBUG_SLOW if slow else DEBUG_PLAIN
    low = DEBUG_LAST if around.last else DEBUG_FIRST if around.first else 0
    return high << 12 | low | (DEBUG_BUSY if high else 0)


def reading(values: Fields, register: str, hint: Hint | None) -> None:
    """Cache hints of a reader; None: it is off."""
    cache = ReadHint.NOALLOC if hint is None else hint.cache
    values[f"{register}.CacheHint"] = cache
    values[f"{register}.CacheHintReuse"] = ReadHint.NOALLOC if hint is None else ReadHint.ALLOC
    values[f"{register}.CacheHintNoReuse"] = ReadHint.NOALLOC if hint is None else NOT_READ_AGAIN[cache]


def form(values: Fields, register: str, element: int, interleave: int, *, signed: bool = False) -> None:
    """Elements of a surface in memory; ``signed`` bytes have a format of their own (INFERRED)."""
    wide = element == 2
    values[f"{register}.FmtMode"] = wide
    values[f"{register}.Truncate"] = 3 * wide
    values[f"{register}.MemFmt"] = "bits16" if wide else "signed8" if signed else "bits8"
    values[f"{register}.Interleave"] = interleave


def _source(plan: Plan, values: Fields) -> None:
    first, second = plan.source.dma, plan.second.dma
    staged = plan.source.staged
    reading(values, "TileDMASrc.DMAConfig", None if first is None or staged else plan.source.hint)
    values["TileDMASrc.DMAConfig.En"] = not staged and (first is not None or second is not None)
    if staged or encode.waits_for_writer(plan):
        values["TileDMASrc.DMAConfig.DependencyMode"] = "earlier_task"
    reading(values, "TileDMASrc.Src2DMAConfig", None if second is None else plan.second.hint)
    form(values, "TileDMASrc.Fmt", 1, 1)
    if staged:
        form(values, "TileDMASrc.Fmt", 2, 1)
    elif first is not None:
        form(values, "TileDMASrc.Fmt", first.element, first.interleave, signed=plan.source.element is Element.INT8)
    elif second is not None:
        values["TileDMASrc.Fmt.FmtMode"], values["TileDMASrc.Fmt.Interleave"] = 1, second.interleave
    if first is not None:
        encode.strides(values, "TileDMASrc", "", first)
    if second is not None:
        encode.strides(values, "TileDMASrc", "Src2", second)
        values["TileDMASrc.Src2Fmt.Truncate"], values["TileDMASrc.Src2Fmt.MemFmt"] = 3, "bits16"


def _destination(plan: Plan, values: Fields) -> None:
    dst = plan.result.dma
    to_dram = dst is not None and not plan.result.staged
    hint = (plan.result.hint or WriteHint.NOALLOC) if to_dram else WriteHint.NOALLOC
    values["TileDMADst.DMAConfig.En"] = to_dram
    values["TileDMADst.DMAConfig.CacheHint"] = hint
    values["TileDMADst.DMAConfig.L2BfrMode"] = to_dram and plan.result.automatic
    if to_dram:
        encode.wait_for_reader(plan, values)
    values["TileDMADst.Fmt.Interleave"] = 1
    if dst is None:
        return
    form(values, "TileDMADst.Fmt", dst.element, dst.interleave, signed=plan.result.element is Element.INT8)
    values["TileDMADst.Fmt.ZeroPadLast"] = values["TileDMADst.Fmt.ZeroPadFirst"] = 1
    encode.strides(values, "TileDMADst", "", dst)


# -- words -------------------------------------------------------------------------------------------------------------

RECORDS = ((0, 16), (0x13800, 28), (0x4800, 18), (0x8800, 4), (0xC800, 5), (0x17800, 7))
"""Address and length of the records behind the kernel DMA's (docs/reference/engine-h13.md 4.1)."""
WITH_LANES = ((0x1F800, 62),)
WITHOUT_LANES = ((0x1F800, 18), (0x1F8C8, 12))


@lru_cache(maxsize=8)
def _writer(lanes: bool, extended: bool) -> tuple[Task, FieldWriter]:
    """A task of zeros that writes every register, in the record layout of a task with or without kernel data."""
    words = [0] * (10 + extended)
    if extended:
        words[6] = 1 << 24  # TDE announces the eleventh word
    for address, count in (*(WITH_LANES if lanes else WITHOUT_LANES), *RECORDS):
        words += [(count - 1) << 26 | address, *([0] * count)]
    task = task_from_words(words, "h13")
    return task, FieldWriter(task.table, task.layout.position)


LANE_FIELDS = tuple(
    (
        f"KernelDMASrc.CoeffDMAConfig[{core}].En",
        f"KernelDMASrc.CoeffBaseAddr[{core}].Addr",
        f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize",
    )
    for core in range(CORES)
)
"""Fields of a lane of the kernel DMA that is on."""


@dataclass(frozen=True)
class Blank:
    """Words of tasks of one layout as they are before a plan's fields are written, and what writes those."""

    words: tuple[int, ...]
    task: Task
    writer: FieldWriter

    def but(self, values: Fields) -> Blank:
        """With more fields."""
        words = list(self.words)
        self.writer.write(values, words)
        return Blank(tuple(words), self.task, self.writer)

    def filled(self, values: Fields) -> Task:
        words = list(self.words)
        self.writer.write(values, words)
        return self.task.with_words(words)


@lru_cache(maxsize=8 * (CORES + 1))
def blank(lanes: bool, extended: bool, on: int | None, side_bytes: int = 0) -> Blank:
    """``on`` lanes of the kernel DMA are left to a kernel, all others say that they are off; None: none says anything.

    ``lanes``: the task writes the registers of lanes. ``side_bytes`` is the length of the side channels.
    """
    task, writer = _writer(lanes, extended)
    words = task.words()
    if on is not None:
        writer.write(_resting(lanes, on, side_bytes), words)
    return Blank(tuple(words), task, writer)


def _resting(lanes: bool, on: int, side_bytes: int) -> Fields:
    """Fields of the kernel DMA behind its first ``on`` lanes, and the hints of all."""
    values: Fields = {}
    for core in range(CORES):
        values[f"KernelDMASrc.CoeffDMAConfig[{core}].CacheHint"] = ReadHint.NOALLOC
        if lanes and core >= on:
            values[LANE_FIELDS[core][-1]] = BUFFER_OFF_BYTES
    for side in range(SIDES):
        values[f"KernelDMASrc.SideDMAConfig[{side}].CacheHint"] = ReadHint.NOALLOC
        values[f"KernelDMASrc.SideBfrSize[{side}].MemBfrSize"] = side_bytes
    return values
