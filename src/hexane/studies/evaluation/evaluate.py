"""``hexane.evaluate``: what a network is worth on the engine, over a data set, with intervals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hexane import chips
from hexane.errors import HexaneError, UsageError
from hexane.lowering.formats import WeightFormat
from hexane.program import input_ports
from hexane.studies.evaluation.data import Data, Samples, open_data, read_code
from hexane.studies.evaluation.figures import Assessment, FigureRow, difference, joined, side, spreads, worst_of
from hexane.studies.evaluation.intervals import METHODS, half_width
from hexane.studies.evaluation.metrics import Metric, metric_named
from hexane.studies.evaluation.network import (
    Network,
    NetworkForm,
    checked_level,
    compile_piece,
    engine_piece,
    layers_piece,
    open_model,
    package_of,
)
from hexane.studies.pieces import Counts, Piece, Result, Shared, Store, Workers, digest, result_here, results, started

PIECE_SECONDS, LONGEST_SECONDS, MOST_IN_PIECE, PIECES = 2.0, 30.0, 128, 2000
"""A piece is about this long and has at most so many samples; of data that would be more pieces than the last number,
longer, so that neither the scheduler nor the folder of pieces has much to do (docs/scale.md)."""
LEAST, LONGER = 32, 1.5
"""Samples at the first look at an interval, which may end an evaluation, and how many times more at each later one."""
SEED = 20_240_229
LAYERS = 16
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Until:
    """Rule to stop: the interval of the engine's metric, or of its difference to float32, is within ± ``width``."""

    width: float
    of: str = "metric"

    @classmethod
    def parse(cls, text: str) -> Until:
        """``0.1%``, ``0.05``, ``difference:0.1%``."""
        match = re.fullmatch(r"(?:(metric|difference):)?(\d*\.?\d+)(%?)", text.strip())
        if match is None or not float(match[2]):
            raise UsageError(f"--until {text!r} is no width of an interval", hint="0.1%, 0.05 or difference:0.1%")
        return cls(float(match[2]) / (100 if match[3] else 1), match[1] or "metric")


@dataclass
class Course:
    """One network on one chip in one format, on its way through the data.

    Blocks come in any order; what counts is the longest run of finished ones from the first on, and of that no more
    than is needed: so the figures are the same however the work was divided.
    """

    network: Network
    form: NetworkForm
    data: Data
    metric: Metric
    until: Until | None
    blocks: list[np.ndarray]
    program: Shared | None = None
    plain: dict[int, Result] = field(default_factory=dict)
    engine: dict[int, Result] = field(default_factory=dict)
    layers: dict[int, Result] = field(default_factory=dict)
    error: HexaneError | None = None
    used: int = 0
    stopped: bool = False

    def take(self, block: int, plain: Result, engine: Result) -> None:
        """A finished block."""
        self.plain[block], self.engine[block] = plain, engine
        while not self.stopped and self.used in self.engine:
            self.used += 1
            self.stopped = self._enough()

    def _enough(self) -> bool:
        """True where the interval is tight enough, at 32, 48, 72 ... samples: who looks after every block stops at a
        lucky one."""
        if self.until is None or self.used == len(self.blocks):
            return False
        count = sum(map(len, self.blocks[: self.used]))
        if _looks(count) == _looks(count - len(self.blocks[self.used - 1])):
            return False
        plain, engine = self._so_far()
        estimate = difference(plain, engine) if self.until.of == "difference" else side(self.metric, engine)
        return half_width(estimate.interval) <= self.until.width

    def _so_far(self) -> tuple[Result, Result]:
        order = range(self.used)
        return joined([self.plain[i] for i in order]), joined([self.engine[i] for i in order])

    def row(self) -> FigureRow:
        """The figures."""
        plain, engine = self._so_far()
        indices = np.concatenate(self.blocks[: self.used])
        apart = engine["apart"]
        order = np.lexsort((indices, -apart))[: int(np.count_nonzero(apart))]
        each = float(engine["seconds"]) / len(indices)
        remaining = sum(map(len, self.blocks[self.used :]))
        return FigureRow(
            self.form.chip, self.form.weights, self.form.level, len(indices), self.stopped, side(self.metric, plain),
            side(self.metric, engine), difference(plain, engine), tuple(int(i) for i in indices[order]),
            tuple(float(a) for a in apart[order]), tuple(worst_of(self.metric, indices, plain, engine)),
            int(engine["nonfinite"].sum()), int(np.count_nonzero(engine["nonfinite"])), float(engine["seconds"]),
            each * remaining if self.stopped else 0.0, dict(self.form.options),
            spreads([self.layers[i] for i in sorted(self.layers)]), sum(len(r["error"]) for r in self.layers.values()),
        )  # fmt: skip


