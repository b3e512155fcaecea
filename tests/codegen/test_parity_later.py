"""H14 and later, word for word: every decoded program of Apple's but those that ``parity.DIFFERENT`` explains."""

from __future__ import annotations

import pytest

from codegen.parity import DIFFERENT, LAYERS
from codegen.programs import differences, expected_tasks, graph_of, load, made_tasks, one_layer, several_layers
from hexane.errors import HexaneError

LATER = {target: one_layer(target) for target in DIFFERENT if target != "h13"}
LEAST = {"h14": 0.92, "h15": 0.93, "h16": 1.0, "h16g": 0.9, "h17": 1.0, "h17g": 0.8, "h18": 1.0}
"""Share of the programs that must come out word for word."""


@pytest.mark.parametrize("target", LATER)
def test_words_equal_apples(target):
    paths = LATER[target]
    different = []
    for path in paths:
        program = load(path)
        try:
            tasks = made_tasks(graph_of(program), target)
        except HexaneError:
            different.append(path.stem)
            continue
        if differences(tasks, expected_tasks(program)):
            different.append(path.stem)
    assert different == sorted(DIFFERENT[target])
    assert 1 - len(different) / len(paths) >= LEAST[target]


@pytest.mark.parametrize("target", ["h13", "h14", "h16g"])
def test_words_of_several_layers(target):
    different = [
        path.stem
        for path in several_layers(target)
        if differences(made_tasks(graph_of(load(path)), target), expected_tasks(load(path)))
    ]
    assert different == sorted(LAYERS.get(target, {}))
