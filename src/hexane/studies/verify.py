"""Did the engine do it? A network on a device against the emulator, float32, the predicted time and the counters.

Where emulator and float32 differ in bits, the device's bits say which of them it is like: a host computes float32 and
rounds, the engine computes as :mod:`hexane.arithmetic` says. Counters of the driver, the plan of Core ML, the power
rail and the time speak beside it, each where it can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hexane.counts import counted
from hexane.errors import HexaneError
from hexane.graph import Graph
from hexane.program import Program
from hexane.program.run import Device, Session
from hexane.runtime.core_ml.package import Package
from hexane.runtime.core_ml.plan import ENGINE as ON_ENGINE
from hexane.runtime.core_ml.plan import plan_of
from hexane.runtime.machine import Machine
from hexane.runtime.power import engine_power_mw
from hexane.session.agreement import agreements
from hexane.session.bench import bench
from hexane.session.verdict import BROKEN, verdict_of

SCHEMA = "hexane-verify/1"
ENGINE, HOST, WRONG, UNCLEAR, EMULATED = "engine", "host", "wrong", "unclear", "emulated"
FOR, AGAINST, NEUTRAL = "for", "against", "-"
LIKE = 0.9
"""Share of the telling values from which on a device's output is like the emulator's, or like float32's."""
FAR = 4.0
"""Measured over predicted from which on the time speaks against the engine; below 1 / FAR it does as well."""
RAIL_MW = 5.0
SENTENCES = {
    ENGINE: "the engine computed it",
    HOST: "the engine did not compute it",
    WRONG: "the outputs are wrong, whoever computed them",
    UNCLEAR: "nothing here can tell",
    EMULATED: "no engine: the emulator answered in the place of one, with its own bits",
}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: whether it speaks for the engine, against it, or says nothing; how strongly."""

    name: str
    speaks: str
    text: str
    strong: bool = False


@dataclass(frozen=True)
class Verification:
    """The checks in order, and what they come to."""

    device: str
    chip: str
    word: str
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]
    outputs: Mapping[str, np.ndarray] = field(repr=False, default_factory=dict)
    emulated: Mapping[str, np.ndarray] = field(repr=False, default_factory=dict)

    @property
    def status(self) -> int:
        """The command's exit status: 0 the engine (or the emulator, where it was asked for), 1 not, 3 unclear."""
        return {ENGINE: 0, EMULATED: 0, UNCLEAR: 3}.get(self.word, 1)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, schema hexane-verify/1 (docs/commands/verify.md)."""
        return {
            "schema": SCHEMA,
            "device": self.device,
            "chip": self.chip,
            "verdict": self.word,
            "sentence": SENTENCES[self.word],
            "reasons": list(self.reasons),
            "checks": [asdict(check) for check in self.checks],
        }


def verify(
    program: Program,
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    device: Device,
    *,
    calls: int = 20,
    machine: Machine | None = None,
    on_stage: Callable[[str], None] = lambda name: None,
) -> Verification:
    """Run a program on a device and say whether an engine did it.

    Parameters
    ----------
    program : compiled from ``graph`` for the device's chip.
    calls : calls that are timed; the first ones also have to give the same bits.

    What the device raises is not caught: nothing ran then, and the message says why.
    """
    checks: list[Check] = []
    on_stage("device")
    with Session(program, device) as session:
        outputs = session.run(inputs)
        before = session.counters()  # of programs that are loaded
        again = session.run(inputs)
        session.run(inputs)
        jobs = _jobs(before, session.counters())
        on_stage("power")
        power = engine_power_mw(machine or Machine(), lambda: _ignore(session.run(inputs))) if device.engine else None
    same = all(outputs[name].tobytes() == again[name].tobytes() for name in outputs)
    checks.append(Check("repeatable", NEUTRAL if same else AGAINST, "two calls, the same bits" if same
                        else "two calls with the same inputs give different bits"))  # fmt: skip
    on_stage("emulator")
    emulated = program.run(inputs)
    exact = graph.evaluate(inputs)
    rows = agreements(outputs, exact, graph)
    close = verdict_of(rows, "float32")
    ours = verdict_of(agreements(emulated, exact, graph), "float32")
    wrong = close is not None and close.word == BROKEN and (ours is None or ours.word != BROKEN)
    checks.append(Check("float32", AGAINST if wrong else NEUTRAL, close.text if close else "not compared"))
    checks.append(_bits(outputs, emulated, exact))
    on_stage("time")
    checks.append(_time(program, graph, inputs, device, calls))
    if jobs is not None:
        text = f"the driver counted {jobs[0]} jobs and {jobs[1] / 1e3:.0f} us for 2 calls"
        runs = 2 * len(program.images)
        checks.append(Check("counters", FOR if jobs[0] >= runs else AGAINST, text, strong=True))
    elif device.engine:
        checks.append(Check("counters", NEUTRAL, "the driver counts nothing that can be read"))
    if power is not None:
        milliwatts, why = power
        speaks = NEUTRAL if milliwatts is None else FOR if milliwatts >= RAIL_MW else AGAINST
        text = why if milliwatts is None else f"the engine's rail: {milliwatts:.0f} mW while it ran"
        checks.append(Check("power", speaks, text, strong=milliwatts is not None))
    if hasattr(device, "units"):
        checks.append(_plan(graph, device))
    word = _word(checks, wrong=wrong, is_engine=device.engine)
    reasons = tuple(f"{check.name}: {check.text}" for check in checks if check.speaks != NEUTRAL)
    return Verification(device.title, program.chip, word, reasons, tuple(checks), outputs, emulated)


def _ignore(_: object) -> None:
    pass


def _jobs(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[int, int] | None:
    if "jobs" not in before or "jobs" not in after:
        return None
    return after["jobs"] - before["jobs"], after.get("busy_ns", 0) - before.get("busy_ns", 0)


def _bits(outputs: Mapping[str, np.ndarray], emulated: Mapping[str, np.ndarray], exact: Mapping[str, Any]) -> Check:
    """Among the values where emulator and float32 differ, whose bits are the device's?"""
    telling = like_ours = like_host = equal = total = 0
    for name, array in outputs.items():
        ours = np.asarray(emulated[name])
        with np.errstate(over="ignore", invalid="ignore"):
            host = np.asarray(exact[name]).astype(np.float16).astype(ours.dtype)
        host, got = host.reshape(ours.shape), np.asarray(array).astype(ours.dtype, copy=False).reshape(ours.shape)
        differ = _bits_of(ours) != _bits_of(host)
        telling += int(differ.sum())
        like_ours += int((differ & (_bits_of(got) == _bits_of(ours))).sum())
        like_host += int((differ & (_bits_of(got) == _bits_of(host))).sum())
        equal += int((_bits_of(got) == _bits_of(ours)).sum())
        total += ours.size
    text = f"{equal} of {total} values have the emulator's bits"
    if not telling:
        return Check("bits", NEUTRAL, f"{text}; the emulator's are those of float32 rounded, so they tell nothing")
    text += (
        f"; of {telling} where it differs from float32 rounded to fp16, {like_ours} are the emulator's and "
        f"{like_host} float32's"
    )
    if like_ours >= LIKE * telling:
        return Check("bits", FOR, text, strong=like_ours == telling)
    return Check("bits", AGAINST if like_host >= LIKE * telling else NEUTRAL, text, strong=like_host == telling)


