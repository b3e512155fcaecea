"""Rows of docs/training.md on published shapes, of a shape that compiles in a moment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("examples", "tools"):
        monkeypatch.syspath_prepend(str(ROOT / folder))


@pytest.mark.parametrize("activation", ["silu", "relu2"])
@pytest.mark.parametrize("way", ["inputs", "patch"])
def test_every_product_of_a_step_is_on_the_engine(way: str, activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from llama import Shape

    import training_shapes

    shape = Shape(2, 64, 4, 2, 96, 80, 32, activation=activation, piece=64)
    monkeypatch.setitem(training_shapes.SHAPES, "small", shape)
    monkeypatch.setitem(training_shapes.PUBLISHED, ("small", "M4", way), (2.0, 4.0))
    step = training_shapes.step_of("small", "M4", way)
    assert step.macs_on_engine == 1 and step.tasks > 100
    a = shape
    layer = a.width * (2 * a.width + 2 * a.kv_heads * a.head_dim + (3 if activation == "silu" else 2) * a.inner)
    attention = 2 * a.tokens * a.width  # scores and values, every pair of positions
    forward = a.tokens * (a.layers * (layer + attention) + a.words * a.width)
    assert step.macs == pytest.approx(2 * forward, rel=0.03)  # the backward pass without products for weights
    total = sum(e.latency_us for e in step.passes) / 1e3
    assert step.cells[-2:] == ("2 to 4", f"{total / 4:.2f} to {total / 2:.2f}")
    page = "<!-- shapes: small -->\n| M1 | inputs | 1 |\n| M4 | inputs | 2 |\n| M4 | constants | 3 |\n<!-- end -->\n"
    written = training_shapes.with_line(page, "small", step)
    assert step.line in written and written.count("\n| M") == 3 and "| M1 | inputs | 1 |" in written
    assert training_shapes.with_line(written, "small", step) == written
    assert str(ROOT / "tools") in sys.path
