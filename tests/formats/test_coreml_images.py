"""Core ML classifiers and image inputs: label and probabilities as torch has them, pixels as coremltools documents.

The truth is written here from the documentation: a picture of Pillow's mode RGB (L, F) gives pixels 0 to 255; the
colour layout says which channel comes first; ``y = scale * pixel + bias`` per channel of that layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.program import input_ports
from hexane.session.inputs import gather
from report.networks import command

torch = pytest.importorskip("torch")
ct = pytest.importorskip("coremltools")
Image = pytest.importorskip("PIL.Image")

HEIGHT, WIDTH = 12, 18
SCALE = 1 / 127.5
LABELS = ["cat", "dog", "owl", "elk"]
KINDS = [("mlprogram", ".mlpackage"), ("neuralnetwork", ".mlmodel")]


class Classifier(torch.nn.Module):
    """Sees every channel by itself, so that a swap of two channels changes the answer."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, 8, 3, stride=2)
        self.last = torch.nn.Linear(8, len(LABELS))

    def forward(self, x: Any) -> Any:
        return torch.softmax(4 * self.last(torch.relu(self.conv(x)).mean((2, 3))), -1)


class Same(torch.nn.Module):
    """Gives back what it gets, behind an op that leaves it as it is."""

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.avg_pool2d(x, 1) * 1.0 + 0.0


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(5)
    pixels = rng.integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)
    pixels[..., 0] //= 4  # little red, so that RGB and BGR are far apart
    path = tmp_path_factory.mktemp("photo") / "photo.png"
    Image.fromarray(pixels, "RGB").save(path)
    return path


def documented(path: Path, layout: str, scale: float, bias: Any) -> np.ndarray:
    """What the network behind the preprocessing sees, by coremltools' documentation."""
    with Image.open(path) as file:
        if layout == "GRAYSCALE":
            pixels = np.asarray(file.convert("L"), np.float32)[None]
        elif layout == "GRAYSCALE_FLOAT16":
            pixels = np.asarray(file.convert("F"), np.float32)[None]
        else:
            pixels = np.asarray(file.convert("RGB"), np.float32).transpose(2, 0, 1)
            pixels = pixels[::-1] if layout == "BGR" else pixels
    return (scale * pixels + np.asarray(bias, np.float32).reshape(-1, 1, 1))[None]


def _model(module: Any, layout: str, bias: Any, kind: tuple[str, str], folder: Path, **more: Any) -> Path:
    channels = 3 if layout in ("RGB", "BGR") else 1
    traced = torch.jit.trace(module.eval(), torch.rand(1, channels, HEIGHT, WIDTH))
    options: dict[str, Any] = {"convert_to": kind[0], "skip_model_load": True}
    if kind[0] == "mlprogram":
        options["minimum_deployment_target"] = ct.target.iOS16
    image = ct.ImageType(
        name="image", shape=(1, channels, HEIGHT, WIDTH), scale=SCALE, bias=bias,
        color_layout=getattr(ct.colorlayout, layout),
    )  # fmt: skip
    model = ct.convert(traced, inputs=[image], **more, **options)
    path = folder / f"model{kind[1]}"
    model.save(str(path))
    return path


