"""The verdict of a run: what is infinite comes first, the answer counts, JSON stays JSON, the exit status says it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hexane.counts import counted
from hexane.errors import UsageError
from hexane.formats.strict_json import by_rows, strict_json
from hexane.graph import Graph, GraphBuilder
from hexane.numerics.autoscale import rescaled
from hexane.session.agreement import agreement, agreements, beside_fp16
from hexane.session.answers import EXACT, THRESHOLD, TOP, Answer, OutputQuestion, answered, question_of
from hexane.session.run import run_network
from hexane.session.tables import run_facts
from hexane.session.verdict import verdict_of, word_for
from hexane.studies.trials import relative_error
from report.networks import command, saved, small


def _strictly(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"a bare {word}")

    return json.loads(text, parse_constant=refuse)


def overflowing() -> Graph:
    """Products of 300 squared: finite in float32, above 65504."""
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8), "fp32")
    y = b.conv(x=x, weight=np.full((16, 16, 1, 1), 300, np.float32), strides=(1, 1), pad_type="valid",
               dilations=(1, 1), groups=1, name="y")  # fmt: skip
    b.output(b.mul(x=y, y=y, name="z"))
    return b.graph


def tiny() -> Graph:
    """Weights so small that the engine drops most products; powers of two save them."""
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8), "fp32")
    weight = (rng.standard_normal((8, 16, 1, 1)) * 2.0**-16).astype(np.float32)
    y = b.conv(x=x, weight=weight, strides=(1, 1), pad_type="valid", dilations=(1, 1), groups=1, name="y")
    b.output(b.mul(x=b.relu(x=y, name="r"), y=np.float32(64.0), name="out"))
    return b.graph


def test_infinities_are_counted_named_first_and_spoil_the_verdict(tmp_path: Path) -> None:
    model = saved(overflowing(), tmp_path)
    np.save(tmp_path / "x.npy", np.ones((1, 16, 8, 8), np.float32))
    found = command("run", model, "--input", f"x={tmp_path / 'x.npy'}", "--json", status=1)
    assert found["verdict"] == "broken"
    assert found["outputs"]["z"]["infinities"] == 16 * 64 and found["outputs"]["z"]["nans"] == 0
    (row,) = found["agreement"]
    assert row["nonfinite"] == 16 * 64 and row["largest"] is None and row["cosine"] is None
    text = command("run", model, "--input", f"x={tmp_path / 'x.npy'}", status=1)
    first = next(line for line in text.splitlines() if line.startswith("verdict"))
    assert "broken: z has 1024 infinite values" in first and "WRONG: " in text


def test_a_report_of_infinities_is_strict_json_in_file_and_page(tmp_path: Path) -> None:
    model = saved(overflowing(), tmp_path)
    printed = command("run", model, "--random", 1, "--report", tmp_path / "r", "--json", status=1)
    assert printed["verdict"] == "broken"
    data = _strictly((tmp_path / "r" / "report.json").read_text())
    assert data["run"]["verdict"] == "broken" and data["verdict"].startswith("Broken: z has")
    page = (tmp_path / "r" / "index.html").read_text()
    inside = page.partition('type="application/json">')[2].partition("</script>")[0]
    assert _strictly(inside)["run"]["verdict"] == "broken"


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), np.float32("inf"), np.float64("nan")])
def test_strict_json_writes_what_json_has_not_as_text(value: float) -> None:
    text = strict_json({"a": [value, {"b": (value,)}], float(value): b"\x01"})
    found = _strictly(text)
    assert found["a"][0] == found["a"][1]["b"][0] == str(float(value))


def test_the_verdict_names_autoscale_and_autoscale_cures(tmp_path: Path) -> None:
    model = saved(tiny(), tmp_path)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32) / 32)
    given = ("--input", f"x={tmp_path / 'x.npy'}")
    found = command("run", model, *given, "--json", status=None)
    assert found["verdict"] in ("changed", "broken") and found["advice"].startswith("WRONG: try --autoscale")
    cured = command("run", model, *given, "--autoscale", "--json")
    assert cured["verdict"] in ("same", "close") and cured["advice"] == ""


def test_tolerance_sets_the_exit_status(tmp_path: Path) -> None:
    model = saved(small(), tmp_path)
    found = command("run", model, "--random", 1, "--json")
    relative = found["agreement"][0]["relative"]
    assert found["verdict"] in ("same", "close") and relative > 0
    command("run", model, "--random", 1, "--tolerance", relative * 1.01)
    command("run", model, "--random", 1, "--tolerance", relative * 0.99, status=1)
    command("run", saved(overflowing(), tmp_path, "o.mil"), "--random", 1, "--tolerance", 1e9, status=1)


@pytest.mark.parametrize(
    "option", [("--level", "grph"), ("--compare", "foo"), ("--normalize", "foo"), ("--tolerance", -1)]
)
def test_a_wrong_word_is_found_before_the_work(tmp_path: Path, option: tuple) -> None:
    with pytest.raises(UsageError, match=r"foo|grph|tolerance"):
        command("run", tmp_path / "there-is-no-such.mil", "--random", 1, *option, status=None)


def _row(got: Any, expected: Any, question: OutputQuestion | None = None) -> str:
    return word_for(agreement("y", np.asarray(got, np.float32), np.asarray(expected, np.float32), question))


def test_words() -> None:
    inf, nan = float("inf"), float("nan")
    assert _row([1, 2], [1, 2]) == "same"
    assert _row([1, 2.01], [1, 2]) == "close"
    assert _row([1, 2.3], [1, 2]) == "changed"
    assert _row([1, 9], [1, 2]) == "broken"
    assert _row([inf, 2], [1, 2]) == _row([1, 2], [inf, 2]) == _row([-inf, 2], [inf, 2]) == "broken"
    assert _row([nan, 2], [nan, 2]) == "broken", "NaN is no result, whoever computes it"
    assert _row([-inf, 2], [-inf, 2]) == "same", "a mask of the network's own"
    assert _row([inf, inf], [inf, inf]) == "broken", "nothing finite is left to compare"
    assert _row([0, 0], [0, 0]) == "same" and _row([0.5, 0], [0, 0]) == "broken"
    top = OutputQuestion(TOP)
    assert _row([[0.5, 0.501]], [[0.501, 0.5]], top) == "changed", "a small error, and another class"
    assert _row([[0.4, 0.6]], [[0.401, 0.599]], top) == "close"
    assert _row([0.4999], [0.5001], OutputQuestion(THRESHOLD)) == "changed"
    assert word_for(agreement("y", np.array([3, 900]), np.array([3, 1]), OutputQuestion(EXACT))) == "changed"
    assert word_for(agreement("y", np.array(["cat"]), np.array(["cat"]), OutputQuestion(EXACT))) == "same"
    assert word_for(agreement("y", np.array(["cat"]), np.array(["dog"]), OutputQuestion(EXACT))) == "changed"
    whole = np.arange(200)
    for wrong, word in ((1, "close"), (2, "close"), (3, "changed")):  # of 1 % and no more an answer is not changed
        row = agreement("y", whole + (whole < wrong), whole, OutputQuestion(EXACT))
        assert word_for(row) == word


def test_the_worst_output_decides() -> None:
    good, bad = np.ones(4, np.float32), np.full(4, np.inf, np.float32)
    verdict = verdict_of([agreement("a", good, good), agreement("b", bad, good)], "reference")
    assert verdict is not None and verdict.word == "broken" and verdict.far.startswith("b has 4 infinite values")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda b, x: b.softmax(x=x, axis=-1), TOP),
        (lambda b, x: b.sigmoid(x=x), THRESHOLD),
        (lambda b, x: b.linear(x=x, weight=np.ones((5, 8), np.float32), bias=np.zeros(5, np.float32)), TOP),
        (lambda b, x: b.reduce_argmax(x=x, axis=1, keep_dims=False), EXACT),
        (lambda b, x: b.quantize(input=x, scale=np.float32(0.5), output_dtype="uint8"), None),
        (lambda b, x: b.reduce_mean(x=b.sigmoid(x=x), axes=[1], keep_dims=True), THRESHOLD),
        (lambda b, x: b.reduce_mean(x=b.expand_dims(x=x, axes=[0]), axes=[1], keep_dims=False), None),
        (lambda b, x: b.tanh(x=x), None),
    ],
)
def test_which_outputs_are_answers(make: Any, kind: str | None) -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 8), "fp32")
    value = make(b, x)
    b.output(value)
    question = question_of(value)
    assert (question.kind if question else None) == kind


def test_a_softmax_over_channels_is_an_answer_in_every_view() -> None:
    """[1, 5, 1, 1] over axis 1 as [1, 5] and [5, 1]; of [1, 5, 2, 1] no view keeps the rows along an axis."""
    b = GraphBuilder()
    one, two = (b.softmax(x=b.input(name, (1, 5, extent, 1), "fp32"), axis=1) for name, extent in (("x", 1), ("z", 2)))
    views = [
        b.reshape(x=x, shape=np.array(shape, np.int32)) for x, shape in ((one, (1, 5)), (one, (5, 1)), (two, (5, 2)))
    ]
    for view in views:
        b.output(view)
    questions = [question_of(view) for view in views]
    assert [question and question.axis for question in questions] == [1, 0, None]
    assert question_of(one) == OutputQuestion(TOP, 1, True)


def test_outputs_of_which_the_same_is_true_stand_in_one_sentence() -> None:
    top, digits = OutputQuestion(TOP, is_probability=True), np.eye(3, dtype=np.float32)
    rows = [agreement(name, digits[:1], digits[at : at + 1], top) for name, at in (("a", 0), ("b", 1), ("c", 0))]
    verdict = verdict_of(rows, "reference")
    assert verdict is not None
    assert verdict.far.endswith("top-1 of a, c is the same; top-1 of b differs in 1 of 1")


def test_a_class_that_moves_is_said() -> None:
    """Two classes nearer to each other than fp16 can tell: float32 takes the second, the engine the first."""
    b = GraphBuilder()
    x = b.input("x", (1, 4), "fp32")
    weight = np.array([[1.0, 0, 0, 0], [1.0001, 0, 0, 0]], np.float32)
    b.output(b.linear(x=x, weight=weight, bias=np.zeros(2, np.float32), name="scores"))
    done = run_network(b.graph, {"x": np.ones((1, 4), np.float32)}, name="two")
    assert done.verdict is not None and done.verdict.word == "changed"
    assert "top-1 of scores differs in 1 of 1 (1 a tie: float32's two numbers are one in fp16)" in done.verdict.far


def test_ties_are_counted_apart() -> None:
    expected = np.array([[0.1, 0.100004, 0.0], [0.1, 0.2, 0.0], [0.0, 0.5, 0.4], [np.nan, 1, 0]], np.float32)
    got = np.array([[0.1, 0.1, 0.0], [0.2, 0.1, 0.0], [0.0, 0.5, 0.4], [0, 0, 1]], np.float32)
    assert answered(got, expected, OutputQuestion(TOP)) == Answer(TOP, 3, 2, 1)
    assert answered(got.T, expected.T, OutputQuestion(TOP, 0)) == Answer(TOP, 3, 2, 1)
    near, far = np.array([0.4999, 0.2, 0.7], np.float32), np.array([0.5001, 0.9, 0.8], np.float32)
    assert answered(near, far, OutputQuestion(THRESHOLD)) == Answer(THRESHOLD, 3, 2, 1)
    huge = np.array([[1e6, 2e6]], np.float32)
    assert answered(huge[:, ::-1], huge, OutputQuestion(TOP)) == Answer(TOP, 1, 1), "beyond fp16 nothing is one number"


def _rare(bias: float) -> Graph:
    """A detector: logits far below zero where there is nothing to detect."""
    rng = np.random.default_rng(1)
    b = GraphBuilder()
    x = b.input("x", (1, 8, 8, 8), "fp32")
    weight = rng.normal(0, 0.3, (1, 8, 1, 1)).astype(np.float32)
    y = b.conv(x=x, weight=weight, bias=np.array([bias], np.float32), pad_type="valid", name="l")
    b.output(b.sigmoid(x=y, name="y"))
    return b.graph


def test_a_detector_that_detects_nothing_is_right() -> None:
    done = run_network(_rare(-11), {"x": np.random.default_rng(1).normal(size=(1, 8, 8, 8))}, name="rare")
    (row,) = done.agreements
    assert row.relative is not None and row.relative > 0.5, "most of a number near 0 is error"
    assert done.verdict is not None and done.verdict.word == "same"
    assert "of a probability at most" in done.verdict.far and not done.verdict.advice


def test_probabilities_that_are_wrong_are_still_wrong() -> None:
    probability = OutputQuestion(THRESHOLD, is_probability=True)
    assert _row([0.28, 0.2], [0.3, 0.2], probability) == "changed"
    assert _row([0.0, 0.02], [0.0, 0.0001], probability) == "broken"
    assert _row([0.4999, 0.0], [0.5001, 0.0], probability) == "changed", "another decision"
    assert _row([0.0001, 0.0], [0.0002, 0.0], probability) == "same"
    assert _row([0.0001, 0.0], [0.0002, 0.0]) == "broken", (
        "an output without a range of its own has no floor but fp16's"
    )
    assert _row([2.0**-25, 0.0], [2.0**-26, 0.0]) == "same"
    ones = np.ones(100)
    one_off = ones - 0.005 * (np.arange(100) == 3)
    assert _row(one_off, ones, probability) == _row(one_off, ones) == "same", "within the rounding of fp16 (rms)"


def test_fp16_storage_of_the_same_network_stands_beside_the_error() -> None:
    """Multiples of 1/4 lose nothing; a third and its sums lose what fp16 has not; the host's fp16 agrees."""
    b = GraphBuilder()
    x = b.input("x", (1, 4, 2, 2), "fp32")
    b.output(b.mul(x=b.add(x=x, y=x, name="s"), y=np.float32(1 / 3), name="y"))
    exact = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2) / 4
    third = np.float32(np.float16(1 / 3))
    wanted = np.float32(np.float16(2 * exact * third))
    done = run_network(b.graph, {"x": exact}, name="thirds")
    (row,) = done.agreements
    truth = 2 * exact * np.float32(1 / 3)
    assert row.fp16_storage == pytest.approx(float(np.linalg.norm(wanted - truth) / np.linalg.norm(truth)), rel=1e-3)
    assert "fp16 storage alone" in done.verdict.far  # type: ignore[union-attr]


