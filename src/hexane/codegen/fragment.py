"""Result of a recipe: plans with symbolic buffers, the constants they read, the scratch they need.

A fragment knows nothing of the program around it. Values of the graph are named; ``link`` decides whether a value is a
surface or a piece of scratch, gives addresses, and settles what depends on the neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.chips import Generation
from hexane.chips.generations import ROWS_EVERYWHERE
from hexane.codegen import tasks
from hexane.codegen.operations import After
from hexane.codegen.plan import Buffer, Dma, Plan, Region, Space, TaskKernel
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace, slot_init
from hexane.rounding import align

if TYPE_CHECKING:
    from hexane.codegen.context import Context
    from hexane.codegen.targets import Target

ELEMENT_BYTES = {"fp16": 2, "bool": 1, "uint8": 1, "int8": 1}


@slot_init
@dataclass(frozen=True, slots=True)
class Tensor:
    """A plain tensor in DRAM, seen as N, C, H, W: rows of 64-byte bursts, channels outermost.

    Source: docs/reference/engine-h13.md 6.
    """

    buffer: Buffer
    n: int
    c: int
    h: int
    w: int
    element: int = 2
    offset: int = 0
    row_bytes: int = 0  # 0: rounded up from the width

    @property
    def row(self) -> int:
        return self.row_bytes or align(self.w * self.element, 64)

    @property
    def plane(self) -> int:
        return self.row * self.h

    @property
    def batch(self) -> int:
        return self.plane * self.c

    @property
    def bytes(self) -> int:
        return self.batch * self.n

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (self.n, self.c, self.h, self.w)

    @property
    def axes(self) -> frozenset[str]:
        """Those of ``nchw`` that have more than one element."""
        return frozenset(axis for axis, extent in zip("nchw", self.shape) if extent > 1)

    def less(self, axes: Iterable[str]) -> tuple[int, int, int, int]:
        """The shape with some of ``nchw`` as axes of one element."""
        n, c, h, w = (1 if axis in axes else extent for axis, extent in zip("nchw", self.shape))
        return n, c, h, w

    def dma(self, offset: int = 0) -> Dma:
        """The tensor as an elementwise task walks it: a batch runs as groups."""
        row = self.row
        plane = row * self.h
        batch = plane * self.c
        return Dma(self.buffer, self.offset + offset, row, plane, batch, batch, self.element)

    def image(self, n: int) -> Tensor:
        """One image of the batch."""
        return replace(self, n=1, offset=self.offset + n * self.batch)

    def matrix(self, batch: int = 0) -> Dma:
        """Rows as channels: C = H, H = 1 (docs/reference/engine-h13.md 6, "A product reads [M,K] as C = M")."""
        offset = self.offset + batch * self.plane
        return Dma(self.buffer, offset, self.plane, self.row, self.plane, self.plane, self.element)


def narrower_views(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors of one shape with fewer channels and more rows, byte for byte the same: rows are dense.

    For ops that treat every element alike, where a row of all channels does not fit L2.
    """
    first = tensors[0]
    rows = first.c * first.h
    for channels in (64, 32, 16, 8, 4, 2, 1):
        if channels < first.c and rows % channels == 0 and rows // channels <= ROWS_EVERYWHERE:
            yield tuple(replace(t, c=channels, h=rows // channels) for t in tensors)


@lru_cache(1024)
def four_dimensional(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """N, C, H, W of a declared shape: lower ranks get leading ones; rank 5 with a leading one loses it (§6)."""
    if None in shape:
        raise UnsupportedError("a tensor whose shape depends on data", code=Reason.SHAPE)
    while len(shape) > 4 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) > 4:
        raise UnsupportedError(f"a tensor of rank {len(shape)} has no surface of four axes", code=Reason.RANK)
    return (1,) * (4 - len(shape)) + tuple(shape)  # type: ignore[return-value]


@lru_cache(1024)
def surface_shape(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """N, C, H, W of what the engine may read or write: as ``four_dimensional``, with more axes joined behind the first.

    Only reshapes read such a tensor by its own axes; rows are dense, so the bytes are those of the joined form.
    """
    while len(shape) > 4 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) > 4 and None not in shape:
        shape = (shape[0], prod(shape[1:-2]), *shape[-2:])
    return four_dimensional(shape)


MOST_TASKS = 8192
"""Of one recipe: a longer batch is the host's before more is spent on it. A choice, not the engine's limit."""


@dataclass
class Fragment:
    """Tasks of one recipe, in order."""

    context: Context
    plans: list[Plan] = field(default_factory=list)
    constants: dict[str, bytes] = field(default_factory=dict)
    scratch: dict[str, int] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        return self.context.target

    @property
    def limits(self) -> Generation:
        """Limits of the target's engine."""
        return self.context.limits

    def add(self, *plans: Plan) -> Plan:
        """Append tasks; the last of them, as it is then."""
        for plan in plans:
            if len(self.plans) >= MOST_TASKS:
                raise UnsupportedError(f"more than {MOST_TASKS} tasks for one op", code=Reason.EXTENT)
            reasons = list(plan.kernel.inferred) if plan.kernel is not None else []
            if plan.unit == "NE" and not plan.unicast and not {plan.window.kh, plan.window.kw} <= {1, 3}:
                reasons.append(f"a kernel of {plan.window.kh} x {plan.window.kw}")  # §14.4
            self.plans.append(plan.inferred("; ".join(reasons)) if reasons else plan)
        return self.plans[-1]

    def change(self, at: int, **changes: Any) -> None:
        """Give one of the tasks other values of some fields."""
        self.plans[at] = self.plans[at].but(**changes)

    def need_room(self, size: int, what: str) -> None:
        """UnsupportedError where the bytes that something takes in L2 are more than there are."""
        if size > self.limits.l2_bytes:
            raise UnsupportedError(f"{what} does not fit the engine's L2 buffer", code=Reason.MEMORY)

    def bring(self, plan: Plan, base: int, *, keep: bool = False, after: After = tasks.STARTS) -> tasks.Placed:
        """A neural task with work units and its source by DMA at ``base``; the end of the source's region."""
        return tasks.ne_source(self.target, tasks.choose_shape(self.target, plan), base, keep=keep, after=after)

    def stay(self, plan: Plan, region: Region, *, after: After | None = None) -> Plan:
        """Append a task whose result stays in L2."""
        return self.add(tasks.stays(plan, region, after=after))

    def send(self, plan: Plan, base: int, *, explicit: bool | None = None, after: After | None = None) -> Plan:
        """Append a task whose result goes to DRAM through a buffer at ``base``."""
        return self.add(tasks.streams_out(self.target, plan, base, explicit=explicit, after=after))

    def copied(self) -> Fragment:
        """The same with lists of its own, to try changes on."""
        return Fragment(self.context, self.plans.copy(), self.constants, dict(self.scratch))

    def constant(self, data: bytes) -> Buffer:
        """Tile data of the const section."""
        name = f"const{len(self.constants)}"
        self.constants[name] = data
        return Buffer(name, Space.CONST)

    def workspace(self, size: int) -> Buffer:
        """Scratch that lives as long as the fragment."""
        name = f"scratch{len(self.scratch)}"
        self.scratch[name] = size
        return Buffer(name, Space.SCRATCH)

    def tensor(self, n: int, c: int, h: int, w: int, element: int = 2) -> Tensor:
        """A plain tensor in scratch of its own."""
        shape = Tensor(Buffer("", Space.SCRATCH), n, c, h, w, element)
        return replace(shape, buffer=self.workspace(shape.bytes))

    def plain_constant(self, array: np.ndarray, element: int = 2) -> Tensor:
        """A constant of fp16, or of bytes, as a plain tensor with 64-byte rows (docs/reference/engine-h13.md 9.11)."""
        values = np.ascontiguousarray(array, "<f2" if element == 2 else "u1")
        shape = four_dimensional(values.shape)
        layout = Tensor(Buffer("", Space.CONST), *shape, element)
        rows = np.zeros((shape[0] * shape[1] * shape[2], layout.row // element), values.dtype)
        rows[:, : shape[3]] = values.reshape(-1, shape[3])
        return replace(layout, buffer=self.constant(rows.tobytes()))

    def inferred(self, note: str) -> None:
        """Say of every task that the recipe made so far what no program of Apple's shows."""
        self.plans = [plan.inferred(note) for plan in self.plans]


def table_kernel(table: bytes, cores: int, name: str = "") -> TaskKernel:
    """A look-up table that all cores share; its section is padded to 128 bytes per core.

    Source: docs/reference/engine-h13.md 10.
    """
    return TaskKernel(table + bytes(128 * (cores - 1)), (0,) * cores, (128,) * cores, name=name)
