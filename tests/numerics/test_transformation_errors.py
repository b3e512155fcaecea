"""What each transformation does to the numbers, against float64: none that is on by default enlarges an error.

Every row of ``TRANSFORMATIONS`` is measured, a new one by itself: with and without it, on the networks of ``layers``.
One that changes neither numbers nor tasks of any of them fails until a network there shows it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import hexane
from hexane import numerics
from hexane.chips import get
from hexane.codegen.driver import canonical
from hexane.graph import Graph
from hexane.lowering.compilation import Compilation
from hexane.lowering.transformations import TRANSFORMATIONS, Transformations, active
from hexane.program import Program

from .layers import LARGE, NETWORKS, drawn, truth

CHIPS = ("M1", "M4")
ROUNDING = 2.0**-11
"""The largest relative error of one rounding to fp16."""
INSTEAD = {"batch-norms": ("affine-maps",)}
"""What takes the place of a transformation where both are on: it is off while that one is measured."""


def on(chip: str, off: tuple[str, ...]) -> Transformations:
    """Everything, also what costs accuracy, but for these."""
    return active(without=off, generation=get(chip).generation, accuracy="fast")


@cache
def network(name: str) -> Graph:
    return (NETWORKS | LARGE)[name]()


@cache
def right(name: str) -> list[np.ndarray]:
    """The first output in float64, for each drawing of the inputs."""
    return [next(iter(truth(network(name), given).values())) for given in drawn(network(name))]


def results(name: str, chip: str, off: tuple[str, ...]) -> list[np.ndarray]:
    """The engine's first output, for each drawing."""
    form = canonical(network(name), Compilation(get(chip), on(chip, off)))
    return [next(iter(numerics.evaluate(form, given, chip).values())) for given in drawn(network(name))]


@cache
def with_all(name: str, chip: str, off: tuple[str, ...]) -> list[np.ndarray]:
    return results(name, chip, off)


def excess(found: np.ndarray, before: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """How much larger the error is, in what one rounding to fp16 allows: root mean square, largest."""
    known = np.isfinite(wanted) & np.isfinite(before)
    if not np.isfinite(found[known]).all():
        return np.inf, np.inf
    wanted = wanted[known]
    errors = [np.abs(array[known].astype(np.float64) - wanted) for array in (found, before)]
    mean, largest = ([float(kind(e)) for e in errors] for kind in (lambda e: np.sqrt(np.mean(e**2)), np.max))
    rounding = np.sqrt(np.mean(np.spacing(np.abs(wanted).astype(np.float16)).astype(np.float64) ** 2) / 12)
    return (mean[0] - mean[1]) / rounding, (largest[0] - largest[1]) / (ROUNDING * float(np.abs(wanted).max()))


@cache
def measured(chip: str, name: str) -> dict[str, list[tuple[float, float, float]]]:
    """By network whose results the transformation changes: both figures for each drawing, and the largest result."""
    rows, off = {}, INSTEAD.get(name, ())
    for each in NETWORKS:
        pairs = list(zip(with_all(each, chip, off), results(each, chip, (*off, name)), right(each)))
        if any(not np.array_equal(a, b, equal_nan=True) for a, b, _ in pairs):
            rows[each] = [(*excess(*arrays), float(np.abs(arrays[2]).max())) for arrays in pairs]
    return rows


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_errors(name: str, chip: str) -> None:
    """Against float64: an error grows by one rounding to fp16 at most, or the row says by how much and is off."""
    stated = TRANSFORMATIONS[name].error
    assert (name in active().names) == (stated == 0)
    rows = measured(chip, name)
    larger = {each: row for each, row in rows.items() if any(mean > 1 or most > 1 for mean, most, _ in row)}
    assert bool(larger) == bool(stated), (name, larger)
    for row in larger.values():
        assert max(most * ROUNDING * size for _, most, size in row) < stated


def words(program: Program) -> list[list[str]]:
    return [[str(task) for task in image.tasks] for image in program.images]


def changes_tasks(name: str, chip: str, off: str) -> bool:
    """Whether tasks differ without the transformation; the emulated results then differ by a rounding at most."""
    graph, given = network(name), next(iter(drawn(network(name), (1.0,))))
    program, plain = (hexane.compile(graph, chip, without=w, accuracy="fast") for w in ((), (off,)))
    if words(program) == words(plain):
        return False
    (found, *_), (before, *_) = (list(p.run(given).values()) for p in (program, plain))
    if not np.array_equal(found, before):
        assert max(excess(found, before, next(iter(truth(graph, given).values())))) <= 1
    return True


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_every_transformation_is_measured(name: str) -> None:
    """It changes the numbers of a network here, or its tasks."""
    if any(measured(chip, name) for chip in CHIPS):
        return
    assert any(changes_tasks(each, chip, name) for each in NETWORKS | LARGE for chip in CHIPS), name
