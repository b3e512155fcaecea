"""Outputs of a network in float32: by onnxruntime where it can read the file, or by hexane's own reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.graph.ops.onnx_foreign import open_session

if TYPE_CHECKING:
    from hexane.graph import Graph

CHOICES = ("auto", "onnxruntime", "reference", "none")


@dataclass(frozen=True)
class Wanted:
    """Outputs by name in float32, who computed them, and in how many seconds (the faster of two runs).

    ``instead`` says why another one did not, where one was wanted first.
    """

    by: str
    outputs: dict[str, np.ndarray]
    seconds: float
    instead: str = ""


def wanted(
    choice: str,
    model: Path | None,
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    reference: Callable[[], Mapping[str, np.ndarray]] | None = None,
) -> Wanted | None:
    """The float32 outputs by the chosen means; None for "none". "auto" takes onnxruntime for an ONNX file.

    ``reference`` gives the reference's values, these outputs among them, to one who needs more of them.
    """
    if choice not in CHOICES:
        raise UsageError(f"--compare {choice!r} is unknown", hint=f"one of {', '.join(CHOICES)}")
    if choice == "none":
        return None
    instead = ""
    onnx = model is not None and model.suffix.lower() == ".onnx"
    if choice == "onnxruntime" and not onnx:
        raise UsageError(
            "onnxruntime reads ONNX files only", where=str(model) if model else None, hint="use --compare reference"
        )
    if onnx and choice in ("auto", "onnxruntime"):
        try:
            return by_onnxruntime(model, graph, inputs)  # type: ignore[arg-type]
        except UnsupportedError as error:
            if choice == "onnxruntime":
                raise
            instead = f"compared with hexane's own reference alone: {error}"
    start = time.perf_counter()
    values = reference() if reference is not None else graph.evaluate(inputs)
    outputs = {name: np.asarray(values[name]) for name in graph.outputs}
    return Wanted("reference", outputs, time.perf_counter() - start, instead)


def by_onnxruntime(model: Path, graph: Graph, inputs: Mapping[str, np.ndarray]) -> Wanted:
    """onnxruntime's outputs in float32; UnsupportedError where it is missing or refuses the file."""
    session = open_session(str(model), threads=0)
    try:
        arrays = {**graph.metadata.get("bound", {}), **inputs}
        entries = session.get_inputs()
        if len(entries) == 1 == len(arrays):
            arrays = {entries[0].name: next(iter(arrays.values()))}
        feeds = {entry.name: _typed(arrays, entry) for entry in entries}
        names = [entry.name for entry in session.get_outputs()]
        session.run(names, feeds)
        start = time.perf_counter()
        results = session.run(names, feeds)
    except Exception as error:  # onnxruntime raises classes of its own that share no base
        raise UnsupportedError(f"onnxruntime refuses it: {str(error).splitlines()[0]}", where=str(model)) from None
    seconds = time.perf_counter() - start
    outputs = {name: _tensor(result) for name, result in zip(names, results)}
    return Wanted("onnxruntime", _renamed(outputs, graph), seconds)


def _typed(inputs: Mapping[str, np.ndarray], entry: Any) -> np.ndarray:
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64,
             "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8,
             "tensor(int8)": np.int8, "tensor(bool)": np.bool_}  # fmt: skip
    array = np.asarray(inputs[entry.name])
    return array.astype(kinds.get(entry.type, array.dtype))


def _tensor(result: Any) -> np.ndarray:
    """A result as an array; one dictionary per row (ZipMap) as the rows of its values."""
    if isinstance(result, list) and result and all(isinstance(row, dict) for row in result):
        return np.array([list(row.values()) for row in result])
    return np.asarray(result)


def _renamed(outputs: dict[str, np.ndarray], graph: Graph) -> dict[str, np.ndarray]:
    """onnxruntime's outputs under the graph's names: by name, or else by position."""
    if set(outputs) == set(graph.outputs):
        return outputs
    return dict(zip(graph.outputs, outputs.values()))
