"""From plans to a program: addresses, channels, hints, headers, constants.

Source: docs/reference/engine-h13.md 4.1, 5, 9, 12.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from hexane.codegen import dram_order, memory
from hexane.codegen.contents import Contents
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.moves import Walk, walk_of
from hexane.codegen.operations import After, Hint, ReadHint, WriteHint
from hexane.codegen.plan import SECOND, SOURCE, Buffer, Dma, Plan, Space, TaskKernel
from hexane.codegen.price import Prices, price_us
from hexane.codegen.refit import refit
from hexane.codegen.targets import Places
from hexane.errors import UnsupportedError
from hexane.frozen import replace
from hexane.isa import Task
from hexane.isa.granules import PAGE
from hexane.rounding import align

LONG_TASK_US = 12  # [INFERRED: 19 us have the category, 7 us have not]
WAKES = 7


@dataclass(frozen=True)
class Linked:
    """A program without its container."""

    tasks: list[Task]
    plans: list[Plan]
    const: bytes
    channels: dict[str, int]
    scratch_bytes: int
    kernels: tuple[tuple[int, TaskKernel], ...]  # (offset in the section that holds kernels, kernel), in task order
    kernel_section: bytes = b""  # weights and tables where the target keeps them apart from constants


@dataclass
class _Scratch:
    """Scratch by live range: each buffer gets the lowest gap that is free from its first use to its last."""

    live: list[tuple[int, int, int]] = field(default_factory=list)  # (last use, start, end)
    top: int = 0

    def place(self, first: int, last: int, size: int) -> int:
        self.live = [entry for entry in self.live if entry[0] >= first]
        at = 0
        for _, start, end in sorted(self.live, key=lambda entry: entry[1]):
            if start - at >= size:
                break
            at = max(at, end)
        end = at + align(size, 64)
        self.live.append((last, at, end))
        self.top = max(self.top, end)
        return at


class Linker:
    """Joins fragments, in order, to one program."""

    def __init__(self, context: Context, channels: Mapping[str, int], values: Mapping[str, Tensor]) -> None:
        self.context = context
        self.surfaces = dict(channels)
        self.values = values
        self.target = target = context.target
        self.plans: list[Plan] = []
        self._const = bytearray()
        self._kernel_data = bytearray() if target.kernel_section else self._const
        self._known: Contents[int] = Contents()
        self._offsets: dict[tuple[int, str], int] = {}  # fragment buffers of const and scratch
        self._scratch_size: dict[tuple[int, str], int] = {}
        self._homes: list[int] = []  # fragment of each plan
        self._fragments = 0
        self._kernel_bases: list[int] = []  # of each plan the offset of its kernel, where that is stored data
        self._kernels: list[tuple[int, TaskKernel]] = []
        self._shared: dict[TaskKernel, int] = {}  # offsets
        self._striped: dict[Any, memory.Stored] = {}  # buffers of stripes
        self._known_kernels: Contents[tuple[int, int]] = Contents()  # fragment, offset

    # -- collecting ----------------------------------------------------------------------------------------------------

    def add(self, fragment: Fragment) -> None:
        number, start = self._fragments, len(self.plans)
        self._fragments += 1
        for name, size in fragment.scratch.items():
            self._scratch_size[number, name] = size
        if self.context.policy.between:
            for plan in fragment.plans:
                self._store_constants(plan, fragment, number)
        for plan in fragment.plans:
            plan = self.target.adapt(plan)
            self._homes.append(number)
            self._store_constants(plan, fragment, number)
            stored = plan.kernel is not None and plan.kernel.source is None
            self._kernel_bases.append(self._store_kernel(plan, number) if stored else 0)
            self.plans.append(plan if plan.dtid is None else plan.but(dtid=plan.dtid + start))

    def _store_constants(self, plan: Plan, fragment: Fragment, number: int) -> None:
        """Maps of constants; Apple's stand before the kernels."""
        for dma in (plan.source.dma, plan.second.dma):
            if dma is not None and dma.buffer.space is Space.CONST:
                key = (number, dma.buffer.name)
                if key not in self._offsets:
                    self._offsets[key] = self._store(fragment.constants[dma.buffer.name])

    def _store(self, data: bytes) -> int:
        """Offset of data in the const section; equal data are stored once (§9.11)."""
        place = self._known.find(data)
        if place is not None:
            return place
        self._const += bytes(-len(self._const) % 64)
        at = len(self._const)
        self._known.add(data, at)
        self._const += data
        return at

    def _store_kernel(self, plan: Plan, number: int) -> int:
        """The same for kernels; blocks of one op stand side by side even when their weights are equal."""
        kernel = plan.kernel
        assert kernel is not None
        data = self.target.stored(plan)
        shared = self._shared.get(kernel)
        if shared is not None:
            return shared
        place = self._known_kernels.find(data)
        if place is not None and (place[0] != number or len(data) < len(kernel.data)):
            return place[1]
        section = self._kernel_data
        section += bytes(-len(section) % 64)
        at = len(section)
        section += data
        self._shared[kernel] = at
        self._known_kernels.add(data, (number, at))
        self._kernels.append((at, kernel))
        return at

    # -- linking -------------------------------------------------------------------------------------------------------

    def finish(self) -> Linked:
        if not self.plans:
            raise UnsupportedError("a program without a task cannot be linked")
        if self.context.on.hand_over:
            self._keep_in_l2()
        scratch = self._place_scratch()
        self._settle_aliases()
        self._settle_hints()
        self._settle_kernels()
        places = [self._places(*task) for task in zip(self.plans, self._homes, self._kernel_bases)]
        memory.complete(self.plans, sources_apart=self.target.sources_apart)
        dram_order.settle(self.plans, places, for_readers=self.target.waits_for_readers)
        self._settle_power()
        tasks = self.target.assemble(self.plans, places)
        const = bytes(self._const) or bytes(PAGE)
        kernels = bytes(self._kernel_data) if self.target.kernel_section else b""
        scratch = align(scratch, PAGE)
        return Linked(tasks, self.plans, const, self.surfaces, scratch, tuple(self._kernels), kernels)

    def _identity(self, buffer: Buffer, number: int) -> Hashable:
        if buffer.space is Space.CONST:
            return None
        return self._key(buffer, number) or (buffer.name,)

    def _keep_in_l2(self) -> None:
        """Values that stay in L2 between tasks; what does not keeps its place in DRAM."""
        memo = memory.FactCache()
        whole = self._program(self.plans, self._homes, {}, memo)
        cuts = None
        by_price, stripes = self.context.on.l2_by_price, self.context.on.bands
        if by_price or stripes:
            take = partial(self._take, memo=memo)
            tries = memory.TRIES if by_price else 0
            cheapest = memory.cheapest(whole, Prices(self.context.chip), take if stripes else None, tries=tries)
            if cheapest is not None:
                whole, cuts = cheapest.program, cheapest.cuts
        if cuts is not None:
            self._striped = _stored_stripes(cuts)
            self._homes = [self._homes[origin] for origin in cuts.origins]
            self._kernel_bases = [self._kernel_bases[origin] for origin in cuts.origins]
        self.plans, resident = memory.keep_in_l2(whole)
        if self.context.policy.between:
            self.plans = [refit(self.target, *plans) for plans in zip(whole.plans, self.plans)]
        if cuts is not None:
            self._name_again(cuts.origins)
        if self.context.on_spills is not None:
            self.context.on_spills(memory.spills(whole, self.plans, resident))
        if self._locks is not None:
            memory.pipeline_pairs(self.plans, self._locks)

    @cached_property
    def _locks(self) -> memory.PairPolicy | None:
        if not self.context.on.locked_pairs:
            return None
        chip = self.context.chip
        return memory.PairPolicy(lambda plans: price_us(plans, chip), self.context.limits)

    def _program(
        self, plans: list[Plan], homes: list[int], striped: dict[Any, memory.Stored], memo: memory.FactCache
    ) -> memory.ResidencyProgram:
        return memory.ResidencyProgram(
            plans,
            lambda buffer, index: self._identity(buffer, homes[index]),
            lambda key: striped.get(key) or self._stored_as(key),
            self.target,
            parts=self.context.on.l2_parts,
            in_stripes=bool(striped),
            policy=self.context.policy,
            recipe=homes.__getitem__,
            locks=self._locks,
            memo=memo,
        )

    def _take(self, cuts: memory.Cuts, memo: memory.FactCache) -> memory.ResidencyProgram:
        """Plans in stripes as a program: each has the fragment of the one that it is a part of."""
        homes = [self._homes[origin] for origin in cuts.origins]
        return self._program(cuts.plans, homes, _stored_stripes(cuts), memo)

    def _name_again(self, origins: list[int]) -> None:
        """The tasks that left a kernel in scratch have other numbers where stripes come before them."""
        latest = {origin: i for i, origin in enumerate(origins)}
        self.plans = [plan if plan.dtid is None else plan.but(dtid=latest[plan.dtid]) for plan in self.plans]

    def _stored_as(self, key: Any) -> memory.Stored:
        if key in self._striped:
            return self._striped[key]
        if len(key) == 2 and key[0] >= 0:
            return memory.Stored(None, self._scratch_size[key], surface=False)
        tensor = self.values.get(key[-1])
        if tensor is None:
            return memory.Stored(None, 0, surface=True)
        n, c, h, w = tensor.shape
        shape = (n, c, h, tensor.row, w * tensor.element)
        return memory.Stored(shape, tensor.bytes, surface=len(key) == 1)

    def _places(self, plan: Plan, number: int, kernel_offset: int) -> Places:
        if plan.kernel is not None and plan.kernel.source is not None:
            kernel_offset = self._base(plan.kernel.source, number) + plan.kernel.offset
        return Places(
            lambda buffer: self._base(buffer, number),
            self._channel,
            kernel_offset,
            self.target.kernel_slot(self.surfaces),
        )

    def _channel(self, buffer: Buffer) -> int:
        if buffer.space is Space.SURFACE:
            return self.surfaces.get(buffer.name, Space.SCRATCH.value)
        return buffer.space.value

    def _base(self, buffer: Buffer, number: int) -> int:
        if buffer.space is Space.SURFACE:
            return 0 if buffer.name in self.surfaces else self._offsets[-1, buffer.name]
        return self._offsets[number, buffer.name]

    def _key(self, buffer: Buffer, number: int) -> tuple[int, str] | None:
        """Identity of a buffer in scratch, None for surfaces and constants."""
        if buffer.space is Space.SCRATCH:
            return (number, buffer.name)
        if buffer.space is Space.SURFACE and buffer.name not in self.surfaces:
            return (-1, buffer.name)
        return None

    def _buffers(self, plan: Plan) -> list[Buffer]:
        buffers = [dma.buffer for dma in (plan.source.dma, plan.second.dma, plan.result.dma) if dma is not None]
        if plan.kernel_buffer is not None:
            buffers.append(plan.kernel_buffer)
        return buffers

    def _place_scratch(self) -> int:
        uses: dict[tuple[int, str], list[int]] = {}
        for i, (plan, number) in enumerate(zip(self.plans, self._homes)):
            for buffer in self._buffers(plan):
                key = self._key(buffer, number)
                if key is not None:
                    uses.setdefault(key, []).append(i)
        scratch = _Scratch()
        for key, at in sorted(uses.items(), key=lambda item: item[1][0]):
            size = self._stored_as(key).size
            self._offsets[key] = scratch.place(at[0], at[-1], size)
        return scratch.top

    def _settle_aliases(self) -> None:
        """The first task collides with everything; a later one with the NE task before it (§4.6)."""
        for i, plan in enumerate(self.plans):
            if i and After.ANYTHING in plan.source.after:
                plan = plan.reading(after=plan.source.after & ~After.ANYTHING | After.NE)
            if i and After.ANYTHING in plan.result.after:
                plan = plan.writing(after=plan.result.after & ~After.ANYTHING | After.NE)
            self.plans[i] = plan

    def _settle_hints(self) -> None:
        """Cache hints by how often the same data are read, and the dependency on scratch that was written (§4.4)."""
        readers: dict[Any, list[tuple[int, str, Dma]]] = {}
        read_later: set[object] = set()
        for i, (plan, number) in enumerate(zip(self.plans, self._homes)):
            keys = set()
            for side, dma in _sources(plan):
                where: Any = self._key(dma.buffer, number) or (dma.buffer.space, dma.buffer.name, number)
                if dma.buffer.space is Space.SURFACE and dma.buffer.name in self.surfaces:
                    where = (dma.buffer.name,)
                if dma.buffer.space is not Space.CONST:
                    read_later.add(where)
                key = (where, dma.offset)
                if key not in keys:
                    readers.setdefault(key, []).append((i, side, dma))
                keys.add(key)
            if plan.kernel_buffer is not None:
                read_later.add(self._key(plan.kernel_buffer, number) or (plan.kernel_buffer.name,))
        for places in readers.values():
            for rank, (i, side, dma) in enumerate(places):
                self.plans[i] = self.plans[i].on(side, hint=self._hint(i, dma, rank, len(places)))
        self._keep_what_is_read_again()
        if self.context.policy.between:
            self._keep_surfaces()
        for i, (plan, number) in enumerate(zip(self.plans, self._homes)):
            if plan.result.dma is not None and plan.result.hint is None:
                home: Any = self._key(plan.result.dma.buffer, number) or (plan.result.dma.buffer.name,)
                self.plans[i] = plan.writing(hint=WriteHint.ALLOC if home in read_later else WriteHint.NOALLOC)

    def _keep_surfaces(self) -> None:
        """Of a surface that is read in parts, no part but the last read is the last."""
        last: dict[str, int] = {}
        for i, plan in enumerate(self.plans):
            last |= {dma.buffer.name: i for dma in (plan.source.dma, plan.second.dma) if dma is not None}
        for i, plan in enumerate(self.plans):
            for side in (SOURCE, SECOND):
                dma, hint = plan.operand(side).dma, plan.hint(side)
                if dma is None or dma.buffer.name not in self.surfaces or last[dma.buffer.name] == i:
                    continue
                if hint.cache is ReadHint.DEPRI:
                    self.plans[i] = self.plans[i].on(side, hint=replace(hint, cache=ReadHint.ALLOC))

    def _keep_what_is_read_again(self) -> None:
        """A reader of scratch does not drop what a later task reads from another place on, in whole or in part."""
        readers: dict[tuple[int, str], list[tuple[int, str, Walk | None, int]]] = {}
        for i, (plan, number) in enumerate(zip(self.plans, self._homes)):
            for side, dma in _sources(plan):
                key = self._key(dma.buffer, number)
                if key is not None:
                    readers.setdefault(key, []).append((i, side, walk_of(plan, side), dma.offset))
        for places in readers.values():
            if len({offset for *_, offset in places}) == 1:
                continue
            for i, side, walk, offset in places:
                hint = self.plans[i].hint(side)
                if hint.cache is not ReadHint.DROP or walk is None:
                    continue
                if any(
                    j > i and other != offset and (there is None or there.spans(walk)) for j, _, there, other in places
                ):
                    self.plans[i] = self.plans[i].on(side, hint=replace(hint, cache=ReadHint.ALLOC))

    def _settle_kernels(self) -> None:
        """A kernel that an earlier task left in scratch: the header names that task (§4.2, word 10)."""
        writers: dict[Any, int] = {}
        last = {plan.kernel_buffer: i for i, plan in enumerate(self.plans)}
        for i, (plan, number) in enumerate(zip(self.plans, self._homes)):
            if plan.kernel_buffer is not None:
                key = self._key(plan.kernel_buffer, number)
                again = last[plan.kernel_buffer] > i
                hint = ReadHint.NOALLOC if key is None else ReadHint.DEPRI if again else ReadHint.DROP
                task = writers[key] if plan.dtid is None and key is not None else plan.dtid
                self.plans[i] = plan.but(kernel_hint=hint, dtid=task)
            if plan.result.dma is not None:
                writers[self._key(plan.result.dma.buffer, number)] = i

    def _settle_power(self) -> None:
        """Neural tasks behind a planar one have a category of their own where a product of two matrices is long (§4.3).

        Programs of H13 and H14 show it, of batches and of attention; tasks of other recipes are not known to have it.
        """
        long = {
            number
            for plan, number in zip(self.plans, self._homes)
            if plan.kernel_buffer is not None
            if self.target.duration(plan) >= LONG_TASK_US
        }
        planar = False
        for i, (plan, number) in enumerate(zip(self.plans, self._homes)):
            if plan.unit == "NE" and number in long and planar and not plan.power_category:
                self.plans[i] = plan.but(power_category=WAKES)
            planar |= plan.unit == "PE"

    def _hint(self, i: int, dma: Dma, rank: int, count: int) -> Hint:
        """That of one of ``count`` readers of the same data, by its rank among them."""
        plan, in_scratch = self.plans[i], self._key(dma.buffer, self._homes[i]) is not None
        if rank == count - 1:
            cache = ReadHint.DROP if in_scratch else ReadHint.DEPRI
            hint = Hint(cache)
            if count == 1:
                hint = Hint(ReadHint.DROP if in_scratch else ReadHint.NOALLOC, in_scratch)
        else:
            hint = Hint(ReadHint.ALLOC, in_scratch and rank == 0)
        if plan.unit == "PE" and plan.groups > 1 and not dma.group:
            hint = Hint(ReadHint.ALLOC, hint.after_task)  # one sample that every image of a batch reads
        return hint


def _sources(plan: Plan) -> list[tuple[str, Dma]]:
    """The sources of a task that it brings from DRAM, by side."""
    walks = ((SOURCE, plan.source.transfer), (SECOND, plan.second.dma))
    return [(side, dma) for side, dma in walks if dma is not None]


def _stored_stripes(cuts: memory.Cuts) -> dict[Any, memory.Stored]:
    """Facts about the buffers of stripes, by fragment and name."""
    stored_stripes: dict[Any, memory.Stored] = {}
    for part in cuts.buffers:
        grid = part.grid
        number: int = part.of[0]  # type: ignore[index]
        shape = (1, grid.c, grid.h, grid.row_bytes, grid.used)
        stored_stripes[number, part.buffer.name] = memory.Stored(shape, grid.image, surface=False)
    return stored_stripes
