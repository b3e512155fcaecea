"""Segments of a program: runs of ops on the engine or on the host, with the tensors at their edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hexane.arithmetic.formats import from_float32
from hexane.counts import counted
from hexane.graph.types import StateType

if TYPE_CHECKING:
    from hexane.codegen.plan import Plan
    from hexane.graph.ir import Graph, Value
    from hexane.image import Image

ENGINE, HOST = "engine", "host"


@dataclass(frozen=True)
class Port:
    """A tensor at the edge of a segment, as the graph declares it.

    ``image`` is the colour layout ("RGB", "BGR", "GRAYSCALE", "GRAYSCALE_FLOAT16") of an input that its Core ML model
    declares as an image of pixels 0 to 255, empty for every other tensor.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    image: str = ""


def port_of(value: Value, image: str = "") -> Port:
    """A value of a graph as a port."""
    return Port(value.name, value.shape, value.dtype, image)


def input_ports(graph: Graph) -> tuple[Port, ...]:
    """The inputs of the function that runs, without its states; images with the colour layout that the model names."""
    images = graph.metadata.get("images", {})
    return tuple(
        port_of(value, str(images.get(value.name, {}).get("color", "")))
        for value in graph.main.inputs
        if not isinstance(value.type, StateType)
    )


@dataclass(frozen=True, repr=False)
class Segment:
    """A run of ops on one device.

    ``reason`` says why the ops are on the host, or which recipes made the engine's tasks. A host segment has a
    ``graph``; an engine segment has an ``image`` and, when it was compiled here, the ``source`` that it was made from
    and the ``plans`` of its tasks. ``reasons``, ``evidence`` and ``codes`` (``hexane.errors.Reason`` of host ops) are
    per op, as ``Op.describe`` names it.
    """

    kind: str
    reason: str
    ops: tuple[str, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    image: Image | None = None
    graph: Graph | None = None
    source: Graph | None = None
    plans: tuple[Plan, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[str, str] = field(default_factory=dict)
    macs: int = 0

    def __repr__(self) -> str:
        what = f"{counted(len(self.image.tasks), 'task')}, " if self.image is not None else ""
        return f"<Segment on the {self.kind}: {what}{counted(len(self.ops), 'op')}; {self.reason[:80]}>"

    def surfaces(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The inputs of an engine segment as its image's surfaces take them (four axes, fp16 or bytes)."""
        assert self.image is not None
        shapes = {s.label: s.shape for s in self.image.surfaces if s.role == "input"}
        return {port.name: as_surface(values[port.name], port).reshape(shapes[port.name]) for port in self.inputs}

    def declared(self, results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Surfaces that the engine wrote as the graph declares them.

        Containers mark outputs with a suffix, which a net.plist has in its own names.
        """
        return {port.name: _as_declared(results[port.name.removesuffix("@output")], port) for port in self.outputs}


def as_surface(array: np.ndarray, port: Port) -> np.ndarray:
    """Numbers of an input as its surface holds them: fp16 or bytes."""
    with np.errstate(over="ignore", invalid="ignore"):
        if port.dtype == "fp16" and array.dtype == np.float32:
            return from_float32(np.ascontiguousarray(array))
        dtype = {"fp16": np.float16, "int8": np.int8}.get(port.dtype, np.uint8)
        return np.ascontiguousarray(array).astype(dtype, copy=False)


def _as_declared(array: np.ndarray, port: Port) -> np.ndarray:
    shaped = np.asarray(array).reshape(port.shape)
    return shaped.astype(bool) if port.dtype == "bool" else shaped
