"""Groups that are no loop of one task, in parts: the same bits, fewer products and weights."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

CASES = [  # images, height, width, cin, cout, kernel, stride, groups
    (1, 13, 13, 384, 384, 3, 1, 2),
    (1, 30, 30, 60, 90, 5, 1, 15),
    (2, 14, 15, 96, 72, 3, 2, 4),
    (1, 28, 28, 240, 60, 1, 1, 3),
    (1, 14, 14, 480, 480, 1, 1, 3),
    (1, 28, 28, 128, 128, 3, 1, 32),
]


def network(n, h, w, cin, cout, k, s, groups):
    rng = np.random.default_rng(cin)
    b = GraphBuilder()
    x = b.input("x", (n, cin, h, w), "fp16")
    first = (rng.normal(size=(cin, cin, 1, 1)) / cin**0.5).astype(np.float16)
    weight = (rng.normal(size=(cout, cin // groups, k, k)) / (cin // groups * k * k) ** 0.5).astype(np.float16)
    bias = rng.normal(size=cout).astype(np.float16)
    y = b.relu(x=b.conv(x=x, weight=first))
    y = b.conv(x=y, weight=weight, bias=bias, strides=[s, s], pad_type="same", groups=groups)
    last = (rng.normal(size=(16, cout, 1, 1)) / cout**0.5).astype(np.float16)
    b.output(b.conv(x=b.relu(x=y), weight=last))
    return b.graph, {"x": rng.normal(size=x.shape).astype(np.float16)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: "x".join(map(str, case)))
def test_parts_have_the_bits_of_the_whole(case):
    graph, inputs = network(*case)
    program, plain = hexane.compile(graph), hexane.compile(graph, without=("split-groups",))
    (found,), (bits,), (whole,) = (
        p.run(inputs, level=level).values() for p, level in ((program, "engine"), (program, "graph"), (plain, "engine"))
    )
    np.testing.assert_array_equal(found, bits)
    np.testing.assert_array_equal(found, whole)
    assert hexane.estimate(program).engine_us <= hexane.estimate(plain).engine_us
    assert not program.stats()["host_segments"]


def test_what_is_saved():
    """AlexNet's third layer: two sums over half of the channels, with half of the weights."""
    graph, _ = network(*CASES[0])
    program, plain = hexane.compile(graph), hexane.compile(graph, without=("split-groups",))
    assert hexane.estimate(program).engine_us < 0.7 * hexane.estimate(plain).engine_us
    assert hexane.compile(graph, strict=True).stats()["evidence"].get("INFERRED", 0) == 0
