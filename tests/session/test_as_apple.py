"""Apple's program beside hexane's: the values that were published from phones and Macs, and the right ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from hexane.cli.main import app
from hexane.errors import UsageError
from hexane.graph import Graph, GraphBuilder
from hexane.restrictions import RULES
from hexane.restrictions.lowerings import LOWERINGS


def both(graph: Graph, chip: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Apple's answer, hexane's) at level engine; the arithmetic on the graph gives the same bits."""
    answers = []
    for as_ in ("apple", "hexane"):
        program = hexane.compile(graph, chip=chip, as_=as_)
        (tasks,), (bits,) = program.run({"x": x}).values(), program.run({"x": x}, level="graph").values()
        assert np.array_equal(tasks, bits, equal_nan=True)
        answers.append(tasks)
    return answers[0], answers[1]


def network(build, *shape: int, dtype: str = "fp16") -> Graph:
    b = GraphBuilder()
    b.output(build(b, b.input("x", shape, dtype)))
    return b.graph


LARGE = np.array([[0.5, 8, 9, 10, 10.3, 10.5, 11, 12, 15, 20, 50]], np.float16)


@pytest.mark.parametrize("chip", ["M3 Max", "M4", "M5 Max"])
def test_softplus_is_0_beyond_10_4(chip: str) -> None:
    """coremltools 2687 (M3 Max; M4, with most of these very inputs), q38 (M5 Max)."""
    apple, ours = both(network(lambda b, x: b.softplus(x=x), 1, 11), chip, LARGE)
    right = np.log1p(np.exp(LARGE.astype(np.float64)))
    assert np.all(apple[0, 5:] == 0) and np.allclose(apple[0, :5], right[0, :5], rtol=2e-2)
    assert np.allclose(ours, right, rtol=1e-2)


def test_softplus_of_usual_numbers_is_as_good_as_was_measured() -> None:
    """ANEForge's sweep on an M5 printed a relative error of 8e-4 for softplus; its inputs were not published."""
    x = np.random.default_rng(0).standard_normal((1, 64, 16, 16)).astype(np.float16)
    apple, _ = both(network(lambda b, x: b.softplus(x=x), 1, 64, 16, 16), "M5", x)
    right = np.log1p(np.exp(x.astype(np.float64)))
    assert 2e-4 < np.linalg.norm(apple - right) / np.linalg.norm(right) < 1.6e-3


def test_mish_falls_with_it() -> None:
    apple, ours = both(network(lambda b, x: b.mul(x=x, y=b.tanh(x=b.softplus(x=x))), 1, 11), "M3 Max", LARGE)
    assert np.all(apple[0, 5:] == 0) and np.allclose(ours[0, 1:], LARGE[0, 1:], rtol=1e-2)


def test_log_sum_exp_of_32_channels_ends_between_the_published_points() -> None:
    """coremltools 2690, M3 Max: 11.10, then 0 in one step at 7.6313, of a sweep 0.015 wide."""
    x = np.broadcast_to(np.array([7.5, 7.61, 7.6313, 8], np.float16), (1, 32, 1, 4))
    graph = network(lambda b, x: b.reduce_log_sum_exp(x=x, axes=[1], keep_dims=True), 1, 32, 1, 4)
    apple, ours = both(graph, "M3 Max", x)
    assert np.allclose(apple[0, 0, 0, :2], [10.97, 11.08], atol=0.04) and np.all(apple[0, 0, 0, 2:] == 0)
    assert np.allclose(ours[0, 0, 0], x[0, 0, 0] + np.log(32), atol=0.04)


@pytest.mark.parametrize("chip", ["M1", "M1 Max", "M2 Pro"])
def test_slices_within_rows_end_at_4094(chip: str) -> None:
    """ANEForge: inf beyond 4094 on M1, M1 Max and M2 Pro, clean on M4 and later."""
    x = np.full((1, 8, 4, 32), 4000, np.float16)
    x[..., 5:8] = 4094, 4100, -5000
    graph = network(lambda b, x: b.slice_by_size(x=x, begin=[0, 0, 0, 4], size=[1, 8, 4, 28]), 1, 8, 4, 32)
    apple, ours = both(graph, chip, x)
    assert np.array_equal(apple[0, 0, 0, :4], [4000, 4094, np.inf, -np.inf]) and np.array_equal(ours, x[..., 4:])
    clean, _ = both(graph, "M4", x)
    assert np.array_equal(clean, x[..., 4:])
    channels = network(lambda b, x: b.slice_by_size(x=x, begin=[0, 1, 0, 0], size=[1, 7, 4, 32]), 1, 8, 4, 32)
    whole, _ = both(channels, chip, x)
    assert np.array_equal(whole, x[:, 1:])


