"""How long, how hot, what limits: the estimate of a graph, a program or an image on a chip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hexane import chips
from hexane.chips import Chip
from hexane.chips.measured import Constant, constants, provenance
from hexane.errors import UnsupportedError, UsageError
from hexane.timing.call import INTERFACES, call_us
from hexane.timing.energy import energy_uj
from hexane.timing.from_graph import work_of
from hexane.timing.from_tasks import work_of_tasks
from hexane.timing.model import Timed, engines_used, time_work
from hexane.timing.whatif import changed
from hexane.timing.work import Work

SCHEMA = "hexane-estimate/1"
EXTRAPOLATED_FACTOR = 1.5
"""Uncertainty of a layer of a kind that nobody has timed: INFERRED from the spread between unit rates."""


@dataclass(frozen=True)
class OpEstimate:
    """One layer: its time and parts in microseconds (all repetitions), traffic, share of the peak, what limits."""

    name: str
    op: str
    us: float
    compute_us: float
    weights_us: float
    activations_us: float
    overhead_us: float
    bottleneck: str
    macs: float
    dma_bytes: float
    utilisation: float
    extrapolated: bool


@dataclass(frozen=True)
class Estimate:
    """What one call costs on ``chip``.

    ``latency_us`` is a call through ``interface`` at the top clock, calls back to back; ``latency_range_us`` one
    standard deviation either way; ``engine_us`` the task alone; ``single_shot_us`` the first call after a pause of
    100 ms; ``energy_mj`` the engine's rail, millijoules per call; ``ops`` the layers in order, ``tasks`` the same for
    compiled tasks (empty for a graph). ``notes`` say where the model extrapolates.
    """

    chip: str
    interface: str
    latency_us: float
    latency_range_us: tuple[float, float]
    engine_us: float
    single_shot_us: float
    energy_mj: float
    bottleneck: str
    utilisation: float
    macs: float
    dma_bytes: float
    calls_per_second: float
    engines: int
    ops: tuple[OpEstimate, ...]
    tasks: tuple[OpEstimate, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data with a ``schema`` key (``hexane-estimate/1``; see docs/commands/estimate.md)."""
        return {"schema": SCHEMA, **asdict(self)}

    def __str__(self) -> str:
        low, high = self.latency_range_us
        return (
            f"{self.chip}: {self.latency_us:.0f} us a call ({low:.0f} to {high:.0f}), {self.engine_us:.1f} us on the "
            f"engine, {self.energy_mj:.3f} mJ, limited by {self.bottleneck}"
        )


def works_of(x: Any) -> tuple[Work, bool]:
    """The work of a Graph, a Program or an Image, and whether it was read off compiled tasks."""
    if isinstance(x, Work):
        return x, False
    if hasattr(x, "main") and hasattr(x, "functions"):
        return work_of(x), False
    if hasattr(x, "segments") and hasattr(x, "images"):
        works = [work_of_tasks(image.tasks, name=f"image{i}.task") for i, image in enumerate(x.images)]
        notes = tuple(
            f"host segment not timed: {getattr(s, 'reason', '')}"
            for s in x.segments
            if getattr(s, "kind", "") == "host"
        )
        return _joined(works, notes), True
    if hasattr(x, "tasks") and hasattr(x, "surfaces"):
        return work_of_tasks(x.tasks), True
    raise UsageError(
        f"nothing to time in a {type(x).__name__}", hint="give a graph (hexane.load), a program or an image"
    )


def _joined(works: list[Work], notes: tuple[str, ...]) -> Work:
    return Work(
        tuple(layer for work in works for layer in work.layers),
        host_in_bytes=sum(work.host_in_bytes for work in works),
        host_out_bytes=sum(work.host_out_bytes for work in works),
        host_in_padded=sum(work.host_in_padded for work in works),
        host_out_padded=sum(work.host_out_padded for work in works),
        notes=notes,
    )


def estimate(
    x: Any,
    chip: str | Chip = "M1",
    *,
    interface: str = "evaluate",
    batch: int | None = None,
    weights: str | None = None,
    resolution: float | None = None,
) -> Estimate:
    """Time and energy of one call of ``x`` (a Graph, Program or Image) on ``chip``.

    A program or image is timed task by task (H13 only), a graph layer by layer with the same unit costs. ``interface``
    says what a call contains (``hexane.timing.call.INTERFACES``); ``batch``, ``weights`` and ``resolution`` change the
    work first (``hexane.timing.whatif``). Costs time linear in the number of layers. Errors: UsageError for an unknown
    chip or interface, UnsupportedError for tasks of another generation.
    """
    (result,) = estimates(x, [chip], interface=interface, batch=batch, weights=weights, resolution=resolution)
    return result


def estimates(
    x: Any,
    targets: Sequence[str | Chip],
    *,
    interface: str = "evaluate",
    batch: int | None = None,
    weights: str | None = None,
    resolution: float | None = None,
) -> list[Estimate]:
    """``estimate`` for several chips; the network is read once, so that twenty chips cost little more than one."""
    if interface not in INTERFACES:
        raise UsageError(f"unknown interface {interface!r}", hint=f"one of {', '.join(INTERFACES)}")
    work, compiled = works_of(x)
    if batch or weights or resolution:
        work = changed(work, batch=batch, weights=weights, resolution=resolution)
    return [_estimate(work, compiled, chips.get(chip), interface) for chip in targets]


