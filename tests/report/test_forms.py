"""``--dialect`` and ``--without`` of a run, and level graph: the arithmetic of the program that the chip would get."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.graph import GraphBuilder
from hexane.lowering.transformations import active
from hexane.report.session import Form, run_network


def attention():
    b = GraphBuilder()
    q, k, v = (b.input(name, (1, 4, 64, 32), "fp16") for name in "qkv")
    scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float16(32**-0.5))
    act = b.mul(x=v, y=b.sigmoid_hard(x=v, alpha=1 / 6, beta=0.5))
    b.output(b.matmul(x=b.softmax(x=scores, axis=-1), y=act, name="y"))
    return b.graph


RNG = np.random.default_rng(1)
INPUTS = {name: RNG.standard_normal((1, 4, 64, 32)).astype(np.float16) for name in "qkv"}
FORMS = {"default": Form(), "apple": Form("apple"), "without": Form(without=("single-tables", "keys-as-channels"))}


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
    assert counts["default"] < counts["without"] <= counts["apple"]
    errors = {form: done.agreements[0].largest for form, done in made.items()}
    assert errors["without"] != errors["default"]


def test_a_chip_without_programs_follows_its_generation():
    done = run_network(attention(), INPUTS, name="a", chip="M6", level="graph")
    assert done.program is None
    assert set(done.parts()[0][1].metadata["transformations"]) == active(generation="h19").names
