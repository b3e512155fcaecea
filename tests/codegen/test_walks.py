"""What DMAs touch: whether two walks meet, and where one goes in another buffer, against every burst."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from hexane.codegen.fragment import Tensor
from hexane.codegen.moves import BURST, Same, Walk, walk_of
from hexane.codegen.plan import SOURCE, Buffer, Plan, Space

SCRATCH = Buffer("x", Space.SCRATCH)


def walk(rng: np.random.Generator, *, nested: bool) -> Walk:
    """Five axes; ``nested``: each step at least what the axes inside it span, as in a map with room around it."""
    extents = tuple(int(n) for n in rng.integers(1, 4, 5))
    steps, span = [BURST], BURST * extents[4]
    for n in extents[3::-1]:
        least = span // BURST if nested else 1
        steps.insert(0, BURST * int(rng.integers(least, least + 3)))
        span = steps[0] * n
    return Walk(BURST * int(rng.integers(0, 20)), extents, tuple(steps))


def moved_within(rng: np.random.Generator, walk: Walk) -> Walk:
    """A part of a walk: fewer along each axis, from a later one on."""
    firsts = [int(rng.integers(0, n)) for n in walk.extents]
    extents = tuple(int(rng.integers(1, n - first + 1)) for n, first in zip(walk.extents, firsts))
    return Walk(walk.start + sum(map(prod, zip(firsts, walk.steps))), extents, walk.steps)


def plan_along(walk: Walk) -> Plan:
    groups, depth, channels, rows, bursts = walk.extents
    plan = Plan(w=bursts * BURST // 2, h=rows, c=channels, d=depth, groups=groups)
    dma = Tensor(SCRATCH, 1, channels, rows, bursts * BURST // 2).dma(walk.start)
    steps = dict(zip(("group", "depth", "plane", "row"), walk.steps))
    return plan.on(SOURCE, dma=replace(dma, **steps))


@pytest.mark.parametrize("nested", [True, False])
def test_walks_meet_where_they_share_a_burst(nested):
    rng = np.random.default_rng(nested)
    met = 0
    for _ in range(400):
        a = walk(rng, nested=nested)
        b = (
            Walk(BURST * int(rng.integers(0, 60)), a.extents, a.steps)
            if rng.random() < 0.5
            else walk(rng, nested=nested)
        )
        wanted = bool(np.intersect1d(a.places(), b.places()).size)
        assert a.meets(b) == b.meets(a) == wanted, (a, b)
        met += wanted
    assert 40 < met < 380


@pytest.mark.parametrize("nested", [True, False])
def test_a_walk_goes_where_its_bursts_are(nested):
    """The DMA in the other buffer touches, place by place, the bursts that hold the same data there."""
    rng = np.random.default_rng(2 + nested)
    found = 0
    for _ in range(400):
        there = walk(rng, nested=True)
        here = Walk(BURST * int(rng.integers(0, 9)), there.extents, walk(rng, nested=nested).steps)
        part = moved_within(rng, there)
        plan = plan_along(part)
        assert walk_of(plan, SOURCE) == part
        dma = Same(there, here, strided=True).moved(plan, SOURCE)
        if dma is None:
            continue
        found += 1
        goes = Walk(dma.offset, part.extents, (dma.group, dma.depth, dma.plane, dma.row, BURST))
        at = {int(p): int(q) for p, q in zip(there.places().ravel(), here.places().ravel())}
        assert [at[int(p)] for p in part.places().ravel()] == goes.places().ravel().tolist()
    assert found > 300
