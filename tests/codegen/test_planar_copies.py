"""Copies by the planar engine: every bit as from the cores, signs of zeros included, and no slower."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

MINUS_ZERO = np.float16(-0.0)


def halves(array):
    return np.asarray(array, np.float16).view(np.uint16)


def conv(b, x, scale):
    rng = np.random.default_rng(5)
    weight = (scale * rng.normal(size=(x.shape[1], x.shape[1], 3, 3))).astype(np.float16)
    weight[:2] = MINUS_ZERO
    return b.conv(x=x, weight=weight, pad_type="same")


MAKERS = {
    "input": lambda b, x: x,
    "add": lambda b, x: b.add(x=x, y=x),
    "mul": lambda b, x: b.mul(x=x, y=b.relu(x=x)),
    "negative": lambda b, x: b.mul(x=x, y=np.float16(-1)),
    "maximum": lambda b, x: b.maximum(x=x, y=b.mul(x=x, y=np.float16(-1))),
    "reduce_max": lambda b, x: b.reduce_max(x=x, axes=[3], keep_dims=True),
    "relu": lambda b, x: b.relu(x=x),
    "tanh": lambda b, x: b.tanh(x=x),
    "conv": lambda b, x: conv(b, x, 0.2),
    "small conv": lambda b, x: conv(b, x, 1e-6),
    "conv and relu": lambda b, x: b.relu(x=conv(b, x, 0.2)),
    "conv and factor": lambda b, x: b.mul(x=conv(b, x, 1e-3), y=np.float16(-0.01)),
    "conv and table": lambda b, x: b.tanh(x=conv(b, x, 1e-3)),
    "transposed": lambda b, x: b.transpose(x=b.add(x=x, y=x), perm=[0, 1, 3, 2]),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("chip", ["M1", "M5"])
def test_signs_of_zeros(name, chip):
    """A part of a tensor, twice side by side with zeros around: what makes it decides who may copy it."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 40, 48), "fp16")
    y = MAKERS[name](b, x)
    part = b.slice_by_size(x=y, begin=[0, 1, 3, 0], size=[1, 5, y.shape[2] - 9, y.shape[3]])
    padded = b.pad(x=part, pad=[0, 0, 0, 0, 2, 4, 0, 0], mode="constant", constant_val=-0.0 if name == "add" else 0.0)
    b.output(b.concat(values=(padded, padded), axis=2), part)
    rng = np.random.default_rng(3)
    data = rng.normal(size=x.shape).astype(np.float16)
    data[rng.random(x.shape) < 0.3] = MINUS_ZERO
    data[rng.random(x.shape) < 0.2] = np.float16(-6e-8)
    program = hexane.compile(b.graph, chip)
    made, bits = program.run({"x": data}), program.run({"x": data}, level="graph")
    plain = hexane.compile(b.graph, chip, without=("planar-copies",)).run({"x": data})
    for key, array in bits.items():
        assert np.array_equal(halves(made[key]), halves(array)), key
        assert np.array_equal(halves(plain[key]), halves(array)), key


def copies(program):
    return [plan for s in program.segments for plan in s.plans if plan.note == "a copy by the planar engine"]


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_what_is_known_to_have_no_minus_zero_is_copied_so(chip):
    """On M4 both copies of a map in DRAM take the time of its bytes; in L2 the planar one is faster."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 60, 48), "fp16")
    for y in (b.add(x=x, y=x), b.tanh(x=x)):
        part = b.slice_by_size(x=y, begin=[0, 0, 5, 0], size=[1, 8, 50, 48])
        b.output(b.concat(values=(part, part), axis=1), y)
    program = hexane.compile(b.graph, chip)
    assert {plan.op.split()[0] for plan in copies(program)} == {"concat"} and 1 <= len(copies(program)) <= 2
    plain = hexane.compile(b.graph, chip, without=("planar-copies",))
    assert not copies(plain)
    assert hexane.estimate(program, chip).engine_us < hexane.estimate(plain, chip).engine_us
    assert not copies(hexane.compile(b.graph, chip, dialect="apple"))
    if chip == "M1":
        assert not copies(hexane.compile(b.graph, strict=True))
