"""Time, energy and bottleneck: the estimate of a graph, a program or an image on a chip."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from hexane import chips
from hexane.chips import Chip
from hexane.chips.measured import ModelConstant, constants
from hexane.cost.model import Timed, engines_used, time_work
from hexane.cost.units import Numbers, bounds_us
from hexane.cost.work import HostOp, Job, Parts, Work
from hexane.errors import UnsupportedError, UsageError
from hexane.graph import html
from hexane.timing.call import INTERFACES, host_copies_us, launch_us
from hexane.timing.energy import energy_uj
from hexane.timing.job import host_op_us, job_of, opened, own_chip
from hexane.timing.ranges import HOST, is_untimed, layer_parts, shipped
from hexane.timing.sensitivity import slopes
from hexane.timing.whatif import changed

SCHEMA = "hexane-estimate/1"


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


@dataclass(frozen=True, repr=False)
class Estimate:
    """Cost of one call on ``chip``.

    ``latency_us`` is a call through ``interface`` at the top clock, calls back to back; ``latency_range_us`` one
    standard deviation either way; ``parts`` what it is made of (launches, host, copies, engine); ``basis`` what was
    read (``hexane.cost.work.Job``); ``engine_us`` the tasks alone; ``bound_us`` what these cannot be below, the longer
    of all arithmetic at the array's peak and all compulsory bytes at the memory's (`hexane.cost.units.bounds_us`);
    ``single_shot_us`` the first call after a pause of
    100 ms; ``energy_mj`` the engine's rail, millijoules per call; ``ops`` the layers in order, ``tasks`` the same for
    compiled tasks (empty for a graph). ``notes`` say where the model extrapolates.
    """

    chip: str
    interface: str
    basis: str
    latency_us: float
    latency_range_us: tuple[float, float]
    parts: Parts
    engine_us: float
    bound_us: float
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
        layers = {name: tuple(dict(vars(op)) for op in getattr(self, name)) for name in ("ops", "tasks")}
        return {"schema": SCHEMA, **vars(self), "parts": asdict(self.parts), **layers}

    def __repr__(self) -> str:
        return f"<estimate {self}>"

    def _repr_html_(self) -> str:
        """The tables of ``hexane estimate --ops``, for notebooks."""
        from hexane.timing.tables import HEAD, LAYER_HEAD, LAYER_RIGHT, RIGHT, layer_rows, parts_row

        who = "hexane's program" if self.basis == "program" else "Apple's compiler"
        notes = "".join(html.paragraph(f"note: {note}") for note in self.notes)
        call = html.table([parts_row(who if self.basis != "image" else "the file", self)], HEAD, RIGHT)
        return call + notes + html.table(layer_rows(self), LAYER_HEAD, LAYER_RIGHT)

    def __str__(self) -> str:
        low, high = self.latency_range_us
        parts = self.parts
        return (
            f"{self.chip}: {self.latency_us:.0f} us ({low:.0f} to {high:.0f}): {parts.launches} x launch "
            f"{parts.launch_us:.0f}, host {parts.host_us:.0f}, copies {parts.copies_us:.0f}, engine "
            f"{parts.engine_us:.1f}; {self.energy_mj:.3f} mJ, limited by {self.bottleneck}"
        )


def estimate(
    x: Any,
    chip: str | Chip | None = None,
    *,
    interface: str = "evaluate",
    batch: int | None = None,
    weights: str | None = None,
    resolution: float | None = None,
    as_: str = "",
) -> Estimate:
    """Time and energy of one call of ``x`` (a Graph, Program, Image or a path) on ``chip`` (a program's own, else M1).

    A program or image is timed task by task, a graph layer by layer with the same unit costs, in the form that
    converters write (``hexane.timing.canonical``): one network has one time, whatever file it comes from. ``interface``
    says what a call contains (``hexane.timing.call.INTERFACES``); ``batch``, ``weights`` and ``resolution`` change the
    work first (``hexane.timing.whatif``). ``as_``: of a network, "apple" times it with ops taken apart as Apple's
    compiler does, "hexane" the program that hexane compiles. Costs time linear in the number of layers. Errors:
    UsageError for an unknown chip or interface, UnsupportedError for tasks of another generation.
    """
    x = opened(x)
    (result,) = estimates(
        x, [chip or own_chip(x)], interface=interface, batch=batch, weights=weights, resolution=resolution, as_=as_
    )
    return result


def estimates(
    x: Any,
    targets: Sequence[str | Chip],
    *,
    interface: str = "evaluate",
    batch: int | None = None,
    weights: str | None = None,
    resolution: float | None = None,
    as_: str = "",
) -> list[Estimate]:
    """``estimate`` for several chips; the network is read once per generation."""
    if interface not in INTERFACES:
        raise UsageError(f"unknown interface {interface!r}", hint=f"one of {', '.join(INTERFACES)}")
    x = opened(x)
    jobs: dict[str, Job] = {}
    results = []
    for name in targets:
        target = chips.get(name)
        job = jobs.get(target.generation_name)
        if job is None:
            job = job_of(_asked(x, target, as_), target)
            if batch is not None or weights is not None or resolution is not None:
                job = changed(job, batch=batch, weights=weights, resolution=resolution)
            jobs[target.generation_name] = job
        results.append(_estimate(job, target, interface))
    return results


def _asked(x: Any, target: Chip, as_: str) -> Any:
    """A network in the form that is timed, or compiled by hexane; what is no network stays."""
    from hexane.codegen import compile
    from hexane.codegen.driver import dialect_as
    from hexane.timing.canonical import as_timed

    dialect_as(as_)
    if not hasattr(x, "functions"):
        return x
    if as_ == "hexane":
        return compile(x, chip=target)
    return as_timed(x, target, as_apple=as_ == "apple")


@dataclass(frozen=True)
class _Launch:
    """One engine program timed: its layers, and what its call takes besides."""

    work: Work
    engines: int
    timed: list[Timed]
    layers_us: Any
    launch_us: Any
    copies_us: Any


def _launch(work: Work, target: Chip, c: Numbers, interface: str) -> _Launch:
    engines = engines_used(work.layers, target)
    timed = time_work(work, target, c, engines=engines)
    us = sum(item.us for item in timed)
    return _Launch(
        work,
        engines,
        timed,
        us,
        launch_us(us, work, target, c, interface, engines),
        host_copies_us(work, target, c, interface),
    )


def _launches(job: Job, target: Chip, c: Numbers, interface: str) -> list[_Launch]:
    return [_launch(work, target, c, interface) for work in job.launches]


def _engine_total(job: Job, target: Chip, interface: str, c: Numbers) -> Any:
    """Microseconds of everything but the host's ops."""
    return sum(item.layers_us + item.launch_us + item.copies_us for item in _launches(job, target, c, interface))


def _estimate(job: Job, target: Chip, interface: str) -> Estimate:
    if job.generation and target.generation_name != job.generation:
        raise UnsupportedError(
            f"this program is compiled for {job.generation.upper()} and does not run on {target.name}",
            hint="estimate the network instead",
        )
    constants_used = constants(target)
    c = {name: constant.value for name, constant in constants_used.items()}
    launches = _launches(job, target, c, interface)
    start = c["task_start_us"] * len(launches)
    parts = Parts(
        launches=len(launches),
        launch_us=sum(item.launch_us for item in launches) - start,
        host_us=sum(host_op_us(op, target) for op in job.host),
        copies_us=sum(item.copies_us for item in launches),
        engine_us=sum(item.layers_us for item in launches) + start,
    )
    latency = parts.total_us
    ops = tuple(_op(timed, target, item.engines) for item in launches for timed in item.timed)
    spread = math.exp(_sigma(job, launches, parts, target, c, interface))
    engines = max((item.engines for item in launches), default=1)
    macs = sum(work.macs for work in job.launches)
    peak_us = macs / (target.generation.cores * target.macs_per_core_cycle * target.clock_mhz * engines)
    bounds = _bounds(launches, target)
    energy = energy_uj([timed for item in launches for timed in item.timed], latency - parts.host_us, c)
    return Estimate(
        chip=target.name,
        interface=interface,
        basis=job.basis,
        latency_us=latency,
        latency_range_us=(latency / spread, latency * spread),
        parts=parts,
        engine_us=parts.engine_us,
        bound_us=max(bounds),
        single_shot_us=latency + (target.generation.wake_us if launches else 0.0),
        energy_mj=energy * 1e-3 if launches else 0.0,
        bottleneck=_bottleneck(ops, parts),
        utilisation=min(peak_us / latency, 1.0) if latency else 0.0,
        macs=macs,
        dma_bytes=sum(op.dma_bytes for op in ops),
        calls_per_second=1e6 / latency if latency else 0.0,
        engines=engines,
        ops=ops,
        tasks=ops if job.by_tasks else (),
        notes=(*_notes(job, ops, parts, target, constants_used), *_bound_note(bounds)),
    )


def _bounds(launches: list[_Launch], chip: Chip) -> tuple[float, float]:
    """Microseconds of all arithmetic at the array's peak, and of all compulsory bytes at the memory's peak."""
    each = [
        (item.layer.count * array, item.layer.count * memory)
        for launch in launches
        for item in launch.timed
        for array, memory in [bounds_us(item.layer, chip, launch.engines)]
    ]
    return sum(array for array, _ in each), sum(memory for _, memory in each)


def _sigma(job: Job, launches: list[_Launch], parts: Parts, target: Chip, c: dict[str, float], interface: str) -> float:
    """One standard deviation of the latency's logarithm (``hexane.timing.ranges``)."""
    shares: dict[str, float] = defaultdict(float)
    for item in launches:
        for part, us in layer_parts(item.timed, target, item.engines).items():
            shares[part] += us
        shares[f"call {interface}"] += item.launch_us
        shares["copies"] += item.copies_us
    sigmas: dict[str, float] = {}
    if launches:
        sigmas = slopes(partial(_engine_total, job, target, interface), c)
    share = 1 - parts.host_us / parts.total_us if parts.total_us else 0.0
    shares[HOST] = parts.host_us
    return shipped().sigma(target, {name: slope * share for name, slope in sigmas.items()}, shares)


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
        extrapolated=is_untimed(layer, chip),
    )


