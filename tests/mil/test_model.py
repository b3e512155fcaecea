"""``hexane.mil.Model``: the calls, strict surfaces, the compile budget, statistics."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.restrictions.programs import CONV, X, blob, call, const, conv, program, tensor, unary

import hexane
from blobs import blob_bytes
from hexane.errors import UsageError
from hexane.mil import CompileBudget, Model, Options, Refused, RuntimeFault, Surface

WEIGHT = (np.random.default_rng(1).normal(0, 0.1, (64, 64, 1, 1))).astype(np.float16)
GOOD = program(CONV + blob((64, 64, 1, 1), "w") + conv("w"), f"{X} x", "y")
FILES = {"@model_path/weights/w.bin": blob_bytes([(WEIGHT, "fp16")])}
INPUT = np.random.default_rng(2).normal(0, 1, (1, 64, 1, 512)).astype(np.float16)
EXPECTED = np.einsum("oi,niw->now", WEIGHT[:, :, 0, 0].astype(float), INPUT[:, :, 0].astype(float))[:, :, None]


@pytest.mark.parametrize(("chip", "level", "asked"), [("M1", "engine", "auto"), ("M4", "graph", "graph")])
def test_a_program_runs(chip: str, level: str, asked: str) -> None:
    with Model(GOOD, FILES, chip=chip, options=Options(level=asked)) as model:
        got = model.evaluate({"x": INPUT})["y"]
        assert (model.level, got.dtype, got.shape) == (level, np.float16, (1, 64, 1, 512))
        assert (level == "engine") == (model.level_reason == "")
        np.testing.assert_allclose(got.astype(float), EXPECTED, atol=4e-3)
        assert model.inputs == {"x": hexane.parse_mil(GOOD).inputs["x"]}


def test_both_levels_give_the_same_bits() -> None:
    results = []
    for wanted in ("engine", "graph"):
        with Model(GOOD, FILES, chip="M1", options=Options(level=wanted)) as model:
            results.append(model.evaluate({"x": INPUT})["y"])
    assert np.array_equal(results[0], results[1])


def test_the_calls_in_order() -> None:
    model = Model(GOOD.encode(), FILES)
    with pytest.raises(UsageError, match="not loaded"):
        model.evaluate({"x": INPUT})
    with pytest.raises(UsageError, match="compile"):
        model.load()
    model.compile(qos=33).load()
    first = model.evaluate({"x": INPUT}, qos=63)["y"]
    model.unload()
    with pytest.raises(UsageError, match="not loaded"):
        model.evaluate({"x": INPUT})
    assert np.array_equal(model.load().evaluate({"x": INPUT})["y"], first)
    with pytest.raises(UsageError, match="quality of service"):
        model.evaluate({"x": INPUT}, qos=22)
    assert model.statistics.qos == {33: 1, 21: 4, 63: 1}
    assert model.statistics.evaluations == 2


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "missing"),
        ({"x": INPUT, "z": INPUT}, "no input 'z'"),
        ({"x": INPUT[:, :32]}, "shape"),
        ({"x": INPUT.astype(np.float32)}, "float32"),
        ({"x": INPUT.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)}, "shape|strides"),
        ({"x": np.zeros((1, 64, 1, 1024), np.float16)[..., :512]}, "strides"),
        ({"x": Surface(100)}, "49152"),
        ([INPUT], "mapping"),
    ],
)
def test_surfaces_that_do_not_fit(inputs: dict, words: str) -> None:
    with Model(GOOD, FILES) as model:
        if words == "shape|strides":  # an axis of one element may have any stride
            model.evaluate(inputs)
            return
        with pytest.raises(UsageError, match=words):
            model.evaluate(inputs)


def test_a_surface_of_the_callers() -> None:
    surface = Surface(1 << 17)
    surface.write(INPUT)
    with Model(GOOD, FILES) as model:
        assert np.array_equal(model.evaluate({"x": surface})["y"], model.evaluate({"x": INPUT})["y"])
        with pytest.raises(UsageError, match="W10"):
            model.evaluate({"x": INPUT}, weights_buffer=b"")


def test_a_rejected_program_names_its_line() -> None:
    with pytest.raises(Refused, match=r"program:6:.*gelu") as caught:
        Model(
            unary("gelu", ", mode = m", const("string", "m", '"EXACT"')), chip="M4 Max", options=Options("macOS 15")
        ).compile()
    assert caught.value.findings[0].rule == "O2"
    assert "^" in str(caught.value)


def test_silence_is_an_error_unless_allowed() -> None:
    attention = "key = x, query = x, value = x, attn_mask = m"
    text = program(call(tensor(1, 4, 32, 64), "y", "scaled_dot_product_attention", attention),
                   f"{tensor(1, 4, 32, 32)} m, {tensor(1, 4, 32, 64)} x", "y")  # fmt: skip
    inputs = {"m": np.zeros((1, 4, 32, 32), np.float16), "x": np.ones((1, 4, 32, 64), np.float16)}
    with Model(text) as model, pytest.raises(Refused, match="O4"):
        model.evaluate(inputs)
    with Model(text, options=Options(allow=("O4",))) as model:
        assert model.evaluate(inputs)["y"].shape == (1, 4, 32, 64)


def test_weights_are_a_snapshot() -> None:
    with Model(GOOD, FILES) as model, pytest.raises(UsageError, match="W8"):
        model.files["@model_path/weights/w.bin"] = b""


def test_statistics_are_marked() -> None:
    with Model(GOOD, FILES, chip="M4") as model:
        model.evaluate({"x": INPUT})
        found = model.statistics.as_dict()
    assert found["estimated"] is True
    assert found["hw_execution_ns"] > 0
    assert found["evaluations"] == 1
    assert found["seconds"] > 0


class TestBudget:
    """Compilations of one process."""

    def test_warn_once(self) -> None:
        budget = CompileBudget(limit=2)
        options = Options(budget=budget)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                Model(GOOD, FILES, options=options).compile()
        assert budget.left == 0
        with pytest.warns(UserWarning, match="budget of 2"):
            Model(GOOD, FILES, options=options).compile()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Model(GOOD, FILES, options=options).compile()

    def test_raise(self) -> None:
        budget = CompileBudget(limit=1, on_exhausted="raise")
        Model(GOOD, FILES, options=Options(budget=budget)).compile()
        with pytest.raises(RuntimeFault, match="FAILED") as caught:
            Model(GOOD, FILES, options=Options(budget=budget)).compile()
        assert (caught.value.code, caught.value.rule) == (1, "R1")

    def test_start_again_with_the_state(self, tmp_path: Path) -> None:
        """R2: the process saves, execs itself and resumes."""
        script = tmp_path / "train.py"
        script.write_text(
            "import hexane.mil as mil\n"
            "from hexane.private_api.budget import CompileBudget\n"
            "step = int(mil.resumed() or 0)\n"
            "budget = CompileBudget(limit=1, on_exhausted='reexec', save=lambda: str(step))\n"
            "while step < 2:\n"
            "    budget.spend()\n"
            "    step += 1\n"
            "    print('step', step, flush=True)\n"
        )
        environment = {k: v for k, v in os.environ.items() if k != "HEXANE_RESUME"}
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=environment
        )
        assert done.stdout.split("\n")[:-1] == [f"step {i}" for i in range(1, 3)], done.stderr

    def test_a_child_is_no_process_that_was_started_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from hexane.private_api import budget

        monkeypatch.setattr(budget, "_RESUMED", [])
        monkeypatch.setenv("HEXANE_RESUME", "state")
        assert budget.resumed() == budget.resumed() == "state" and "HEXANE_RESUME" not in os.environ

    @pytest.mark.parametrize("given", [{"on_exhausted": "stop"}, {"limit": 0}, {"on_exhausted": "reexec"}])
    def test_wrong_budgets(self, given: dict) -> None:
        with pytest.raises(UsageError):
            CompileBudget(**given)
