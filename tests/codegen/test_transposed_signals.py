"""Transposed convolutions over one axis are on the engine, as over two; the truth is float32 (and torch)."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder


def network(stride: int, taps: int, groups: int, dilation: int, pad: tuple[int, int], channels: int = 16):
    rng = np.random.default_rng(stride + taps)
    b = GraphBuilder()
    x = b.input("x", (1, channels, 40), "fp32")
    weight = (rng.standard_normal((channels, 8 // groups, taps)) * 0.2).astype(np.float32)
    b.output(b.conv_transpose(
        x=x, weight=weight, bias=rng.standard_normal(8).astype(np.float32), strides=[stride], dilations=[dilation],
        pad_type="custom", pad=list(pad), groups=groups, name="y",
    ))  # fmt: skip
    return b.graph, rng.standard_normal((1, channels, 40)).astype(np.float32)


CASES = [(2, 4, 1, 1, (1, 1)), (1, 3, 1, 1, (1, 1)), (2, 3, 1, 1, (0, 1)), (4, 8, 1, 1, (2, 2)), (8, 16, 1, 1, (4, 4)),
         (2, 4, 2, 1, (1, 1)), (2, 3, 1, 2, (0, 0)), (3, 7, 1, 1, (2, 2)), (5, 3, 1, 1, (0, 0))]  # fmt: skip


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("case", CASES)
def test_it_is_on_the_engine_and_right(case: tuple, chip: str) -> None:
    graph, x = network(*case)
    program = hexane.compile(graph, chip=chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    (tasks,), (bits,) = program.run({"x": x}).values(), program.run({"x": x}, level="graph").values()
    exact = graph.evaluate({"x": x})["y"]
    assert np.array_equal(tasks, bits) and tasks.shape == exact.shape
    assert np.linalg.norm(tasks - exact) < 3e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize("case", CASES)
def test_the_reference_is_torchs(case: tuple) -> None:
    torch = pytest.importorskip("torch")
    (stride, _, groups, dilation, pad), (graph, x) = case, network(*case)
    (op,) = graph.main.ops
    operands = [torch.from_numpy(np.array(a)) for a in (x, op.inputs["weight"].data, op.inputs["bias"].data)]
    full = torch.nn.functional.conv_transpose1d(*operands, stride=stride, groups=groups, dilation=dilation).numpy()
    right = full[..., pad[0] : full.shape[-1] - pad[1]]
    assert np.allclose(graph.evaluate({"x": x})["y"], right, atol=1e-5)
