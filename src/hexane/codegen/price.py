"""The price of a plan: what an estimate of the program will say of the task that is made from it (hexane.cost)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from hexane.chips import Chip
from hexane.chips.measured import values
from hexane.codegen.operands import read_extents
from hexane.codegen.operations import After, Element, NeNonlinear, PeKind, SourceType
from hexane.codegen.plan import Plan, TaskKernel
from hexane.cost.model import Alone, alone, engines_used, in_turn, time_work
from hexane.cost.task import TaskFacts, layer_of
from hexane.cost.units import layer_cost
from hexane.cost.work import Layer, Work
from hexane.isa.generations import family_of
from hexane.isa.kinds import PE_KIND

KERNEL_UNIT = 64  # bytes; the length of a stream is counted in these


def facts_of(plan: Plan, generation: str = "h13") -> TaskFacts:
    """Facts of the task of this plan on this generation, as far as its cost goes."""
    neural = plan.unit == "NE"
    staged_result = plan.dst is None or plan.dst_staged
    kernel = plan.kernel if neural else None
    alone = plan.mac.ones and bool(plan.tables) and family_of(generation).packed  # by a channel of its own
    behind = After.FOLLOWS_PE if neural else After.FOLLOWS_NE
    other = After.FOLLOWS_NE in plan.reads.after  # which is told first where a plan has both
    return TaskFacts(
        operation=plan.mac.op.value if neural else "planar",
        kind=PE_KIND.value(plan.kind) or 0,
        win=plan.w,
        hin=plan.h,
        din=plan.d,
        cin=plan.c,
        wout=plan.wout,
        hout=plan.hout,
        cout=plan.cout,
        groups=plan.groups,
        in_width=plan.in_format.bytes,
        out_width=plan.out_format.bytes,
        kh=plan.kh,
        kw=plan.kw,
        stride=plan.sx,
        read_bytes=_read_bytes(plan),
        writes=not staged_result,
        kernel_bytes=0 if kernel is None else _fetched(kernel, alone),
        computed=kernel is not None and kernel.source is not None,
        unicast=plan.unicast > 0,
        stored=_stored(plan) if neural else "fp16",
        table=neural and plan.mac.nonlinear is NeNonlinear.TABLE,
        follows=(behind in plan.reads.after and not (neural and other)) or plan.reads.type is SourceType.STRIPS,
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
    first, second = plan.src is not None and not plan.src_staged, plan.src2 is not None
    if not first and not second:
        return None
    total = prod(read_extents(plan, plan.broadcast1)) if first else 0
    if second and plan.kind in (PeKind.BINARY, PeKind.REDUCE_BINARY):
        total += prod(read_extents(plan, plan.broadcast2))
    return float(total * plan.in_format.bytes)


def price_us(plans: Sequence[Plan], chip: Chip) -> float:
    """Microseconds of these tasks one after the other, as ``hexane.estimate`` counts them."""
    return sum(prices_us(plans, chip))


def prices_us(plans: Sequence[Plan], chip: Chip) -> list[float]:
    """The same of each task; what it costs to change the unit is in the task behind the change."""
    work = Work(tuple(layer_of(facts_of(plan, chip.generation_name), "") for plan in plans))
    return [float(item.us) for item in time_work(work, chip, values(chip))]


@dataclass
class Prices:
    """Microseconds on a chip of plans that do not change meanwhile, each worked out once."""

    chip: Chip
    _known: dict[Plan, _Priced] = field(default_factory=dict)
    _alike: dict[TaskFacts, _Priced] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = values(self.chip)

    def __call__(self, plans: Sequence[Plan]) -> list[float]:
        """Of each task, as ``prices_us``."""
        tasks = [self._priced(plan) for plan in plans]
        engines = engines_used((task.layer for task in tasks), self.chip)
        return [float(cost.us) for cost in in_turn([task.on(engines, self.chip) for task in tasks], self._numbers)]

    def _priced(self, plan: Plan) -> _Priced:
        if plan not in self._known:
            facts = facts_of(plan, self.chip.generation_name)
            if facts not in self._alike:
                self._alike[facts] = _Priced(layer_of(facts, ""))
            self._known[plan] = self._alike[facts]
        return self._known[plan]


@dataclass
class _Priced:
    """A task's layer, and its cost by the number of engines that share it."""

    layer: Layer
    costs: dict[int, Alone] = field(default_factory=dict)

    def on(self, engines: int, chip: Chip) -> Alone:
        if engines not in self.costs:
            cost = layer_cost(
                self.layer, chip, values(chip), engines=engines, clock_mhz=chip.clock_mhz, chain=False, tiles=1
            )
            self.costs[engines] = alone(self.layer, cost, chip)
        return self.costs[engines]


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