def _looks(count: int) -> int:
    """Number of looks at the interval that so many samples are enough for."""
    looks = 0
    while count >= LEAST * LONGER**looks:
        looks += 1
    return looks


def blocks_of(data: Data, seconds: float, limit: int | None = None) -> list[np.ndarray]:
    """The data in blocks of about a piece's time each, in an order that has nothing to do with that of the file.

    ``seconds``: of one call. ``limit``: the first samples of the file alone. Sorted indices within a block.
    """
    count = data.count if limit is None else min(limit, data.count)
    batch = max(data.batch, 1)
    long = min(max(PIECE_SECONDS, count / batch * seconds / PIECES), LONGEST_SECONDS)
    calls = max(1, min(round(long / max(seconds, 1e-9)), max(MOST_IN_PIECE, count // PIECES) // batch))
    size = calls * batch
    order = np.random.default_rng(SEED).permutation(count)
    return [np.sort(order[first : first + size]) for first in range(0, count, size)]


def block(data: Data, indices: np.ndarray) -> Shared:
    """Samples (``data``), known by their content."""
    sample_block = data.take(indices)
    labels = sample_block.labels if sample_block.labels is not None else np.zeros(0)
    parts = (part for item in sorted(sample_block.inputs.items()) for part in item)
    return Shared(digest(*parts, labels, data.has_labels), sample_block, passing=True)


def sample_pieces(courses: Sequence[Course], layers: int) -> Iterator[Piece]:
    """The pieces of several courses over the same data, block by block; of those that have enough no more."""
    if not courses:
        return
    first = courses[0]
    examined = 0
    for number, indices in enumerate(first.blocks):
        going = [course for course in courses if not course.stopped and course.error is None]
        if not going:
            return
        samples = block(first.data, indices)
        for course in going:
            assert course.program is not None
            yield engine_piece(
                course.network, course.form, course.program, samples, first.data.batch, first.metric
            ).tagged((course, number, "engine"))
        if examined < layers:
            some = _first(samples.data, min(layers - examined, max(1, layers // 8)) * max(first.data.batch, 1))
            examined += max(1, len(some.indices) // max(first.data.batch, 1))
            for course in going:
                label = f"{samples.digest} {len(some.indices)}"
                piece = layers_piece(course.network, course.form, some, first.data.batch, label)
                yield piece.tagged((course, number, "layers"))


def _first(samples: Samples, count: int) -> Samples:
    return Samples(
        samples.indices[:count], {name: array[:count] for name, array in samples.inputs.items()},
        None if samples.labels is None else samples.labels[:count],
    )  # fmt: skip


def accept(piece: Piece, outcome: Result | HexaneError, store: Store, counts: Counts) -> None:
    """Give a piece's outcome to the course that asked. Float32's part is computed again where its file was damaged."""
    course, number, kind = piece.tag
    if isinstance(outcome, HexaneError):
        course.error = course.error or outcome
    elif kind == "layers":
        course.layers[number] = outcome
    else:
        course.take(number, result_here(piece.needs[0], store, counts), outcome)


def evaluate(
    model: Any,
    data: Any,
    metric: str = "top1",
    *,
    chip: str | Sequence[str] = "M1",
    weights: str | Sequence[str] = "fp16",
    level: str = "engine",
    limit: int | None = None,
    until: str | None = None,
    output: str | None = None,
    layers: int = LAYERS,
    options: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    bind: Mapping[str, Any] | None = None,
    normalize: str | None = None,
    where: Workers | None = None,
    keep: str | Path | None = None,
    on_progress: OnProgress | None = None,
) -> Assessment:
    """A network over a data set: a metric in float32 and on the engine, with intervals of 95 %.

    Parameters
    ----------
    model : a graph, or a network's path.
    data : see ``hexane.studies.evaluation.data.open_data``.
    metric : "top1", "iou", "cosine", "psnr", "wer", or "module:function" of (outputs, label).
    chip, weights : names, with commas or in a list; every chip with every format.
    level : "engine" runs the compiled tasks on the emulator, "graph" the engine's arithmetic on the network.
    limit : the first samples of the data set alone.
    until : stop when the engine's interval is within this of its middle ("0.1%"); "difference:0.1%" for the difference
        to float32, which a few samples tell.
    output : which output is judged; the first by default.
    layers : samples whose layers are compared one by one.
    options : of ``hexane.compile``: dialect, without, as_, accuracy.
    where : processes or a Dask cluster; this process by default.
    keep : a folder for finished pieces, from which a later call goes on.
    on_progress : hears what is done, how many samples of how many.

    Without labels the metric is against float32's own answers. Raises what compiling and running raise, UsageError for
    data that do not fit.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"a limit of {limit} samples", hint="1 or more")
    names = [target.name for target in chips.parse_list(chip if isinstance(chip, str) else ",".join(chip))]
    formats = weights.split(",") if isinstance(weights, str) else list(weights)
    for form in formats:
        WeightFormat.of(form)
    option_pairs = tuple(sorted((options or {}).items()))
    forms = [
        NetworkForm(name, form, checked_level(level), option_pairs) for name in names for form in dict.fromkeys(formats)
    ]
    stop_rule = None if until is None else Until.parse(until)
    place = where or Workers()
    samples, name = read_code(data)
    with started(place):
        network = open_model(model, shapes=shapes, bind=bind, data=samples)
        dataset = open_data(samples, input_ports(network.graph), normalize=normalize, name=name)
        judge = metric_named(metric, output, dataset.alphabet)
        blocks = blocks_of(dataset, network.seconds, limit)
        courses = [Course(network, form, dataset, judge, stop_rule, blocks) for form in forms]
        _run(courses, layers, Store(None if keep is None else Path(keep)), place, on_progress)
    return evaluation_of(courses, until)


def _run(courses: list[Course], layers: int, store: Store, place: Workers, hear: OnProgress | None) -> None:
    def pieces() -> Iterator[Piece | None]:
        for course in courses:
            if course.form.level == "graph":
                course.program = course.network.shared
            else:
                yield compile_piece(course.network, course.form).tagged((course, -1, "compile"))
        while any(course.program is None for course in courses):
            yield None
        yield from sample_pieces(courses, layers)

    finished, total = 0, sum(map(len, courses[0].blocks)) * len(courses)
    with closing(results(pieces(), store, place)) as outcomes:
        for piece, outcome in outcomes:
            course, number, kind = piece.tag
            if isinstance(outcome, HexaneError):
                raise outcome
            if kind == "compile":
                course.program = package_of(outcome)
                continue
            accept(piece, outcome, store, place.counts)
            if kind == "engine" and hear is not None:
                finished += len(course.blocks[number])
                hear("samples", finished, total)


def evaluation_of(courses: Sequence[Course], until: str | None = None) -> Assessment:
    """The figures of finished courses over one network and data set."""
    first = courses[0]
    return Assessment(
        first.network.name, first.data.name, first.metric.name, first.metric.better,
        "label" if first.data.has_labels else "float32", first.network.by, sum(map(len, first.blocks)),
        tuple(course.row() for course in courses), METHODS[first.metric.proportion], until, first.data,
    )  # fmt: skip
