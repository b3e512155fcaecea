"""The search over forms of a program keeps what it found out about plans: with and without, programs are the same."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import hexane
from hexane import chips
from hexane.codegen import memory
from hexane.codegen.context import Policy
from hexane.codegen.memory import search
from hexane.codegen.memory.stripes import NOTE
from hexane.codegen.memory.traffic import Cost
from hexane.codegen.price import Prices, prices_us
from hexane.graph import GraphBuilder


def weights(cout, cin, k):
    rng = np.random.default_rng(cout * k + cin)
    return (rng.standard_normal((cout, cin, k, k)) / (cin * k * k) ** 0.5).astype(np.float16)


def network(side):
    """Maps beyond L2, a residual add, a concatenation whose parts are read meanwhile, and a tail that fits."""
    b = GraphBuilder()
    x = b.input("x", (1, 16, side, side), "fp16")
    x = b.relu(x=b.conv(x=x, weight=weights(32, 16, 3), pad_type="same"))
    y = b.relu(x=b.conv(x=x, weight=weights(32, 32, 3), pad_type="same"))
    x = b.add(x=x, y=b.conv(x=y, weight=weights(32, 32, 1)))
    for _ in range(3):
        grown = b.relu(x=b.conv(x=x, weight=weights(16, x.shape[1], 3), pad_type="same"))
        x = b.concat(values=(x, grown), axis=1)
    x = b.max_pool(x=x, kernel_sizes=(2, 2), strides=(2, 2), pad_type="valid")
    x = b.sigmoid(x=b.conv(x=x, weight=weights(24, x.shape[1], 1)))
    b.output(b.conv(x=x, weight=weights(8, 24, 3), pad_type="same"))
    return b.graph


class Nothing(dict):
    """Knows nothing that it is asked for, but what was put in last can be taken out."""

    def __contains__(self, name):
        return False

    def get(self, name, default=None):
        return default


class Forgetful(memory.FactCache):
    """Finds everything out anew; plans are kept, since others tell them apart by id."""

    def __init__(self):
        super().__init__(tensors=Nothing())
        self.kept = []

    def of(self, plan):
        self.kept.append(plan)
        self._facts.clear()
        return super().of(plan)


class Anew(search.StripeAnalysis):
    """Finds bands anew for every form of a program."""

    def __init__(self, *args):
        super().__init__(*args, pieces=Nothing(), striped=Nothing(), cuts=Nothing())


def words(program):
    return [segment.image.to_bytes() for segment in program.segments]


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("side", [96, 200])
def test_what_is_kept_changes_no_program(chip, side, monkeypatch):
    graph = network(side)
    program = hexane.compile(graph, chip)
    assert side < 200 or any(plan.note == NOTE for plan in program.segments[0].plans)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "FactCache", Forgetful)
        assert words(hexane.compile(graph, chip)) == words(program)
    monkeypatch.setattr(search, "StripeAnalysis", Anew)
    assert words(hexane.compile(graph, chip)) == words(program)


@pytest.mark.parametrize("chip", ["M1", "M4", "A19"])
def test_prices_that_are_kept_are_the_same(chip):
    chip = chips.get(chip)
    plans = hexane.compile(network(200), chip).segments[0].plans
    prices = Prices(chip)
    for first in (0, 3, 0):
        assert prices(plans[first:]) == prices_us(plans[first:], chip)


TAKEN = {  # of a second variant, beside 100 us and 8 MB of the first, which took 101 us as it came: whether it is taken
    "as long, fewer bytes": (Cost(100, 4_000_000), True),
    "as long as at first, much fewer bytes": (Cost(101, 1_000_000), True),
    "longer than at first": (Cost(101.5, 0), False),
    "as long, as many bytes": (Cost(100, 8_000_000), False),
    "longer, and hardly fewer bytes": (Cost(101, 7_900_000), False),
    "shorter": (Cost(90, 8_000_000), True),
    "shorter, but many bytes": (Cost(99, 9_000_000), False),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_variant_costs_less_all_told_and_no_more_time_than_at_first(name, monkeypatch):
    cost, taken = TAKEN[name]
    one = SimpleNamespace(first=frozenset(), late=frozenset())
    other = SimpleNamespace(first=frozenset("t"), late=frozenset())
    program = SimpleNamespace(
        **dict.fromkeys(("target", "held", "identity", "stored", "memo")), plans=[None] * 2,
        policy=Policy(), grows=lambda key: False, preferring=lambda first, late: other,
    )  # fmt: skip
    variants = {id(program): search.Variant(one, Cost(100, 8_000_000)), id(other): search.Variant(other, cost)}
    monkeypatch.setattr(search, "StripeAnalysis", lambda *args: None)
    monkeypatch.setattr(search, "_form", lambda form, *args: variants[id(form)])
    monkeypatch.setattr(search, "_moves", lambda form: True)
    monkeypatch.setattr(search, "_spills", lambda best, form: ["t"])
    monkeypatch.setattr(search, "expected", lambda form, price: [Cost(101, 8_000_000)])
    assert search.cheapest(program, None, None) is variants[id(other if taken else program)]


def tail(side):
    """Convolutions in a row."""
    b = GraphBuilder()
    x = b.input("x", (1, 16, side, side), "fp16")
    for _ in range(4):
        x = b.relu(x=b.conv(x=x, weight=weights(16, 16, 3), pad_type="same"))
    b.output(x)
    return b.graph


@pytest.mark.parametrize("chip", ["M1", "M5"])
@pytest.mark.parametrize(("graph", "searched"), [(tail(16), False), (tail(400), True), (network(200), True)])
def test_a_program_whose_tensors_all_stay_is_not_searched(chip, graph, searched, monkeypatch):
    """And the search would have left it as it is."""
    searches, analysis = [], search.StripeAnalysis
    monkeypatch.setattr(search, "StripeAnalysis", lambda *args: searches.append(args) or analysis(*args))
    program = hexane.compile(graph, chip)
    assert bool(searches) is searched
    monkeypatch.setattr(search, "_moves", lambda form: True)
    again = hexane.compile(graph, chip)
    assert [image.to_bytes() for image in again.images] == [image.to_bytes() for image in program.images]
