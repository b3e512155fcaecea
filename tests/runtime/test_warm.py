"""Kernels compiled before they are needed, and what an image does with them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hexane import code_cache
from hexane.runtime import doctor, warm

ROOT = Path(__file__).parents[2]
RUN = """
import numpy as np, hexane
from hexane.graph import GraphBuilder
from numba.core import event
spent = []
class Listener(event.Listener):
    def on_start(self, _): spent.append(1)
    def on_end(self, _): pass
event.register("numba:compile", Listener())
b = GraphBuilder()
x = b.input("x", (1, 4, 8, 8), "fp16")
b.output(b.relu(x=b.conv(x=x, weight=np.ones((4, 4, 3, 3), np.float16), pad_type="same")), name="y")
print(hexane.compile(b.graph).run({"x": np.ones((1, 4, 8, 8), np.float16)})["y"].max(), len(spent))
"""


def test_an_empty_cache_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXANE_CACHE", str(tmp_path))
    assert warm.kernels() == warm.CompiledKernels(tmp_path, ())
    (row,) = (finding for finding in doctor.diagnose().findings if finding.question == "kernels")
    # the self-test behind it may have compiled something since; the row itself was asked first
    assert row.state == "note" and "none compiled yet" in row.answer and "--warm" in row.remedy


def test_files_of_other_sources_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXANE_CACHE", str(tmp_path))
    digest = code_cache.digest_of(Path(code_cache.__file__).parent / "arithmetic" / "fast")
    (tmp_path / f"fast.product.run.{digest}.1.nbc").write_bytes(bytes(10))
    (tmp_path / "fast.product.run.0123456789abcdef.1.nbc").touch()
    known = warm.kernels()
    assert len(known.files) == 1 and known.bytes == 10


@pytest.mark.slow
def test_the_image_of_the_example(tmp_path: Path) -> None:
    """Its steps as far as a machine without docker can: warm as the owner, run where nothing can be written."""
    steps = [line.split(maxsplit=1) for line in (ROOT / "examples" / "Dockerfile").read_text().splitlines() if line]
    assert ["RUN", "hexane doctor --warm"] in steps
    environment = {**os.environ, "HEXANE_CACHE": str(tmp_path / "cache"), "HOME": "/nonexistent"}
    command = [sys.executable, "-m", *shlex.split("hexane doctor --warm --json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (row,) = (f for f in json.loads(done.stdout)["findings"] if f["question"] == "kernels")
    assert row["state"] == "yes"
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    (tmp_path / "cache").chmod(0o555)
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout.split()[0] == "36.0", done.stderr
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == before
