"""Dialects and the switches of transformations."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.chips import Evidence
from hexane.errors import UsageError
from hexane.graph import GraphBuilder
from hexane.lowering import transformations
from hexane.lowering.transformations import Transformation, active, carried, is_on, using

from .levels import agreed


@pytest.fixture
def table(monkeypatch):
    """Three transformations that no pass asks for, and none of the others."""
    rows = {
        "shown": Transformation("shown", "Apple does it.", Evidence.APPLE, in_apple=True),
        "joined": Transformation("joined", "Made of Apple's forms.", Evidence.APPLE),
        "guessed": Transformation("guessed", "Nobody does it.", Evidence.INFERRED, generations=("h13",)),
    }
    monkeypatch.setattr(transformations, "TRANSFORMATIONS", dict(transformations.TRANSFORMATIONS, **rows))


def mine(names):
    """Those of the fixture."""
    return set(names) & {"shown", "joined", "guessed"}


def network():
    builder = GraphBuilder()
    x = builder.input("x", (1, 8, 4, 4), "fp16")
    weight = np.random.default_rng(0).normal(size=(8, 8, 3, 3)).astype(np.float16)
    builder.output(builder.relu(x=builder.conv(x=x, weight=weight, pad_type="same"), name="y"))
    return builder.graph


def test_what_is_on(table):
    assert mine(active()) == {"shown", "joined", "guessed"}
    assert mine(active("apple")) == mine(active("zin4")) == {"shown"}
    assert mine(active(strict=True)) == {"shown", "joined"}
    assert mine(active(without=("joined", "shown"))) == {"guessed"}
    assert mine(active("apple", "shown")) == set()
    assert "guessed" in active(generation="h13") and "guessed" not in active(generation="h14")


def test_wrong_names(table):
    with pytest.raises(UsageError, match="no transformation 'joinde'"):
        active(without=("joinde",))
    with pytest.raises(UsageError, match="no dialect 'appel'"):
        active("appel")
    with pytest.raises(UsageError, match="no dialect 'zin7'"):  # a container, not a compiler that is followed
        hexane.compile(network(), dialect="zin7")


def test_asking(table):
    assert is_on("guessed")  # nothing is switched off outside of a compilation
    with using(active(without=("guessed",))):
        assert not is_on("guessed") and is_on("joined")
    with pytest.raises(KeyError):
        is_on("joinde")


def test_a_compilation_sets_them_and_its_graph_remembers(table, monkeypatch):
    from hexane import passes

    seen = []
    run = passes.run
    monkeypatch.setattr(passes, "run", lambda *a, **k: (seen.append(mine(transformations.current())), run(*a, **k))[1])
    program = hexane.compile(network(), without=("guessed",))
    assert seen == [{"shown", "joined"}]
    assert carried(program.graph) == carried(program.segments[0].source)
    assert mine(carried(program.graph)) == {"shown", "joined"}
    assert mine(transformations.current()) == {"shown", "joined", "guessed"}


def test_apple_writes_todays_container(tmp_path):
    inputs = {"x": np.linspace(-1, 1, 128).reshape(1, 8, 4, 4).astype(np.float16)}
    program = hexane.compile(network(), dialect="apple")
    assert program.dialect == "apple" and program.images[0].dialect == "default"
    program.save(tmp_path / "a.hexane")
    assert hexane.load_program(tmp_path / "a.hexane").dialect == "apple"
    agreed(program, inputs)
