"""Programs of a training step of published decoders' shapes, chip by chip, beside published times (docs/training.md).

    python tools/training_shapes.py [--shape NAME] [--chip M1,M4] [--way inputs,patch] [--write]

Compiles forward and backward pass of the whole network and prints a row of the table for each chip and way; ``--write``
puts the rows into the page. A compilation of Stories110M takes a minute of a processor and 2 GB.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "examples")]

from golf import SHAPE as GOLF  # noqa: E402
from llama import Shape, network  # noqa: E402

from hexane import chips  # noqa: E402
from hexane.timing import Estimate, estimate  # noqa: E402
from hexane.train.programs import INPUTS, PATCH, Programs  # noqa: E402

PAGE = ROOT / "docs" / "training.md"
SHAPES = {"Stories110M": Shape(12, 768, 12, 12, 2048, 32000, 256), "parameter-golf": GOLF}
PUBLISHED: dict[tuple[str, str, str], tuple[float, float]] = {
    ("Stories110M", "M1 Pro", PATCH): (148, 163),
    ("Stories110M", "M3 Ultra", PATCH): (91.8, 106.7),
    ("Stories110M", "M3 Ultra", INPUTS): (76.9, 115),
    ("Stories110M", "M4", INPUTS): (91, 91),
    ("Stories110M", "M4 Pro", PATCH): (69, 73),
    ("Stories110M", "M4 Max", PATCH): (57, 75),
    ("Stories110M", "M5", PATCH): (101, 120),
    ("Stories110M", "M5 Max", INPUTS): (73.5, 73.5),
    ("Stories110M", "A17 Pro", PATCH): (230, 230),
}
"""Milliseconds of a step that projects publish, by shape, chip and way: constants that are compiled again ("patch"
here) or weights that come with the data. What their host does is in it (docs/weights-renewed.md)."""
HEAD = ("chip", "weights", "calls", "tasks", "G MACs", "on the engine", "MB moved", "forward, ms", "backward, ms",
        "step, ms", "published, ms", "ratio")  # fmt: skip


@dataclass(frozen=True)
class Step:
    """Both passes of a shape on a chip."""

    shape: str
    chip: str
    way: str
    calls: int
    tasks: int
    macs: int
    macs_on_engine: float
    passes: tuple[Estimate, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        ms = [e.latency_us / 1e3 for e in self.passes]
        published = PUBLISHED.get((self.shape, self.chip, self.way))
        beside, ratio = "", ""
        if published:
            beside = " to ".join(dict.fromkeys(f"{value:g}" for value in published))
            ratio = " to ".join(dict.fromkeys(f"{sum(ms) / value:.2f}" for value in reversed(published)))
        moved = sum(e.dma_bytes for e in self.passes) / 1e6
        way = "inputs" if self.way == INPUTS else "constants"
        return (self.chip, way, f"{self.calls}", f"{self.tasks:,}", f"{self.macs / 1e9:.1f}",
                f"{self.macs_on_engine:.1%}", f"{moved:,.0f}", *(f"{t:.1f}" for t in (*ms, sum(ms))), beside,
                ratio)  # fmt: skip

    @property
    def line(self) -> str:
        return "| " + " | ".join(self.cells) + " |"


def step_of(shape: str, chip: str, way: str) -> Step:
    """Forward and backward pass, compiled for the chip."""
    numbers = SHAPES[shape]
    weights = numbers.drawn()
    target = chips.get(chip)
    programs = Programs(network(numbers, weights), "logits", weights, target, "graph", False, (way,))
    both = [part.program for part in programs.compiled]
    stats = [program.stats() for program in both if program is not None]
    macs = sum(entry["macs"] for entry in stats)
    share = sum(entry["macs"] * entry["macs_on_engine"] for entry in stats) / macs
    return Step(
        shape, target.name, way, sum(entry["engine_segments"] for entry in stats),
        sum(entry["tasks"] for entry in stats), macs, share, tuple(estimate(program) for program in both),
    )  # fmt: skip


def line_of(shape: str, chip: str, way: str) -> str:
    """A row of the table, as a claim checks it."""
    return step_of(shape, chip, way).line


def with_line(text: str, shape: str, step: Step) -> str:
    """A page with a row in the table of a shape, in place of the row of its chip and way."""
    begin = text.index(f"<!-- shapes: {shape} -->")
    end = text.index("<!-- end -->", begin)
    head, *rows = text[begin:end].rstrip("\n").split("\n")
    beginning = step.line[: step.line.index(" | ", 2 + len(step.chip) + 3)]
    rows = [row for row in rows if not row.startswith(beginning + " |")]
    return text[:begin] + "\n".join([head, *rows, step.line, ""]) + text[end:]


def steps(arguments: argparse.Namespace) -> Iterator[Step]:
    for shape in arguments.shape.split(","):
        for chip in arguments.chip.split(","):
            for way in arguments.way.split(","):
                yield step_of(shape, chip, way)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default=",".join(SHAPES), help="names with commas")
    parser.add_argument("--chip", default="M1,M4", help="names with commas")
    parser.add_argument("--way", default=f"{INPUTS},{PATCH}", help="how weights are renewed")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/training.md")
    arguments = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |")
    for step in steps(arguments):
        print(step.line, flush=True)
        if arguments.write:
            PAGE.write_text(with_line(PAGE.read_text(), step.shape, step))


if __name__ == "__main__":
    main()
