"""Every reader under damage: a fixed sample here, long runs with ``make test-all`` and by `fuzz.readers`."""

from __future__ import annotations

import os

import pytest

from fuzz.readers import READERS, run

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs timers of another system")

NEEDS = {"onnx": "onnx", "external": "onnx", "coreml": "coremltools.proto", "arrays": "PIL"}
SAMPLE = {"hwx": 150, "anec": 300, "asm": 60, "mil": 60, "blob": 60, "onnx": 0, "external": 40, "coreml": 60}
LONG = 100_000
"""Inputs of each reader in a long run, at most; and its seconds."""
SECONDS = 600.0


@pytest.mark.parametrize("name", [name for name in READERS if SAMPLE.get(name, 60)])
def test_a_sample(name: str) -> None:
    pytest.importorskip(NEEDS.get(name, "numpy"))
    met, taken, _ = run(name, SAMPLE.get(name, 60))
    assert met == SAMPLE.get(name, 60) and taken < met


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_long_run(name: str) -> None:
    pytest.importorskip(NEEDS.get(name, "numpy"))
    met, taken, _ = run(name, LONG, seed=1, seconds=SECONDS)
    assert taken < met