def _bits_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.dtype(f"u{array.dtype.itemsize}"))


def _time(program: Program, graph: Graph, inputs: Mapping[str, Any], device: Device, calls: int) -> Check:
    timing = bench(program, inputs, device, model="verify", graph=graph, calls=calls, warmup=1)
    took = f"{timing.calls.median_us:.1f} us a call"
    if not device.engine:
        return Check("time", NEUTRAL, f"{took}: how fast this machine computes, no measurement of an engine")
    if timing.predicted is None or timing.ratio is None:
        return Check("time", NEUTRAL, f"{took}; nothing is predicted: {timing.missing}")
    low, high = timing.predicted.latency_range_us
    text = f"{took}, predicted {low:.0f} to {high:.0f}; on the device {timing.ratio:.2f} of what was predicted"
    return Check("time", FOR if 1 / FAR <= timing.ratio <= FAR else AGAINST, text)


def _plan(graph: Graph, device: Device) -> Check:
    try:
        with Package(graph, device.units, device.library) as package:  # type: ignore[attr-defined]
            plan = plan_of(package)
    except HexaneError as error:
        return Check("plan", NEUTRAL, f"Core ML gives no plan: {error.message}")
    here = sum(op.preferred == ON_ENGINE for op in plan)
    return Check(
        "plan", FOR if here else AGAINST, f"Core ML prefers the engine for {here} of {counted(len(plan), 'op')}", True
    )


def _word(checks: list[Check], *, wrong: bool, is_engine: bool) -> str:
    """Verdict of the checks: strong ones decide, else all that speak have to agree."""
    if wrong:
        return WRONG
    by = {side: [check for check in checks if check.speaks == side] for side in (FOR, AGAINST)}
    if not is_engine:
        return EMULATED if any(c.name == "bits" for c in by[FOR]) or not by[AGAINST] else WRONG
    strong = {side: [check for check in checks if check.strong] for side, checks in by.items()}
    for side, word, other in ((FOR, ENGINE, AGAINST), (AGAINST, HOST, FOR)):
        if strong[side] and not strong[other]:
            return word
    if strong[FOR] and strong[AGAINST]:
        return UNCLEAR
    if by[FOR] and not by[AGAINST]:
        return ENGINE if any(check.name == "bits" for check in by[FOR]) else UNCLEAR
    return HOST if by[AGAINST] and not by[FOR] and any(c.name == "bits" for c in by[AGAINST]) else UNCLEAR
