"""``hexane train``: settings, and a run that is killed and goes on with the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hexane.errors import FormatError, SyntaxProblem, UsageError
from hexane.formats.safetensors import read_safetensors, write_safetensors
from hexane.train.job import train
from hexane.train.settings import KEYS, read_settings, settings_table

NETWORK = """
import numpy as np
from hexane.graph import GraphBuilder

def network(seed):
    rng, b = np.random.default_rng(seed), GraphBuilder()
    x = b.input("x", (4, 6), "fp16")
    h = b.relu(x=b.linear(x=x, weight=b.const(rng.standard_normal((8, 6)).astype(np.float16) / 3, name="w1")))
    b.output(b.linear(x=h, weight=b.const(rng.standard_normal((3, 8)).astype(np.float16) / 3, name="w2")), name="y")
    return b.graph
"""
CONFIG = """
network = "net.py"
data = "data.npz"
test = "data.npz"
steps = 120
save_every = 5
watch_every = 40
seed = 3
level = "graph"
[optimizer]
name = "adam"
lr = 0.02
[schedule]
kind = "cosine"
"""


def folder(at: Path) -> Path:
    at.mkdir()
    (at / "net.py").write_text(NETWORK)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 6)).astype(np.float32)
    np.savez(at / "data.npz", x=x, label=(x[:, 0] > 0) + (x[:, 1] > 0).astype(int))
    (at / "run.toml").write_text(CONFIG)
    return at


def command(at: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "hexane", "train", str(at / "run.toml"), "--json", *options]


def test_killed_at_a_random_moment_it_goes_on_with_the_same_bits(tmp_path):
    whole, killed = folder(tmp_path / "whole"), folder(tmp_path / "killed")
    result = json.loads(subprocess.run(command(whole), check=True, capture_output=True, text=True).stdout)
    assert result["steps"] == 120 and len(result["curves"]["loss"]) == 120
    assert result["curves"]["loss"][-1] < result["curves"]["loss"][0]
    assert result["test"]["trained"]["accuracy"] > 0.5
    checkpoint = killed / "run" / "checkpoint.safetensors"
    process = subprocess.Popen(command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not checkpoint.is_file() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(np.random.default_rng().uniform(0, 0.3))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run(command(killed, "--resume"), check=True, capture_output=True)
    for name in ("checkpoint.safetensors", "weights.safetensors"):
        assert (whole / "run" / name).read_bytes() == (killed / "run" / name).read_bytes(), name
    page = (killed / "run" / "index.html").read_text()
    assert "polyline" in page and "Loss scale" in page and "M1" in page
    again = subprocess.run(command(killed), capture_output=True, text=True)
    assert again.returncode == 2 and "--resume" in again.stderr
    (killed / "run.toml").write_text(CONFIG.replace("seed = 3", "seed = 4"))
    other = subprocess.run(command(killed, "--resume"), capture_output=True, text=True)
    assert other.returncode == 2 and "seed = 3" in other.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("stepps = 3", "did you mean 'steps'"),
        ("steps = -1", "count"),
        ("loss = 'l1'", "cross_entropy"),
        ("clip = true", "number"),
        ("[optimizer]\nmomentun = 0.9", "optimizer.momentum"),
        ("[optimizer]\nbetas = [0.9]", "two numbers"),
    ],
)
def test_a_wrong_key_or_value_is_refused_with_what_there_is(tmp_path, line, words):
    path = tmp_path / "run.toml"
    path.write_text(f'network = "a"\ndata = "b"\n{line}\n')
    with pytest.raises(UsageError, match=words):
        read_settings(path)


def test_settings(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('network = "a.onnx"\ndata = "b"\n[optimizer]\nname = "adamw"\nlr = 0.5\n')
    settings = read_settings(path)
    assert settings["network"] == str(tmp_path / "a.onnx") and settings["output"] == str(tmp_path / "run")
    assert (settings.optimizer.lr, settings.optimizer.weight_decay) == (0.5, 0.01)
    path.write_text('network = "a"\ndata = "b"\n[optimizer]\nname = "adam"\nmomentum = 0.9\n')
    with pytest.raises(UsageError, match="adam has no momentum"):
        _ = read_settings(path).optimizer
    path.write_text("network = \n")
    with pytest.raises(SyntaxProblem):
        read_settings(path)
    path.write_text('network = "a"\n')
    with pytest.raises(UsageError, match="lacks 'data'"):
        read_settings(path)


def test_the_page_has_the_table_of_keys():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    assert settings_table() in page
    assert all(f"`{key.name}`" in page for key in KEYS)


def test_safetensors_of_this_writer_are_read_back(tmp_path):
    path = tmp_path / "a.safetensors"
    arrays = {
        "b": np.arange(6, dtype=np.int64).reshape(2, 3),
        "a": np.float32(2.5),
        "empty": np.zeros((0, 2), np.float16),
    }
    write_safetensors(path, arrays)
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["a"] == {"dtype": "F32", "shape": [], "data_offsets": [0, 4]} and len(data) % 8 == 4
    for name, tensor in read_safetensors(path).items():
        assert np.array_equal(tensor.read(), arrays[name]) and tensor.read().dtype == np.asarray(arrays[name]).dtype
    write_safetensors(tmp_path / "b.safetensors", dict(reversed(arrays.items())))
    assert (tmp_path / "b.safetensors").read_bytes() == data
    path.write_bytes(data[:-4])
    with pytest.raises(FormatError):
        read_safetensors(path)
    with pytest.raises(UsageError, match="complex"):
        write_safetensors(path, {"c": np.zeros(2, complex)})


@pytest.mark.parametrize("every, watched", [(3, [0, 3, 6]), (0, [])])
def test_lost_products_are_counted_at_the_first_step_and_at_every_nth_after_it(tmp_path, every, watched):
    at = folder(tmp_path / "run")
    lines = CONFIG.replace("steps = 120", "steps = 8").replace("watch_every = 40", f"watch_every = {every}")
    (at / "run.toml").write_text(lines)
    run = train(read_settings(at / "run.toml"))
    assert run.watched == watched and len(run.lost) == len(watched)
