"""The roofline shows what the estimate says: two operations for a multiply-accumulate, times as they are."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane import timing
from hexane.graph import Graph, GraphBuilder
from hexane.report import roofline


def convolutions() -> Graph:
    b = GraphBuilder()
    y = b.input("x", (1, 64, 56, 56), "fp16")
    for size in (3, 1):
        y = b.conv(x=y, weight=np.ones((64, 64, size, size), np.float16) / 64, pad_type="same")
    b.output(y)
    return b.graph


def test_dots_and_roof(tmp_path, monkeypatch) -> None:
    figures = []
    plain = roofline.new_figure
    monkeypatch.setattr(roofline, "new_figure", lambda *size: figures.append(plain(*size)) or figures[-1])
    roofline.save_roofline(convolutions(), "M1", tmp_path)
    axes = figures[0].axes[0]
    roof = max(axes.lines[0].get_ydata())
    chip = hexane.chips.get("M1")
    assert roof == pytest.approx(2 * 16 * 256 * chip.clock_mhz / 1e3)  # 16 cores of 256 multipliers
    dots = np.concatenate([row.get_offsets() for row in axes.collections])
    layers = [op for op in timing.estimate(convolutions(), chip).ops if op.macs and op.us]
    assert len(dots) == len(layers)
    np.testing.assert_allclose(np.sort(dots[:, 1]), sorted(2 * op.macs / op.us / 1e3 for op in layers))
    np.testing.assert_allclose(np.sort(dots[:, 0]), sorted(2 * op.macs / op.dma_bytes for op in layers))
