"""Chains: the same numbers as one after the other, no copies between, results in sets used in turn, feedback."""

from __future__ import annotations

import numpy as np
import pytest
from tests.restrictions.programs import CONV, blob, call, conv, program, tensor, unary

from blobs import blob_bytes
from hexane.errors import UnsupportedError, UsageError
from hexane.mil import Chain, Event, Model, Options, RequestQueue

C = tensor(1, 32, 1, 64)
TEXT = program(CONV + blob((32, 32, 1, 1), "w") + conv("w", type_=C), f"{C} x", "y")
RNG = np.random.default_rng(7)
INPUT = RNG.normal(0, 1, (1, 32, 1, 64)).astype(np.float16)


def layers(count: int, chip: str) -> list[Model]:
    rng = np.random.default_rng(8)
    weights = [rng.normal(0, 0.2, (32, 32, 1, 1)).astype(np.float16) for _ in range(count)]
    files = [{"@model_path/weights/w.bin": blob_bytes([(w, "fp16")])} for w in weights]
    options = Options(level="engine" if chip == "M1" else "graph")
    return [Model(TEXT, f, chip, options=options).compile().load() for f in files]


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_eight_programs_chained_and_not(chip: str) -> None:
    models = layers(8, chip)
    value = INPUT
    for model in models:
        value = model.evaluate({"x": value})["y"]
    assert sum(model.traffic.copies for model in models) == 16
    with Chain(models) as chain:
        for _ in range(3):
            assert np.array_equal(chain.evaluate({"x": INPUT})["y"], value)
        assert (chain.traffic.uploads, chain.traffic.downloads) == (3, 3)
        other = chain.evaluate({"x": -INPUT})["y"]
    for model in models:
        assert model.level == ("engine" if chip == "M1" else "graph")
    value = -INPUT
    for model in models:
        value = model.evaluate({"x": value})["y"]
    assert np.array_equal(other, value)


def test_results_stay_until_their_set_comes_again() -> None:
    with Chain(layers(2, "M4"), sets=2) as chain:
        first = chain.submit({"x": INPUT}).result()
        second = chain.submit({"x": INPUT * 2}).result()
        assert not np.array_equal(first.read("y"), second.read("y"))
        chain.submit({"x": INPUT}).result()
        with pytest.raises(UsageError, match="2 sets"):
            first.read()
        with pytest.raises(UsageError, match="no result"):
            second.read("z")


def test_feedback_stays_on_the_device() -> None:
    """A recurrence: the state goes from one submission to the next in ping-pong buffers."""
    body = call(C, "a", "add", "x = s, y = x") + call(C, "out", "mul", "x = a, y = x")
    model = Model(program(body, f"{C} s, {C} x", "a, out"), {}, "M1").compile().load()
    with Chain([model], feedback={(0, "s"): (0, "a")}) as chain:
        state = np.zeros_like(INPUT)
        for step in range(5):
            x = (INPUT * (step + 1)).astype(np.float16)
            expected = model.evaluate({"s": state, "x": x})
            got = chain.evaluate({"x": x})
            assert np.array_equal(got["out"], expected["out"])
            state = expected["a"]
        assert chain.traffic.uploads == 5
        chain.preset({(0, "s"): INPUT})
        assert np.array_equal(chain.evaluate({"x": INPUT})["out"], model.evaluate({"s": INPUT, "x": INPUT})["out"])


def test_signals_order_two_queues() -> None:
    ready = Event()
    with Chain(layers(1, "M4")) as first, Chain(layers(1, "M4"), queue=RequestQueue(name="second")) as second:
        late = second.submit({"x": INPUT}, waits=[(ready, 2)])
        assert not late.done()
        first.submit({"x": INPUT}, signals=[(ready, 1)]).result()
        assert not late.done()
        first.submit({"x": INPUT}, signals=[(ready, 2)]).result()
        assert np.array_equal(late.result(10).read("y"), first.evaluate({"x": INPUT})["y"])
        second.queue.close()


def test_chains_that_cannot_be() -> None:
    models = layers(2, "M4")
    wide = Model(unary("exp"), {}, "M4").compile().load()
    with pytest.raises(UnsupportedError, match="lie differently"):
        Chain([models[0], wide], links={(1, "x"): (0, "y")})
    with pytest.raises(UsageError, match="later"):
        Chain(models, links={(0, "x"): (1, "y")})
    with pytest.raises(UsageError, match="no models"):
        Chain([])
    with pytest.raises(UsageError, match="not loaded"):
        Chain([Model(TEXT, {}, "M4")])
    with Chain(models) as chain, pytest.raises(UsageError, match="missing"):
        chain.submit({})
    with pytest.raises(UnsupportedError, match="code 15"):
        Chain([Model(unary("exp"), {}, quirks=True).compile().load()])
