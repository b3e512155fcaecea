"""Bytes that programs move, against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder
from hexane.timing.traffic import traffic, traffic_of_tasks

L2_BYTES = 2 << 20


def chain(*, layers):
    """Convolutions of 32 channels over 16x16, 3x3 kernels."""
    builder = GraphBuilder()
    x = builder.input("x", (1, 32, 16, 16), "fp16")
    rng = np.random.default_rng(0)
    for _ in range(layers):
        x = builder.conv(x=x, weight=rng.normal(size=(32, 32, 3, 3)).astype(np.float16), pad_type="same")
    builder.output(x)
    return builder.graph


MAP = 32 * 16 * 16 * 2
WEIGHTS = 32 * 32 * 9 * 2


@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
def test_one_convolution_moves_what_it_must(chip):
    found = traffic(hexane.compile(chain(layers=1), chip, dialect="apple"))
    assert (found.read, found.written) == (MAP, MAP)
    if chip == "M1":
        assert WEIGHTS <= found.kernel <= WEIGHTS + 16 * 64
        assert found.moved == pytest.approx(found.compulsory, rel=0.05)
    assert 0 < found.l2_end <= L2_BYTES


def test_what_a_chain_leaves_on_the_chip_is_not_counted():
    program = hexane.compile(chain(layers=3), dialect="apple")
    tasks = traffic_of_tasks(program.images[0].tasks)
    assert tasks[0].read == tasks[-1].written == MAP
    through_memory = sum(task.read + task.written for task in tasks)
    assert traffic(program).read + traffic(program).written == through_memory
    assert 2 * MAP <= through_memory <= 6 * MAP


def test_a_broadcast_operand_is_read_once():
    builder = GraphBuilder()
    x = builder.input("x", (1, 64, 8, 8), "fp16")
    y = builder.input("y", (1, 64, 1, 1), "fp16")
    builder.output(builder.mul(x=x, y=y))
    found = traffic(hexane.compile(builder.graph, dialect="apple"))
    assert (found.read, found.written, found.kernel) == (64 * 64 * 2 + 64 * 2, 64 * 64 * 2, 0)
