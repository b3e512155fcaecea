"""Distance of one output from float32: first what is infinite or NaN, then the errors, then the answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UsageError
from hexane.session.answers import TOP, Answer, OutputQuestion, answered, looks_like_probabilities, questions_of
from hexane.session.lists import Paired, lists_of, paired

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hexane.graph import Graph


@dataclass(frozen=True)
class Agreement:
    """One output against float32.

    ``infinities`` and ``nans`` count elements of the engine's output, ``nonfinite`` those elements that are infinite or
    NaN in one of the two and not the same in the other. ``largest`` and ``mean`` are absolute errors, ``relative`` the
    root-mean-square error over the root mean square of float32, ``cosine`` the cosine of the angle between the two: all
    over the elements that are finite in both, and None where there is none. ``reference_nonfinite`` counts infinities
    and NaN of float32 itself. ``identical``: the same bits. ``answer``: the decision that the output stands for.
    ``negligible``: an absolute error that says nothing, see ``negligible_error``. ``fp16_storage``: the relative error
    of the same network in float32 with every tensor stored in fp16, infinite where that gives other infinities or NaN,
    None where nobody asked.
    """

    name: str
    shape: tuple[int, ...]
    infinities: int
    nans: int
    nonfinite: int
    largest: float | None
    mean: float | None
    relative: float | None
    cosine: float | None
    reference_nonfinite: int
    identical: bool
    answer: Answer | None = None
    negligible: float = 0.0
    fp16_storage: float | None = None

    @property
    def is_of_reference(self) -> bool:
        """True where the NaN here are float32's own, or float32 has nothing finite."""
        return self.reference_nonfinite == prod(self.shape) or bool(self.nans and not self.nonfinite)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def nonfinite_counts(array: np.ndarray) -> tuple[int, int]:
    """(infinities, NaNs) of an array; (0, 0) for other than floats."""
    if array.dtype.kind != "f":
        return 0, 0
    return int(np.isinf(array).sum()), int(np.isnan(array).sum())


def agreement(name: str, got: np.ndarray, expected: np.ndarray, question: OutputQuestion | None = None) -> Agreement:
    """Compare one output with float32's; UsageError when the shapes differ."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        raise UsageError(f"output {name!r} has shape {got.shape}, the other one {expected.shape}")
    if question is None and looks_like_probabilities(expected):
        question = OutputQuestion(TOP, is_probability=True)
    answer = answered(got, expected, question) if question is not None else None
    infinities, nans = nonfinite_counts(got)
    same = bool(np.array_equal(got, expected, equal_nan=got.dtype.kind == expected.dtype.kind == "f"))
    if got.dtype.kind in "OUS" or expected.dtype.kind in "OUS":
        return Agreement(name, got.shape, 0, 0, 0, None, None, None, None, 0, same, answer)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    alike = (a == b) | (np.isnan(a) & np.isnan(b))
    nonfinite = int(np.count_nonzero(~both & ~alike))
    theirs = int(np.count_nonzero(~np.isfinite(b)))
    figures = _errors(a[both], b[both])
    return Agreement(
        name, got.shape, infinities, nans, nonfinite, *figures, theirs, same, answer, negligible_error(question)
    )


SMALLEST = 2.0**-24
"""The smallest number of fp16: below it nothing can be stored."""
OF_A_PROBABILITY = 2.0**-10


def negligible_error(question: OutputQuestion | None) -> float:
    """An absolute error without meaning: a unit of fp16 at 1 for probabilities, else the smallest number of fp16."""
    return OF_A_PROBABILITY if question is not None and question.is_probability else SMALLEST


def beside_fp16(
    rows: list[Agreement], stored: Mapping[str, np.ndarray], expected: Mapping[str, Any], graph: Graph
) -> list[Agreement]:
    """The rows with what fp16 storage alone costs."""
    errors = {row.name: inf if row.nonfinite else row.relative for row in agreements(stored, expected, graph)}
    return [replace(row, fp16_storage=errors.get(row.name)) if row.relative is not None else row for row in rows]


def _errors(a: np.ndarray, b: np.ndarray) -> tuple[float | None, float | None, float | None, float | None]:
    """(largest, mean, relative, cosine) of finite elements."""
    if not a.size:
        return None, None, None, None
    off = np.abs(a - b)
    size, rms = float(np.sqrt(np.mean(b * b))), float(np.sqrt(np.mean(off**2)))
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    cosine = float(a @ b / norm) if norm else float(rms == 0)
    return float(off.max()), float(off.mean()), (rms / size if size else (0.0 if rms == 0 else float("inf"))), cosine


def agreements(outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], graph: Graph) -> list[Agreement]:
    """Every output of a network against float32's, in order: as what the network makes of it asks for."""
    questions = questions_of(graph)
    pairs = paired(outputs, expected, lists_of(graph))
    rows = [agreement(name, array, expected[name], questions.get(name)) for name, array in outputs.items()]
    return [_of_rows(row, pairs[row.name]) if row.name in pairs and not row.identical else row for row in rows]


def _of_rows(whole: Agreement, pair: Paired) -> Agreement:
    """The agreement of a list: errors of the rows that are in both, and how many are not."""
    row = agreement(whole.name, pair.got, pair.expected)
    same = not pair.answer.changed and row.identical
    return replace(
        row,
        shape=whole.shape,
        infinities=whole.infinities,
        nans=whole.nans,
        nonfinite=whole.nonfinite,
        identical=same,
        answer=pair.answer,
    )
