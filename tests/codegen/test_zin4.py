"""The early compiler's files, byte for byte, from networks built by hand."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import pytest

import hexane
from facts import fact_params, packed
from hexane.graph import GraphBuilder

from .levels import agreed


def neuron(kind):
    builder = GraphBuilder()
    x = builder.input("image", (1, 1, 1, 77), "fp16")
    builder.output(getattr(builder, kind)(x=x, name="probs"))
    return builder.graph


def convolution(channels, value):
    builder = GraphBuilder()
    x = builder.input("image", (1, channels, 1, 1), "fp16")
    weight = np.full((channels, channels, 1, 1), value, np.float16)
    builder.output(builder.conv(x=x, weight=weight, pad_type="valid", name="probs"))
    return builder.graph


def addition():
    builder = GraphBuilder()
    second = builder.input("image2", (1, 64, 1, 1), "fp16")
    first = builder.input("image", (1, 64, 1, 1), "fp16")
    builder.output(builder.add(x=first, y=second, name="probs"))
    return builder.graph


def joined():
    builder = GraphBuilder()
    narrow = builder.input("input_1", (1, 16, 1, 1), "fp16")
    wide = builder.input("input_0", (1, 16384, 1, 1), "fp16")
    builder.output(builder.concat(values=(wide, narrow), axis=1, name="output"))
    return builder.graph


NETWORKS = {
    "relu_w77": lambda: neuron("relu"),
    "sigmoid_w77": lambda: neuron("sigmoid"),
    "conv_3to3": lambda: convolution(3, 2.0),
    "conv_3to3_golden": lambda: convolution(3, 3.0),
    "gemm_512": lambda: convolution(512, 0.0),
    "sum_c64": addition,
    "concat_16384_16": joined,
}


IMAGES = packed("networks.json")["images"]
"""What is recorded of the files: SHA-256, size, and what they carry beyond their networks."""


def require_apples(program, name):
    data = program.images[0].to_bytes()
    assert len(data) == IMAGES[name]["bytes"]
    assert hashlib.sha256(data).hexdigest() == IMAGES[name]["sha256"]


@pytest.mark.parametrize("name", NETWORKS)
def test_file_is_the_same(name):
    require_apples(hexane.compile(NETWORKS[name](), dialect="zin4", ident=IMAGES[name]["ident"]), name)


@pytest.mark.parametrize("name", NETWORKS)
def test_file_from_its_plist(name, facts):
    missing = {path: bytes(size) for path, size in IMAGES[name]["zeros"].items()}
    graph = hexane.load(facts / "hwx" / f"{name}.plist", weights=missing or None)
    require_apples(hexane.compile(graph, dialect="zin4", ident=IMAGES[name]["ident"]), name)


@pytest.mark.parametrize("name", NETWORKS)
def test_runs_on_the_emulator(name):
    graph = NETWORKS[name]()
    program = hexane.compile(graph, dialect="zin4")
    rng = np.random.default_rng(3)
    inputs = {key: rng.standard_normal(t.shape).astype(np.float16) for key, t in graph.inputs.items()}
    made, wanted = program.run(inputs), graph.evaluate(inputs)
    for key in wanted:
        np.testing.assert_allclose(made[key].astype(float), wanted[key].astype(float), atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("path", fact_params("plists/*/*.plist"))
def test_plists_compile_and_run(path):
    graph, program = compiled(path)
    rng = np.random.default_rng(2)
    inputs = {
        name: rng.integers(1, 5, t.shape).astype(np.uint8 if t.dtype == "uint8" else np.float16)
        for name, t in graph.inputs.items()
    }
    agreed(program, inputs)


def compiled(path):
    """The network and its program; weight files that are gone are zeros."""
    missing = {}
    while True:
        try:
            graph = hexane.load(path, weights=missing or None)
            return graph, hexane.compile(graph, dialect="zin4")
        except hexane.HexaneError as error:
            gone = re.search(r"weight file '([^']*)' is missing", str(error))
            assert gone and gone[1] not in missing, error
            missing[gone[1]] = bytes(32 << 20)
