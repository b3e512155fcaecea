"""The record of what small networks compile to, chip by chip, as it was when somebody last looked and approved it.

It does not say that words, times or bits are right: other tests compare them with Apple's programs, with measured rows
and with other arithmetic. It says that they changed. Whoever meant to change them renews the record
(``python tools/words.py --approve``), and the lines that differ show in review which programs the change reached.

``approved/CHIP.txt`` has a line for each network: its name, what it compiles to by default, and in dialect ``apple``
("=" where that is the same). Four columns each: a digest of the program, the microseconds of a call, a digest of the
estimate's other figures, a digest of the emulator's results for fixed inputs ("-" where the host computes a part, whose
float32 functions differ between processors). A network that is refused has the reason's code. Of a chip without code
generation the network's estimate stands alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from zlib import crc32

import hexane
from codegen.small_networks import GROUPS, inputs_of, small_networks
from hexane.graph import Graph
from hexane.program import Program
from hexane.timing import Estimate

FOLDER = Path(__file__).parent / "approved"
DIALECTS = ("default", "apple")
CHIPS = ("M1", "M2", "M3", "A17 Pro", "M4", "M5", "A19")
"""One for each family of programs, and siblings whose compiler or constants are others."""
NO_PROGRAMS = "M6"
PLACES = [(chip, dialect) for chip in CHIPS for dialect in DIALECTS]
RENEW = "meant? python tools/words.py --approve"


def words_of(program: Program) -> str:
    """A digest of everything that an engine would read, and of what runs on the host."""
    total = hashlib.sha256()
    for segment in program.segments:
        total.update(segment.kind.encode())
        if segment.image is not None:
            total.update(segment.image.to_bytes())
        else:
            total.update("\n".join(sorted(segment.ops)).encode())
    return total.hexdigest()[:16]


def figures(estimate: Estimate) -> str:
    """The time of a call to six digits, and a digest of all other figures to as many."""
    rows = [f"{row.name} {row.us:.6g} {row.bottleneck}" for row in (*estimate.ops, *estimate.tasks)]
    numbers = (*estimate.latency_range_us, *astuple(estimate.parts), estimate.engine_us, estimate.single_shot_us)
    numbers += (estimate.energy_mj, estimate.utilisation, estimate.macs, estimate.dma_bytes, estimate.calls_per_second)
    text = "\n".join([estimate.bottleneck, *rows, *(f"{number:.6g}" for number in numbers)])
    return f"{estimate.latency_us:.6g} {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def results(program: Program) -> str:
    """A digest of the emulator's results for inputs that are the same everywhere."""
    if any(segment.image is None for segment in program.segments):
        return "-"
    total = hashlib.sha256()
    for name, array in sorted(program.run(inputs_of(program.inputs)).items()):
        total.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()[:10]


def outcome(graph: Graph, chip: str, dialect: str) -> str:
    """What a network compiles to."""
    try:
        program = hexane.compile(graph, chip=chip, dialect=dialect)
    except hexane.HexaneError as error:
        return str(error.code)
    return f"{words_of(program)[:10]} {figures(program.estimate())} {results(program)}"


def line(build: Callable[[], Graph], chip: str) -> str:
    """What stands behind a network's name in a chip's file."""
    if chip == NO_PROGRAMS:
        return figures(hexane.estimate(build(), chip))
    default, apple = (outcome(build(), chip, dialect) for dialect in DIALECTS)
    return f"{default} | {'=' if apple == default else apple}"


def drawn(name: str) -> set[tuple[str, str]]:
    """Where the quick tests compile a network: on M1, and two of three in one other place, which the name decides."""
    others = PLACES[1:]
    place = crc32(name.encode()) % (len(others) * 3 // 2)
    return {PLACES[0], *others[place : place + 1]}


def read(chip: str) -> dict[str, str]:
    """The lines of a chip's file, by group and name."""
    lines = (FOLDER / f"{chip}.txt").read_text("utf-8").splitlines()
    return dict(text.split(" | ", 1) for text in lines)


def approve() -> int:
    """Writes all files anew; how many lines changed."""
    changes = 0
    FOLDER.mkdir(exist_ok=True)
    for chip in (*CHIPS, NO_PROGRAMS):
        before = read(chip) if (FOLDER / f"{chip}.txt").exists() else {}
        rows = {
            f"{group}: {name}": line(build, chip) for group in GROUPS for name, build in small_networks(group).items()
        }
        changes += sum(before.get(name) != rows.get(name) for name in {*before, *rows})
        (FOLDER / f"{chip}.txt").write_text("".join(f"{name} | {row}\n" for name, row in rows.items()), "utf-8")
    return changes


def differences(chip: str, group: str, *, whole: bool) -> Iterator[str]:
    """Programs of a group that are not what the record says; the drawn ones, or all."""
    record = {name: row for name, row in read(chip).items() if name.startswith(f"{group}: ")}
    networks = {f"{group}: {name}": build for name, build in small_networks(group).items()}
    yield from (f"{name}: in one of record and networks only" for name in sorted(record.keys() ^ networks.keys()))
    for name in sorted(record.keys() & networks.keys()):
        if chip == NO_PROGRAMS:
            pairs = [("estimate", record[name], line(networks[name], chip))]
        else:
            default, apple = record[name].split(" | ")
            columns = {"default": default, "apple": default if apple == "=" else apple}
            places = [dialect for dialect in DIALECTS if whole or (chip, dialect) in drawn(name)]
            pairs = [(dialect, columns[dialect], outcome(networks[name](), chip, dialect)) for dialect in places]
        yield from (f"{name}, {place}: {was} in the record, {now} now" for place, was, now in pairs if was != now)
