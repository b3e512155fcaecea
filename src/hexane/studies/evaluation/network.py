"""A network as pieces know it: bytes with a digest, and the functions that workers call with them."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import hexane
from hexane import chips, passes
from hexane.errors import FormatError, HexaneError, UnsupportedError, UsageError
from hexane.frontends.networks import network_of
from hexane.graph import Graph
from hexane.graph.macs import macs_of
from hexane.graph.ops.onnx_foreign import open_session
from hexane.lowering.compilation import Compilation
from hexane.numerics import evaluate as with_engine_arithmetic
from hexane.numerics.insight import every_value, examine
from hexane.program.package import mil_of
from hexane.session.file_shapes import fitted
from hexane.studies.compress import compress
from hexane.studies.evaluation.data import Samples, sample_shapes
from hexane.studies.evaluation.metrics import Metric
from hexane.studies.pieces import Piece, Result, Shared, digest

LEVELS = ("engine", "graph")
ONNXRUNTIME, REFERENCE = "onnxruntime", "reference"


@dataclass(frozen=True)
class NetworkForm:
    """A network on a chip: weights in a format, as tasks or by the arithmetic on the graph.

    ``options`` go to ``hexane.compile`` (dialect, without, as_, accuracy).
    """

    chip: str = "M1"
    weights: str = "fp16"
    level: str = "engine"
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        more = "".join(f", {name} {value}" for name, value in self.options)
        return f"{self.chip}, {self.weights}{', level graph' if self.level == 'graph' else ''}{more}"


@dataclass
class Network:
    """A network to be evaluated: the graph, and the bytes that go to workers.

    ``onnx``: the file's bytes, where onnxruntime computes float32.
    """

    name: str
    graph: Graph
    onnx: Shared | None = None
    shared: Shared = field(init=False)

    def __post_init__(self) -> None:
        self.shared = Shared(self.content, pickle.dumps(self.graph))

    @cached_property
    def content(self) -> str:
        """By the network's text and weights, so that a file's date or name says nothing."""
        try:
            text, weights = mil_of(self.graph)
        except HexaneError:  # what has no text in MIL
            return digest(pickle.dumps(self.graph))
        return digest(text, weights, sorted(self.graph.metadata.get("images", {}).items()))

    @property
    def by(self) -> str:
        """Reference that computes float32."""
        return REFERENCE if self.onnx is None else ONNXRUNTIME

    @cached_property
    def seconds(self) -> float:
        """About what one call costs on a core, emulated: 4 GMAC/s and 30 us for each op (docs/scale.md)."""
        ops = list(self.graph.main.walk())
        return sum(macs_of(op) for op in ops) / 4e9 + 30e-6 * len(ops)


def open_model(
    model: Any, *, shapes: Mapping[str, Any] | None = None, bind: Mapping[str, Any] | None = None, data: Any = None
) -> Network:
    """A network by its path, or a graph; of an ONNX file float32 is onnxruntime's where that reads it.

    Extents that the file and ``shapes`` leave open are those of the samples of ``data``.
    """
    if isinstance(model, Network):
        return model
    if not isinstance(model, str | Path):
        return Network("network", network_of(model))
    path = Path(model)

    def load(more: Mapping[str, Any]) -> Graph:
        return hexane.load(path, shapes={**more, **(shapes or {})} or None, bind=bind)

    graph = load({}) if data is None else fitted(load, lambda extents: sample_shapes(data, extents))
    onnx = None
    if path.suffix.lower() == ".onnx" and not graph.metadata.get("bound"):
        shared = Shared.of(path.read_bytes())
        try:
            session = _onnx_session(shared.data)
            names = {entry.name for entry in session.get_inputs()}
            if names == set(graph.inputs) and {entry.name for entry in session.get_outputs()} == set(graph.outputs):
                onnx = shared
        except UnsupportedError:
            pass
    return Network(path.name, graph, onnx)


def _onnx_session(data: bytes) -> Any:
    return open_session(data)


# What the pieces are


def compile_piece(network: Network, form: NetworkForm) -> Piece:
    """The network's program, as the bytes of its package, and its counts."""
    return Piece.of(
        compiled, network.content, form.chip, form.weights, form.options, what=f"compiling {network.name} for {form}",
        arguments=(form,), shared=(network.shared,),
    )  # fmt: skip


def float32_piece(network: Network, samples: Shared, batch: int, metric: Metric) -> Piece:
    """Answers and scores in float32."""
    return Piece.of(
        in_float32, network.content, network.by, samples.digest, batch, metric.content,
        what=f"samples of {network.name} in float32", arguments=(network.by, batch, metric),
        shared=(network.onnx or network.shared, samples),
    )  # fmt: skip


