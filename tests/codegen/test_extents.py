"""Long axes: the limit of a generation is one number for the compiler and for ``check``."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane import chips
from hexane.codegen.fragment import MOST_TASKS
from hexane.codegen.plan import Plan
from hexane.codegen.targets import targets
from hexane.errors import UnsupportedError
from hexane.graph import GraphBuilder
from hexane.graph.ir import Graph

from .levels import agreed

WIDTHS = (16384, 16385, 20000, 65536, 65537)
CHIPS = ("M1", "M2", "M3", "M4", "M5")
OPS = ("relu", "add", "conv", "avg_pool", "max_pool", "transpose")


def wide(kind: str, width: int) -> Graph:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 2, width), "fp16")
    halves = {"kernel_sizes": (1, 2), "strides": (1, 2), "pad_type": "valid"}
    match kind:
        case "relu":
            y = b.relu(x=x, name="y")
        case "add":
            y = b.add(x=x, y=b.input("z", x.shape, "fp16"), name="y")
        case "conv":
            weight = np.random.default_rng(1).normal(size=(4, 4, 1, 1)).astype(np.float16)
            y = b.conv(x=x, weight=weight, name="y")
        case "transpose":
            y = b.transpose(x=x, perm=(0, 1, 3, 2), name="y")
        case _:
            y = getattr(b, kind)(x=x, name="y", **halves)
    b.output(y)
    return b.graph


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", OPS)
def test_both_sides_of_the_longest_axis(kind: str, chip: str, width: int) -> None:
    graph, limit = wide(kind, width), chips.get(chip).generation.max_width
    program, (row,) = hexane.compile(graph, chip), hexane.check(graph, chip=chip).rows
    fits = width <= limit
    assert row.apple == ("engine" if fits else "host")
    if fits:
        assert [segment.kind for segment in program.segments] == ["engine"]
        assert (row.place, row.hexane) == ("engine", "engine")
        rng = np.random.default_rng(width)
        agreed(program, {v.name: rng.normal(size=v.shape).astype(np.float16) for v in graph.main.inputs})
        return
    reason = f" along W, and {chip} takes {limit}"
    host = [segment for segment in program.segments if segment.kind == "host"]
    assert f"an extent of {width}{reason}" in host[0].reasons.values()
    if len(program.segments) == 1:  # else a pooling in two steps, of which the second fits
        assert (row.place, row.hexane) == ("host", "host") and row.reason.endswith(reason)


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_the_counters_of_a_task(target) -> None:
    """Each holds what its field holds, and the longest axes that a tensor may have."""
    most = {name: limit for name, _, limit in target.counters}
    limits = target.limits
    assert min(most["w"], most["wout"]) >= limits.max_width and min(most["h"], most["hout"]) >= limits.max_height
    assert min(most["c"], most["cout"]) >= limits.max_channels and most["groups"] == limits.max_groups
    for name, limit in most.items():
        target.require_fields(Plan(**{"w": 1, "h": 1, "c": 1, name: limit}))
        with pytest.raises(UnsupportedError, match=f"a task of {limit + 1} "):
            target.require_fields(Plan(**{"w": 1, "h": 1, "c": 1, name: limit + 1}))


BATCHES = ("relu", "add", "mean", "concat", "slice", "turn")


@pytest.mark.parametrize("count", [4097, 8191, 8192, 16385])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", BATCHES)
def test_batches_to_the_last_count_of_a_task(kind: str, chip: str, count: int) -> None:
    """A task counts its images; where it cannot, several tasks have a part of them each, and no image is lost."""
    b = GraphBuilder()
    x = b.input("x", (count, 2, 1 if kind == "mean" else 2, 4), "fp16")  # sums of several rows take a task per image
    match kind:
        case "relu":
            y = b.relu(x=x, name="y")
        case "add":
            y = b.add(x=x, y=b.input("z", x.shape, "fp16"), name="y")
        case "mean":
            y = b.reduce_mean(x=x, axes=(3,), keep_dims=True, name="y")
        case "concat":
            y = b.concat(values=(x, b.input("z", x.shape, "fp16")), axis=1, name="y")
        case "slice":
            y = b.slice_by_size(x=x, begin=(1, 0, 1, 0), size=(count - 1, 2, 1, 4), name="y")
        case "turn":
            y = b.transpose(x=x, perm=(0, 3, 1, 2), name="y")
    b.output(y)
    generation = chips.get(chip).generation
    program, most = hexane.compile(b.graph, chip), generation.max_groups
    (row,) = hexane.check(b.graph, chip=chip).rows
    assert hexane.estimate(b.graph, chip=chip).chip == chip
    (segment,) = program.segments
    assert segment.kind == row.hexane == "engine"
    assert len(segment.image.tasks) == -(-y.shape[0] // most) * (2 if kind == "concat" else 1)
    rng = np.random.default_rng(count)
    inputs = {v.name: rng.normal(size=v.shape).astype(np.float16) for v in b.graph.main.inputs}
    results, wanted = agreed(program, inputs)["y"], b.graph.evaluate(inputs)["y"]
    assert results.shape == wanted.shape
    np.testing.assert_allclose(results.astype(np.float32), wanted.astype(np.float32), rtol=2e-3, atol=2e-3)


def test_a_batch_of_65536_is_the_hosts_before_its_tasks_are_written() -> None:
    """Sums over channels take two tasks for an image: too many for one op."""
    b = GraphBuilder()
    b.output(b.reduce_sum(x=b.input("x", (65536, 4, 6, 8), "fp16"), axes=(1,), keep_dims=True))
    (segment,) = hexane.compile(b.graph).segments
    assert segment.kind == "host" and f"more than {MOST_TASKS} tasks" in segment.reason
