"""The networks of the examples, a few steps of each."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from hexane.train import SGD, AdamW, Batches, Trainer
from hexane.train.settings import read_settings

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_digits_learn():
    pytest.importorskip("sklearn")
    import digits

    rows = digits.samples()
    batches = Batches({"x": np.stack([x for x, _ in rows])}, np.array([y for _, y in rows]), digits.BATCH)
    trainer = Trainer(digits.network(0), optimizer=SGD(0.05, momentum=0.9), level="graph", loss_scale="auto")
    losses = [trainer.step(batches[n]) for n in range(8)]
    assert np.mean(losses[-2:]) < np.mean(losses[:2])
    assert all(program.program.stats()["macs_on_engine"] == 1 for program in trainer.programs.compiled)


def test_characters_learn_wholly_on_the_engine_and_scaling_saves_what_vanishes():
    import characters

    from hexane.train.vanishing import share

    shape = characters.Shape(layers=1, width=32, heads=2, tokens=32)
    windows = characters.Windows(shape)
    xs, ys = zip(*(windows[100 * n] for n in range(60)))
    batches = Batches({"x": np.stack(xs)}, np.stack(ys), 1)
    graph = characters.network(0, shape)
    trainer = Trainer(graph, optimizer=AdamW(3e-3), level="graph", loss_scale="auto", renew="inputs")
    step = trainer.watch(batches[0])
    assert share(step.lost(1.0), "backward") > 0.3 > 0.02 > share(step.lost(step.scale()), "backward")
    losses = [trainer.step(batches[n]) for n in range(6)]
    assert losses[-1] < losses[0]
    assert all(segment.image is not None for part in trainer.programs.compiled for segment in part.program.segments)


@pytest.mark.parametrize("name", ["digits", "characters"])
def test_settings_of_the_examples(name):
    settings = read_settings(EXAMPLES / f"{name}.toml")
    assert settings.optimizer.lr > 0 and settings.schedule(settings["steps"] - 1) < 0.2
    assert all(Path(settings[key]).is_file() for key in ("network", "data"))
    assert sys.path[0] == str(EXAMPLES)