def _estimate(work: Work, compiled: bool, target: Chip, interface: str) -> Estimate:
    if compiled and target.generation_name != "h13":
        raise UnsupportedError(
            f"this program is compiled for H13 and does not run on {target.name}", hint="estimate the network instead"
        )
    found = constants(target)
    c = {name: constant.value for name, constant in found.items()}
    engines = engines_used(work, target)
    timed = time_work(work, target, c, engines=engines)
    layers_us = sum(item.us for item in timed)
    engine_us = layers_us + c["task_start_us"]
    latency = call_us(layers_us, work, target, c, interface, engines)
    ops = tuple(_op(item, target, engines) for item in timed)
    spread = _spread(ops, latency, layers_us, found, interface)
    macs = work.macs
    peak_us = macs / (target.generation.cores * target.macs_per_core_cycle * target.clock_mhz * engines)
    return Estimate(
        chip=target.name,
        interface=interface,
        latency_us=latency,
        latency_range_us=(latency / spread, latency * spread),
        engine_us=engine_us,
        single_shot_us=latency + wake_us(target),
        energy_mj=energy_uj(timed, latency, c) * 1e-3,
        bottleneck=_bottleneck(ops, latency - layers_us),
        utilisation=min(peak_us / latency, 1.0) if latency else 0.0,
        macs=macs,
        dma_bytes=sum(item.cost.dma_bytes * item.layer.count for item in timed),
        calls_per_second=1e6 / latency if latency else 0.0,
        engines=engines,
        ops=ops,
        tasks=ops if compiled else (),
        notes=_notes(work, target, found),
    )


def wake_us(chip: Chip) -> float:
    """What the first call after a pause of 100 ms costs on top: 0.5 ms on M1, 5 ms on M6 (spec/performance §8)."""
    return 5000.0 if chip.generation_name == "h19" else 500.0


def _op(item: Timed, chip: Chip, engines: int) -> OpEstimate:
    layer, cost, n = item.layer, item.cost, item.layer.count
    peak = chip.generation.cores * chip.macs_per_core_cycle * chip.clock_mhz * engines
    return OpEstimate(
        name=layer.name,
        op=layer.op,
        us=item.us,
        compute_us=cost.compute_us * n,
        weights_us=cost.weights_us * n,
        activations_us=cost.activations_us * n,
        overhead_us=cost.extra_us * n,
        bottleneck=cost.bottleneck,
        macs=layer.macs,
        dma_bytes=cost.dma_bytes * n,
        utilisation=min(layer.macs / peak / item.us, 1.0) if item.us else 0.0,
        extrapolated=layer.extrapolated,
    )


def _bottleneck(ops: tuple[OpEstimate, ...], call_us: float) -> str:
    parts = {"call overhead": call_us}
    for op in ops:
        parts[op.bottleneck] = parts.get(op.bottleneck, 0.0) + op.us
    return max(parts, key=lambda name: parts[name])


def _spread(
    ops: tuple[OpEstimate, ...],
    latency: float,
    layers_us: float,
    found: dict[str, Constant],
    interface: str,
) -> float:
    """One standard deviation of the latency as a factor: the model's own error and its constants'."""
    if latency <= 0:
        return 1.0
    floors = {"evaluate": "floor_evaluate_us", "coreml": "complete_short_us"}
    floors |= dict.fromkeys(("copies", "copies_typical"), "floor_copies_us")
    rests_on = {
        "weights": "weights_gbs",
        "activations": "activations_gbs",
        "compute": "mac_rate",
        "overhead": "task_start_us",
        "call": floors.get(interface, "task_start_us"),
    }
    share = {"call": max(latency - layers_us, 0.0)}
    for op in ops:
        share[op.bottleneck] = share.get(op.bottleneck, 0.0) + op.us
    variance = math.log(provenance()["cross_validated"]["mean_factor"]) ** 2
    for part, us in share.items():
        constant = found.get(rests_on[part])
        if constant is not None:
            variance += (us / latency * math.log(constant.factor)) ** 2
    unknown = sum(op.us for op in ops if op.extrapolated) / latency
    variance += (unknown * math.log(EXTRAPOLATED_FACTOR)) ** 2
    return math.exp(math.sqrt(variance))


def _notes(work: Work, chip: Chip, found: dict[str, Constant]) -> tuple[str, ...]:
    notes = list(work.notes)
    donors = {constant.chip for constant in found.values() if constant.chip} - {chip.name}
    if donors:
        notes.append(f"no measurements of {chip.name}: constants of {', '.join(sorted(filter(None, donors)))}")
    elif not any(constant.chip for constant in found.values()):
        notes.append(f"no measurements of {chip.name} or a sibling: constants that all chips share")
    if chip.clock_evidence == chips.Evidence.INFERRED:
        notes.append(f"the clock of {chip.name} is inferred")
    return tuple(notes)