LAYOUTS = [("RGB", [-1.0, -0.5, 0.25]), ("BGR", [-1.0, -0.5, 0.25]), ("GRAYSCALE", -0.75)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize(("layout", "bias"), LAYOUTS)
def test_the_preprocessing_is_the_documented_one(
    layout: str, bias: Any, kind: tuple[str, str], photo: Path, tmp_path: Path
) -> None:
    graph = hexane.load(_model(Same(), layout, bias, kind, tmp_path))
    given = gather(input_ports(graph), [f"image={photo}"])
    assert layout in given.notes[0] and "0 to 255" in given.notes[0]
    wanted = documented(photo, layout, SCALE, bias)
    (reference,) = graph.evaluate(given.arrays).values()
    np.testing.assert_allclose(reference.reshape(wanted.shape), wanted, atol=2e-3)
    (engine,) = hexane.compile(graph).run(given.arrays).values()
    np.testing.assert_allclose(engine.reshape(wanted.shape).astype(np.float32), wanted, atol=4e-3)


def test_grey_in_half_floats(photo: Path, tmp_path: Path) -> None:
    graph = hexane.load(_model(Same(), "GRAYSCALE_FLOAT16", -0.75, KINDS[0], tmp_path))
    given = gather(input_ports(graph), [f"image={photo}"])
    wanted = documented(photo, "GRAYSCALE_FLOAT16", SCALE, -0.75)
    (engine,) = hexane.compile(graph).run(given.arrays).values()
    np.testing.assert_allclose(engine.reshape(wanted.shape).astype(np.float32), wanted, atol=4e-3)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("layout", ["RGB", "BGR"])
def test_a_classifier_gives_label_and_probabilities(
    layout: str, kind: tuple[str, str], photo: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    module = Classifier(3).eval()
    bias = [-1.0, -0.5, 0.25]
    path = _model(module, layout, bias, kind, tmp_path, classifier_config=ct.ClassifierConfig(LABELS))
    with torch.no_grad():
        wanted = module(torch.from_numpy(documented(photo, layout, SCALE, bias).copy())).numpy().reshape(-1)
        swapped = module(torch.from_numpy(documented(photo, layout, SCALE, bias)[:, ::-1].copy())).numpy().reshape(-1)
    assert np.abs(wanted - swapped).max() > 0.02, "the test could not tell RGB from BGR"
    graph = hexane.load(path)
    label, probabilities = graph.outputs
    assert label == "classLabel" and graph.metadata["classes"] == LABELS
    given = gather(input_ports(graph), [f"image={photo}"]).arrays
    program = hexane.compile(graph)
    program.save(tmp_path / "p.hexane")
    for run in (graph.evaluate, program.run, hexane.load_program(tmp_path / "p.hexane").run):
        found = run(given)
        assert str(found[label]) == LABELS[int(np.argmax(wanted))]
        np.testing.assert_allclose(found[probabilities].reshape(-1), wanted, atol=5e-3)
    printed = command("run", path, "--input", photo, "--json")
    assert printed["verdict"] in ("same", "close")
    answers = {row["name"]: row["answer"] for row in printed["agreement"]}
    assert answers[label] == {"kind": "value", "decisions": 1, "changed": 0}
    assert answers[probabilities]["kind"] == "top-1"


def test_whole_numbers_as_labels(tmp_path: Path) -> None:
    config = ct.ClassifierConfig([7, 70, 700, 7000])
    for kind in KINDS:
        graph = hexane.load(_model(Classifier(3), "RGB", [0, 0, 0], kind, tmp_path, classifier_config=config))
        found = hexane.compile(graph).run({"image": np.full((1, 3, HEIGHT, WIDTH), 99, np.float32)})
        label, probabilities = found.values()
        assert int(label) == [7, 70, 700, 7000][int(np.argmax(probabilities))]


def test_a_compiled_program_takes_the_same_picture(photo: Path, tmp_path: Path) -> None:
    path = _model(Same(), "BGR", [0.0, 0.0, 0.0], KINDS[0], tmp_path)
    graph = hexane.load(path)
    hexane.compile(graph).save(tmp_path / "p.hexane")
    again = hexane.load_program(tmp_path / "p.hexane")
    a, b = (gather(ports, [f"image={photo}"]).arrays["image"] for ports in (input_ports(graph), again.inputs))
    assert np.array_equal(a, b)


def test_no_second_normalisation(photo: Path, tmp_path: Path) -> None:
    path = _model(Same(), "RGB", [0.0, 0.0, 0.0], KINDS[0], tmp_path)
    with pytest.raises(UsageError, match="normalises the image"):
        command("run", path, "--input", photo, "--normalize", "imagenet", status=None)
