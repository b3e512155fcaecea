"""``--dialect`` and ``--without`` of a run, and level graph: the arithmetic of the program that the chip would get."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.graph import GraphBuilder
from hexane.lowering.transformations import active
from hexane.session.form import Form
from hexane.session.run import run_network
from hexane.session.tables import run_facts


def attention():
    b = GraphBuilder()
    q, k, v = (b.input(name, (1, 4, 64, 32), "fp16") for name in "qkv")
    scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float16(32**-0.5))
    act = b.mul(x=v, y=b.sigmoid_hard(x=v, alpha=1 / 6, beta=0.5))
    b.output(b.matmul(x=b.softmax(x=scores, axis=-1), y=act, name="y"))
    return b.graph


RNG = np.random.default_rng(1)
INPUTS = {name: RNG.standard_normal((1, 4, 64, 32)).astype(np.float16) for name in "qkv"}
FORMS = {
    "default": Form(), "apple": Form("apple"), "fast": Form(accuracy="fast"),
    "without": Form(without=("keys-as-channels",)),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_level_graph_is_of_the_same_form(chip, form):
    engine, graph = (
        run_network(attention(), INPUTS, name="a", chip=chip, level=level, form=FORMS[form])
        for level in ("engine", "graph")
    )
    np.testing.assert_array_equal(engine.outputs["y"], graph.outputs["y"])
    assert engine.summary()["dialect"] == FORMS[form].dialect
    assert engine.summary()["without"] == list(FORMS[form].without)


def test_a_form_changes_what_runs():
    made = {form: run_network(attention(), INPUTS, name="a", form=FORMS[form]) for form in FORMS}
    counts = {form: done.program.stats()["tasks"] for form, done in made.items()}
    assert counts["fast"] < counts["default"] < counts["without"] <= counts["apple"]
    for form, done in made.items():
        facts = dict(run_facts(done))
        assert facts["program"].startswith(f"{counts[form]} tasks in 1 engine")
        assert facts["on the engine"].startswith(f"100.0% of {2 * 4 * 64 * 64 * 32:,}")
    errors = {form: done.agreements[0].largest for form, done in made.items()}
    assert errors["without"] != errors["default"] != errors["fast"]


def test_what_accuracy_costs_is_said():
    b = GraphBuilder()
    x = b.input("x", (1, 8, 16, 16), "fp16")
    b.output(b.mul(x=x, y=b.sigmoid_hard(x=x, alpha=1 / 6, beta=0.5), name="y"))
    inputs = {"x": (2 * RNG.standard_normal((1, 8, 16, 16))).astype(np.float16)}
    fast, exact = (run_network(b.graph, inputs, name="a", form=Form(accuracy=name)) for name in ("fast", "exact"))
    (cost,) = fast.costs
    assert (cost.name, cost.ops) == ("single-tables", 1) and 2.8e-3 < cost.error < 3e-3
    assert fast.exact == {"y": exact.agreements[0].relative} and fast.agreements[0].relative > 2 * fast.exact["y"]
    (row,) = [text for name, text in run_facts(fast) if name == "accuracy"]
    assert "single-tables (1 op, results off by up to 2.9e-03 more)" in row and "with accuracy exact" in row
    assert fast.summary()["transformations"] == [{"name": "single-tables", "ops": 1, "error": cost.error}]
    assert not exact.costs and not exact.exact and "accuracy" not in dict(run_facts(exact))


def test_a_chip_without_programs_follows_its_generation():
    done = run_network(attention(), INPUTS, name="a", chip="M6", level="graph")
    assert done.program is None and not {"program", "on the engine"} & dict(run_facts(done)).keys()
    assert set(done.parts()[0][1].metadata["transformations"]) == active(generation="h19").names
