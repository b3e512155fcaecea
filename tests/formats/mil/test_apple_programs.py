"""The networks of Apple's decoded programs, as the text that a compiler was given."""

from __future__ import annotations

import numpy as np

import hexane
from codegen.mil_of import WEIGHTS, mil_of
from codegen.programs import load
from facts import fact_files
from hexane.graph.compare import difference


def test_networks_are_read_typed_and_computed():
    rng = np.random.default_rng(0)
    files = [path for path in fact_files("apple/**/*.json") if path.parent.name != "h13-2023"]  # not all are MIL ops
    for file in files:
        text, weights = mil_of(load(file))
        graph = hexane.parse_mil(text, {WEIGHTS: weights}).verify()
        assert not graph.problems, file.name
        assert difference(graph, hexane.parse_mil(graph.to_mil(), {WEIGHTS: weights})) is None
        if sum(type_.count for type_ in graph.inputs.values()) < 20_000:
            inputs = {
                name: rng.random(type_.shape) < 0.5 if type_.dtype == "bool" else rng.standard_normal(type_.shape)
                for name, type_ in graph.inputs.items()
            }
            outputs = graph.evaluate(inputs)
            assert all(outputs[name].shape == type_.shape for name, type_ in graph.outputs.items())
    assert len(files) > 100
