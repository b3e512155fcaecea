"""Dialects and the switches of transformations."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.graph import GraphBuilder
from hexane.lowering.accuracy import costs
from hexane.lowering.transformations import TRANSFORMATIONS, Transformations, active, carried, named_after
from hexane.passes import available

from .levels import agreed


def network():
    builder = GraphBuilder()
    x = builder.input("x", (1, 8, 4, 4), "fp16")
    weight = np.random.default_rng(0).normal(size=(8, 8, 3, 3)).astype(np.float16)
    builder.output(builder.relu(x=builder.conv(x=x, weight=weight, pad_type="same"), name="y"))
    return builder.graph


def test_what_is_on():
    everything = {name for name, row in TRANSFORMATIONS.items() if not row.error}
    assert active(accuracy="fast").names == set(TRANSFORMATIONS) and len(everything) < len(TRANSFORMATIONS)
    assert active().names == everything and active() == Transformations()
    apples = {"bands", "batch-norms", "byte-results", "hand-over", "in-place-moves", "l2-parts", "native-pools"}
    assert active("apple").names == apples | {"rows-turned-once", "table-epilogues"}
    assert not active("zin4").names
    strict = active(strict=True).names
    assert "in-place-moves" in strict and "hand-over" in strict and "bands" not in strict
    assert active(without=("bands", "hand-over")).names == everything - {"bands", "hand-over"}
    assert "padded-keys" in active(generation="h13").names and "padded-keys" not in active(generation="h14").names


def test_wrong_names():
    with pytest.raises(UsageError, match="no transformation 'band'"):
        active(without=("band",))
    with pytest.raises(UsageError, match="no accuracy 'quick'"):
        active(accuracy="quick")
    with pytest.raises(UsageError, match="no dialect 'appel'"):
        active("appel")
    with pytest.raises(UsageError, match="no dialect 'zin7'"):  # a container, not a compiler that is followed
        hexane.compile(network(), dialect="zin7")


def test_asking():
    on = active(without=("in-place-moves",))
    assert not on.in_place_moves and on.bands
    with pytest.raises(AttributeError):
        on.in_place_move  # noqa: B018
    with pytest.raises(FrozenInstanceError):
        on.bands = False


def test_a_compilation_has_them_and_its_graph_remembers(monkeypatch):
    from hexane import passes

    seen = []
    run = passes.run
    monkeypatch.setattr(
        passes,
        "run",
        lambda graph, compilation, *a, **k: (seen.append(compilation.on), run(graph, compilation, *a, **k))[1],
    )
    program = hexane.compile(network(), chip="M1", without=("bands",))
    assert seen == [active(without=("bands",), generation="h13")] and not seen[0].bands
    assert carried(program.graph) == carried(program.segments[0].source) == seen[0]
    assert carried(network()) == Transformations()  # no compilation made it


def test_what_changed_a_network_is_known():
    """Every pass that asks for a transformation counts under its name."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 4, 4), "fp16")
    y = b.mul(x=b.sigmoid_hard(x=x, alpha=1 / 6, beta=0.5), y=x)
    b.output(b.mul(x=b.silu(x=y), y=2.0))
    fast, exact = (hexane.compile(b.graph, accuracy=name).graph for name in ("fast", "exact"))
    assert {row.name: (row.ops, row.error) for row in costs(exact)} == {"scaled-tables": (1, 0.0)}
    dear, cheap = costs(fast)
    assert (dear.name, dear.ops, cheap.name) == ("single-tables", 1, "scaled-tables")
    of_passes = {named_after(name) for name in available()}
    assert {"", *TRANSFORMATIONS} >= of_passes and {"layouts", "early-cuts", "keys-as-channels"} < of_passes


def test_apple_writes_todays_container(tmp_path):
    inputs = {"x": np.linspace(-1, 1, 128).reshape(1, 8, 4, 4).astype(np.float16)}
    program = hexane.compile(network(), dialect="apple")
    assert program.dialect == "apple" and program.images[0].dialect == "default"
    program.save(tmp_path / "a.hexane")
    assert hexane.load_program(tmp_path / "a.hexane").dialect == "apple"
    agreed(program, inputs)