def test_what_fp16_storage_alone_loses_is_the_advice() -> None:
    """1000.3 is 1000.5 in fp16 (a step of 1/2 there): less 1000 it is off by two thirds, whatever computes it."""
    b = GraphBuilder()
    x = b.input("x", (1, 16, 4, 4), "fp32")
    b.output(b.sub(x=x, y=np.float32(1000), name="y"))
    done = run_network(b.graph, {"x": np.full((1, 16, 4, 4), 1000.3, np.float32)}, name="cancelled")
    assert done.agreements[0].fp16_storage == pytest.approx(2 / 3, rel=1e-3) and done.verdict is not None
    assert done.verdict.word == "broken" and done.verdict.advice.startswith("WRONG: fp16 storage alone costs 66.6")


def test_fp16_storage_that_overflows_is_without_bound() -> None:
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 4), "fp32"), name="y"))
    expected = {"y": np.array([[1, 2, 3, 4e5]], np.float32)}
    stored = {"y": np.array([[1, 2, 3, np.inf]], np.float32)}
    rows = beside_fp16(agreements(expected, expected, b.graph), stored, expected, b.graph)
    assert rows[0].fp16_storage == float("inf")
    assert "fp16 storage alone: without bound" in verdict_of(rows, "reference").far  # type: ignore[union-attr]


