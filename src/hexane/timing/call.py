"""From a task on the engine to a call of a program: floors, copies, completion (docs/timing.md)."""

from __future__ import annotations

from typing import Any

from hexane.chips import Chip
from hexane.cost.units import Numbers, larger, smaller
from hexane.cost.work import Work
from hexane.errors import UsageError

LINUX_FLOOR_US = {
    "M1": 38.5, "M1 Pro": 38.5, "M1 Max": 38.5, "M1 Ultra": 38.5,
    "M2": 240.0, "M2 Pro": 240.0, "M2 Max": 240.0, "M2 Ultra": 240.0,
}  # fmt: skip
"""Call floor of the open Linux driver: 38.5 us on M1 (docs/reference/generations.md 2.4), 0.23 to 0.25 ms mailbox
round trip on M2 (docs/timing.md). SILICON, ane-linux-experiments; never fitted."""
LINUX_TASK_US = 2.8
"""Most that a further task costs there (docs/timing.md)."""

LINUX_GBS = {"M1 Pro": 8.8, "M1 Max": 8.8, "M1 Ultra": 8.8}
"""What all DMA of a call moves there at most. SILICON, M1 Max: 9.0 MB of a select in 1,044 us, 3.6 MB of a product in
459 us (ane-linux-experiments), where macOS moves 56 GB/s; its siblings INFERRED. Elsewhere no large call is timed."""

PHONE_CALL_US = {"A12": 190.0, "A13": 190.0, "A14": 190.0, "A15": 190.0}
"""What a Core ML call takes on a phone beyond a computer's. SILICON, A14 and A15: networks of seven publications, timed
by an app on the phone (docs/timing.md); older phones INFERRED. Xcode's reports on A16 and A17 Pro show none of it."""

INTERFACES = {
    "task": "start to end of the task on the engine",
    "submit": "submission to end of task, Core ML on M6",
    "evaluate": "a synchronous call of a loaded program, surfaces filled in place",
    "copies": "a call that copies fp16 in and converts the result to fp32, the best of many",
    "copies_typical": "the same, the middle of many",
    "coreml": "a Core ML prediction, back to back",
    "coreml_awake": "the same while other processes keep the CPU awake",
    "linux": "the ioctl of the open Linux driver",
}


def ramp(us: Any, start: Any, end: Any) -> Any:
    """0 up to ``start``, 1 from ``end`` on, a straight line between."""
    return smaller(larger((us - start) / larger(end - start, 1.0), 0.0), 1.0)


def sleep_us(task_us: Any, c: Numbers) -> Any:
    """Additional wait of a synchronous call once its CPU core has gone to sleep: a jump with the length of the task."""
    return c["sleep_us"] * ramp(task_us, c["sleep_from_us"], c["sleep_to_us"])


def copies_us(work: Work, c: Numbers) -> Any:
    """Host copies of a call: fp16 in, result out and to fp32; rows that surfaces pad are copied one by one."""
    extra = c["padded_copy"] - 1
    into = (work.host_in_bytes + extra * work.host_in_padded) / c["host_in_gbs"]
    out = (work.host_out_bytes + extra * work.host_out_padded) / c["host_out_gbs"]
    return (into + out) / (1e3 * c["host_factor"])


def completion_us(submit_to_end_us: Any, chip: Chip, c: Numbers) -> Any:
    """Time from the end of a task until Core ML returns: longer once the CPU has gone to sleep.

    Chips with two engines complete by a path of their own (measured on M6 by stages); elsewhere the wait is that of
    every synchronous call.
    """
    if chip.engines > 1 and chip.generation.joins_engines:
        deep = ramp(submit_to_end_us, c["complete_from_us"], c["complete_to_us"])
        return c["complete_short_us"] + (c["complete_long_us"] - c["complete_short_us"]) * deep
    return c["complete_one_us"] + sleep_us(submit_to_end_us, c)


def compulsory_bytes(work: Work) -> float:
    """Weights once for each layer, and what the program is handed and hands out."""
    edges = (layer.in_bytes * layer.reads_input + layer.out_bytes * layer.writes_output for layer in work.layers)
    return sum(layer.weight_bytes * layer.count for layer in work.layers) + sum(edges)


def launch_us(task_us: Any, work: Work, chip: Chip, c: Numbers, interface: str, engines: int) -> Any:
    """Cost of a call besides layers (``task_us``) and host copies; ``interface`` is one of ``INTERFACES``."""
    start = c["task_start_us"]
    if interface == "task":
        return start
    if interface == "submit":
        return start + c["submit_us"]
    if interface == "evaluate":
        return c["floor_evaluate_us"] * c["call_factor"] + sleep_us(task_us, c)
    if interface == "linux":
        further = sum(3 * layer.count if layer.unit == "runtime" else layer.count for layer in work.layers) - 1
        floor = LINUX_FLOOR_US.get(chip.name, 60.0) + start + LINUX_TASK_US * max(further, 0)
        if chip.name not in LINUX_GBS:
            return floor
        return floor + larger(compulsory_bytes(work) / (LINUX_GBS[chip.name] * 1e3) - task_us, 0.0)
    if interface in ("copies", "copies_typical"):
        worker = c["worker_us"] if work.worker else 0.0
        typical = c["typical_us"] if interface == "copies_typical" else 0.0
        return c["floor_copies_us"] * c["call_factor"] + worker + typical
    if interface in ("coreml", "coreml_awake"):
        before = start + c["submit_us"]
        completion = c["complete_awake_us"] if interface == "coreml_awake" else completion_us(before + task_us, chip, c)
        phone, both = PHONE_CALL_US.get(chip.name, 0.0), c["two_engine_call_us"] if engines > 1 else 0.0
        return before + completion + phone + both
    raise UsageError(f"unknown interface {interface!r}", hint=f"one of {', '.join(INTERFACES)}")


def host_copies_us(work: Work, chip: Chip, c: Numbers, interface: str) -> Any:
    """Host copies of a call through ``interface``: none where surfaces are filled in place."""
    if interface in ("copies", "copies_typical"):
        return copies_us(work, c)
    if interface in ("coreml", "coreml_awake") and chip.generation.coreml_copies:
        return (work.host_in_bytes + work.host_out_bytes) / (c["coreml_copy_gbs"] * 1e3)
    return 0.0


def call_us(task_us: Any, work: Work, chip: Chip, c: Numbers, interface: str, engines: int) -> Any:
    """Microseconds of one call whose layers take ``task_us``."""
    return task_us + launch_us(task_us, work, chip, c, interface, engines) + host_copies_us(work, chip, c, interface)
