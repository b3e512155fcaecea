"""``hexane.coreml.MLModel`` with torch: its tensors as inputs, its networks converted by coremltools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError

torch = pytest.importorskip("torch")
ct = pytest.importorskip("coremltools")
from PIL import Image  # noqa: E402

from integrations.test_coreml import UNITS, linear, saved  # noqa: E402


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(17)


def test_lists_tensors_and_numbers(tmp_path: Path, rng: np.random.Generator) -> None:
    weight = rng.standard_normal((3, 4)).astype(np.float32)
    model = hexane.coreml.MLModel(
        saved(linear("x", weight, "y", "mlprogram"), tmp_path), compute_units=ct.ComputeUnit.CPU_AND_NE
    )
    x = [0.5, -1, 2, 0.25]
    for given in (x, np.array(x), np.array(x, np.float16), torch.tensor(x)):
        found = model.predict({"x": given})["y"]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, weight @ np.array(x, np.float32), atol=5e-3)
    both = model.predict([{"x": x}, {"x": np.zeros(4)}])
    np.testing.assert_allclose(both[1]["y"], 0)
    assert model.get_spec().description.input[0].name == "x" and model.check().fits
    with pytest.raises(UsageError, match="has no states"):
        model.make_state()
    with pytest.raises(UsageError, match="keeps no states"):
        model.predict({"x": x}, state=hexane.coreml.MLState({}))


@pytest.mark.parametrize("to", ["mlprogram", "neuralnetwork"])
@pytest.mark.parametrize("units", UNITS)
def test_a_classifier_of_pictures(to: str, units: str, tmp_path: Path, rng: np.random.Generator) -> None:
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(4, 3), torch.nn.Softmax(-1),
    ).eval()  # fmt: skip
    image = ct.ImageType(name="image", shape=(1, 3, 8, 8), scale=1 / 127.5, bias=[-1, -0.5, -1])
    converted = ct.convert(
        torch.jit.trace(net, torch.rand(1, 3, 8, 8)), inputs=[image], convert_to=to, skip_model_load=True,
        classifier_config=ct.ClassifierConfig(["cat", "dog", "owl"]),
    )  # fmt: skip
    model = hexane.coreml.MLModel(saved(converted, tmp_path), compute_units=units)
    pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    found = model.predict({"image": Image.fromarray(pixels)})
    scaled = pixels.astype(np.float32) / 127.5 + np.array([-1, -0.5, -1], np.float32)
    wanted = net(torch.from_numpy(scaled.transpose(2, 0, 1)[None])).detach().numpy()[0]
    (probabilities,) = (value for name, value in found.items() if name != "classLabel")
    assert found["classLabel"] == ["cat", "dog", "owl"][int(wanted.argmax())]
    assert list(probabilities) == ["cat", "dog", "owl"]
    np.testing.assert_allclose(list(probabilities.values()), wanted, atol=4e-3)
    with pytest.raises(UsageError, match="mode 'RGB', not 'L'"):
        model.predict({"image": Image.new("L", (8, 8))})
    with pytest.raises(UsageError, match="shape"):
        model.predict({"image": Image.new("RGB", (9, 8))})
    with pytest.raises(UsageError, match="is a picture"):
        model.predict({"image": pixels})


def test_pictures_come_back(tmp_path: Path, rng: np.random.Generator) -> None:
    class Inverted(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return 255 - x

    converted = ct.convert(
        torch.jit.trace(Inverted(), torch.rand(1, 3, 4, 6)),
        skip_model_load=True,
        minimum_deployment_target=ct.target.iOS16,
        inputs=[ct.ImageType(name="x", shape=(1, 3, 4, 6))],
        outputs=[ct.ImageType(name="y", color_layout=ct.colorlayout.BGR)],
    )
    pixels = rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    found = hexane.coreml.MLModel(saved(converted, tmp_path)).predict({"x": Image.fromarray(pixels)})["y"]
    assert found.size == (6, 4)
    np.testing.assert_array_equal(np.asarray(found), (255 - pixels)[..., ::-1])
