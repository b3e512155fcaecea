"""One counter of multiply-accumulates: program, check, run and show speak of the same network."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from hexane.cli.main import app
from hexane.graph import GraphBuilder
from hexane.graph.macs import macs_of
from hexane.graph.summary import summarise
from hexane.program import Segment
from hexane.program.attribution import Ways, places_of
from report.networks import mixed, small

STEPS, BATCH, FEATURES, HIDDEN, WIDTH = 5, 2, 8, 16, 4
LSTM = STEPS * BATCH * 4 * HIDDEN * (FEATURES + HIDDEN)
LINEAR = STEPS * BATCH * HIDDEN * WIDTH


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float16) * 0.1


def recurrent():
    """An LSTM, which the host computes, in front of a linear layer, which the engine computes."""
    b = GraphBuilder()
    x = b.input("x", (STEPS, BATCH, FEATURES), "fp16")
    state = np.zeros((BATCH, HIDDEN), np.float16)
    y, *_ = b.lstm(
        x=x, initial_h=state, initial_c=state, weight_ih=_random(4 * HIDDEN, FEATURES),
        weight_hh=_random(4 * HIDDEN, HIDDEN), output_sequence=True,
    )  # fmt: skip
    b.output(b.linear(x=y, weight=_random(WIDTH, HIDDEN), bias=np.zeros(WIDTH, np.float16)), name="out")
    return b.graph


def pooled():
    """An average pool, which is taken apart into a convolution, behind a convolution."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 16, 16), "fp16")
    y = b.conv(x=x, weight=_random(16, 8, 3, 3), pad_type="same")
    b.output(b.avg_pool(x=y, kernel_sizes=(2, 2), strides=(2, 2), pad_type="valid"), name="out")
    return b.graph


def looped():
    """Products in the body of a loop, which the host runs."""
    b = GraphBuilder()
    x = b.input("x", (4, 4), "fp16")
    count, weight = b.const(np.int32(0)), _random(4, 4)
    turns = {"i": count.type, "v": x.type}
    with b.subblock(turns) as condition:
        condition.set_outputs([b.less(x=condition.inputs[0], y=np.int32(3))])
    with b.subblock(turns) as body:
        i, v = body.inputs
        body.set_outputs([b.add(x=i, y=np.int32(1)), b.matmul(x=v, y=weight)])
    _, y = b.op("while_loop", loop_vars=(count, x), blocks=(condition, body))
    b.output(y, name="out")
    return b.graph


@pytest.mark.parametrize("network", [recurrent, pooled, looped, small, mixed])
def test_program_check_and_show_count_the_same(network) -> None:
    graph = network()
    program = hexane.compile(graph)
    stats, found = program.stats(), hexane.check(graph)
    assert stats["macs"] == found.totals["macs"] == summarise(graph.main).macs
    assert stats["macs_on_engine"] == found.totals["macs_on_engine"] == found.as_dict()["macs_on_engine"]
    assert 0 <= stats["macs_on_engine"] <= 1


def test_the_host_s_recurrent_layer_counts() -> None:
    program = hexane.compile(recurrent())
    places = places_of(recurrent(), program.segments)
    assert program.segments[places["out"].segment].kind == "engine"
    stats = program.stats()
    assert stats["macs"] == LSTM + LINEAR and stats["macs_on_engine"] == LINEAR / (LSTM + LINEAR)


def test_recurrent_layers_of_onnx_count() -> None:
    b = GraphBuilder()
    x = b.input("X", (STEPS, BATCH, FEATURES), "fp32")
    weights = {"W": _random(1, 4 * HIDDEN, FEATURES), "R": _random(1, 4 * HIDDEN, HIDDEN)}
    y, *_ = b.op("onnx.LSTM", X=x, **{name: data.astype(np.float32) for name, data in weights.items()})
    b.output(y, name="Y")
    assert sum(map(macs_of, b.graph.ops)) == LSTM
    assert hexane.compile(b.graph).stats()["macs_on_engine"] == 0.0


def test_without_any_product_the_share_says_whether_the_host_computes() -> None:
    for op, share in (("relu", 1.0), ("cumsum", 0.0)):
        b = GraphBuilder()
        b.output(b.op(op, x=b.input("x", (1, 4, 8, 8), "fp16")), name="out")
        assert hexane.compile(b.graph).stats()["macs_on_engine"] == share
        assert hexane.check(b.graph).totals["macs_on_engine"] == share


