"""Random networks through the whole chain: `tools/fuzz networks`.

The seed here is fixed, so that a change fails for what it did. New seeds are drawn by `.ci/run`, which prints what they
meet, and by the long runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "fuzz"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs timers of another system")


def networks(*arguments: str) -> str:
    """What the tool prints; the seed and the command that repeats a failure stand in it."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    done = subprocess.run([sys.executable, str(TOOL), "networks", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


def test_a_hundred_networks() -> None:
    said = networks("--kind", "ops", "--seed", "7", "--count", "100")
    assert "ops: seed" in said and " 0 failed" in said


def test_networks_of_shapes() -> None:
    """All families of shapes draw networks, whose programs are right."""
    said = networks("--kind", "shapes", "--seed", "7", "--count", "12", "--seconds", "600", "--chips", "M1,M4")
    assert "shapes: 12 networks, 0 failed" in said


def test_a_seed_draws_the_same_networks_in_every_process() -> None:
    """Also where strings hash otherwise: a seed that failed must fail again."""
    script = (
        "from fuzz import layers, ops, shapes;"
        "print([(layers.network(7, i), ops.network(7, i), shapes.network(77, i)) for i in range(20)])"
    )
    drawn = {
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join((str(TOOL.parent), *sys.path))},
        ).stdout
        for seed in "123"
    }  # fmt: skip
    assert len(drawn) == 1


def test_networks_of_layers() -> None:
    """Several layers one behind the other, with several inputs and outputs."""
    said = networks("--kind", "layers", "--seed", "7", "--count", "8", "--seconds", "600", "--chips", "M1,M4")
    assert "layers: 8 networks, 0 failed" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ops", "shapes", "layers"])
def test_an_hour(kind: str) -> None:
    assert " 0 failed" in networks("--kind", kind, "--seconds", "3600")


@pytest.mark.parametrize("arguments", [("--seed", "11", "--count", "80")])
def test_gradients(arguments: tuple[str, ...]) -> None:
    gradients_of(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ops", "shapes"])
@pytest.mark.parametrize("seed", range(20, 24))
def test_many_gradients(kind: str, seed: int) -> None:
    gradients_of("--kind", kind, "--seed", str(seed), "--count", "400" if kind == "ops" else "40")


def gradients_of(*arguments: str) -> None:
    """Each gradient is right along a random direction, or nothing can be said."""
    command = [sys.executable, str(TOOL), "gradients", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and " right" in done.stdout, done.stdout[-8000:] + done.stderr[-2000:]