def _bottleneck(ops: tuple[OpEstimate, ...], parts: Parts) -> str:
    """Largest part of a latency: a unit of the engine, its memory paths, the host or the calls."""
    shares = {"launches": parts.launch_us, "host": parts.host_us, "copies": parts.copies_us}
    for op in ops:
        shares[op.bottleneck] = shares.get(op.bottleneck, 0.0) + op.us
    return max(shares, key=lambda name: shares[name])


_BASIS = {
    "network": "the network as one program of Apple's compiler, cut only where this engine refuses an op",
    "program": "the program that hexane compiled: its tasks, its segments, its ops on the host",
    "image": "one engine program, task by task",
}


def _bound_note(bounds: tuple[float, float]) -> tuple[str, ...]:
    array, memory = bounds
    what = "arithmetic at the array's peak" if array >= memory else "compulsory bytes at the memory's peak"
    return (f"the engine takes at least {max(bounds):.1f} us: {what}",) if max(bounds) else ()


def _notes(
    job: Job, ops: tuple[OpEstimate, ...], parts: Parts, chip: Chip, constants_used: dict[str, ModelConstant]
) -> tuple[str, ...]:
    """Contents of the estimate, then where it extrapolates: one line per kind of op, not one per op."""
    notes = [f"counts {_BASIS[job.basis]}; {_counted(parts, job.host)}", *job.notes]
    unknown: dict[str, list[OpEstimate]] = defaultdict(list)
    for op in ops:
        if op.extrapolated:
            unknown[op.op].append(op)
    for kind, members in unknown.items():
        count = f"{len(members)} {kind} layers" if len(members) > 1 else f"{kind} {members[0].name}"
        share = sum(op.us for op in members) / parts.engine_us
        notes.append(f"{count}, {share:.0%} of the engine's time: nobody has published a time of such a layer")
    donors = Counter(constant.chip for constant in constants_used.values() if constant.chip)
    own = donors.pop(chip.name, 0)
    if donors:
        names = ", ".join(f"{count} constants of {donor}" for donor, count in sorted(donors.items()))
        own_ones = f"{own} constants of its own" if own else f"no measurements of {chip.name}"
        notes.append(f"{own_ones}, {names} in their place: the range counts how far chips differ")
    elif not own:
        notes.append(f"no measurements of {chip.name} or a sibling: constants that all chips share")
    if chip.clock_evidence == chips.Evidence.INFERRED:
        notes.append(f"the clock of {chip.name} is inferred")
    return tuple(notes)


def _counted(parts: Parts, host: tuple[HostOp, ...]) -> str:
    """Contents of the estimate, without figures: the same words for every chip of which the same is true."""
    launches = "1 launch" if parts.launches == 1 else f"{parts.launches} launches"
    kinds = Counter(op.op for op in host).most_common(4)
    names = ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in kinds)
    on_host = f"{names} on the host, at Core ML's CPU rates" if host else "nothing on the host"
    unknown = ", ".join(sorted({op.op for op in host if op.untimed}))
    remark = f"; how long {unknown} takes is not known: inputs and outputs alone count" if unknown else ""
    return f"{launches}, {on_host}{remark}"
