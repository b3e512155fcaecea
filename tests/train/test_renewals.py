"""Activations that are computed again, scales of single sums, and a budget of compilations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hexane.errors import HexaneError, UsageError
from hexane.graph import Graph, GraphBuilder
from hexane.mil import CompileBudget
from hexane.train import SGD, AdamW, Trainer
from hexane.train.layer_scales import scaled
from hexane.train.vanishing import FloatStep, share
from train.test_job import CONFIG, command, folder
from train.test_trainer import batch, network


def test_activations_that_are_computed_again_change_no_bit_and_are_not_handed_over() -> None:
    graph = network()
    names = [op.outputs[0].name for op in graph.main.ops if op.type in ("relu", "conv", "reshape")]
    runs = [
        Trainer(graph, optimizer=SGD(0.1), level="graph", renew="inputs", checkpoint=again) for again in ((), names)
    ]
    losses = [[run.step(batch(seed=n)) for n in range(3)] for run in runs]
    assert losses[0] == losses[1]
    assert all((runs[0].weights[name] == array).all() for name, array in runs[1].weights.items())
    assert 0 == runs[1].programs.tap_bytes < runs[0].programs.tap_bytes
    with pytest.raises(HexaneError, match="nothing"):
        Trainer(graph, level="float32", checkpoint=["nothing"])


def branches(rows: int = 16, width: int = 8) -> Graph:
    """A large branch, which bounds the scale, and one whose gradients are small: of ``w1`` behind ``w2``."""
    b, rng = GraphBuilder(), np.random.default_rng(0)

    def weight(name: str, size: float) -> np.ndarray:
        return b.const((size * rng.standard_normal((width, width))).astype(np.float16), name=name)

    x = b.input("x", (rows, width), "fp16")
    h = b.linear(x=b.linear(x=x, weight=weight("w1", 1)), weight=weight("w2", 2**-11))
    h = b.mul(x=b.mul(x=h, y=np.float16(2**-8)), y=np.float16(2**-9))
    large = b.linear(x=b.linear(x=x, weight=weight("w4", 1)), weight=weight("w5", 8))
    b.output(b.add(x=b.linear(x=h, weight=weight("w3", 1)), y=large), name="y")
    return b.graph


def test_a_scale_for_each_sum_saves_what_one_for_all_loses() -> None:
    rng = np.random.default_rng(1)
    sample = rng.standard_normal((16, 8)).astype(np.float32), rng.integers(0, 8, 16)
    steps = {}
    for name, options in {"float32": {"level": "float32"}, "one": {"loss_scale": "auto"},
                          "each": {"loss_scale": "auto", "layer_scales": True}}.items():  # fmt: skip
        trainer = Trainer(branches(), optimizer=SGD(1.0), **({"level": "graph", "renew": "inputs"} | options))
        before = {key: array.copy() for key, array in trainer.weights.items()}
        trainer.step(sample)
        steps[name] = {key: before[key] - array for key, array in trainer.weights.items()}, trainer
    error = {name: np.linalg.norm(steps[name][0]["w1"] - steps["float32"][0]["w1"])
             / np.linalg.norm(steps["float32"][0]["w1"]) for name in ("one", "each")}  # fmt: skip
    assert error["each"] < 0.5 * error["one"]
    one, each = steps["one"][1], steps["each"][1]
    assert max(each.programs.layer_scales.values()) >= 4 and not any(one.programs.layer_scales.values())
    assert share(each.lost(sample), "backward") < share(one.lost(sample), "backward")
    other = Trainer(branches(), optimizer=SGD(1.0), level="graph", renew="inputs", loss_scale="auto", layer_scales=True)
    other.load_state_dict(each.state_dict())
    assert other.step(sample) == each.step(sample)
    assert all((other.weights[name] == array).all() for name, array in each.weights.items())
    with pytest.raises(UsageError, match="computed"):
        Trainer(branches(), layer_scales=True)


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_a_scale_of_a_sum_leaves_three_bits_and_is_worth_its_ops(scale: float) -> None:
    """One product in each sum, of powers of two: the largest exponent that fits, from 4 to 14, or none."""
    b = GraphBuilder()
    seed = b.input("seed", (1, 1), "fp16")
    sums = {
        n: b.linear(x=seed, weight=b.const(np.full((1, 1), 2.0**n, np.float16), name=f"w{n}")) for n in range(-12, 13)
    }
    b.output(*sums.values())
    step = FloatStep("seed")
    step.run("backward", b.graph, {"seed": np.ones((1, 1), np.float16)})
    powers = step.layer_scales(scale)
    for n, value in sums.items():
        room = 15 - 3 - n - int(np.log2(scale))  # the accumulator ends at 2^15
        most = min(room, 15 - 3 - int(np.log2(scale)), 14)  # the operand, 1, ends below 2^16
        assert powers.get(value.name) == (most if most >= 4 else None), n


def test_scales_of_sums_change_no_value() -> None:
    trainer = Trainer(branches(), level="float32")
    plain = trainer.programs.parts.backward
    powers = {name: 3 + n for n, name in enumerate(trainer.programs.layer_scales)}
    assert len(powers) == 3
    rng = np.random.default_rng(0)
    values = {value.name: rng.standard_normal(value.shape).astype(np.float32) for value in plain.main.inputs}
    one, other = (graph.evaluate(values) for graph in (plain, scaled(plain, trainer.programs.seed, powers)))
    assert list(one) == list(other)
    for name, array in one.items():
        np.testing.assert_allclose(other[name], array, rtol=2e-3, atol=1e-3 * np.abs(array).max())


def test_constants_that_are_compiled_again_give_the_same_bits_and_spend_the_budget() -> None:
    patched = Trainer(network(), optimizer=AdamW(1e-2), level="graph", renew="patch")
    budget = CompileBudget(6, "raise")
    again = Trainer(network(), optimizer=AdamW(1e-2), level="graph", renew="compile", budget=budget)
    assert budget.used == 2
    for n in range(2):
        assert again.step(batch(seed=n)) == patched.step(batch(seed=n))
    assert budget.left == 0
    before = again.state_dict()
    with pytest.raises(HexaneError):
        again.step(batch(seed=2))
    assert all((before[name] == array).all() for name, array in again.state_dict().items())


def test_a_process_whose_budget_is_spent_starts_again_with_the_same_bits(tmp_path: Path) -> None:
    results = []
    for name, more in (("whole", ""), ("again", "compile_budget = 7\n")):
        at = folder(tmp_path / name)
        (at / "run.toml").write_text(more + 'renew = "compile"\n' + CONFIG.replace("steps = 120", "steps = 9"))
        done = subprocess.run(command(at), capture_output=True, text=True, check=True)
        results.append(json.loads(done.stdout))
    assert results[0]["steps"] == results[1]["steps"] == 9
    assert results[0]["curves"] == results[1]["curves"]
    weights = [(tmp_path / name / "run" / "weights.safetensors").read_bytes() for name in ("whole", "again")]
    assert weights[0] == weights[1]
    assert sys.executable