def engine_piece(
    network: Network, form: NetworkForm, program: Shared, samples: Shared, batch: int, metric: Metric
) -> Piece:
    """The same on the engine, with what changed. ``program``: a package, or the network at level graph."""
    return Piece.of(
        on_engine, network.content, form.chip, form.weights, form.level, form.options, samples.digest, batch,
        metric.content, network.by, what=f"samples of {network.name} on {form}", arguments=(form, batch, metric),
        shared=(program, samples), needs=(float32_piece(network, samples, batch, metric),),
    )  # fmt: skip


def layers_piece(network: Network, form: NetworkForm, samples: Samples, batch: int, content: str) -> Piece:
    """The error of every layer on some samples."""
    return Piece.of(
        by_layer, network.content, form.chip, form.weights, form.options, content, batch,
        what=f"layers of {network.name} on {form}", arguments=(form, samples, batch), shared=(network.shared,),
    )  # fmt: skip


# What workers do


def compiled(network: Shared, form: NetworkForm) -> Result:
    """``program``: bytes of a ``.hexane`` package; counts of its parts."""
    start = time.perf_counter()
    graph = network.opened(pickle.loads)
    weighed = graph if form.weights == "fp16" else compress(graph, form.weights)
    program = hexane.compile(weighed, form.chip, **dict(form.options))
    with TemporaryDirectory() as folder:
        path = Path(folder, "program.hexane")
        program.save(path)
        data = path.read_bytes()
    stats = program.stats()
    counted = {name: np.int64(stats[name]) for name in ("tasks", "engine_segments", "host_segments", "const_bytes")}
    return {
        **{name: np.asarray(value) for name, value in counted.items()},
        "host_ops": np.asarray(sum(stats["host_ops"].values())),
        "macs": np.asarray(stats["macs"]),
        "macs_on_engine": np.asarray(np.nan if stats["macs_on_engine"] is None else stats["macs_on_engine"]),
        "program": np.frombuffer(data, np.uint8),
        "seconds": np.asarray(time.perf_counter() - start),
    }


def opened_program(data: bytes) -> Any:
    """A session on the emulator with a package's program."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "program.hexane")
        path.write_bytes(data)
        return hexane.load_program(path).on("emulator")


def canonical(graph: Graph, form: NetworkForm) -> Graph:
    """The network after the passes, for the arithmetic on the graph."""
    weighed = graph if form.weights == "fp16" else compress(graph, form.weights)
    return passes.run(weighed, Compilation(chips.get(form.chip)))


_CANONICAL: dict[tuple[str, NetworkForm], Graph] = {}


def _canonical(network: Shared, form: NetworkForm) -> Graph:
    key = (network.digest, form)
    if key not in _CANONICAL:
        if len(_CANONICAL) > 8:
            _CANONICAL.clear()
        _CANONICAL[key] = canonical(network.opened(pickle.loads), form)
    return _CANONICAL[key]


def _calls(samples: Samples, batch: int) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
    """First sample, samples and inputs of every call; the last batch is filled up with its last sample."""
    step = max(batch, 1)
    for first in range(0, len(samples.indices), step):
        inputs = {name: array[first : first + step] for name, array in samples.inputs.items()}
        count = min(step, len(samples.indices) - first)
        if batch == 0:
            yield first, 1, {name: array[0] for name, array in inputs.items()}
            continue
        if count < step:
            inputs = {n: np.concatenate([a, np.repeat(a[-1:], step - count, 0)]) for n, a in inputs.items()}
        yield first, count, inputs


def _each(outputs: Mapping[str, np.ndarray], count: int, batch: int) -> Iterator[dict[str, np.ndarray]]:
    """Outputs of every sample of a call, each with a batch of one where there is one."""
    if batch <= 1:
        yield dict(outputs)
        return
    for name, array in outputs.items():
        if not array.ndim or array.shape[0] != batch:
            raise UnsupportedError(
                f"output {name!r} {array.shape} does not begin with the batch of {batch}", hint="evaluate a batch of 1"
            )
    for index in range(count):
        yield {name: array[index : index + 1] for name, array in outputs.items()}


def _judged(metric: Metric, outputs: Mapping[str, np.ndarray], truth: Any, index: Any) -> Any:
    try:
        return metric.judge(outputs, truth)
    except HexaneError as error:
        raise type(error)(error.message, where=f"sample {int(index)}", hint=error.hint) from error.__cause__


def _nonfinite(outputs: Mapping[str, np.ndarray]) -> int:
    return sum(int(np.count_nonzero(~np.isfinite(a))) for a in outputs.values() if a.dtype.kind == "f")


def in_float32(network: Shared, block: Shared, by: str, batch: int, metric: Metric) -> Result:
    """``above``, ``below``, ``nonfinite`` and ``answers`` of every sample of a block."""
    start, samples = time.perf_counter(), block.data
    run: Any
    if by == ONNXRUNTIME:
        session = network.opened(_onnx_session)
        names = [entry.name for entry in session.get_outputs()]
        kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64,
                 "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8,
                 "tensor(int8)": np.int8, "tensor(bool)": np.bool_}  # fmt: skip
        kind = {entry.name: kinds.get(entry.type, np.float32) for entry in session.get_inputs()}

        def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            feeds: Any = {name: np.ascontiguousarray(array, kind[name]) for name, array in inputs.items()}
            return dict(zip(names, session.run(names, feeds)))
    else:
        run = network.opened(pickle.loads).evaluate
    rows = []
    for first, count, inputs in _calls(samples, batch):
        for offset, outputs in enumerate(_each(run(inputs), count, batch)):
            truth = None if samples.labels is None else samples.labels[first + offset]
            one = _judged(metric, outputs, truth, samples.indices[first + offset])
            rows.append((one.above, one.below, _nonfinite(outputs), one.answer))
    return {
        "above": np.array([row[0] for row in rows]),
        "below": np.array([row[1] for row in rows]),
        "nonfinite": np.array([row[2] for row in rows], np.int64),
        "answers": np.stack([row[3] for row in rows]),
        "seconds": np.asarray(time.perf_counter() - start),
    }


SMALL = 64
"""Numbers of an answer that are kept of the engine's side too, to be shown."""


