"""Whole networks against onnxruntime: the light zoo with random weights, and real ones that `make models` fetches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.zoo import ZOO, fetched, light_model

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def compare(model: Any, graph: Any, given: dict | None = None) -> None:
    """Outputs of the graph and of onnxruntime on the same input (random by default), relative to the largest."""
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    inputs = given or {
        name: rng.standard_normal(type_.shape).astype(np.float32) for name, type_ in graph.inputs.items()
    }
    wanted = dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs)))
    made = graph.evaluate(inputs)
    assert list(made) == list(wanted)
    for name, array in wanted.items():
        assert made[name].shape == array.shape and made[name].dtype == array.dtype
        assert np.ptp(array) > 0
        np.testing.assert_allclose(made[name], array, rtol=1e-4, atol=5e-5 * np.abs(array).max())


FAST = ("squeezenet", "shufflenet")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in ZOO])
def test_light_zoo(name: str) -> None:
    from hexane.formats.onnx import load

    model = light_model(name)
    graph = load(model)
    assert not any("." in op.type for op in graph.ops)
    compare(model, graph)


@pytest.mark.parametrize(
    ("file", "shapes"),
    [
        ("rapidocr-onnxruntime/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
        ("basic-pitch/nmp.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
    ],
)
def test_real_networks(file: str, shapes: dict) -> None:
    import hexane

    path = fetched(file)
    graph = hexane.load(path, shapes=shapes)
    assert not any("." in op.type for op in graph.ops)
    compare(path, graph)


def page() -> np.ndarray:
    """A picture of four lines of text as the detector takes it: [1, 3, 320, 320], -1 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (320, 320), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(28)
    for row, text in enumerate(["hexane runs", "neural engine", "task 0x1f", "END"]):
        draw.text((20, 30 + 70 * row), text, fill="black", font=font)
    return ((np.asarray(image, np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None]


def test_text_is_found_where_onnxruntime_finds_it() -> None:
    import hexane

    path = fetched("rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx")
    graph = hexane.load(path, shapes={"x": (1, 3, 320, 320)})
    assert not any("." in op.type for op in graph.ops)
    compare(path, graph, {"x": page()})
    (found,) = graph.evaluate({"x": page()}).values()
    assert 0.02 < (found > 0.3).mean() < 0.2


def test_an_open_batch_is_one_unless_it_is_bound() -> None:
    import hexane

    path = fetched("basic-pitch/nmp.onnx")
    for shapes, batch in ((None, 1), ({"unk__749": 1}, 1), ({"unk__749": 2}, 2)):
        graph = hexane.load(path, shapes=shapes)
        assert graph.inputs["serving_default_input_2:0"].shape == (batch, 43844, 1)


def test_import_loads_no_framework_but_onnx() -> None:
    import subprocess

    code = (
        "import sys, hexane; from hexane.formats.onnx import load\n"
        "assert not any(m in sys.modules for m in ('onnx', 'onnxruntime', 'torch', 'coremltools'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": "src"}, cwd=Path(__file__).parents[2])
