"""Whole networks: placed on the engine, the same bits from tasks and from the graph's own arithmetic, near float32."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from formats.zoo import ZOO, fetched, light_model

from .levels import agreed

pytest.importorskip("onnx")

FAST = ("squeezenet",)
SATURATED = ("shufflenet",)
"""Its random weights grow beyond fp16: the bits agree, float32 is elsewhere."""

REAL = {
    "detector": ("rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}),
    "classifier": ("rapidocr-onnxruntime/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    "basic-pitch": ("basic-pitch/nmp.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
}


def check(graph, *, near=True):
    rng = np.random.default_rng(0)
    inputs = {v.name: (0.5 * rng.standard_normal(v.shape)).astype(np.float32) for v in graph.main.inputs}
    program = hexane.compile(graph)
    stats = program.stats()
    assert stats["macs_on_engine"] >= 0.99
    tasks, wanted = agreed(program, inputs), graph.evaluate(inputs)
    for name, array in tasks.items():
        assert array.shape == wanted[name].shape and array.dtype == wanted[name].dtype
    if near:
        a, b = (np.concatenate([d[k].astype(float).ravel() for k in wanted]) for d in (wanted, tasks))
        assert a @ b >= 0.98 * np.sqrt((a @ a) * (b @ b))
    return program, inputs


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in ZOO])
def test_zoo(name):
    from hexane.formats import onnx

    program, _ = check(onnx.load(light_model(name)), near=name not in SATURATED)
    assert [segment.kind for segment in program.segments] == ["engine"]


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_networks(name):
    path, shapes = REAL[name]
    # the detector sees nothing in noise: all its results are near zero
    check(hexane.load(fetched(path), shapes=shapes), near=name != "detector")


def test_the_same_bytes_every_time():
    from hexane.formats import onnx

    model = light_model("squeezenet")
    first, second = (hexane.compile(onnx.load(model)) for _ in range(2))
    assert [image.to_bytes() for image in first.images] == [image.to_bytes() for image in second.images]