def test_autoscale_is_advised_where_it_helps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from hexane.session import scaling

    x = {"x": np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32) / 32}
    helped = run_network(tiny(), x, name="tiny")
    assert (
        helped.verdict is not None and "--autoscale (1 layer scaled by powers of two: out from" in helped.verdict.advice
    )
    monkeypatch.setattr(scaling, "_scaled", lambda done, insight: done.parts())
    same = run_network(tiny(), x, name="tiny")
    assert same.verdict is not None and same.verdict.advice and "--autoscale" not in same.verdict.advice
    kept = run_network(tiny(), x, name="tiny", autoscale=True)
    assert kept.autoscale is not None and kept.autoscale["layers"] == {} and "was not kept" in kept.autoscale["text"]
    assert np.array_equal(kept.outputs["out"], same.outputs["out"])


def test_a_trial_without_tasks_computes_what_the_scaled_program_does() -> None:
    """Engine, host, engine and a constant output: the program's own parts give the bits."""
    from hexane.session.scaling import _scaled, _values

    b = GraphBuilder()
    x = b.input("x", (1, 8, 8, 8), "fp16")
    weight = np.random.default_rng(1).standard_normal((8, 8, 3, 3)).astype(np.float16) / 512
    y = b.conv(x=x, weight=weight, pad_type="same", name="first")
    y = b.cumsum(x=y, axis=1, exclusive=False, reverse=False)
    b.output(b.conv(x=b.erf(x=y), weight=weight, pad_type="same", name="last"), b.const(np.float16([1, 2]), name="two"))
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 8, 8, 8)).astype(np.float16)}
    done = run_network(b.graph, inputs, name="parts")
    scaling = {"first": 5, "last": 3}
    program = done.form.compiled(done.graph, done.chip, scaling)
    parts = _scaled(done, SimpleNamespace(scaling=scaling))
    assert [kind for kind, _ in parts] == [segment.kind for segment in program.segments]
    values = _values(done, parts)
    for name, array in program.run(inputs, level="graph").items():
        assert np.asarray(values[name]).tobytes() == array.tobytes()