def on_engine(
    program: Shared, block: Shared, reference: Result, form: NetworkForm, batch: int, metric: Metric
) -> Result:
    """As ``in_float32``, with ``apart``: 0 where the answer is float32's, more where it is farther from it."""
    if form.level == "graph":
        graph = _canonical(program, form)
        run = lambda inputs: with_engine_arithmetic(graph, inputs, form.chip)  # noqa: E731
    else:
        run = program.opened(opened_program).run
    start, samples = time.perf_counter(), block.data
    rows = []
    for first, count, inputs in _calls(samples, batch):
        for offset, outputs in enumerate(_each(run(inputs), count, batch)):
            position = first + offset
            plain = reference["answers"][position]
            truth = metric.truth(plain) if samples.labels is None else samples.labels[position]
            one = _judged(metric, outputs, truth, samples.indices[position])
            lost = max(0, _nonfinite(outputs) - int(reference["nonfinite"][position]))
            rows.append((one.above, one.below, metric.apart(one.answer, plain, outputs), lost, one.answer))
    small = all(row[4].size <= SMALL for row in rows)
    return {
        "above": np.array([row[0] for row in rows]),
        "below": np.array([row[1] for row in rows]),
        "apart": np.array([row[2] for row in rows]),
        "nonfinite": np.array([row[3] for row in rows], np.int64),
        "answers": np.stack([row[4] for row in rows]) if small else np.zeros((len(rows), 0)),
        "seconds": np.asarray(time.perf_counter() - start),
    }


def by_layer(network: Shared, form: NetworkForm, samples: Samples, batch: int) -> Result:
    """``names`` and ``ops`` of the layers; (calls, layers) of what ``hexane.numerics.insight.Layer`` says of each."""
    graph = network.opened(pickle.loads)
    ready = _canonical(network, form)
    rows = []
    for _, _, inputs in _calls(samples, batch):
        rows.append(examine([("engine", ready)], inputs, every_value(graph, inputs), form.chip).layers)
    number = lambda value: np.nan if value is None else float(value)  # noqa: E731
    columns = ("error", "made", "dropped", "headroom_bits", "nonfinite")
    return {
        "names": np.array([layer.name for layer in rows[0]], np.str_),
        "ops": np.array([layer.op for layer in rows[0]], np.str_),
        **{name: np.array([[number(getattr(layer, name)) for layer in row] for row in rows]) for name in columns},
    }


def checked_level(level: str) -> str:
    """UsageError for a level that there is not."""
    if level not in LEVELS:
        raise UsageError(f"there is no level {level!r}", hint="engine or graph")
    return level


def package_of(result: Result) -> Shared:
    """The program of ``compile_piece``."""
    if "program" not in result:
        raise FormatError("a kept piece has no program", hint="remove the folder of pieces")
    return Shared.of(result["program"].tobytes())
