"""A machine without compiled kernels: small work is done by plain statements, large work compiles, the bits agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.arithmetic import conv2d, tier
from hexane.emulator.program import EmulatedProgram
from hexane.emulator.ready import machine_for
from hexane.graph import Graph, GraphBuilder

FIRST = """
import sys, numpy as np, hexane
program = hexane.load_program(sys.argv[1])
x = np.load(sys.argv[2])
first = [program.run({"x": x})["y"] for _ in range(2)]
assert not any(name.startswith("numba") for name in sys.modules)
program.on("emulator").warm()
assert "numba" in sys.modules
np.save(sys.argv[3], np.stack([*first, program.run({"x": x})["y"]]))
"""


def small() -> Graph:
    b, rng = GraphBuilder(), np.random.default_rng(0)
    x = b.input("x", (1, 8, 16, 16), "fp16")
    y = b.sigmoid(x=b.conv(x=x, weight=rng.normal(size=(16, 8, 3, 3)).astype(np.float16), pad_type="same"))
    y = b.add(x=y, y=b.conv(x=x, weight=rng.normal(size=(16, 8, 1, 1)).astype(np.float16)))
    y = b.matmul(x=b.reshape(x=y, shape=[16, 256]), y=b.reshape(x=y, shape=[256, 16]))
    b.output(b.softmax(x=b.layer_norm(x=y, axes=[-1], epsilon=np.float16(1e-3)), axis=-1), name="y")
    return b.graph


def test_the_first_run_of_a_small_network_needs_no_compiler(tmp_path: Path) -> None:
    program = hexane.compile(small(), "M1")
    program.save(tmp_path / "net.hexane")
    x = np.random.default_rng(1).normal(size=(1, 8, 16, 16)).astype(np.float16)
    np.save(tmp_path / "x.npy", x)
    environment = {**os.environ, "HEXANE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", FIRST, *(str(tmp_path / name) for name in ("net.hexane", "x.npy", "y.npy"))]
    subprocess.run(command, check=True, env=environment)
    expected = program.run({"x": x})["y"]
    for result in np.load(tmp_path / "y.npy"):
        assert result.tobytes() == expected.tobytes()


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "_patience", tier._Patience())
    monkeypatch.setattr(tier, "_compiled", lambda: False)


@pytest.mark.usefixtures("cold")
def test_patience_ends_and_large_work_never_asks_for_it() -> None:
    assert not tier.plain(products=1)  # nobody waits
    with tier.while_cold():
        assert not tier.plain(products=1 << 40)
        assert not tier.plain(terms=tier.TERMS + 1)
        runs = 0
        while tier.plain(products=1 << 20):
            runs += 1
        assert 0 < runs < 200
    with tier.while_cold():
        assert not tier.plain(products=1 << 20)


@pytest.mark.usefixtures("cold")
def test_a_machine_of_plain_statements_is_not_kept() -> None:
    program = hexane.compile(small(), "M1")
    image = next(segment.image for segment in program.segments if segment.image is not None)
    x = {"x": np.ones((1, 8, 16, 16), np.float16)}
    first = program.run(x)["y"]
    again = [program.run(x)["y"] for _ in range(2)]
    with machine_for(EmulatedProgram.of(image), sanitize=True) as machine:
        assert machine.chain is None
    tier.compile_now()
    again += [program.run(x)["y"] for _ in range(2)]
    with machine_for(EmulatedProgram.of(image), sanitize=True) as machine:
        assert machine.chain is not None
    assert all(y.tobytes() == first.tobytes() for y in again)


@pytest.mark.usefixtures("cold")
def test_depthwise_and_grouped_convolutions_are_the_same_plain() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1, 12, 9, 9)).astype(np.float16)
    for groups in (1, 3, 12):
        w = rng.normal(size=(24, 12 // groups, 3, 3)).astype(np.float16)
        with tier.while_cold():
            spent = tier.spent()
            plain = conv2d(x, w, groups=groups)
            assert tier.spent() > spent
        assert conv2d(x, w, groups=groups).tobytes() == plain.tobytes()


def test_kernels_on_disk_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(tier, "_patience", tier._Patience())
    monkeypatch.setattr(tier, "_compiled", lambda: bool(looks.append(1) or True))
    for _ in range(3):
        with tier.while_cold():
            assert not tier.plain(products=1)
    assert len(looks) == 1 and not tier.spent()
