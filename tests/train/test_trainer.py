"""Steps of a small network at every level."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.errors import UsageError
from hexane.graph import Graph, GraphBuilder
from hexane.train import SGD, Adam, Trainer
from hexane.train.vanishing import share
from hexane.train.weights import trainable


def network(dtype: str = "fp16", seed: int = 0) -> Graph:
    rng, b = np.random.default_rng(seed), GraphBuilder()
    carrier = np.dtype("float16" if dtype == "fp16" else "float32")

    def const(name, *shape):
        return b.const((rng.standard_normal(shape) / 2).astype(carrier), name=name)

    x = b.input("x", (4, 2, 6, 6), dtype)
    h = b.relu(x=b.conv(x=x, weight=const("w1", 8, 2, 3, 3), bias=const("b1", 8), pad_type="same"))
    h = b.reshape(x=h, shape=[4, 288])
    b.output(b.linear(x=h, weight=const("w2", 5, 288), bias=const("b2", 5)), name="y")
    return b.graph


def batch(count: int = 4, seed: int = 3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, 2, 6, 6)).astype(np.float32), rng.integers(0, 5, count)


@pytest.mark.parametrize("renew", ["patch", "inputs", "mixed"])
def test_engine_and_graph_are_the_same_bits_and_near_float32(renew):
    runs = {}
    for level in ("engine", "graph", "float32"):
        trainer = Trainer(network(), optimizer=Adam(3e-3), level=level, loss_scale="auto", renew=renew)
        runs[level] = [trainer.step(batch(seed=n)) for n in range(3)]
    assert runs["engine"] == runs["graph"]
    np.testing.assert_allclose(runs["engine"], runs["float32"], rtol=2e-2)


def test_training_learns_and_chooses_the_cheaper_way():
    trainer = Trainer(network(), optimizer=SGD(0.02, momentum=0.9), level="graph", loss_scale="auto", clip=1.0)
    losses = [trainer.step(batch()) for _ in range(12)]
    assert losses[-1] < 0.3 * losses[0]
    assert trainer.programs.way == min(trainer.programs.predicted, key=trainer.programs.predicted.get)
    assert trainer.programs.compiled[0].renewal == "patched" or trainer.programs.way == "inputs"
    trained = trainer.network()
    y = trained.evaluate({"x": batch()[0]})["y"]
    assert (y.argmax(1) == batch()[1]).all()


def test_float32_gradients_against_finite_differences():
    trainer = Trainer(network("fp32"), optimizer=SGD(1.0), level="float32")
    before = {name: array.astype(np.float64) for name, array in trainer.weights.items()}
    trainer.step(batch())
    rng = np.random.default_rng(0)
    for name, start in before.items():
        direction = rng.standard_normal(start.shape)
        direction /= np.linalg.norm(direction)
        ends = []
        for sign in (1, -1):
            for other, array in before.items():
                trainer.weights[other][...] = array + (sign * 1e-2 * direction if other == name else 0)
            ends.append(trainer.evaluate(batch())[0])
        trainer.weights[name][...] = start
        expected = (ends[0] - ends[1]) / 2e-2
        after = Trainer(network("fp32"), optimizer=SGD(1.0), level="float32")
        after.step(batch())
        assert float(((start - after.weights[name]) * direction).sum()) == pytest.approx(expected, rel=2e-2, abs=2e-3)


def test_pieces_of_a_batch_give_the_mean_of_their_gradients():
    x, y = batch(8)
    whole = Trainer(network("fp32"), optimizer=SGD(0.1), level="float32")
    loss = whole.step({"x": x, "labels": y})
    halves = []
    for part in (slice(0, 4), slice(4, 8)):
        trainer = Trainer(network("fp32"), optimizer=SGD(0.1), level="float32")
        halves.append((trainer.step((x[part], y[part])), trainer.weights))
    assert loss == pytest.approx(np.mean([half[0] for half in halves]))
    for name, array in whole.weights.items():
        np.testing.assert_allclose(array, np.mean([half[1][name] for half in halves], axis=0), atol=1e-6)


def test_a_state_goes_on_with_the_same_bits():
    def trainer():
        return Trainer(network(), optimizer=Adam(3e-3), level="graph", loss_scale="dynamic")

    whole, first, second = trainer(), trainer(), trainer()
    losses = [whole.step(batch(seed=n)) for n in range(4)]
    for n in range(2):
        first.step(batch(seed=n))
    second.load_state_dict(first.state_dict())
    assert [second.step(batch(seed=n)) for n in (2, 3)] == losses[2:]
    for name, array in whole.state_dict().items():
        assert array.tobytes() == second.state_dict()[name].tobytes(), name
    with pytest.raises(UsageError, match="another network or optimizer"):
        second.load_state_dict(Trainer(network(), level="float32").state_dict())


def test_small_gradients_vanish_without_a_scale_and_not_with_the_computed_one():
    deep = GraphBuilder()
    x = deep.input("x", (4, 8), "fp16")
    rng = np.random.default_rng(0)
    h = x
    for n in range(3):
        h = deep.linear(x=h, weight=deep.const((rng.standard_normal((8, 8)) / 3).astype(np.float16), name=f"w{n}"))
    deep.output(h, name="y")
    trainer = Trainer(deep.graph, loss=lambda y, _: (0.0, np.full(y.shape, 1e-8, np.float32)), level="float32")
    step = trainer.watch((rng.standard_normal((4, 8)), np.zeros(4)))
    scale = step.scale()
    assert share(step.lost(1.0), "backward") > 0.9
    assert share(step.lost(scale), "backward") < 0.02
    assert scale > 1000 and np.log2(scale).is_integer()
    assert min(row.headroom_bits for row in step.lost(scale)) >= 3


def test_an_infinite_gradient_changes_nothing_and_halves_the_scale():
    trainer = Trainer(network(), optimizer=SGD(0.1), level="graph", loss_scale="dynamic", renew="patch")
    trainer.scale.value = 2.0**24
    before = {name: array.copy() for name, array in trainer.weights.items()}
    trainer.step((batch()[0] * 100, batch()[1]))
    assert trainer.last is not None and not trainer.last.applied
    assert trainer.scale.value == 2.0**23 and trainer.scale.skipped == 1
    assert all((array == before[name]).all() for name, array in trainer.weights.items())


def test_which_constants_are_trained():
    b = GraphBuilder()
    x = b.input("x", (1, 4, 8), "fp16")
    mask = b.const(np.zeros((4, 8), np.float16), name="mask")
    scale = b.const(np.ones(8, np.float16), name="scale")
    weight = b.const(np.ones((8, 8), np.float16), name="weight")
    h = b.mul(x=b.add(x=b.matmul(x=x, y=weight), y=mask), y=scale)
    b.output(b.mul(x=h, y=np.float16(0.5)), name="y")
    assert set(trainable(b.graph)) == {"weight", "scale"}
    assert trainable(b.graph, ["mask"]) == ("mask",)
    with pytest.raises(UsageError, match=r"weigth.*weight"):
        trainable(b.graph, ["weigth"])


def test_arguments_that_do_not_fit():
    for wrong in ({"level": "gpu"}, {"loss": "l1"}, {"optimizer": "sgdd"}, {"renew": "x"}, {"gradients": "x"},
                  {"of": "z"}, {"train": ["no"]}, {"loss_scale": "big"}, {"schedule": "up"}):  # fmt: skip
        with pytest.raises(UsageError):
            Trainer(network(), **wrong)


def test_a_program_leaves_a_slot_for_its_kernels_beside_many_surfaces():
    """26 surfaces and constants on M4, whose kernels take a slot behind them: cut in two, and as right as on M1."""
    import hexane

    b = GraphBuilder()
    inputs = [b.input(f"x{n}", (1, 8, 4, 4), "fp16") for n in range(25)]
    weight = np.random.default_rng(0).standard_normal((8, 8, 1, 1)).astype(np.float16)
    h = b.conv(x=inputs[0], weight=weight)
    for x in inputs[1:]:
        h = b.add(x=h, y=x)
    b.output(h, name="y")
    values = {f"x{n}": np.full((1, 8, 4, 4), n / 10, np.float16) for n in range(25)}
    results = [hexane.compile(b.graph, chip=chip).run(values, level="graph")["y"] for chip in ("M1", "M4")]
    assert np.array_equal(*results)
