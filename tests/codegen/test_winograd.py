"""Convolutions on chips with Winograd's form: tasks give the bits of graph level, whatever asks for the form."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed

CASES = {
    "3x3": dict(kernel=(3, 3)),
    "1x3": dict(kernel=(1, 3)),
    "3x1": dict(kernel=(3, 1)),
    "5x5": dict(kernel=(5, 5)),
    "two groups": dict(kernel=(3, 3), groups=2),
    "depthwise": dict(kernel=(3, 3), groups=8),
    "stride 2": dict(kernel=(3, 3), stride=2),
    "dilated": dict(kernel=(3, 3), dilation=(2, 2)),
    "dilated, one tap": dict(kernel=(1, 3), dilation=(2, 1)),
    "odd width": dict(kernel=(3, 3), width=17),
}


def network(kernel, groups=1, stride=1, dilation=(1, 1), width=16):
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 8, 16, width), "fp16")
    weight = rng.normal(size=(16, 8 // groups, *kernel)).astype(np.float16)
    made = b.conv(x=x, weight=weight, pad_type="same", groups=groups, strides=[stride] * 2, dilations=list(dilation))
    b.output(b.relu(x=made, name="y"))
    return b.graph, {"x": rng.normal(size=(1, 8, 16, width)).astype(np.float16)}


@pytest.mark.parametrize("chip", ["A18", "A19"])
@pytest.mark.parametrize("name", CASES)
def test_bits_of_graph_level(name, chip):
    graph, inputs = network(**CASES[name])
    program = hexane.compile(graph, chip=chip)
    agreed(program, inputs)


def test_the_bit_of_h18():
    def asks(**case):
        (image,) = hexane.compile(network(**case)[0], chip="A19").images
        return [task.get("Common.Cfg.Winograd1D") for task in image.tasks]

    assert 1 in asks(kernel=(3, 3)) and 1 not in asks(kernel=(3, 3), stride=2)
    assert 1 in asks(kernel=(1, 3)) and 1 not in asks(kernel=(2, 3)) + asks(kernel=(3, 1)) + asks(kernel=(5, 3))