def test_files_and_commands_say_the_same_number(tmp_path) -> None:
    path, wanted = tmp_path / "net.mil", LINEAR / (LSTM + LINEAR)
    recurrent().save(path)
    hexane.compile(recurrent()).save(tmp_path / "net.hexane")
    assert hexane.load_program(tmp_path / "net.hexane").stats()["macs_on_engine"] == wanted

    def printed(*command: str) -> dict:
        result = CliRunner().invoke(app, [*command, "--json"])
        assert result.exit_code in (0, 1), result.output
        return json.loads(result.stdout)

    assert printed("check", str(path))["reports"][0]["macs_on_engine"] == wanted
    assert printed("run", str(path), "--random", "0")["macs_on_engine"] == wanted
    assert printed("run", str(tmp_path / "net.hexane"), "--random", "0")["macs_on_engine"] == wanted


def test_an_op_that_is_nowhere_counts_where_its_first_operand_is() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 8, 8), "fp16")
    first, second = b.relu(x=x, name="first"), b.sigmoid(x=x, name="second")
    b.output(b.add(x=first, y=second, name="both"))
    b.output(b.sub(x=second, y=first, name="back"))
    segments = [Segment("engine", "", ("relu 'first'",), (), ()), Segment("host", "", ("sigmoid 'second'",), (), ())]
    places = places_of(b.graph, segments)
    assert {name: places[name].segment for name in ("first", "second", "both", "back")} == {
        "first": 0, "second": 1, "both": 0, "back": 1,
    }  # fmt: skip


def test_no_op_is_looked_at_twice_on_ways_that_go_back_to_the_start() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4), "fp16")
    for _ in range(300):
        x = b.add(x=b.relu(x=x), y=b.sigmoid(x=x))
    b.output(x)
    ops, seen = b.graph.main.ops, []
    ways = Ways({op.output.name: op for op in ops}, {"x"})
    for wanted in ((), ops[:2], ops[7:8]):
        known: dict = {}
        seen.clear()
        nearest = [ways.first(op, lambda op, wanted=wanted: seen.append(op) or op in wanted, known) for op in ops]
        assert len(seen) == len(set(seen)) <= len(ops)
        assert nearest == [_first_of(ways, op, wanted) for op in ops]


def _first_of(ways: Ways, maker, wanted):
    """The same by going through the whole way anew."""
    waiting, visited = [maker], set()
    while waiting:
        op = waiting.pop()
        if op in wanted:
            return op
        if op not in visited:
            visited.add(op)
            waiting += [ways.makers[v.name] for v in op.operands() if v.name in ways.makers]
    return None


def test_a_move_is_not_held_back_by_a_function_on_the_host() -> None:
    """A result with a new layout: its copy stands for the transpose in front of the function, too."""
    b = GraphBuilder()
    x = b.transpose(x=b.abs(x=b.input("x", (1, 52, 4, 1), "fp16")), perm=(0, 2, 3, 1), name="t")
    b.output(b.cosh(x=b.tanh(x=x), name="y"))
    counts = hexane.compile(b.graph).stats()
    rows = {row.name: row for row in hexane.check(b.graph).rows}
    assert {name for name, row in rows.items() if row.place == "host"} == {"y"}
    assert list(counts["host_reasons"].values()) == [rows["y"].reason]


NOTHING = {
    "a power of 1": lambda b, x: b.pow(x=x, y=np.float16(1)),
    "a product with 1": lambda b, x: b.mul(x=x, y=np.float16(1)),
    "a slice of all": lambda b, x: b.slice_by_index(x=x, begin=(0, 0, 0, 0), end=(1, 8, 4, 4)),
    "two turns": lambda b, x: b.transpose(x=b.transpose(x=x, perm=(0, 2, 1, 3)), perm=(0, 2, 1, 3)),
}


@pytest.mark.parametrize("nothing", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("order", ["before", "behind"])
def test_an_op_of_which_nothing_is_left_is_not_the_host_s(nothing, order):
    """Beside an op of the host, whose operand or result it passes on: `compile` counts that one alone."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 4, 4), "fp16")
    y = b.cumsum(x=nothing(b, x), axis=1) if order == "before" else nothing(b, b.cumsum(x=x, axis=1))
    b.output(y, name="y")
    counts = hexane.compile(b.graph, "M1").stats()
    for whose in ("hexane", "apple"):
        report = hexane.check(b.graph, "M1", as_=whose)
        assert [row.op for row in report.rows if row.place == "host"] == ["cumsum"]
        assert report.totals["host_ops"] + report.casts == sum(counts["host_ops"].values()) == 1
        assert not report.fits


def test_what_an_op_of_the_host_takes_in_is_the_host_s():
    """A scale in the weights of a convolution that is the host's: work, which the host does."""
    b = GraphBuilder()
    x = b.mul(x=b.input("x", (1, 4, 20000, 4), "fp16"), y=np.float16(3), name="scaled")
    b.output(b.conv(x=x, weight=np.ones((8, 4, 3, 3), np.float16), name="y"))
    assert not hexane.compile(b.graph, "M1").stats()["tasks"]
    assert {row.name: row.place for row in hexane.check(b.graph, "M1").rows} == {"scaled": "host", "y": "host"}
