"""``python tools/fuzz faults``: one planted fault in a task of a random network's program; which stage notices it."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import hexane
from fuzz import networks
from fuzz.trial import compiled_chips, same
from hexane.emulator.static import refusal
from hexane.errors import EmulationError, HexaneError
from hexane.isa import Task

CHECK, RUN, BITS, NOTHING = "the check", "the run", "other bits", "nothing"


@dataclass(frozen=True)
class Fault:
    """What is wrong: fields of a task, of which the first that the task uses gets another value."""

    title: str
    fields: tuple[str, ...]
    change: Callable[[int], int]


def more(value: int) -> int:
    return value + 1


def less(value: int) -> int:
    return value - 1


def off(_: int) -> int:
    return 0


FAULTS = (
    Fault("a row of padding too many", ("Common.ConvCfg.Py",), more),
    Fault("a row of padding too few", ("Common.ConvCfg.Py",), less),
    Fault("a row of a source in L2 16 bytes longer", ("L2.SourceRowStride.Stride",), more),
    Fault("a row of a source in L2 16 bytes shorter", ("L2.SourceRowStride.Stride",), less),
    Fault("a source in L2 16 bytes further", ("L2.SourceBase.Addr",), more),
    Fault("a result in L2 16 bytes further", ("L2.ResultBase.Addr",), more),
    Fault("a row in memory 64 bytes longer", ("TileDMASrc.RowStride.Stride",), more),
    Fault("a plane in memory 64 bytes longer", ("TileDMADst.PlaneStride.PlaneStride",), more),
    Fault("a surface 64 bytes further", ("TileDMADst.BaseAddr.Addr", "TileDMASrc.BaseAddr.Addr"), more),
    Fault("one core less", ("Common.Cfg.ActiveNE",), less),
    Fault("rows of a tile halved", ("Common.TileCfg.TileHeight",), lambda value: value // 2),
    Fault("one output channel less", ("Common.Cout.Cout",), less),
    Fault("another dtype in memory", ("TileDMADst.Fmt.MemFmt", "TileDMASrc.Fmt.MemFmt"), lambda value: value ^ 3),
    Fault("another dtype of a kernel", ("NE.KernelCfg.KernelFmt",), lambda value: value ^ 1),
    Fault("a kernel stream 64 bytes shorter", ("KernelDMASrc.CoeffBfrSize[0].MemBfrSize",), less),
    Fault("a kernel stream 64 bytes further", ("KernelDMASrc.CoeffBaseAddr[1].Addr",), more),
    Fault("no function", ("NE.MACCfg.NonlinearMode", "PE.Cfg.NonlinearMode"), off),
    Fault("another operation", ("PE.Cfg.OpMode",), lambda value: value ^ 1),
    Fault("a scale one bit off", ("NE.PostScale.PostScale", "PE.BiasScale.Scale"), lambda value: value ^ 1),
    Fault(
        "no wait for a result",
        ("L2.SourceCfg.AliasConvRslt", "L2.SourceCfg.AliasPlanarRslt", "L2.SourceCfg.Dependent"),
        off,
    ),
    Fault("no wait before a result", ("L2.ResultCfg.AliasConvSrc", "L2.ResultCfg.AliasPlanarSrc"), off),
    Fault("no wait for memory", ("TileDMASrc.DMAConfig.DependencyMode",), off),
    Fault(
        "a page missing in the mask", ("Header[6].PageMask", "Header[7].PageMask"), lambda value: value & (value - 1)
    ),
)


def planted(task: Task, fault: Fault) -> Task | None:
    """The task with the fault; None where it has none of the fields, or they are 0 or stay as they are."""
    written = task.fields()
    for name in fault.fields:
        value = written.get(name, 0)
        if value and 0 <= (new := fault.change(value)) <= task.table.handle(name).limit and new != value:
            changed = task.copy()
            changed.set(name, new)
            return changed
    return None


def programs(program: Any, fault: Fault, chance: random.Random) -> Iterator[tuple[Any, str]]:
    """The program with the fault in one task, if any has the field; and why the check would refuse it."""
    places = [
        (number, index, changed)
        for number, segment in enumerate(program.segments)
        if segment.image is not None
        for index, task in enumerate(segment.image.tasks)
        if (changed := planted(task, fault)) is not None
    ]
    if not places:
        return
    number, index, changed = chance.choice(places)
    segments = list(program.segments)
    tasks = list(segments[number].image.tasks)
    tasks[index] = changed
    image = segments[number].image.replace(tasks=tasks)
    segments[number] = replace(segments[number], image=image)
    yield replace(program, segments=tuple(segments)), refusal(image)


def noticed(program: Any, said: str, given: dict[str, np.ndarray], bits: dict[str, np.ndarray]) -> str:
    """Who notices the fault."""
    if said:
        return CHECK
    try:
        results = program.run(given)
    except (EmulationError, HexaneError):
        return RUN
    return NOTHING if all(same(results[name], wanted) for name, wanted in bits.items()) else BITS


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python tools/fuzz faults", description=__doc__)
    parser.add_argument("--kind", choices=networks.KINDS, default="shapes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40, help="networks; each gets every fault once")
    options = parser.parse_args(arguments)
    chips = [chip.name for chip in compiled_chips()]
    tally: dict[str, Counter[str]] = {fault.title: Counter() for fault in FAULTS}
    for index in range(options.count):
        chance = random.Random(f"faults {options.seed} {index}")
        sketch = networks.KINDS[options.kind](options.seed, index)
        if not sketch.outputs:
            continue
        graph, given = sketch.graph(), sketch.numbers()
        with np.errstate(all="ignore"):
            try:
                program = hexane.compile(graph, chance.choice(chips), dialect=chance.choice(("default", "apple")))
                bits = program.run(given, level="graph")
            except HexaneError:
                continue
            for fault in FAULTS:
                for changed, said in programs(program, fault, chance):
                    tally[fault.title][noticed(changed, said, given, bits)] += 1
    print(f"| fault | planted | {CHECK} | {RUN} | {BITS} | {NOTHING} |\n|---|" + "---:|" * 5)
    for title, counts in tally.items():
        numbers = " | ".join(str(counts[who]) for who in (CHECK, RUN, BITS, NOTHING))
        print(f"| {title} | {sum(counts.values())} | {numbers} |")
    return 0
