"""Core ML's placement: costs by hand, and the best of all choices of places for small programs."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from hexane import chips
from hexane.graph import GraphBuilder, Op
from hexane.timing.placement import CPU, ENGINE, LAUNCH_US, OUTPUT_US, SWITCH_US, op_cost, place

M1, M4 = chips.get("M1"), chips.get("M4")
MAP, PAIR = (1, 64, 16, 16), (2, 64, 16, 16)


def one(build, *shapes, dtype="fp16") -> Op:
    b = GraphBuilder()
    result = build(b, *(b.input(f"x{i}", shape, dtype) for i, shape in enumerate(shapes)))
    b.output(result)
    return result.op


def weight(*shape):
    return np.ones(shape, np.float16)


FLOPS = {  # operations, elements that move
    "conv": (one(lambda b, x: b.conv(x=x, weight=weight(32, 64, 3, 3), pad_type="valid"), MAP),
             2 * 14 * 14 * 32 * 64 * 9, 64 * 256 + 32 * 64 * 9 + 32 * 14 * 14),
    "grouped conv": (one(lambda b, x: b.conv(x=x, weight=weight(32, 32, 3, 3), groups=2, pad_type="valid"), MAP),
                     2 * 14 * 14 * 32 * 32 * 9, 64 * 256 + 32 * 32 * 9 + 32 * 14 * 14),
    "conv_transpose": (one(lambda b, x: b.conv_transpose(x=x, weight=weight(64, 32, 2, 2), strides=[2, 2]), PAIR),
                       2 * 2 * 256 * 64 * 32 * 4, 2 * 64 * 256 + 64 * 32 * 4 + 2 * 32 * 32 * 32),
    "linear": (one(lambda b, x: b.linear(x=x, weight=weight(80, 128)), (96, 128)),
               2 * 96 * 80 * 128, 96 * 128 + 80 * 128 + 96 * 80),
    "matmul": (one(lambda b, x, y: b.matmul(x=x, y=y), (2, 48, 112), (2, 112, 80)),
               2 * 2 * 48 * 112 * 80, 2 * (48 * 112 + 112 * 80 + 48 * 80)),
    "turned matmul": (one(lambda b, x, y: b.matmul(x=x, y=y, transpose_x=True), (2, 112, 48), (2, 112, 80)),
                      2 * 2 * 48 * 112 * 80, 2 * (48 * 112 + 112 * 80 + 48 * 80)),
    "softmax": (one(lambda b, x: b.softmax(x=x, axis=-1), (4, 9)), 36, 36 + 36),
}  # fmt: skip


def moved(op: Op, elements: int) -> int:
    """Elements that move, with what parameters of a length add."""
    lists = [v for v in op.operands() if v.is_constant and len(v.shape) == 1]
    return elements + sum(v.shape[0] for v in lists)


@pytest.mark.parametrize("name", FLOPS)
@pytest.mark.parametrize("chip", [M1, M4], ids=["M1", "M4"])
def test_costs_are_arithmetic_or_bytes_whichever_is_longer(name, chip) -> None:
    """Two bytes an element, at 68 and 56.67 GiB/s; GFLOP/s as the segmenter assumes them of the generation.

    Products take the CPU longer than their bytes, so that both are held.
    """
    op, flop, elements = FLOPS[name]
    rates = (12e3, 729.0) if chip is M1 else (19.4e3, 754.5)
    traffic = 2 * moved(op, elements) / (1024**3 / 1e6)
    expected = [max(flop / rate / 1e3, traffic / speed) for rate, speed in zip(rates, (68.0, 56.67))]
    assert (flop / rates[1] / 1e3 > traffic / 56.67) == (name != "softmax")
    assert op_cost(op, chip, able=True) == tuple(map(pytest.approx, expected))
    assert op_cost(op, chip, able=False) == (None, pytest.approx(expected[1]))


def test_moves_and_elementwise_ops() -> None:
    """Element-wise ops move bytes at 100 GB/s anywhere, views cost nothing."""
    add = one(lambda b, x, y: b.add(x=x, y=y), MAP, MAP)
    assert op_cost(add, M4, able=True) == (pytest.approx(3 * 2 * 16384 / 100e3),) * 2
    view = one(lambda b, x: b.reshape(x=x, shape=[1, 64, 256]), MAP)
    assert op_cost(view, M4, able=True) == (0.0, 0.0) and op_cost(view, M4, able=False) == (None, 0.0)


def branchy(widths, alone=()):
    """A chain of convolutions of these widths, with an op that no engine has behind some of them."""
    b = GraphBuilder()
    x = b.input("x", (1, widths[0], 64, 64), "fp16")
    for number, (before, after) in enumerate(pairwise(widths)):
        x = b.conv(x=x, weight=weight(after, before, 3, 3), pad_type="same", name=f"c{number}")
        if number in alone:
            x = b.cast(x=b.cumsum(x=b.cast(x=x, dtype="fp32"), axis=1), dtype="fp16")
    b.output(x)
    return b.graph


@pytest.mark.parametrize(
    ("widths", "alone"),
    [((64, 64), ()), ((256, 512), ()), ((256, 512, 16, 16), ()), ((16, 16, 512, 512, 16, 16), ()),
     ((512, 512, 512), (0,)), ((512, 512, 16, 512), (1,))],
)  # fmt: skip
def test_the_choice_is_the_best_of_all(widths, alone) -> None:
    placement = place(branchy(widths, alone), "M4")
    costs = [(op.cpu_us, op.engine_us) for op in placement.ops]

    def total(places) -> float:
        us, here = 0.0, CPU
        for number, (there, (cpu, engine)) in enumerate(zip(places, costs)):
            if there == ENGINE and engine is None:
                return float("inf")
            if there != here:
                us += (LAUNCH_US if there == ENGINE else 0.0) + (SWITCH_US if number else 0.0)
            us, here = us + (engine if there == ENGINE else cpu), there
        return us + (OUTPUT_US if here == ENGINE else 0.0)

    best = min(map(total, product((CPU, ENGINE), repeat=len(costs))))
    assert placement.total_us == pytest.approx(best)
    assert total([op.place for op in placement.ops]) == pytest.approx(best)
    assert placement.cpu_only_us == pytest.approx(total([CPU] * len(costs)))
    assert placement.engine_ops == sum(op.place == ENGINE for op in placement.ops)
