"""The decision that an output stands for (a class, a threshold, a number), and whether the engine decides the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexane.graph.registry import has
from hexane.graph.traits import RESHAPES, SAME_VALUES
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph import Graph, Op, Value

TOP, THRESHOLD, EXACT = "top-1", "threshold 0.5", "value"
_PICKS = frozenset("reduce_mean reduce_max reduce_min slice_by_size slice_by_index transpose".split())
"""Ops that pick or average: what they make of probabilities are probabilities."""
_SCORES = frozenset("linear matmul conv add mul log softmax".split())
"""Ops whose two-dimensional results are taken as scores of classes: rows of a classifier, or their logarithms."""


@dataclass(frozen=True)
class OutputQuestion:
    """Reading of an output: ``kind`` is "top-1" along ``axis``, "threshold 0.5" or "value" (whole numbers, text).

    ``is_probability``: its numbers are of 0 to 1.
    """

    kind: str
    axis: int = -1
    is_probability: bool = False


@dataclass(frozen=True)
class Answer:
    """Number of decisions in an output, and of those that the engine takes otherwise than float32.

    ``ties``: in how many of those float32's own numbers for both choices are one number of fp16, the format of results.
    """

    kind: str
    decisions: int
    changed: int
    ties: int = 0

    @property
    def share(self) -> float:
        """The share of decisions that differ."""
        return self.changed / self.decisions if self.decisions else 0.0


def questions_of(graph: Graph) -> dict[str, OutputQuestion]:
    """For every output of the function that runs that is a decision: how it is read."""
    questions = {value.name: question_of(value) for value in graph.main.outputs}
    return {name: question for name, question in questions.items() if question is not None}


def question_of(value: Value) -> OutputQuestion | None:
    """By the op that makes the output: softmax and scores by the largest, sigmoid by 0.5, whole numbers exactly.

    What `quantize` makes are steps of a scale, no decisions.
    """
    type_ = value.type
    if not isinstance(type_, TensorType):
        return None
    maker, viewed = _maker(value)
    if not type_.dtype.startswith(("fp", "bf")):
        return None if maker is not None and maker.type == "quantize" else OutputQuestion(EXACT)
    if maker is None:
        return None
    if maker.type == "classify":
        return OutputQuestion(TOP)
    if maker.type == "softmax":
        axis = _axis_of(maker, type_.shape) if viewed else int(maker.arg("axis"))
        return None if axis is None else OutputQuestion(TOP, axis, True)
    if _of_sigmoids(maker):
        return OutputQuestion(THRESHOLD, is_probability=True)
    scores = maker.type in _SCORES and type_.rank == 2 and (type_.shape[-1] or 0) > 1
    return OutputQuestion(TOP) if scores else None


def _axis_of(softmax: Op, shape: tuple[int | None, ...]) -> int | None:
    """Along which axis a view of a softmax holds the same rows; None where none does."""
    own, axis = softmax.output.shape, int(softmax.arg("axis"))
    classes = own[axis]
    if axis in (-1, len(own) - 1) and shape and shape[-1] == classes:
        return -1
    rest = [extent for extent in shape if extent != 1]
    return shape.index(classes) if rest == [classes] and [extent for extent in own if extent != 1] == rest else None


def _of_sigmoids(op: Op | None) -> bool:
    """True where an op's results are sigmoids, or picked or averaged from some."""
    while op is not None and op.type in _PICKS:
        op = _maker(op.arg("x"))[0]
    return op is not None and op.type in ("sigmoid", "sigmoid_hard")


def _maker(value: Value) -> tuple[Op | None, bool]:
    """The op that computes a value, behind ops that only change its type or view; and whether there was a view."""
    viewed = False
    while value.op is not None and has(value.op, SAME_VALUES | RESHAPES):
        viewed = viewed or has(value.op, RESHAPES)
        value = value.op.arg("x")
    return value.op, viewed


def looks_like_probabilities(array: np.ndarray) -> bool:
    """True where the rows of a float array are probabilities: from 0 to 1, with the sum 1, two or more in a row."""
    if array.dtype.kind != "f" or array.ndim < 1 or array.shape[-1] < 2 or not array.size or array.min() < 0:
        return False
    return bool(np.allclose(array.sum(axis=-1, dtype=np.float64), 1.0, atol=1e-3))


def answered(got: np.ndarray, expected: np.ndarray, question: OutputQuestion) -> Answer:
    """Compare the decisions of two arrays of one shape. What float32 itself has as NaN decides nothing."""
    if question.kind == EXACT or got.dtype.kind in "USbiu":
        return Answer(EXACT, got.size, int(np.count_nonzero(got != expected)))
    if not got.size:
        return Answer(question.kind, 0, 0)
    if question.kind == THRESHOLD:
        is_known = ~np.isnan(expected)
        other = ((got > 0.5) != (expected > 0.5)) & is_known
        tie = other & (expected.astype(np.float16) == np.float16(0.5))
        return _counted(THRESHOLD, is_known, other, tie)
    is_known = ~np.isnan(expected).any(axis=question.axis)
    lost = np.isnan(got).any(axis=question.axis)
    answer, best = np.argmax(got, axis=question.axis), np.argmax(expected, axis=question.axis)
    other = ((answer != best) | lost) & is_known
    with np.errstate(over="ignore"):  # scores beyond fp16 are infinite in both
        both = [
            np.take_along_axis(expected, np.expand_dims(at, question.axis), question.axis).astype(np.float16)
            for at in (answer, best)
        ]
    tie = other & ~lost & np.isfinite(both[1]).squeeze(question.axis) & (both[0] == both[1]).squeeze(question.axis)
    return _counted(TOP, is_known, other, tie)


def _counted(kind: str, is_known: np.ndarray, other: np.ndarray, tie: np.ndarray) -> Answer:
    return Answer(kind, int(is_known.sum()), int(np.count_nonzero(other)), int(np.count_nonzero(tie)))