def test_an_error_without_bound_is_no_help_after_another() -> None:
    """float32 gives zeros, the engine something else: that is infinitely wrong before and after."""
    from hexane.session.scaling import _helps

    nothing, something = np.zeros(4, np.float32), np.ones(4, np.float32)
    before, after = (agreement("y", something * scale, nothing) for scale in (1.0, 0.5))
    assert before.relative == after.relative == np.inf
    assert not _helps([before], [after])
    assert _helps([before], [agreement("y", nothing, nothing)])
    finite, nearer = (agreement("y", np.float32([1, y]), np.float32([1, 1])) for y in (2, 1.5))
    assert _helps([finite], [nearer]) and not _helps([finite], [finite])


@pytest.mark.parametrize(("layers", "tried"), [(1, True), (9, False)])
def test_scaling_is_tried_where_float32_gives_something_finite(layers: int, tried: bool, monkeypatch) -> None:
    from hexane.session import scaling

    parts, asked = scaling._scaled, []
    monkeypatch.setattr(scaling, "_scaled", lambda *given: asked.append(given) or parts(*given))
    b = GraphBuilder()
    y = b.input("x", (1, 8, 4, 4), "fp16")
    for weight in [6e4] * layers + [1e-3]:
        y = b.conv(x=y, weight=np.full((8, 8, 1, 1), weight, np.float16))
    b.output(y, name="y")
    done = run_network(b.graph, {"x": np.ones((1, 8, 4, 4), np.float16)}, name="large")
    assert np.isfinite(done.reference["y"]).all() == tried
    assert bool(asked) == tried
    assert (tried and done.insight.scaling) or "float32 itself gives NaN or infinities" in done.verdict.advice


