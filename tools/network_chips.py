"""Compile the project's networks for one chip of each generation and write docs/network-chips.md.

python tools/network_chips.py [NAME ...]   print the rows of these networks only
python tools/network_chips.py              all of them, and the document

Predicted figures only: nothing depends on the machine that runs it. Every program is run once on the emulator, and its
bits are compared with those of graph level.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tests", "tools")]

import hexane  # noqa: E402
from hexane.lowering.transformations import TRANSFORMATIONS, active  # noqa: E402
from hexane.timing.traffic import traffic  # noqa: E402
from network_list import NETWORKS, Network  # noqa: E402

CHIPS = ("M1", "M2", "M3", "M4", "M5", "A19")
"""One of each generation that programs are written for, H13 to H18."""
GAINS = (
    "squeezenet",
    "shufflenet",
    "rapidocr detector",
    "MiniLM (128 tokens)",
    "MobileNet v2",
    "Llama block (128 tokens)",
)
GAIN_CHIPS = ("M1", "M2", "M4")
"""Networks whose transformations are switched off one by one, and the chips."""
TARGET = ROOT / "docs" / "network-chips.md"


@dataclass(frozen=True)
class Way:
    """One network for one chip in one dialect."""

    us: float
    tasks: int
    programs: int
    moved: float
    inferred: float


@dataclass
class Column:
    """A network on one chip: the graph model's time, both dialects, whether the bits agree, times without each."""

    model_us: float
    apple: Way
    default: Way
    same_bits: bool
    without: dict[str, float] = field(default_factory=dict)


def time_of(what: Any, chip: str) -> float:
    """Microseconds without calls: the engine's, and those of ops on the host."""
    return hexane.estimate(what, chip).parts.work_us


def way_of(program: Any, chip: str) -> Way:
    stats = program.stats()
    total = sum(stats["evidence"].values()) or 1
    return Way(
        time_of(program, chip),
        stats["tasks"],
        stats["engine_segments"],
        traffic(program).ratio,
        stats["evidence"].get("INFERRED", 0) / total,
    )


def measure(network: Network) -> dict[str, Column]:
    graph, inputs, _ = network.load()
    found = {}
    for chip in CHIPS:
        program = hexane.compile(graph, chip)
        apple = way_of(hexane.compile(graph, chip, dialect="apple"), chip)
        tasks, bits = program.run(inputs), program.run(inputs, level="graph")
        same = all(np.array_equal(tasks[k], bits[k], equal_nan=True) for k in tasks)
        found[chip] = Column(time_of(graph, chip), apple, way_of(program, chip), same)
        if network.name in GAINS and chip in GAIN_CHIPS:
            names = active(generation=hexane.chips.get(chip).generation_name).names
            for name in names:
                less = hexane.compile(graph, chip, without=(name,))
                found[chip].without[name] = time_of(less, chip)
    return found


HEAD = """# Networks by chip

Written by `python tools/network_chips.py`: the networks of [networks](networks.md), compiled for one chip of each
generation that programs are written for. Everything is predicted; no engine took part.

*Ratio* is the time of hexane's program, task by task and with its ops on the host, over that of the same network as the
calibrated model sees it compiled by Apple, on the same chip (`hexane.estimate` of both, without calls). Constants of
M3, M5 and A19 are in part those of siblings ([timing](timing.md)), in both times alike. Programs of H17 and H18 are
INFERRED as a whole: no program of Apple's is recorded word for word. A program from H14 on has room for 255 tasks;
larger networks become several.
"""


def table(title: str, names: Iterable[str], rows: dict[str, dict[str, str]]) -> list[str]:
    names = list(names)
    lines = [f"\n## {title}\n", f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    return lines + [f"| {row} | {' | '.join(cells.get(n, '') for n in names)} |" for row, cells in rows.items()]


def document(found: dict[str, dict[str, Column]]) -> str:
    def rows(show: Any) -> dict[str, dict[str, str]]:
        return {name: {chip: show(c) for chip, c in columns.items()} for name, columns in found.items()}

    lines = [HEAD]
    lines += table("Ratio, dialect apple to default", CHIPS, rows(ratios))
    below = {
        chip: f"{sum(c[chip].default.us <= c[chip].model_us for c in found.values())} of {len(found)}" for chip in CHIPS
    }
    lines.append(f"| **at most 1.0** | {' | '.join(below[chip] for chip in CHIPS)} |")
    lines += table("Predicted time of the program without calls, us", CHIPS, rows(lambda c: f"{c.default.us:.0f}"))
    lines += table("Tasks (programs, where there are several)", CHIPS, rows(tasks_of))
    lines += table(
        "Bytes moved over the compulsory ones, apple to default",
        CHIPS,
        rows(lambda c: f"{c.apple.moved:.2f} to {c.default.moved:.2f}"),
    )
    lines += table("Share of INFERRED tasks", CHIPS, rows(lambda c: f"{c.default.inferred:.0%}"))
    lines += bits_of(found)
    if set(GAINS) <= set(found) and all(found[name][GAIN_CHIPS[0]].without for name in GAINS):
        lines += gains({name: found[name] for name in GAINS})
    return "\n".join(lines) + "\n"


def bits_of(found: dict[str, dict[str, Column]]) -> list[str]:
    """Each program was run once with the sanitizer on."""
    differ = [f"{name} on {chip}" for name, columns in found.items() for chip, c in columns.items() if not c.same_bits]
    total = sum(map(len, found.values()))
    verdict = f"DIFFERENT: {', '.join(differ)}." if differ else "all of them the same, with the sanitizer on."
    return ["\n## Bits of graph level\n", f"{total} programs, each run once on the emulator: {verdict}"]


def ratios(c: Column) -> str:
    return f"{c.apple.us / c.model_us:.2f} to **{c.default.us / c.model_us:.2f}**"


def tasks_of(c: Column) -> str:
    return str(c.default.tasks) + (f" ({c.default.programs})" if c.default.programs > 1 else "")


def gains(found: dict[str, dict[str, Column]]) -> list[str]:
    """For each transformation and chip, the network that gains most by it."""
    rows: dict[str, dict[str, str]] = {name: {} for name in TRANSFORMATIONS}
    for name, cells in rows.items():
        for chip in GAIN_CHIPS:
            factors = {
                network: columns[chip].without[name] / columns[chip].default.us
                for network, columns in found.items()
                if name in columns[chip].without
            }
            if factors:
                best = max(factors, key=lambda network: factors[network])
                lost = min(factors.values())
                shown = f"{factors[best]:.2f} {best.split()[-1] if best.startswith('rapid') else best.split()[0]}"
                cells[chip] = "1.00" if max(factors.values()) < 1.005 else shown
                cells[chip] += f" (least {lost:.2f})" if lost < 0.995 else ""
    lines = table("Without one transformation over with all: the network that gains most", GAIN_CHIPS, rows)
    note = f"Of {', '.join(found)}. Empty: not done on that generation. *Least*: a network that it costs time.\n"
    return [lines[0], note, *lines[1:]]


def main() -> None:
    warnings.filterwarnings("ignore")
    given = sys.argv[1:]
    found = {}
    for network in NETWORKS:
        if given and network.name not in given:
            continue
        found[network.name] = measure(network)
        cells = (
            f"{chip} {ratios(c)}{'' if c.same_bits else ' BITS DIFFER'}" for chip, c in found[network.name].items()
        )
        print(f"{network.name}: {'; '.join(cells)}", flush=True)
        if not given:
            TARGET.write_text(document(found))


if __name__ == "__main__":
    main()
