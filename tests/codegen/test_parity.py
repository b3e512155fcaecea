"""Today's compiler, word for word: every decoded H13 program that the specification does not name as a misfit.

In dialect ``apple``; the default dialect writes another form where that is predicted faster.
"""

from __future__ import annotations

import hashlib
import warnings

import pytest

import hexane
from codegen.parity import DIFFERENT
from codegen.programs import differences, every_program, expected_tasks, graph_of, load, one_layer, several_layers
from hexane.codegen.defects import DefectWarning

MISFITS = DIFFERENT["h13"]
H13 = [pytest.param(path, id=path.stem) for path in (*one_layer("h13"), *several_layers("h13"))]


@pytest.mark.parametrize("path", H13)
def test_words_equal_apples(path):
    program = load(path)
    compiled = hexane.compile(graph_of(program), dialect="apple")
    assert [segment.kind for segment in compiled.segments] == ["engine"]
    image = compiled.images[0]
    found = differences(image.tasks, expected_tasks(program))
    if path.stem in MISFITS:
        assert found, f"no misfit any more: {MISFITS[path.stem]}"
        return
    assert not found
    section = program["constant_section"]
    if section["sha256"]:
        assert hashlib.sha256(image.section("__TEXT", "__const")).hexdigest() == section["sha256"]
    assert surfaces_of(image) == {t["name"]: recorded(t) for t in program["tensors"]}


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in every_program("h13")[::4]])
def test_the_default_is_never_predicted_slower(path):
    """Of every fourth program: another form where it is faster, or as fast with other addresses in L2."""
    graph = graph_of(load(path))
    default, apples = hexane.compile(graph), hexane.compile(graph, dialect="apple")
    if any(segment.kind == "host" for segment in default.segments):
        assert [op.type for op in graph.ops] == ["pow"]  # guarded-powers: right where Apple's is not
        return
    found = differences(default.images[0].tasks, apples.images[0].tasks)
    assert not found or hexane.estimate(default).engine_us <= hexane.estimate(apples).engine_us, found


CHAINS = {"h13": "M1", "h14": "M2", "h16g": "M4"}
"""A chip of every target that chains of layers are known for."""


@pytest.mark.parametrize(
    ("path", "chip"),
    [pytest.param(p, chip, id=f"{t}-{p.stem}") for t, chip in CHAINS.items() for p in several_layers(t)],
)
def test_chains_pass_the_check_of_compile(path, chip):
    """Apple's words are all known to the emulator: no op is left to the host instead."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DefectWarning)
        program = hexane.compile(graph_of(load(path)), chip, dialect="apple")
    assert {segment.kind for segment in program.segments} == {"engine"}


@pytest.mark.parametrize(
    ("path", "chip"),
    [pytest.param(p, chip, id=f"{t}-{p.stem}") for t, chip in CHAINS.items() for p in several_layers(t)],
)
def test_the_default_is_never_slower_than_apples_chains(path, chip):
    graph = graph_of(load(path))
    default, apples = (hexane.estimate(hexane.compile(graph, chip, dialect=d)).engine_us for d in ("default", "apple"))
    assert default <= apples * (1 + 1e-9)


def surfaces_of(image):
    return {s.label: (s.role, s.channel, s.strides[2], s.bytes_per_batch) for s in image.surfaces}


def recorded(tensor):
    return (tensor["role"], tensor["channel"], tensor["strides"]["row"], tensor["bytes"])


def test_enough_programs():
    assert len(H13) - len(MISFITS) >= 257
