"""The price of a plan: what an estimate of the program will say of the task that is made from it (hexane.cost)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from hexane.chips import Chip
from hexane.chips.measured import values
from hexane.codegen.operands import read_extents
from hexane.codegen.operations import After, Element, PeKind, SourceType
from hexane.codegen.plan import Plan, TaskKernel
from hexane.cost.model import Alone, alone, engines_used, in_turn, time_work
from hexane.cost.task import TaskFacts, layer_of
from hexane.cost.units import OperatingPoint, layer_cost
from hexane.cost.work import Layer, Work
from hexane.isa.generations import family_of
from hexane.isa.kinds import PE_KIND

KERNEL_UNIT = 64  # bytes; the length of a stream is counted in these
NUMBERS = {kind: PE_KIND.value(kind) or 0 for kind in PeKind}
"""Of the planar engine's operations."""


def facts_of(plan: Plan, generation: str = "h13") -> TaskFacts:
    """Facts of the task of this plan on this generation, as far as its cost goes."""
    neural = plan.unit == "NE"
    staged_result = plan.result.transfer is None
    kernel = plan.kernel if neural else None
    alone = plan.ne.ones and bool(plan.table) and family_of(generation).packed  # by a channel of its own
    after = plan.source.after
    follows = plan.source.type is SourceType.STRIPS
    if after is not After.NOTHING and not follows:  # a neural task's wait for its own unit is told first
        behind_ne = After.FOLLOWS_NE in after
        follows = (After.FOLLOWS_PE in after and not behind_ne) if neural else behind_ne
    return TaskFacts(
        operation=plan.ne.op.value if neural else "planar",
        kind=NUMBERS[plan.pe.kind],
        win=plan.w,
        hin=plan.h,
        din=plan.d,
        cin=plan.c,
        wout=plan.wout,
        hout=plan.hout,
        cout=plan.cout,
        groups=plan.groups,
        in_width=plan.source.element.bytes,
        out_width=plan.result.element.bytes,
        kh=plan.window.kh,
        kw=plan.window.kw,
        stride=plan.window.sx,
        read_bytes=_read_bytes(plan),
        writes=not staged_result,
        kernel_bytes=0 if kernel is None else _fetched(kernel, alone),
        computed=kernel is not None and kernel.source is not None,
        unicast=plan.unicast > 0,
        stored=_stored(plan) if neural else "fp16",
        table=bool(plan.table),
        follows=follows,
    )


def _fetched(kernel: TaskKernel, alone: bool) -> int:
    """Bytes that the cores fetch; ``alone``: a table that its own channel brings."""
    if alone and kernel.source is None:
        return 0
    return sum(size // KERNEL_UNIT * KERNEL_UNIT for size in kernel.sizes)


def _stored(plan: Plan) -> str:
    if plan.kernel_format.sparse:
        return "sparse"
    if plan.kernel_format.palette_bits:
        return "palette"
    return "int8" if plan.kernel_format.element is Element.INT8 else "fp16"


def _read_bytes(plan: Plan) -> float | None:
    first, second = plan.source.transfer is not None, plan.second.dma is not None
    if not first and not second:
        return None
    total = prod(read_extents(plan, plan.source.broadcast)) if first else 0
    if second and plan.pe.kind in (PeKind.BINARY, PeKind.REDUCE_BINARY):
        total += prod(read_extents(plan, plan.second.broadcast))
    return float(total * plan.source.element.bytes)


def price_us(plans: Sequence[Plan], chip: Chip) -> float:
    """Microseconds of these tasks one after the other, as ``hexane.estimate`` counts them."""
    return sum(prices_us(plans, chip))


def prices_us(plans: Sequence[Plan], chip: Chip) -> Sequence[float]:
    """The same of each task; what it costs to change the unit is in the task behind the change."""
    tasks = tuple([facts_of(plan, chip.generation_name) for plan in plans])
    return _pair_us(tasks, chip) if len(tasks) <= 2 else _in_turn_us(tasks, chip)


@dataclass
class Prices:
    """Microseconds on a chip of plans that do not change meanwhile: what they will be told is worked out once."""

    chip: Chip
    _known: dict[Plan, TaskFacts] = field(default_factory=dict)

    def __call__(self, plans: Sequence[Plan]) -> Sequence[float]:
        """Of each task, as ``prices_us``."""
        return _in_turn_us([self._facts(plan) for plan in plans], self.chip)

    def _facts(self, plan: Plan) -> TaskFacts:
        facts = self._known.get(plan)
        if facts is None:
            facts = self._known[plan] = facts_of(plan, self.chip.generation_name)
        return facts


MOST_FORMS = 2048
"""Tasks, and pairs of them, whose costs are kept: the layers of a network are few forms again and again. About 2 MB."""


def _in_turn_us(tasks: Sequence[TaskFacts], chip: Chip) -> tuple[float, ...]:
    engines = engines_used(map(_layer, tasks), chip)
    return tuple([float(cost.us) for cost in in_turn([_alone(task, chip, engines) for task in tasks], values(chip))])


_pair_us = lru_cache(MOST_FORMS)(_in_turn_us)


@lru_cache(MOST_FORMS)
def _layer(task: TaskFacts) -> Layer:
    return layer_of(task, "")


@lru_cache(MOST_FORMS)
def _alone(task: TaskFacts, chip: Chip, engines: int) -> Alone:
    layer = _layer(task)
    cost = layer_cost(layer, OperatingPoint(chip, values(chip), engines, chip.clock_mhz))
    return alone(layer, cost, chip)


def sum_us(chip: Chip, pixels: int, channels: tuple[int, int], window: tuple[int, int, int], share: float) -> float:
    """Microseconds of one dense convolution with fp16 weights, operand and result in L2.

    ``channels`` are inputs and outputs, ``window`` height, width and stride, ``share`` that of weights other than zero:
    the streams of strided kernels leave zeros out.
    """
    (cin, cout), (kh, kw, stride) = channels, window
    weights = float(2 * cin * cout * kh * kw)
    sparse = stride > 1
    layer = Layer(
        "",
        "NE conv",
        "mac",
        pixels=pixels,
        cin=cin,
        cout=cout,
        kh=kh,
        kw=kw,
        stride=stride,
        weight_bytes=weights * (share + 1 / 16) if sparse else weights,
        dense_bytes=weights,
        weight_format="sparse" if sparse else "fp16",
        placed=True,
    )
    return float(time_work(Work((layer,)), chip, values(chip))[0].us)
