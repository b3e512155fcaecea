"""The networks of Apple's decoded programs, as the text that a compiler was given."""

from __future__ import annotations

import importlib.util
import json

import numpy as np

import hexane
from hexane.graph.compare import difference

PATH = "@model_path/weights/weight.bin"


def test_networks_are_read_typed_and_computed(shared):
    spec = importlib.util.spec_from_file_location("to_mil", shared / "apple" / "to_mil.py")
    to_mil = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(to_mil)
    rng = np.random.default_rng(0)
    files = sorted((shared / "apple").glob("h1*/*.json"))
    for file in files:
        text, weights = to_mil.convert(json.loads(file.read_text()))
        graph = hexane.parse_mil(text, {PATH: weights}).verify()
        assert not graph.problems, file.name
        assert difference(graph, hexane.parse_mil(graph.to_mil(), {PATH: weights})) is None
        if sum(type_.count for type_ in graph.inputs.values()) < 20_000:
            inputs = {
                name: rng.random(type_.shape) < 0.5 if type_.dtype == "bool" else rng.standard_normal(type_.shape)
                for name, type_ in graph.inputs.items()
            }
            outputs = graph.evaluate(inputs)
            assert all(outputs[name].shape == type_.shape for name, type_ in graph.outputs.items())
    assert len(files) > 100
