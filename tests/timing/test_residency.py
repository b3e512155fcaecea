"""What stays in L2 has no price in traffic: read from the registers alone."""

from __future__ import annotations

import numpy as np

import hexane
from hexane.graph import GraphBuilder


def in_place(c: int = 96, size: int = 90):
    """Element by element work on maps of which L2 holds one, written over itself."""
    builder = GraphBuilder()
    value = builder.input("x", (1, 8, size, size), "fp16")
    weight = np.ones((c, 8, 1, 1), np.float16)
    value = builder.abs(x=builder.conv(x=value, weight=weight))
    builder.output(builder.reduce_mean(x=value, axes=[2, 3], keep_dims=True, name="y"))
    return builder.graph


def test_operands_in_l2_are_not_traffic():
    program = hexane.compile(in_place(), without=("bands",))
    plans, tasks = program.segments[0].plans, program.estimate().tasks
    assert len(plans) == len(tasks) == 3
    middle = tasks[1]
    assert plans[1].source.dma is None and plans[1].result.dma is None
    assert middle.dma_bytes == middle.activations_us == 0


def test_an_operand_of_two_in_l2_counts_for_one():
    builder = GraphBuilder()
    x, z = (builder.input(name, (1, 32, 28, 28), "fp16") for name in "xz")
    y = builder.conv(x=x, weight=np.ones((32, 32, 1, 1), np.float16))
    builder.output(builder.add(x=y, y=z, name="y"))
    program = hexane.compile(builder.graph)
    plan, task = program.segments[0].plans[-1], program.estimate().tasks[-1]
    assert (plan.source.dma is None) != (plan.second.dma is None)
    assert task.dma_bytes == 2 * (2 * 32 * 28 * 28)  # one operand and the result
