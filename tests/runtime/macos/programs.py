"""Programs and Macs that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hexane.formats.mil.printer import WEIGHT_PATH
from hexane.graph import GraphBuilder
from hexane.runtime.macos.fake.border import FakeMac
from hexane.runtime.macos.fake.settings import Settings
from hexane.runtime.macos.model import MemoryModel, ModelSource, SubmissionWay
from hexane.runtime.macos.segments import source_of, written

SHAPE = (1, 64, 1, 64)
BUILD_INFO = '[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-version", "3505.4.1"}})]'


def difference_text(first: str = "b", second: str = "a") -> str:
    """``first - second``, declared in the order first, second, which need not be that of their bytes."""
    extents = ", ".join(map(str, SHAPE))
    return (
        f"program(1.0)\n{BUILD_INFO}\n{{\n"
        f"    func main<ios17>(tensor<fp16, [{extents}]> {first}, tensor<fp16, [{extents}]> {second}) {{\n"
        f'        tensor<fp16, [{extents}]> y = sub(x = {first}, y = {second})[name = tensor<string, []>("y")];\n'
        "    } -> (y);\n}\n"
    )


def difference(first: str = "b", second: str = "a") -> ModelSource:
    return source_of(difference_text(first, second), {})


def convolution() -> ModelSource:
    """A program with a weight file."""
    b = GraphBuilder()
    x = b.input("x", SHAPE, "fp16")
    weight = np.random.default_rng(1).standard_normal((64, 64, 1, 1)).astype(np.float16) / 8
    b.output(b.relu(x=b.conv(x=x, weight=b.const(weight), name="c"), name="y"))
    text, weights = written(b.graph, "h14")
    assert WEIGHT_PATH in weights
    return source_of(text, weights)


def values(source: ModelSource, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(t.shape).astype(t.carrier) for name, t in source.inputs.items()}


def mac(folder: Path, **settings: object) -> FakeMac:
    """A Mac whose cache and staging folder lie below a folder."""
    (folder / "tmp").mkdir(exist_ok=True)
    return FakeMac(Settings(folder=str(folder / "cache"), staging=str(folder / "tmp"), **settings))  # type: ignore[arg-type]


def run(border: object, source: ModelSource, folder: Path, given: dict[str, np.ndarray], **way: object) -> dict:
    """All seven steps."""
    model = MemoryModel(border, source, SubmissionWay(root=folder / "tmp", **way))  # type: ignore[arg-type]
    try:
        model.compile()
        model.load()
        return model.evaluate(given)
    finally:
        model.close()


def staged(folder: Path) -> list[str]:
    """What lies in the staging folder."""
    return sorted(path.name for path in (folder / "tmp").iterdir())