@pytest.mark.parametrize(("scale", "published"), [(1 / 16, 1), (1 / 8, 2), (1 / 4, 4), (1 / 2, 8)])
def test_a_product_of_quantised_branches_takes_one_scale(scale: float, published: float) -> None:
    """coreai-torch 112, M5 Pro: ones come out as 2, 4 and 8; with a clamp of the product they are right."""

    def build(b: GraphBuilder, x, *, clamp: bool = False):
        one, other = b.split(x=x, num_splits=2, axis=1)
        pair = lambda v, s: b.dequantize(  # noqa: E731
            input=b.quantize(input=v, scale=np.float16(s), output_dtype="int8"), scale=np.float16(s)
        )
        product = b.mul(x=one, y=pair(other, 1 / 16))
        return pair(b.clip(x=product, alpha=-128 * scale, beta=127 * scale) if clamp else product, scale)

    ones = np.ones((1, 32, 1, 64), np.float16)
    apple, ours = both(network(build, 1, 32, 1, 64), "M5 Pro", ones)
    assert np.all(apple == published) and np.all(ours == 1)
    clamped, _ = both(network(lambda b, x: build(b, x, clamp=True), 1, 32, 1, 64), "M5 Pro", ones)
    assert np.all(clamped == 1)


def test_log_softmax_is_written_back_as_coremltools_writes_it(tmp_path: Path) -> None:
    """coremltools 2728: -inf beside a logit of 50; on the engine -inf times ln 2 reads as -45440 (M1)."""
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("LogSoftmax", ["x"], ["y"], axis=-1)
    info = [onnx.helper.make_tensor_value_info(name, 1, [1, 8]) for name in "xy"]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", info[:1], info[1:]))
    model.ir_version, model.opset_import[0].version = 9, 17
    onnx.save(model, tmp_path / "m.onnx")
    x = np.array([[0, 0, 0, 50, 0, 0, 0, 0]], np.float16)
    apple, ours = both(hexane.load(tmp_path / "m.onnx"), "M4", x)
    assert np.all(apple[0, :3] < -40000) and np.allclose(ours[0], [-50, -50, -50, 0, -50, -50, -50, -50], atol=0.1)


def test_squares_are_stored_where_a_norm_is_spelled_out() -> None:
    """executorch 19523: x * rsqrt(mean(x * x)) overflows at 255."""

    def build(b: GraphBuilder, x):
        mean = b.reduce_mean(x=b.mul(x=x, y=x), axes=[-1], keep_dims=True)
        return b.mul(x=x, y=b.rsqrt(x=b.add(x=mean, y=np.float16(1e-3)), epsilon=np.float16(0)))

    x = np.full((1, 8, 1, 64), 250, np.float16)
    x[:, 1:] = 260
    apple, _ = both(network(build, 1, 8, 1, 64), "M3 Max", x)
    assert np.allclose(apple[0, 0], 1, atol=1e-2) and np.all(apple[0, 1:] == 0)


def test_every_lowering_belongs_to_a_rule_that_says_where_it_was_seen() -> None:
    for row in LOWERINGS:
        assert (row.converter or row.hypothesis or RULES[row.rule].reports) and row.does and row.ops


def test_a_compiler_that_is_none() -> None:
    graph = network(lambda b, x: b.relu(x=x), 1, 8)
    for call in (hexane.compile, hexane.check, hexane.estimate):
        with pytest.raises(UsageError, match="no compiler 'google'"):
            call(graph, as_="google")
    with pytest.raises(UsageError, match="dialect apple, not zin4"):
        hexane.compile(graph, dialect="zin4", as_="apple")


