"""``python tools/fuzz networks``: random networks through the whole chain, and the command that repeats a failure."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from fuzz import layers, ops, shapes
from fuzz.shrink import shrunk
from fuzz.sketch import Sketch
from fuzz.trial import Failure, Plan, Trial, compiled_chips
from hexane import chips as all_chips

KINDS: dict[str, Callable[[int, int], Sketch]] = {
    "ops": ops.network,
    "shapes": shapes.network,
    "layers": layers.network,
}
GROWTH = 2 << 30
"""Bytes by which the process may grow after its first hundred networks, and while one network runs."""
NEAR = {"ops": 0.0, "shapes": 0.06, "layers": 0.0}
"""How near results of the tasks have to be to float32, of the largest; others have numbers of any size."""


def plan_of(kind: str, seed: int, index: int, chips: Sequence[str], every: bool = False) -> Plan:
    """Two chips of different generations, or every chip, and for some networks the slower stages."""
    chance = random.Random(f"plan {kind} {seed} {index}")
    first = chance.choice(chips)
    others = [c for c in chips if all_chips.get(c).generation_name != all_chips.get(first).generation_name]
    return Plan(
        tuple(chips) if every else (first, chance.choice(others)) if others else (first,),
        files=kind == "ops" or index % 8 == 0,
        onnx=index % 4 == 0,
        report=index % 200 == 100,
        near=NEAR[kind],
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python tools/fuzz networks", description=__doc__)
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--seed", type=int, help="a new one each time unless given")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each kind, at most")
    parser.add_argument("--count", type=int, default=1 << 30, help="of each kind, at most")
    parser.add_argument("--first", type=int, default=0, help="index of the first network of the seed")
    parser.add_argument("--chips", help='"M1,M4"; by default every chip that is compiled for')
    parser.add_argument("--every", action="store_true", help="compile for every chip, not for two of them")
    parser.add_argument("--failures", type=int, default=5, help="stop a kind after so many")
    parser.add_argument("--shrink", type=float, default=40.0, help="seconds for making a failure small")
    parser.add_argument("--record", type=Path, help="a file of figures, JSON, to which this run is added")
    parser.add_argument("--scripts", type=Path, help="a folder for a script of each failure")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    chips = [chip.name for chip in (all_chips.parse_list(options.chips) if options.chips else compiled_chips())]
    bad = 0
    for kind in KINDS if options.kind == "all" else (options.kind,):
        bad += run(kind, seed, chips, options)
    return 1 if bad else 0


def run(kind: str, seed: int, chips: Sequence[str], options: argparse.Namespace) -> int:
    """The networks of one kind; how many failed."""
    print(f"{kind}: seed {seed} (again: python tools/fuzz networks --kind {kind} --seed {seed})", flush=True)
    counts: Counter[str] = Counter()
    start, before, seen = time.monotonic(), 0, set()
    index = options.first
    while index - options.first < options.count and time.monotonic() - start < options.seconds:
        plan = plan_of(kind, seed, index, chips, options.every)
        sketch = None
        began, peak = time.monotonic(), _peak()
        try:
            sketch = KINDS[kind](seed, index)
            if sketch.outputs:
                counts["networks"] += 1
                counts["ops"] += len(sketch.steps)
                Trial(sketch, plan, counts).run()
            else:
                counts["no draw"] += 1
        except Failure as failure:
            counts[f"failed: {failure.kind}"] += 1
            if failure.signature not in seen:
                seen.add(failure.signature)
                tell(kind, seed, index, sketch, plan, failure, options)
        except Exception:  # a fault of the generator itself
            counts["failed: generator"] += 1
            print(f"network {index} cannot be drawn:\n{traceback.format_exc(limit=-4)}", flush=True)
        took = time.monotonic() - began
        counts["slowest, ms"] = max(counts["slowest, ms"], int(took * 1000))
        counts["largest, MiB"] = max(counts["largest, MiB"], _peak() >> 20)
        if _peak() - peak > GROWTH:
            print(f"memory: {(_peak() - peak) >> 20} MiB more while network {index} ran", flush=True)
            counts["failed: memory"] += 1
        index += 1
        if index - options.first == 100:
            before = _resident()
        if before and _resident() - before > GROWTH:
            print(f"memory: {(_resident() - before) >> 20} MiB more after network {index - 1}", flush=True)
            counts["failed: memory"] += 1
            before = _resident()
        if len(seen) >= options.failures:
            break
    if kind == "ops" and ops.RULE_CRASHES:
        counts["failed: type rule"] += len({name for name, _, _ in ops.RULE_CRASHES})
        for name, said in {(name, f"{type(error).__name__}: {error}") for name, _, error in ops.RULE_CRASHES}:
            print(f"type rule of {name}: {said}", flush=True)
    if kind == "ops":
        counts.update(ops.ACCEPTANCE)
    seconds = time.monotonic() - start
    failed = sum(number for name, number in counts.items() if name.startswith("failed"))
    rate = counts["networks"] / seconds if seconds else 0
    print(f"{kind}: {counts['networks']} networks, {failed} failed, {seconds:.0f} s, {rate:.1f} a second", flush=True)
    print("   " + "; ".join(f"{name} {number}" for name, number in sorted(counts.items())), flush=True)
    if options.record:
        runs = json.loads(options.record.read_text()) if options.record.exists() else []
        runs.append(
            {"kind": kind, "seed": seed, "first": options.first, "seconds": round(seconds), "counts": dict(counts)}
        )
        options.record.write_text(json.dumps(runs, indent=1))
    return failed


def tell(
    kind: str, seed: int, index: int, sketch: Sketch, plan: Plan, failure: Failure, options: argparse.Namespace
) -> None:
    """The failure, made small, as a script."""
    print(f"\nnetwork {index}: {failure} (chip {failure.chip}, dialect {failure.dialect})", flush=True)
    try:
        smaller, said = shrunk(sketch, plan, failure, options.shrink)
    except Exception:  # a fault of the shrinking itself; the network as it was drawn is still worth a script
        print(traceback.format_exc(limit=-2), flush=True)
        smaller, said = sketch, failure
    again = f"python tools/fuzz networks --kind {kind} --seed {seed} --first {index} --count 1"
    text = smaller.script(said.chip, said.dialect, f"{said}\n{again}")
    print(text, flush=True)
    if folder := options.scripts:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{kind}-{seed}-{index}.py").write_text(text)


def _peak() -> int:
    """Bytes that the process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return _peak()
