"""``hexane sweep``: the file's keys, the table, what is kept, and processes that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.cli.evaluate import cluster
from hexane.errors import HexaneError
from hexane.graph import GraphBuilder
from hexane.report.schema import check_answer
from hexane.studies.pieces import Piece, Store, Workers, results
from hexane.studies.sweep import read_spec, sweep

pytest.importorskip("distributed")
parquet = pytest.importorskip("pyarrow.parquet")

SPEC = """
models = ["net.mil"]
chips = ["M1", "M5"]
weights = ["fp16", "palette1"]
jobs = ["check", "estimate", "compile", "evaluate"]

[evaluate]
data = "data.npz"
layers = 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    b, rng = GraphBuilder(), np.random.default_rng(3)
    x = b.cast(x=b.input("x", (1, 6), "fp32"), dtype="fp16")
    b.output(b.cast(x=b.linear(x=x, weight=rng.standard_normal((4, 6)).astype(np.float16)), dtype="fp32"))
    b.graph.save(tmp_path / "net.mil")
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((90, 6)).astype(np.float32), label=rng.integers(0, 4, 90))
    (tmp_path / "sweep.toml").write_text(SPEC)
    return tmp_path


def command(folder: Path, output: str, *more: str) -> dict:
    line = [sys.executable, "-m", "hexane", "sweep", str(folder / "sweep.toml"), "-o", str(folder / output), "--json"]
    done = subprocess.run([*line, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict = json.loads(done.stdout)
    return found


def test_the_table_is_that_of_the_commands(folder: Path) -> None:
    found = command(folder, "one", "--workers", "1")
    assert check_answer(found) == []
    rows = parquet.read_table(folder / "one" / "results.parquet").to_pylist()
    assert [(row["chip"], row["weights"]) for row in rows] == [
        ("M1", "fp16"), ("M5", "fp16"), ("M1", "palette1"), ("M5", "palette1"),
    ]  # fmt: skip
    assert all(row["error"] is None for row in rows)
    assert rows[1]["latency_us"] == hexane.estimate(folder / "net.mil", "M5").latency_us
    assert rows[0]["tasks"] == hexane.compile(folder / "net.mil").stats()["tasks"]
    one = hexane.evaluate(folder / "net.mil", folder / "data.npz", weights="palette1").rows[0]
    assert rows[2]["engine"] == one.engine.metric and rows[2]["changed"] == len(one.changed)
    assert "results.parquet" in (folder / "one" / "index.html").read_text()
    again = command(folder, "one", "--workers", "1")
    assert again["pieces"]["computed"] == 0 and again["rows"] == found["rows"]


def test_processes_write_the_same_table(folder: Path) -> None:
    command(folder, "one", "--workers", "1")
    command(folder, "two", "--workers", "2")
    tables = [(folder / name / "results.parquet").read_bytes() for name in ("one", "two")]
    assert tables[0] == tables[1]


def test_what_fails_is_in_its_row(folder: Path) -> None:
    (folder / "sweep.toml").write_text('models = ["net.mil", "none.onnx"]\nchips = ["M1", "M6"]\njobs = ["compile"]\n')
    rows = command(folder, "one", "--workers", "1")["rows"]
    errors = [row["error"] for row in rows]
    assert errors[0] is None and "M6" in errors[1] and "no such file" in errors[2]


@pytest.mark.parametrize(("level", "samples"), [("graph", 90), ("engine", None)])
def test_what_is_evaluated_without_a_program(folder: Path, level: str, samples: int | None) -> None:
    """The level of the graph needs no program; at that of the engine the row has the error of its compilation, once."""
    spec = SPEC.replace('["M1", "M5"]', '["M6"]').replace('"palette1"', "").replace('"check", "estimate", ', "")
    (folder / "sweep.toml").write_text(f'{spec}level = "{level}"\n')
    (row,) = sweep(read_spec(folder / "sweep.toml"), Store(None))
    assert row["error"].count("compile: ") == 1 and "evaluate: " not in row["error"]
    assert row.get("samples") == samples


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('modles = ["a.mil"]', "no key 'modles'; did you mean 'models'"),
        ('models = ["a.mil"]\nchips = ["M77"]', "M77"),
        ('models = ["a.mil"]\njobs = ["estmate"]', "did you mean 'estimate'"),
        ('models = ["a.mil"]\nweights = ["palette5"]', "no weight format"),
        ('models = ["a.mil"]\n[evaluate]\ndatta = "x.npz"', "did you mean 'data'"),
        ('models = ["a.mil"]\njobs = ["evaluate"]', "evaluate needs data"),
        ('models = ["a.mil"]\noptions = [{dialekt = "apple"}]', "did you mean 'dialect'"),
        ('models = ["a.mil"]\nbatch = ["two"]', "numbers of 1 or more"),
        ("models = []", "models is empty"),
        ('chips = ["M1"]', "no models"),
        ("models = [", "sweep.toml"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "sweep.toml").write_text(text)
    with pytest.raises(HexaneError, match=said):
        read_spec(tmp_path / "sweep.toml")


def slowly(number: int) -> dict[str, np.ndarray]:
    time.sleep(0.05)
    return {"number": np.asarray(number), "process": np.asarray(os.getpid())}


def test_a_process_that_is_killed_loses_nothing() -> None:
    pieces = [Piece.of(slowly, n, arguments=(n,)) for n in range(60)]
    where, killed, found = Workers(2), threading.Event(), {}
    for piece, outcome in results(pieces, Store(), where):
        assert isinstance(outcome, dict), outcome
        found[piece.arguments[0]] = int(outcome["number"])
        if len(found) == 5 and not killed.is_set():
            killed.set()
            os.kill(int(outcome["process"]), signal.SIGKILL)
    assert found == {n: n for n in range(60)} and where.counts.computed == 60


def test_options_of_the_command() -> None:
    assert cluster(1, None, "auto").workers == 1 and cluster(0, None, "auto").workers >= 1
