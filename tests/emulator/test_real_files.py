"""The programs in data/hwx give what their source networks say, computed here with NumPy under
docs/reference/numerics.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hexane
from emulator import engine_numerics as numerics
from hexane.emulator import run

HEAD = np.array([-1, 1, -2, 2], np.float16)


@pytest.fixture
def real(facts: Path):
    def opened(name: str) -> hexane.image.Image:
        return hexane.open_image(facts / "hwx" / f"{name}.hwx")

    return opened


def _random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def test_relu(real) -> None:
    x = _random((1, 1, 1, 77))
    x[..., :4] = HEAD
    result = run(real("relu_w77"), {"image": x})
    assert result.outputs["probs"].ravel()[:4].tolist() == [0, 1, 0, 2]
    np.testing.assert_array_equal(result.outputs["probs"], np.maximum(x, 0))
    assert result.report.measured


def test_relu_as_raw_bytes(real) -> None:
    raw = np.zeros(192, np.uint8)
    raw[:8] = HEAD.view(np.uint8)
    out = hexane.emulate(real("relu_w77"), {"image": raw}, layout="raw")["probs"]
    assert out.view(np.float16)[:4].tolist() == [0, 1, 0, 2]
    assert not out[8:].any()


def test_sigmoid(real) -> None:
    image = real("sigmoid_w77")
    x = np.linspace(-12, 12, 77).astype(np.float16).reshape(1, 1, 1, 77)
    table = np.frombuffer(image.const[:128], np.uint16)
    out = hexane.emulate(image, {"image": x})["probs"]
    np.testing.assert_array_equal(out.view(np.uint16), numerics.table(table, x).view(np.uint16))
    assert np.abs(out.astype(float) - 1 / (1 + np.exp(-x.astype(float)))).max() < 4e-3


def test_sum(real) -> None:
    a, b = _random((1, 64, 1, 1)), _random((1, 64, 1, 1), 1)
    out = hexane.emulate(real("sum_c64"), {"image": a, "image2": b})["probs"]
    exact = numerics.half_away(a.astype(np.float64) + b.astype(np.float64))
    np.testing.assert_array_equal(out.view(np.uint16), exact.view(np.uint16))


@pytest.mark.parametrize(("name", "weight"), [("conv_3to3", 2.0), ("conv_3to3_golden", 3.0)])
def test_convolution_of_three_channels(real, name: str, weight: float) -> None:
    x = _random((1, 3, 1, 1))
    out = hexane.emulate(real(name), {"image": x})["probs"]
    sums = numerics.matmul(np.full((3, 3), weight, np.float16), x.reshape(3, 1))
    np.testing.assert_array_equal(out.reshape(3, 1), sums)


def test_gemm_with_weights_filled_in(real) -> None:
    """The file's weights are zero; core g holds the weights of outputs 32g to 32g + 31, rows of 32 per input."""
    image = real("gemm_512")
    x, w = _random((512, 1)), (_random((512, 512), 1) / 16).astype(np.float16)
    const = w.reshape(16, 32, 512).swapaxes(1, 2).tobytes()
    changed = image.replace(const=const)
    result = run(changed, {"image": x.reshape(1, 512, 1, 1)})
    np.testing.assert_array_equal(result.outputs["probs"].reshape(512, 1), numerics.matmul(w, x))
    assert result.report.measured


def test_concat(real) -> None:
    a, b = _random((1, 16384, 1, 1)), _random((1, 16, 1, 1), 1)
    out = hexane.emulate(real("concat_16384_16"), {"input_0": a, "input_1": b})["output"]
    np.testing.assert_array_equal(out, np.concatenate([a, b], 1))


def test_same_bits_in_a_fresh_process(real, facts: Path, tmp_path: Path) -> None:
    x = _random((1, 1, 1, 77))
    np.save(tmp_path / "x.npy", x)
    path, out = facts / "hwx" / "sigmoid_w77.hwx", tmp_path / "out.npz"
    command = [
        sys.executable,
        "-m",
        "hexane",
        "emulate",
        str(path),
        "--input",
        f"image={tmp_path / 'x.npy'}",
        "-o",
        str(out),
    ]
    source = Path(hexane.__file__).parents[1]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(source)})
    np.testing.assert_array_equal(np.load(out)["probs"], hexane.emulate(path, {"image": x})["probs"])