@pytest.fixture
def softplus(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", LARGE.astype(np.float32))
    graph = network(lambda b, x: b.softplus(x=x), 1, 11, dtype="fp32")
    for ending in ("mil", "onnx", "mlpackage"):
        graph.save(tmp_path / f"m.{ending}")
    return tmp_path


def run(folder: Path, ending: str, *options: str) -> dict:
    arguments = ["run", str(folder / f"m.{ending}"), "--chip", "M4", "--input", f"x={folder / 'x.npy'}", "--json"]
    return json.loads(CliRunner().invoke(app, [*arguments, *options]).stdout)


def test_run_leads_with_apples_answer_for_a_core_ml_package(softplus: Path) -> None:
    pytest.importorskip("coremltools")
    found = run(softplus, "mlpackage")
    assert found["as"] == "apple" and found["verdict"] == "broken"
    assert found["other"]["as"] == "hexane" and found["other"]["differs"]
    assert run(softplus, "mlpackage", "--as", "hexane")["as"] == "hexane"


@pytest.mark.parametrize("ending", ["mil", "onnx"])
def test_run_leads_with_hexanes_answer_for_other_files(softplus: Path, ending: str) -> None:
    found = run(softplus, ending)
    assert (found["as"], found["verdict"]) == ("hexane", "same") and found["other"]["differs"]
    assert "ANOTHER ANSWER" in found["other"]["text"] and "log(1 + exp(x))" in found["other"]["text"]
    apple = run(softplus, ending, "--as", "apple")
    assert (apple["as"], apple["verdict"], apple["level"]) == ("apple", "broken", "engine")
    assert run(softplus, ending, "--as", "apple", "--chip", "M6")["level"] == "graph"


@pytest.mark.parametrize("ending", ["mil", "onnx", "mlpackage"])
def test_every_door_names_the_rule_its_limit_and_what_is_there(softplus: Path, ending: str) -> None:
    if ending == "mlpackage":
        pytest.importorskip("coremltools")
    for options, there in ([], "not known"), (["--input", f"x={softplus / 'x.npy'}"], "0.5 to 50, 54.545%"):
        arguments = ["check", str(softplus / f"m.{ending}"), "--chip", "M4", "--as", "apple", "--json", *options]
        answer = json.loads(CliRunner().invoke(app, arguments).stdout)
        (report,) = answer["reports"]
        (remark,) = [
            r for row in report["rows"] if row["op"] == "softplus" for r in row["remarks"] if r["rule"] == "O15"
        ]
        assert remark["limit"] == pytest.approx(10.397) and there in remark["found"] and remark["status"] == "confirmed"
        assert "max(x, 0)" in remark["remedy"] and "coremltools 2687" in remark["source"]


def test_estimate_as_either(softplus: Path) -> None:
    apple = hexane.estimate(softplus / "m.onnx", chip="M4", as_="apple")
    ours = hexane.estimate(softplus / "m.onnx", chip="M4", as_="hexane")
    assert (apple.basis, ours.basis) == ("network", "program") and len(apple.ops) > 1


def test_numbers_within_every_limit_need_no_second_run(softplus: Path) -> None:
    np.save(softplus / "x.npy", np.minimum(LARGE, 9).astype(np.float32))
    found = run(softplus, "onnx")
    assert not found["other"]["differs"] and found["other"]["outputs"] == {}
    assert "on these inputs without effect" in found["other"]["text"]


def tall(b: GraphBuilder, x, rows: int = 64):
    """A kernel that is too high for Apple's compiler on every chip, between layers that fit."""
    rng = np.random.default_rng(0)
    number = np.float16 if x.dtype == "fp16" else np.float32
    kernel = lambda *shape: (rng.standard_normal(shape) * 0.1).astype(number)  # noqa: E731
    y = b.relu(x=b.conv(x=x, weight=kernel(8, 8, 1, 1), name="before"))
    return b.softplus(x=b.conv(x=y, weight=kernel(8, 8, rows, 1), name="tall"), name="y")


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("chip", ["M1", "M3", "M4", "M5"])
def test_one_function_places_ops_for_all_four_commands(chip: str, dtype: str, tmp_path: Path) -> None:
    """Limits of kernels: docs/reference/limits.md 3. Its place, its reason, and what goes around it, are one answer."""
    graph = network(tall, 1, 8, 96, 8, dtype=dtype)
    rows = {row.name: row for row in hexane.check(graph, chip, as_="apple").rows}
    program = hexane.compile(graph, chip=chip, as_="apple")
    host = [segment for segment in program.segments if segment.kind == "host"]
    assert [segment.ops for segment in host] == [("conv 'tall'",)] and rows["tall"].place == "host"
    assert host[0].reasons == {"conv 'tall'": rows["tall"].reason} and "64 high" in rows["tall"].reason
    assert hexane.estimate(graph, chip, as_="apple").parts.launches == len(program.images) == 2
    assert all(segment.kind == "engine" for segment in hexane.compile(graph, chip=chip).segments)
    x = np.random.default_rng(1).standard_normal((1, 8, 96, 8)).astype(np.float32)
    (tasks,), (bits,) = program.run({"x": x}).values(), program.run({"x": x}, level="graph").values()
    assert np.array_equal(tasks, bits) and np.allclose(tasks, graph.evaluate({"x": x})["y"], atol=0.02)
    program.save(tmp_path / "p.hexane")
    (again,) = hexane.load_program(tmp_path / "p.hexane").run({"x": x}).values()
    assert np.array_equal(again, tasks)


def test_a_kernel_that_fits_stays() -> None:
    graph = network(lambda b, x: tall(b, x, 29), 1, 8, 96, 8)
    assert len(hexane.compile(graph, chip="M1", as_="apple").images) == 1 and hexane.check(graph, "M1", "apple").fits


@pytest.mark.parametrize(("chip", "place"), [("M1", "engine"), ("M3", "engine"), ("M4", "engine")])
def test_a_batch_that_one_task_does_not_count_has_one_place(chip: str, place: str) -> None:
    """Groups and images have 13 bits up to H15: several tasks; 17 from H16 on (docs/reference/limits.md 1.1)."""
    graph = network(lambda b, x: b.add(x=x, y=x), 8192, 8, 1, 4)
    engine = place == "engine"
    for as_ in ("apple", ""):
        assert bool(hexane.estimate(graph, chip, as_=as_).parts.launches) == engine
        assert [row.place for row in hexane.check(graph, chip, as_).rows] == [place]
        assert [segment.kind for segment in hexane.compile(graph, chip=chip, as_=as_).segments] == [place]


@pytest.mark.parametrize(("options", "status", "asked"), [
    (["--chip", "M1"], 0, "hexane"), (["--chip", "M1", "--as", "apple"], 1, "apple"),
    (["--chip", "M1,M4"], 1, "apple"), (["--chip", "M4", "--as", "hexane"], 0, "hexane"),
])  # fmt: skip
def test_one_call_of_check_asks_one_question(options: list[str], status: int, asked: str, tmp_path: Path) -> None:
    network(tall, 1, 8, 96, 8, dtype="fp32").save(tmp_path / "m.onnx")
    answer = CliRunner().invoke(app, ["check", str(tmp_path / "m.onnx"), *options, "--json"])
    reports = json.loads(answer.stdout)["reports"]
    assert answer.exit_code == status and {report["as"] for report in reports} == {asked}
    text = CliRunner().invoke(app, ["check", str(tmp_path / "m.onnx"), *options]).stdout
    head = next(line for line in text.splitlines() if line.startswith("op "))
    assert "place" in head and "hexane" not in head and "Apple" not in head
    assert ("On the engine here, and not there" in text) == (asked == "hexane")


def test_a_core_ml_model_is_asked_about_the_phone(tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    network(tall, 1, 8, 96, 8, dtype="fp32").save(tmp_path / "m.mlpackage")
    for options, status in ([], 1), (["--as", "hexane"], 0):
        answer = CliRunner().invoke(app, ["check", str(tmp_path / "m.mlpackage"), "--chip", "M1", *options])
        assert answer.exit_code == status
        report = hexane.check(tmp_path / "m.mlpackage", "M1", *options[1:])  # from Python the same answer
        assert report.question == (options[1:] or ["apple"])[0] and report.fits == (not status)
    assert not hexane.coreml.MLModel(tmp_path / "m.mlpackage", chip="M1").check().fits
