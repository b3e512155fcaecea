"""``hexane.check`` says of compressed weights what is stored, what becomes of it, and what Apple's compiler does."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

RNG = np.random.default_rng(0)
INDICES = RNG.integers(0, 16, (64, 32, 1, 1)).astype(np.uint8)


def network(*groups: int):
    b = GraphBuilder()
    x = b.input("x", (1, 32, 8, 8), "fp16")
    lut = RNG.normal(0, 1, (*groups, 16, 1)).astype(np.float16)
    b.output(b.conv(x=x, weight=b.constexpr_lut_to_dense(indices=b.const(INDICES, "uint4"), lut=lut), name="y"))
    return b.graph


def row(graph, chip):
    (found,) = [row for row in hexane.check(graph, chip).rows if row.op == "conv"]
    return found


@pytest.mark.parametrize("chip", ["M1", "M6"])
def test_a_palette_that_streams(chip):
    found = row(network(1, 1, 1, 1), chip)
    assert found.place == "engine"
    assert "palette of 4 bits: streams 4-bit indices; Apple's compiler streams it" in found.reason
    assert found.weights


def test_tables_of_inputs_are_the_hosts_for_apples_compiler():
    found = row(network(1, 32, 1, 1), "M6")
    assert found.place == "host"
    assert "tables along axis 1" in found.reason
    assert "group of outputs" in found.advice
    mine = row(network(1, 32, 1, 1), "M1")
    assert mine.place == "engine"
    assert "expanded to fp16" in mine.reason
    assert "leaves the op to the host" in mine.reason


def test_plain_weights_say_nothing():
    b = GraphBuilder()
    x = b.input("x", (1, 32, 8, 8), "fp16")
    b.output(b.conv(x=x, weight=np.ones((4, 32, 1, 1), np.float16)))
    assert row(b.graph, "M1").weights == row(b.graph, "M6").weights == ""


@pytest.mark.parametrize(
    "groups, words", [((1, 1, 1, 1), "streams 4-bit indices"), ((1, 32, 1, 1), "expanded to fp16")]
)
def test_compile_says_what_becomes_of_compressed_weights(tmp_path, groups, words):
    import json

    from typer.testing import CliRunner

    from hexane.cli.main import app

    network(*groups).save(tmp_path / "m.mil")
    arguments = ["compile", str(tmp_path / "m.mil"), "-o", str(tmp_path / "m.hwx")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert f"compressed weights of 1 layer: {words}" in done.output
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    ((reason, count),) = found["weights"].items()
    assert words in reason and count == 1
