"""Long axes: the limit of a generation is one number for the compiler and for ``check``."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane import chips
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
        target.require_fields(Plan("NE", **{"w": 1, "h": 1, "c": 1, name: limit}))
        with pytest.raises(UnsupportedError, match=f"a task of {limit + 1} "):
            target.require_fields(Plan("NE", **{"w": 1, "h": 1, "c": 1, name: limit + 1}))
