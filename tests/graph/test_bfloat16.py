"""bfloat16 in the reference: rounded where a value is declared so, sums in float32 and rounded once."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.bits import in_bf16
from hexane.graph import GraphBuilder

ml_dtypes = pytest.importorskip("ml_dtypes")

X = np.random.default_rng(0).standard_normal((4, 300)).astype(np.float32)


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_the_rounding_is_that_of_ml_dtypes():
    words = np.random.default_rng(1).integers(0, 1 << 32, 100_000, dtype=np.uint64).astype(np.uint32)
    ties = np.arange(0, 1 << 16, 3, dtype=np.uint32) << 16 | 0x8000
    numbers = np.concatenate([words, ties, np.array([0, 1 << 31, 0x7F7FFFFF, 0x7F800000], np.uint32)]).view(np.float32)
    np.testing.assert_array_equal(in_bf16(numbers), rounded(numbers))


@pytest.mark.parametrize(
    ("op", "sum_of"),
    [
        ("reduce_sum", lambda x: x.sum(1)),
        ("reduce_mean", lambda x: x.mean(1)),
        ("reduce_sum_square", lambda x: np.square(x).sum(1)),
        ("reduce_l2_norm", lambda x: np.sqrt(np.square(x).sum(1))),
    ],
)
def test_a_sum_is_one_of_float32_rounded_once(op, sum_of):
    """In every form of the same question: the reference, values in their types, the program's two levels."""
    b = GraphBuilder()
    b.output(b.op(op, x=b.input("x", (4, 300), "bf16"), axes=(1,)), name="y")
    program, given = hexane.compile(b.graph, "M1"), {"x": X}
    answers = [b.graph.evaluate(given), b.graph.evaluate(given, typed=True)]
    for answer in (*answers, program.run(given), program.run(given, level="graph")):
        np.testing.assert_array_equal(answer["y"], rounded(sum_of(rounded(X))))
        np.testing.assert_array_equal(answer["y"], rounded(answer["y"]))
        np.testing.assert_array_equal(answer["y"], answers[0]["y"])


def test_values_between_round_where_their_types_are_asked_for_and_in_casts():
    b = GraphBuilder()
    x = b.input("x", (4, 300), "bf16")
    b.output(b.sub(x=b.add(x=x, y=b.const(np.float32(100.3), "bf16")), y=b.const(np.float32(100.3), "bf16")), name="y")
    (constant,) = rounded(np.array([100.3], np.float32))
    between = rounded(X) + constant
    np.testing.assert_array_equal(b.graph.evaluate({"x": X})["y"], rounded(between - constant))
    np.testing.assert_array_equal(b.graph.evaluate({"x": X}, typed=True)["y"], rounded(rounded(between) - constant))
    b = GraphBuilder()
    b.output(b.cast(x=b.cast(x=b.input("x", (4, 300), "fp32"), dtype="bf16"), dtype="fp32"), name="y")
    np.testing.assert_array_equal(b.graph.evaluate({"x": X})["y"], rounded(X))