def test_json_by_rows_says_what_strict_json_says() -> None:
    value = {"a": [{"b": float("nan")}, (1, "x\n")], "empty": [], 'quote"': {"c": [1, 2]}, "none": None}
    text = by_rows(value)
    assert json.loads(text) == json.loads(strict_json(value))
    assert len(text.splitlines()) == 9  # the brackets, one for each entry and element


def test_labels_of_another_library_are_compared_as_text() -> None:
    ours, theirs = np.array(["dog", "owl"]), np.array(["dog", "cat"], object)
    assert agreement("label", ours, ours.astype(object)).identical
    assert not agreement("label", ours, theirs).identical
    assert relative_error({"label": ours, "p": np.ones(2)}, {"label": theirs, "p": np.ones(2)}) == 0


def test_a_weight_that_is_infinite_has_no_room_and_is_no_crash() -> None:
    b = GraphBuilder()
    weight = np.ones((4, 4, 1, 1), np.float16)
    weight[0] = np.inf
    b.output(b.conv(x=b.input("x", (1, 4, 2, 2), "fp16"), weight=weight), name="y")
    assert len(rescaled(b.graph, {"y": 4}).main.ops) == 1


def test_nan_of_float32_itself_decides_nothing_and_is_said() -> None:
    b = GraphBuilder()
    b.output(b.softmax(x=b.sqrt(x=b.input("x", (2, 8), "fp32")), axis=-1), name="y")
    x = np.full((2, 8), -4, np.float32)
    x[1] = 4
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.sqrt(x))[0].all()
    one = run_network(b.graph, {"x": x}, name="part").verdict
    assert one is not None and "which itself has 8 infinite values or NaN" in one.text
    assert "top-1 of y is the same" in one.text
    both = run_network(b.graph, {"x": -np.abs(x)}, name="all").verdict
    assert both is not None and both.advice.startswith("WRONG: float32 itself gives NaN")
    assert "top-1 of y is not decided by float32" in both.text and "all 0" not in both.text


def test_nothing_is_said_of_decisions_about_no_rows() -> None:
    nothing = np.zeros((0, 8), np.float32)
    verdict = verdict_of([agreement("y", nothing, nothing, OutputQuestion(TOP))], "onnxruntime")
    assert verdict is not None and verdict.text == "same: as onnxruntime has it"


@pytest.mark.parametrize("count, text", [(0, "0 boxes"), (1, "1 box"), (2, "2 boxes"), (-1, "-1 boxes")])
def test_counts_in_words(count: int, text: str) -> None:
    assert counted(count, "box", "boxes") == text
    assert counted(count, "task") == text.replace("boxes", "tasks").replace("box", "task")


def test_one_task_in_one_segment() -> None:
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 8), "fp16")), name="y")
    facts = dict(run_facts(run_network(b.graph, {"x": np.ones((1, 8), np.float16)}, name="one")))
    assert facts["program"] == "1 task in 1 engine segment, 0 host segments"
