"""Pools in one task: the bits of graph level and of the composition, fewer tasks."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.chips import Evidence
from hexane.graph import GraphBuilder

from .levels import agreed


def pool(seed):
    rng = np.random.default_rng(seed)
    k = [int(n) for n in rng.integers((1, 2), 5)]
    shape = (int(rng.integers(1, 3)), int(rng.integers(1, 40)), *(int(rng.integers(n, 24)) for n in k))
    b = GraphBuilder()
    x = b.input("x", shape, "fp16")
    strides = [int(n) for n in rng.integers(1, 3, 2)]
    kind = ["valid", "same", "custom"][seed % 3]
    pad = [int(rng.integers(0, n)) for n in k for _ in range(2)]
    ceil = bool(rng.integers(2)) and kind == "custom" and max(strides) > 1
    b.output(b.max_pool(x=x, kernel_sizes=k, strides=strides, pad_type=kind, pad=pad, ceil_mode=ceil))
    x = rng.normal(size=shape).astype(np.float16)
    odd = x.reshape(-1)[:: max(1, x.size // 5)]
    odd[:] = np.resize([np.nan, np.inf, -np.inf, -0.0, 2.0], odd.size)
    return b.graph, {"x": x}


@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
@pytest.mark.parametrize("seed", range(12))
def test_a_pool_is_one_task(seed, chip):
    graph, inputs = pool(seed)
    program, plain = hexane.compile(graph, chip), hexane.compile(graph, chip, without="native-pools")
    (name,) = (v.name for v in graph.main.outputs)
    wanted = program.run(inputs, level="graph")[name]
    assert np.array_equal(program.run(inputs)[name].view(np.uint16), wanted.view(np.uint16))
    assert np.array_equal(plain.run(inputs)[name].view(np.uint16), wanted.view(np.uint16))
    assert [len(image.tasks) for image in program.images] == [1]
    assert {plan.evidence for plan in program.segments[0].plans} == {Evidence.INFERRED}


def test_what_one_task_cannot_do_is_composed():
    for k, step in ((9, 1), (3, 3)):
        b = GraphBuilder()
        x = b.input("x", (1, 4, 20, 20), "fp16")
        b.output(b.max_pool(x=x, kernel_sizes=[k, k], strides=[step, step], pad_type="valid"))
        inputs = {"x": np.random.default_rng(k).normal(size=(1, 4, 20, 20)).astype(np.float16)}
        program = hexane.compile(b.graph)
        assert len(program.images[0].tasks) > 1
        agreed(program, inputs)


def test_strict_composes():
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8), "fp16")
    b.output(b.max_pool(x=x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid"))
    assert len(hexane.compile(b.graph, strict=True).images[0].tasks) > 1


@pytest.mark.parametrize("kind", ["avg_pool", "l2_pool"])
def test_windows_that_are_no_kernel_stay_pools_on_the_host(kind: str) -> None:
    """As a convolution of ones the host would multiply 40,000 times for every element."""
    b = GraphBuilder()
    x = b.input("x", (1, 2, 220, 210), "fp16")
    sizes = {"kernel_sizes": (200, 200), "strides": (1, 1), "pad_type": "custom", "pad": [100] * 4}
    b.output(getattr(b, kind)(x=x, **sizes, name="out"))
    program = hexane.compile(b.graph, chip="M1")
    assert program.stats()["host_ops"] == {kind: 1}
    (reason,) = program.stats()["host_reasons"].values()
    assert "window" in reason


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("pad, place", [((1, 1), "engine"), ((2, 0), "host"), ((0, 2), "host")])
def test_a_maximum_of_no_element_is_the_hosts(chip, pad, place):
    """A window that lies in the padding altogether gives -inf; one that touches the map is the engine's."""
    b = GraphBuilder()
    x = b.input("x", (1, 3, 6, 5), "fp16")
    b.output(b.max_pool(x=x, kernel_sizes=[2, 3], strides=[2, 1], pad_type="custom", pad=[*pad, 1, 1], name="y"))
    inputs = {"x": -1 - np.arange(90, dtype=np.float16).reshape(1, 3, 6, 5)}
    program = hexane.compile(b.graph, chip)
    assert [segment.kind for segment in program.segments] == [place]
    wide = np.pad(inputs["x"], ((0, 0), (0, 0), pad, (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (2, 3), (2, 3))[:, :, ::2]
    np.testing.assert_array_equal(program.run(inputs)["y"], windows.max((4, 5)))
