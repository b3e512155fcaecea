"""Batches: what a step takes, in pieces of the network's shape, and data sets drawn in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.errors import UsageError
from hexane.graph.types import TensorType
from hexane.seeds import generator

Batch = Mapping[str, Any] | tuple[Any, Any]
Piece = tuple[dict[str, np.ndarray], np.ndarray]


def pieces(batch: Batch, inputs: Mapping[str, TensorType]) -> list[Piece]:
    """(inputs, labels) of the network's shape, one or several; UsageError for a batch that does not fit."""
    if isinstance(batch, Mapping):
        others = [name for name in batch if name not in inputs]
        if len(others) != 1:
            raise UsageError(
                f"a batch has the labels under one name that is no input's, here are {others or 'none'}",
                hint=f"the inputs are {', '.join(inputs)}",
            )
        arrays, labels = {name: batch[name] for name in batch if name in inputs}, np.asarray(batch[others[0]])
    else:
        if len(batch) != 2 or len(inputs) != 1:
            raise UsageError("a batch is (input, labels) for a network with one input, else a dict")
        arrays, labels = {next(iter(inputs)): batch[0]}, np.asarray(batch[1])
    times: set[int] = set()
    ready: dict[str, np.ndarray] = {}
    for name, type_ in inputs.items():
        if name not in arrays:
            raise UsageError(f"input {name!r} is missing in the batch", hint=f"it is a {type_}")
        array = ready[name] = np.asarray(arrays[name])
        first = type_.shape[0] if type_.rank else None
        if not first or array.shape[1:] != type_.shape[1:] or not len(array) or len(array) % first:
            raise UsageError(
                f"input {name!r} has shape {array.shape} in the batch", hint=f"it is a {type_}, or several along axis 0"
            )
        times.add(len(array) // first)
    if len(times) != 1 or not labels.ndim or len(labels) % max(times):
        raise UsageError("the arrays of a batch have different numbers of samples")
    count = times.pop()
    parts = {name: np.split(array, count) for name, array in ready.items()}
    return [({n: p[i] for n, p in parts.items()}, piece) for i, piece in enumerate(np.split(labels, count))]


def indices_of(step: int, count: int, size: int, seed: int) -> np.ndarray:
    """The samples of a step: every epoch in an order of its own, its last part left out where it is too small."""
    epoch, at = divmod(step, count // size)
    order = generator(seed, epoch).permutation(count)
    return order[at * size : (at + 1) * size]


@dataclass(frozen=True)
class Batches:
    """Samples of a data set, ``size`` at a time, every epoch in another order; what step n gets depends on n alone.

    ``arrays`` by input name, ``labels``: all with one sample in each element of axis 0. A last part of an epoch that is
    smaller than ``size`` is left out. ``batches[n]`` is the batch of step n, from 0.
    """

    arrays: Mapping[str, np.ndarray]
    labels: np.ndarray
    size: int
    seed: int = 0

    def __post_init__(self) -> None:
        if any(len(array) != len(self.labels) for array in self.arrays.values()):
            raise UsageError("the arrays of the data set have different numbers of samples")
        if not 1 <= self.size <= len(self.labels):
            raise UsageError(f"batches of {self.size} samples of {len(self.labels)}")

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        return self.take(indices_of(step, len(self.labels), self.size, self.seed))

    def take(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """These samples as a batch."""
        name = next(n for n in ("labels", "label", "labels of the batch") if n not in self.arrays)
        return {**{n: array[indices] for n, array in self.arrays.items()}, name: self.labels[indices]}

    def all(self, size: int) -> Iterator[dict[str, np.ndarray]]:
        """Every sample in order, ``size`` at a time; a last part that is smaller is left out."""
        for start in range(0, len(self.labels) - size + 1, size):
            yield self.take(np.arange(start, start + size))
