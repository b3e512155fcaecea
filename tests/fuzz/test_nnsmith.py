"""NNSmith, a public fuzzer of compilers, beside our own: its ONNX networks through load, compile and both levels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hexane

COUNT = 40
PACKAGES = ("nnsmith", "numpy<2", "onnx<1.17", "torch")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Networks of seeds 0 on, made in an environment of its own: NNSmith wants an older numpy than hexane's tests."""
    folder = tmp_path_factory.mktemp("nnsmith")
    python = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=120)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True, timeout=1200)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"NNSmith cannot be installed here: {error}")
    found = []
    for seed in range(COUNT):
        root = folder / str(seed)
        subprocess.run(
            [str(python), "-m", "nnsmith.cli.model_gen", "model.type=onnx", f"mgen.seed={seed}", "mgen.max_nodes=8",
             f"mgen.save={root}"],
            check=False, timeout=300, capture_output=True,
        )  # fmt: skip
        found += sorted(root.glob("*.onnx"))
    if not found:
        pytest.skip("NNSmith made no network here")
    return found


def test_networks_of_nnsmith(models: list[Path]) -> None:
    for path in models:
        graph = hexane.load(path)
        rng = np.random.default_rng(1)
        given = {name: rng.integers(0, 3, type_.shape).astype(type_.carrier) for name, type_ in graph.inputs.items()}
        for chip in ("M1", "M4"):
            program = hexane.compile(graph, chip)
            tasks, bits = program.run(given), program.run(given, level="graph")
            for name, array in bits.items():
                np.testing.assert_array_equal(tasks[name], array, err_msg=f"{path} {name}", strict=True)
            hexane.check(graph, chip)
            hexane.estimate(graph, chip)
