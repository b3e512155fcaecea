"""Marks of evidence: what Apple's compiler was seen to write, and what ``strict`` refuses."""

from __future__ import annotations

import pytest

import hexane
from hexane.errors import Reason, UnsupportedError
from hexane.graph import GraphBuilder


def comparison(op: str):
    b = GraphBuilder()
    x, y = b.input("x", (1, 16, 8, 8), "fp16"), b.input("y", (1, 16, 8, 8), "fp16")
    b.output(b.op(op, x=x, y=y), name="z")
    return b.graph


def test_less_of_two_tensors_is_apples() -> None:
    (segment,) = hexane.compile(comparison("less"), strict=True).segments
    assert set(segment.evidence.values()) == {"APPLE"}


@pytest.mark.parametrize("op", ["less_equal", "greater", "greater_equal", "equal", "not_equal"])
def test_other_comparisons_are_inferred_and_strict_refuses_them(op: str) -> None:
    (segment,) = hexane.compile(comparison(op)).segments
    assert segment.kind == "engine" and set(segment.evidence.values()) == {"INFERRED"}
    with pytest.raises(UnsupportedError) as caught:
        hexane.compile(comparison(op), strict=True)
    assert caught.value.code == Reason.EVIDENCE and "INFERRED" in (caught.value.hint or "")
