"""``hexane estimate`` gives one answer: its parts add up, the host and every launch count, both views are explained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.graph import Graph, GraphBuilder
from report.networks import command, mixed, saved, small


def _parts(found: dict) -> float:
    return sum(found["parts"][key] for key in ("launch_us", "host_us", "copies_us", "engine_us"))


@pytest.mark.parametrize("make", [small, mixed])
def test_the_parts_add_up_to_the_answer(make, tmp_path: Path) -> None:
    model = saved(make(), tmp_path)
    found = command("estimate", model, "--json")
    (network,), (both,) = found["estimates"], found["how_long"]
    for one in (network, both["program"]):
        assert _parts(one) == pytest.approx(one["latency_us"])
    assert f"{both['program']['latency_us']:.0f} us" in both["answer"]
    assert f"{network['latency_us']:.0f} us" in both["answer"]


def test_every_launch_and_the_host_count(tmp_path: Path) -> None:
    """Three ops that the engine lacks, between ops that it has: four launches and a host that takes time."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 16, 16), "fp16")
    for i in range(3):
        x = b.cumsum(x=b.relu(x=x, name=f"r{i}"), axis=3, name=f"c{i}")
    b.output(b.relu(x=x, name="out"))
    model = saved(b.graph, tmp_path)
    program = hexane.compile(hexane.load(model))
    (both,) = command("estimate", model, "--json")["how_long"]
    assert both["program"]["parts"]["launches"] == program.stats()["engine_segments"] == 4
    assert both["program"]["parts"]["host_us"] > 0
    assert both["program"]["parts"]["launch_us"] > 3 * 50


def test_the_answer_counts_launches(tmp_path: Path) -> None:
    text = command("estimate", saved(small(), tmp_path))
    assert " us with 1 launch; " in text
    (both,) = command("estimate", saved(mixed(), tmp_path), "--json")["how_long"]
    assert " us with 2 launches" in both["answer"] and both["program"]["parts"]["launches"] == 2


def test_nothing_to_multiply_is_no_share(tmp_path: Path) -> None:
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 8, 16, 16), "fp16"), name="y"))
    model, page = saved(b.graph, tmp_path), tmp_path / "page"
    said = command("run", model, "--random", "1", "--report", page)
    said += command("compile", model, "-o", tmp_path / "p.hwx", "--stats") + command("report", page)
    assert "nothing to multiply" in said and "100.0" not in said
    assert "There is nothing to multiply; no op stays on the host." in (page / "report.json").read_text()
    html = (page / "index.html").read_text()
    assert "<b>100.0%</b>" not in html


def test_a_recurrent_layer_on_the_host_is_the_hosts_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (16, 1, 8), "fp32")
    zero = np.zeros((1, 12), np.float32)
    out, *_ = b.op(
        "lstm", x=x, initial_h=zero, initial_c=zero, weight_ih=rng.standard_normal((48, 8)).astype(np.float32),
        weight_hh=rng.standard_normal((48, 12)).astype(np.float32), bias=np.zeros(48, np.float32), direction="forward",
        output_sequence=True,
    )  # fmt: skip
    b.output(out)
    graph: Graph = b.graph
    program = hexane.compile(graph)
    assert program.stats()["macs"] == 16 * 48 * 20
    if program.stats()["engine_segments"] == 0:
        assert program.stats()["macs_on_engine"] == 0.0
        (both,) = command("estimate", saved(graph, tmp_path), "--json")["how_long"]
        assert both["program"]["parts"]["launches"] == 0
        assert both["program"]["parts"]["host_us"] == pytest.approx(both["program"]["latency_us"])


def test_one_number_of_macs_under_one_key(tmp_path: Path) -> None:
    model = saved(mixed(), tmp_path)
    share = hexane.compile(mixed()).stats()["macs_on_engine"]
    assert command("check", model, "--json", status=1)["reports"][0]["macs_on_engine"] == share
    run = command("run", model, "--random", 1, "--json")
    assert run["macs_on_engine"] == run["program"]["macs_on_engine"] == share


def test_a_chip_without_code_generation_says_so(tmp_path: Path) -> None:
    text = command("estimate", saved(small(), tmp_path), "--chip", "M1,M6")
    assert "M6: Apple's compiler would reach" in text and "no code generation for M6" in text
    assert "hexane's program" in text and "launch us" in text and "host us" in text


def test_a_time_that_nobody_knows_is_no_zero(tmp_path: Path) -> None:
    """Apple's compiler copies with a task; hexane leaves a lone cast to its host, of which no time is known."""
    b = GraphBuilder()
    b.output(b.cast(x=b.input("x", (1, 8, 4, 4), "fp32"), dtype="fp16"))
    (both,) = command("estimate", saved(b.graph, tmp_path), "--json")["how_long"]
    assert "writes takes a time that is not known, on the host alone; Apple's" in both["answer"]
    assert "about 0 us" not in both["answer"] and "with 1 launch" in both["answer"]


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((70000, 2), "M1: nothing of it runs on the engine; the host takes about "),
        ((1, 2) * 4, "; Apple's compiler would leave it to the host: a time that is not known"),
    ],
)
def test_what_only_hosts_take_is_a_sentence(shape: tuple[int, ...], said: str, tmp_path: Path) -> None:
    """A batch beyond every engine's; eight axes, which hexane folds and Apple's compiler refuses."""
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", shape, "fp16")))
    (both,) = command("estimate", saved(b.graph, tmp_path), "--json")["how_long"]
    assert said in both["answer"]
